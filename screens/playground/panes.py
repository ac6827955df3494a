"""The four panes of the playground: the table, the policy map, the curve of mean return, and what was just played."""

from functools import partial
from itertools import zip_longest

from textual.binding import Binding
from textual.containers import Vertical
from textual.content import Content
from textual.events import Click
from textual.widget import Widget

from llamagym_tui.game.drawing import MAX_LINES
from llamagym_tui.game.drawing import StateDrawing as Drawn
from llamagym_tui.game.large_drawing import large_drawing
from llamagym_tui.protocol.events import StateDrawn
from llamagym_tui.protocol.literal import one_line
from llamagym_tui.screens.conversation.turns import return_text
from llamagym_tui.screens.conversation.view import ConversationPane, ConversationView
from llamagym_tui.screens.policy_map.drawing import best_name, legend, places_for
from llamagym_tui.screens.policy_map.mapped_policy import MappedPolicy, best_policy
from llamagym_tui.screens.policy_map.screen import NOWHERE, PolicyGrid
from llamagym_tui.screens.widgets.chart import Curve, Drawing, Plot, baseline_levels
from llamagym_tui.screens.widgets.look import ASIDE, drawing_content
from llamagym_tui.screens.widgets.numbers import baselines, share, share_bar, spark
from llamagym_tui.screens.widgets.run_header import StateText
from llamagym_tui.state.returns import margin, smoothing_window, thinned
from llamagym_tui.state.run import RunState

NAME_WIDTH = 12
CARD_ROWS = 6
"""Rows for cards, with the line above them."""
NUMBERS = "⁰¹²³⁴"
MOST_BARS = 4
"""Actions that have a bar at the table."""
FRAME = 2
"""Rows of a frame."""
TITLE_EDGES = 7
"""Cells of the upper edge of a frame, within its corners, that its title and what is behind it leave to others."""


class Pane(Vertical, can_focus=True):
    """A part of the screen in a frame with its number, which focuses it; enter opens its own screen."""

    BINDINGS = [
        Binding("enter", "open", "Larger", show=False, tooltip="Show more of what is here.")
    ]

    def __init__(self, number: int, name: str, opens: str, *children: Widget) -> None:
        """A pane.

        Args:
            number: the key that focuses it.
            name: the title.
            opens: the action of the screen that shows more.
            children: what is in the frame.
        """
        super().__init__(*children, id=f"pane-{number}", classes="pane")
        self._label = Content.assemble((NUMBERS[number], "bold"), f" {name}")
        self._opens = opens
        self._entitled: tuple[Content, Content | str] | None = None
        self.entitle(Content())

    def entitle(self, more: Content, below: Content | str = "") -> None:
        """Put more behind the title, and words at the lower edge."""
        title = Content.assemble(self._label, " · ", more) if more else self._label
        if (title, below) != self._entitled:
            self._entitled = (title, below)
            self.border_title = Content.assemble(title)
            self.border_subtitle = Content.assemble(below)

    async def action_open(self) -> None:
        await self.screen.run_action(self._opens)


class TablePane(Pane):
    """What is played, as a drawing, with the probabilities of the actions."""

    def __init__(self, state: RunState) -> None:
        self._drawing = StateDrawing(state)
        super().__init__(1, "at the table", "app.human_table", self._drawing)

    def show(self, state: RunState, most: int) -> None:
        """Show the drawing in the rows that it needs, at most `most`."""
        self._drawing.show(state)
        self.styles.height = min(self._drawing.rows + FRAME, most)


