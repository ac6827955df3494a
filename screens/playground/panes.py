"""The panes beside the conversation: the curve of mean return, the policy map, and the drawing of the state."""

from itertools import zip_longest

from textual.app import ComposeResult
from textual.containers import Vertical
from textual.content import Content
from textual.events import Click
from textual.widgets import Static

from llamagym_tui.game.drawing import MAX_LINES
from llamagym_tui.game.large_drawing import large_drawing
from llamagym_tui.protocol.literal import one_line
from llamagym_tui.screens.conversation.turns import MOST_ACTIONS, return_text
from llamagym_tui.screens.playground.lines import age
from llamagym_tui.screens.policy_map.drawing import legend, places_for
from llamagym_tui.screens.policy_map.mapped_policy import MappedPolicy
from llamagym_tui.screens.policy_map.screen import NOWHERE, PolicyGrid, why_not_yet
from llamagym_tui.screens.widgets.chart import Curve, Drawing, baseline_levels
from llamagym_tui.screens.widgets.look import ASIDE, drawing_content
from llamagym_tui.screens.widgets.numbers import baselines, share_bar
from llamagym_tui.screens.widgets.run_header import StateText
from llamagym_tui.state.returns import margin, smoothing_window, thinned
from llamagym_tui.state.run import RunState

NAME_WIDTH = 12
CARD_ROOM = (43, 6)
"""Columns and rows for cards."""
TITLE_ROWS = 2
"""Rows above a map: its age, and its signs."""


def return_drawing(state: RunState, width: int) -> Drawing | None:
    """The curve of mean return with its 95 % interval, the baselines, and a mark at each change."""
    window = smoothing_window(state.returns.episodes)
    points = thinned(state.returns.trailing(window), 2 * max(20, width))
    if len(points) < 2:
        return None
    return Drawing(
        curves=[Curve([(point.episode, point.mean_return) for point in points])],
        band=[margin(point.stderr) for point in points],
        levels=baseline_levels(baselines(state)),
        marks=[mark.episode for mark in state.marks],
    )


class LiveGrid(PolicyGrid, can_focus=False):
    """The newest map, with the cursor on the state that is played; a click opens the whole map."""

    BINDINGS = []

    def place_on(self, words: str) -> None:
        """Put the cursor on the state with these words."""
        spots = (spot for spot, cell in self.policy.cells.items() if cell.cell.words == words)
        spot = next(spots, NOWHERE) if words else NOWHERE
        if spot != self.cursor:
            self.cursor = spot
            self.refresh()

    async def on_click(self, event: Click) -> None:
        await self.screen.run_action("policy_map")


class MapPane(Vertical):
    DEFAULT_CSS = "MapPane { height: auto; & > Static { height: 2; text-wrap: nowrap; text-overflow: ellipsis; } }"

    def compose(self) -> ComposeResult:
        yield Static(id="map-title", markup=False)
        yield LiveGrid(id="live-map")

    def show(self, state: RunState, width: int, height: int) -> None:
        """Show the newest map in the rows that its cells need, or nothing if there is no map or no room."""
        layout, grid = state.map_layout, self.query_one(LiveGrid)
        if layout is None or not layout.panels:
            self.display = False
            return
        places = places_for(layout, width, height - TITLE_ROWS)
        self.display = places.width <= width and places.height <= height - TITLE_ROWS
        if not self.display:
            return
        grid.styles.height = places.height
        if layout is not grid.policy.layout or state.mapped is not grid.policy.mapped:
            grid.show(MappedPolicy(layout, state.mapped))
        has_time = state.turn_s > 0 or state.phase == "paused"
        grid.place_on(state.view.seen if has_time else "")
        when = why_not_yet(state)
        if state.mapped is not None:
            when = age(state.updates - state.mapped.update)
        signs = legend(layout, places.cell.width)
        title = Content.assemble(("policy map", "bold"), (f" · {when}\n{signs}", ASIDE))
        self.query_one("#map-title", Static).update(title, layout=False)


class StateDrawing(StateText):
    """The drawing of the watched state, the action probabilities beside it, and the result."""

    DEFAULT_CSS = "StateDrawing { height: 2; padding: 0 1; background: $surface; }"

    def __init__(self, state: RunState) -> None:
        super().__init__(self._drawing, state, id="drawing")
        self._lines = 1
        self.is_wanted = False

    def show(self, state: RunState) -> None:
        """Show another state. The pane never shrinks, so that nothing below it jumps."""
        if (drawn := state.view.drawn) is not None:
            text, _ = large_drawing(drawn.text, drawn.grounds, *CARD_ROOM)
            self._lines = max(self._lines, min(1 + text.count("\n"), MAX_LINES))
        self.styles.height = 1 + self._lines
        super().show(state)

    def _drawing(self, state: RunState, width: int) -> Content:
        drawn = state.view.drawn
        if not self.is_wanted:
            return Content()
        if drawn is None:
            return Content.styled("state\nThe next observation is drawn here.", ASIDE)
        text = drawing_content(self.app, *large_drawing(drawn.text, drawn.grounds, *CARD_ROOM))
        lines = text.split("\n", include_separator=False, allow_blank=True)[: self._lines]
        wide = max(line.cell_length for line in lines) + 4
        beside = _probabilities(state)[: self._lines]
        rows = [_drawing_title(state)]
        for left, right in zip_longest(lines, beside, fillvalue=Content()):
            rows.append(left.pad_right(wide - left.cell_length) + right)
        room = max(self.content_size.height, 2)
        return Content("\n").join([row.truncate(width, ellipsis=True) for row in rows[:room]])


def _drawing_title(state: RunState) -> Content:
    drawn, result = state.view.drawn, state.view.result
    assert drawn is not None
    title = f"state · episode {drawn.episode:,}, "
    if result is None:
        return Content.styled(f"{title}turn {drawn.turn + 1:,}", ASIDE)
    earned = return_text(result.episode_return)
    return Content.assemble((f"{title}{result.end} ", ASIDE), earned)


def _probabilities(state: RunState) -> list[Content]:
    """A bar for each of the likeliest actions of the drawn turn, or for the last action taken."""
    drawn, probed, acted = state.view.drawn, state.view.probed, state.view.acted
    assert drawn is not None
    chosen = ""
    shares: dict[str, float] = {}
    if acted is not None and acted.episode == drawn.episode and 0 <= drawn.turn - acted.turn <= 1:
        chosen = one_line(acted.action_name)
        if acted.probability is not None:
            shares = {chosen: acted.probability}
    if probed is not None and (probed.episode, probed.turn) == (drawn.episode, drawn.turn):
        shares = dict(zip(map(one_line, probed.names), probed.shares, strict=True))
        if acted is None or acted.turn != drawn.turn:
            chosen = ""
    if chosen and chosen not in shares:
        return [Content.styled(f"→ {chosen}", "bold")]
    likeliest = sorted(shares, key=shares.__getitem__, reverse=True)[:MOST_ACTIONS]
    rows = []
    for name in likeliest:
        mark = "→" if name == chosen else " "
        label = Content.styled(f"{mark} {name[:NAME_WIDTH]:<{NAME_WIDTH}} ", "bold")
        rows.append(label + share_bar(shares[name]))
    return rows