class MapPane(Pane):
    """The newest policy map."""

    def __init__(self) -> None:
        self._grid = LiveGrid(id="live-map")
        self._of: tuple[object, ...] = ()
        self._gained = 0
        """States in which it plays as is best, more than in the first map."""
        super().__init__(2, "what it would do", "policy_map", self._grid)

    def show(self, state: RunState, width: int, height: int) -> None:
        """Show the newest map in the rows that its cells need, or nothing if there is no map or no room."""
        layout, grid = state.map_layout, self._grid
        if layout is None or not layout.panels:
            self.display = False
            return
        places = places_for(layout, width, height)
        self.display = places.fits(width, height)
        if not self.display:
            return
        grid.styles.height = places.height
        if (of := (layout, state.mapped, state.film[:1])) != self._of:
            self._of = of
            ghost = best_policy(layout) if state.mapped is None else None
            grid.show(ghost or MappedPolicy(layout, state.mapped))
            grid.set_class(ghost is not None, "-ghost")
            firsts = [MappedPolicy(layout, first).count.agreeing for first in state.film[:1]]
            self._gained = grid.policy.count.agreeing - sum(firsts)
        has_time = state.turn_s > 0 or state.phase == "paused"
        grid.place_on(state.view.seen if has_time else "")
        signs = Content.assemble(*legend(layout, has_colours=not self.app.no_color))
        self.entitle(Content(self._agreement(state, width - TITLE_EDGES)), signs)

    def _agreement(self, state: RunState, room: int) -> str:
        """In how many states it plays as is best, and how many more than at the start; less in a narrow title."""
        policy = self._grid.policy
        room -= self._label.cell_length
        if state.mapped is None:
            name = best_name(policy.layout)
            told = f"{name}, which the model is to learn"
            return told if len(told) <= room else name.removeprefix("the ")
        if not policy.words:
            return ""
        agreeing, states = policy.count
        more = ""
        if self._gained:
            more = f" {'▲' if self._gained > 0 else '▼'} {abs(self._gained):,}"
        count = f"{agreeing:,} of {states:,}"
        told = f"{count} {policy.how}{more}"
        return told if len(told) <= room else count


class CurvePane(Pane):
    """The curve of mean return."""

    def __init__(self) -> None:
        self._plot = Plot("The curve begins with the first episodes.", id="returns")
        super().__init__(3, "the curve", "metrics", self._plot)

    def show(self, state: RunState) -> None:
        width = self._plot.size.width
        self._plot.show((state.returns, state.marks), partial(return_drawing, state, width))
        unit = Content.styled(one_line(state.return_unit), ASIDE)
        self.entitle(unit, "  ".join(filter(None, [*oddities(state), depth_line(state)])))


class PlayedPane(Pane, can_focus=False):
    """The turns that were just played, a line each; its list has the focus."""

    def __init__(self) -> None:
        self.view = ConversationView(id="conversation")
        super().__init__(4, "just played", "inspect", ConversationPane(self.view))

    def show(self, state: RunState, placeholder: str) -> None:
        if not state.transcript.entries:
            self.view.placeholder = placeholder
        self.view.shows_newest = state.phase == "paused"
        self.view.show(state.transcript.entries)
        self.entitle(Content(), pace(state))


def pace(state: RunState) -> str:
    """The watched environment and its pace; empty at full speed in the first environment."""
    parts = []
    if state.env or state.env_intended:
        parts.append(f"environment {state.env + 1:,}")
        if state.env_intended != state.env:
            parts[-1] += f" → {state.env_intended + 1:,}?"
    if state.turn_s or state.turn_s_intended:
        asked = "" if state.turn_s_intended == state.turn_s else f" → {state.turn_s_intended:g}?"
        parts.append(f"{state.turn_s:g}{asked} s a turn")
    return " · ".join(parts)


def depth_line(state: RunState) -> str:
    """How much of the game the first layers foretell, as bars; empty where nothing was compared."""
    if state.depth is None:
        return ""
    best = [max(explained) for explained in state.depth.explained]
    layers = state.depth.layers
    return f"seen after layers {layers[0]}–{layers[-1]} {spark(best, len(best))}, {state.depth.read} read"


def oddities(state: RunState) -> list[str]:
    """Shares of replies and numbers of episodes that are not as they should be; empty: all are."""
    found = []
    if state.stats is not None and state.stats.parse_failure_rate > 0:
        found.append(f"{share(state.stats.parse_failure_rate)} of replies name no action")
    if state.stats is not None and state.stats.refusal_rate > 0:
        found.append(f"{share(state.stats.refusal_rate)} of actions refused")
    if state.dropped:
        found.append(f"{state.dropped:,} episodes failed")
    return found


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
        marks=[(mark.episode, one_line(mark.label)) for mark in state.marks],
    )


class LiveGrid(PolicyGrid, can_focus=False):
    """The newest map, with the cursor on the state that is played; a click opens the whole map."""

    BINDINGS = []

    def place_on(self, words: str) -> None:
        """Put the cursor on the state with these words."""
        spots = (spot for spot, cell in self.policy.cells.items() if cell.cell.words == words)
        spot = next(spots, NOWHERE) if words else NOWHERE
        self.point(spot)

    async def on_click(self, event: Click) -> None:
        await self.screen.run_action("policy_map")


class StateDrawing(StateText):
    """The drawing of the watched state, the action probabilities below it, and the result."""

    DEFAULT_CSS = "StateDrawing { height: 1fr; }"

    def __init__(self, state: RunState) -> None:
        super().__init__(self._content, state, id="drawing")
        self._lines = CARD_ROWS
        """Rows of the highest drawing so far, and of cards before there is one: what is below never jumps."""
        self._bars = 2
        """The most bars so far, and two before there are any."""

    @property
    def rows(self) -> int:
        """The drawing, the bars below it, and what came of the turn."""
        return self._lines + self._bars + 1

    def show(self, state: RunState) -> None:
        if (drawn := state.view.drawn) is not None:
            text, _ = self._large(drawn)
            self._lines = max(self._lines, min(1 + text.count("\n"), MAX_LINES))
            self._bars = max(self._bars, len(_probabilities(state)))
        super().show(state)
        self.display = True

    def _large(self, drawn: StateDrawn) -> Drawn:
        """The drawing with its cards as large as there is room."""
        return large_drawing(drawn.text, drawn.grounds, self.content_size.width, CARD_ROWS)

    def _content(self, state: RunState, width: int) -> Content:
        drawn = state.view.drawn
        if drawn is None:
            return Content.styled("The next state is drawn here.", ASIDE)
        text = drawing_content(self.app, *self._large(drawn))
        lines = text.split("\n", include_separator=False, allow_blank=True)[: self._lines]
        room = max(self.content_size.height, 1)
        bars = _probabilities(state)
        rows = [left for left, _ in zip_longest(lines, range(self._lines), fillvalue=Content())]
        if len(rows) + len(bars) + 1 > room:  # beside the drawing, where there are no rows below it
            wide = max(line.cell_length for line in lines) + 2
            pairs = zip_longest(rows, bars, fillvalue=Content())
            rows = [left.pad_right(wide - left.cell_length) + right for left, right in pairs]
            bars = []
        rows = [*rows[: max(1, room - 1)], *bars, _result(state)]
        return Content("\n").join([row.truncate(width, ellipsis=True) for row in rows[:room]])


def _result(state: RunState) -> Content:
    """The episode and the turn that are drawn, or how the episode ended."""
    drawn, result = state.view.drawn, state.view.result
    assert drawn is not None
    title = f"episode {drawn.episode:,}"
    if result is None:
        return Content.styled(f"{title}, turn {drawn.turn + 1:,}", ASIDE)
    return Content.assemble((f"{title}  ", ASIDE), return_text(result.episode_return))


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
    likeliest = sorted(shares, key=shares.__getitem__, reverse=True)[:MOST_BARS]
    rows = []
    for name in likeliest:
        mark = "→" if name == chosen else " "
        label = Content.styled(f"{mark} {name[:NAME_WIDTH]:<{NAME_WIDTH}} ", "bold")
        rows.append(label + share_bar(shares[name]))
    return rows
