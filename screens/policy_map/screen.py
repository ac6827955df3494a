"""The policy map: a widget with a cursor, and its screen (key `g`), the policy beside the best actions."""

from functools import partial

from rich.segment import Segment
from textual import on
from textual.app import App, ComposeResult
from textual.binding import Binding
from textual.color import Color
from textual.content import Content
from textual.events import MouseMove
from textual.geometry import Region, Size
from textual.message import Message
from textual.scroll_view import ScrollView
from textual.strip import Strip
from textual.style import Style

from llamagym_tui.protocol.events import PolicyMapLaidOut
from llamagym_tui.protocol.literal import one_line
from llamagym_tui.screens.policy_map.drawing import (
    DIFFERS,
    LEVELS,
    best_name,
    describe,
    legend,
    map_line,
    places_for,
    shaded,
)
from llamagym_tui.screens.policy_map.mapped_policy import (
    MappedCell,
    MappedPolicy,
    Spot,
    best_policy,
    changed_choices,
)
from llamagym_tui.screens.widgets.fields import Words
from llamagym_tui.screens.widgets.frame import HELP_KEY, Fitted, OfRun
from llamagym_tui.screens.widgets.key_bar import key_of
from llamagym_tui.screens.widgets.look import ground_style, text_on
from llamagym_tui.screens.widgets.run_header import RunHeader
from llamagym_tui.state.run import RunState
from llamagym_tui.state.texts import progress_text

CHANGED_S = 3.0
"""Seconds for which a cell is bright whose likeliest action has changed."""
BRIGHTER = 0.35
"""Share of white in the ground of such a cell."""
NOWHERE = Spot(-1, -1, -1)


class PolicyGrid(ScrollView, can_focus=True):
    HELP = (
        "Each cell is a state, or a field of a board. Its colour says which action and how surely, its sign which of "
        f"many; {DIFFERS} says that another is best. A cell is bright for a moment if its action has changed. Arrow "
        "keys and the mouse move the cursor."
    )
    DEFAULT_CSS = "PolicyGrid { background: $background; scrollbar-size: 1 1; }"
    BINDINGS = [
        Binding("up", "move(0, -1)", "Up", tooltip="The cell above.", id="map.up", show=False),
        Binding("down", "move(0, 1)", "Down", tooltip="The cell below.", id="map.down", show=False),
        Binding("left", "move(-1, 0)", "Left", tooltip="The cell left.", id="map.left", show=False),
        Binding(
            "right", "move(1, 0)", "Right", tooltip="The cell right.", id="map.right", show=False
        ),
        Binding("tab", "panel(1)", "Next board", tooltip="The next board.", id="map.next"),
        Binding(
            "shift+tab",
            "panel(-1)",
            "Board before",
            tooltip="The board before.",
            id="map.previous",
            show=False,
        ),
    ]

    class Pointed(Message):
        """The cursor moved, or the cells were laid out."""

    def __init__(self, *, id: str) -> None:
        super().__init__(id=id)
        self.policy = MappedPolicy(PolicyMapLaidOut(), None)
        self.cursor = NOWHERE
        self.places = places_for(self.policy.layout, 0, 0)
        self._fitted: tuple[object, ...] = ()
        self._panel = 0
        """The panel that is shown where there is room for one only."""
        self._changed: frozenset[Spot] = frozenset()
        """The cells that are bright."""

    @property
    def pointed(self) -> MappedCell | None:
        return self.policy.cells.get(self.cursor)

    def show(self, policy: MappedPolicy) -> None:
        before = self.policy
        self.policy = policy
        if policy.layout is not before.layout:
            self._panel = 0
            self.cursor = next(iter(policy.cells), NOWHERE) if self.can_focus else NOWHERE
        if changed := changed_choices(before, policy):
            self._changed |= changed
            self.set_timer(CHANGED_S, partial(self._settle, changed))
        self.fit()
        self.refresh()

    def _settle(self, changed: frozenset[Spot]) -> None:
        self._changed -= changed
        self.refresh()

    def on_resize(self) -> None:
        self.fit()

    def fit(self) -> None:
        """Lay the cells out anew if the map, the size or the panel changed."""
        if self.cursor in self.policy.cells:
            self._panel = self.cursor.panel
        wanted = (self.policy.layout, self.size, self._panel)
        if self._fitted == wanted:
            return
        self._fitted = wanted
        self.places = places_for(self.policy.layout, *self.size, panel=self._panel)
        self.virtual_size = Size(self.places.width, self.places.height)
        self.refresh()
        self.post_message(self.Pointed())

    def point(self, spot: Spot) -> None:
        """Move the cursor to a cell."""
        if spot == self.cursor:
            return
        self.cursor = spot
        self.fit()
        self.refresh()
        if spot in self.policy.cells and self.can_focus:
            x, y = self.places.of(spot)
            # One line more, so that the labels above the first row are seen.
            region = Region(x, y - 1, self.places.cell.width, self.places.cell.height + 1)
            self.scroll_to_region(region, animate=False, force=True, immediate=True)
        self.post_message(self.Pointed())

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        is_left_out = len(self.places.panels) < len(self.policy.layout.panels)
        return is_left_out if action == "panel" else True

    def action_panel(self, step: int) -> None:
        """Move the cursor to the same field of another panel, or to its first cell."""
        panel = (self._panel + step) % len(self.policy.layout.panels)
        there = self.cursor._replace(panel=panel)
        cells = [spot for spot in self.policy.cells if spot.panel == panel]
        self.point(there if there in cells else next(iter(cells), NOWHERE))

    def action_move(self, across: int, down: int) -> None:
        """Move to the nearest cell in a direction, along the same row or column."""
        if self.cursor not in self.policy.cells:
            return
        x, y = self.places.in_halves(self.cursor)
        found: list[tuple[int, int, Spot]] = []
        for spot in filter(self.places.shows, self.policy.cells):
            right, below = self.places.in_halves(spot)
            ahead = (right - x) * across + (below - y) * down
            aside = abs((right - x) * down) + abs((below - y) * across)
            if ahead > 0 and aside <= 2 * self.places.cell.width:
                found.append((aside, ahead, spot))
        if found:
            self.point(min(found)[2])

    def on_mouse_move(self, event: MouseMove) -> None:
        if self.can_focus and (spot := event.style.meta.get("spot")):
            self.point(Spot(*spot))

    def _style_of(self, spot: Spot, cell: MappedCell, warmth: float | None) -> Style:
        style = cell_style(self.app, spot, cell, warmth)
        if spot in self._changed:
            style = brighter(style) + Style(underline=True)
        if spot == self.cursor:
            style += Style(reverse=True, bold=True)
        return style

    def render_line(self, y: int) -> Strip:
        scroll_x, scroll_y = self.scroll_offset
        segments: list[Segment] = []
        line = y + scroll_y
        pointed = self.cursor if self.can_focus else None
        for piece in map_line(self.policy, self.places, line, self._style_of, pointed):
            style = self.visual_style + piece.style
            if piece.spot is not None:
                style += Style.from_meta({"spot": piece.spot})
            segments.append(Segment(piece.text, style.rich_style))
        return Strip(segments).crop_extend(scroll_x, scroll_x + self.size.width, self.rich_style)


def cell_style(app: App[object], spot: Spot, cell: MappedCell, warmth: float | None) -> Style:
    """The colours of a landmark by its ground, or of a state by its place on the scale."""
    if cell.cell.ground:
        return ground_style(app, cell.cell.ground)
    return scale_style(app, warmth)


def scale_style(app: App[object], warmth: float | None) -> Style:
    """The colours of a place on the scale from cold (0) over neutral to warm (1); none where nobody sees them."""
    if warmth is None or app.no_color:
        return Style()
    if app.native_ansi_color:
        level = round(warmth * LEVELS) / LEVELS
        if 0.3 < level < 0.7:
            return Style()
        ground = "ansi_blue" if level < 0.5 else "ansi_yellow"
        return Style(Color.parse(ground), Color.parse("ansi_black"))
    return shaded(Color.parse(app.theme_variables["panel"]), warmth)


def brighter(style: Style) -> Style:
    """A style with more white in its ground; the terminal's own colours stay."""
    ground = style.background
    if ground is None or ground.ansi is not None:
        return style
    ground = ground.blend(Color(255, 255, 255), BRIGHTER)
    return Style(ground, text_on(ground))


class PolicyMapScreen(OfRun, Fitted[None]):
    CSS_PATH = "screen.tcss"
    BINDING_GROUP_TITLE = "Policy map"
    HELP = "Each state as the first turn of an episode: what the policy does, and what is best."
    BINDINGS = [
        Binding(
            "o",
            "swap",
            "Best",
            tooltip="Show the best actions instead of the policy.",
            id="map.optimal",
        ),
        Binding(
            "left_square_bracket",
            "frame(1)",
            "Earlier",
            tooltip="The map before this one.",
            id="map.earlier",
            key_display="[",
        ),
        Binding(
            "right_square_bracket",
            "frame(-1)",
            "Later",
            tooltip="The map after this one.",
            id="map.later",
            key_display="]",
        ),
        Binding(
            "Y",
            "app.save_screen(True)",
            "Save film",
            tooltip="Save the maps of the run as one animated SVG.",
            id="map.film",
            show=False,
        ),
        Binding("escape,g,q", "dismiss", "Back", tooltip="Back to the run.", id="map.back"),
        HELP_KEY,
    ]
    _back = 0
    """The number of maps between the shown one and the newest."""
    _shows_best = False
    _shown: tuple[object, ...] = ()

    def body(self) -> ComposeResult:
        yield RunHeader(self._state)
        yield Words(id="map-count")
        yield PolicyGrid(id="map-grid")
        yield Words(id="map-cell")
        yield Words(id="map-legend")

    def show(self, state: RunState) -> None:
        self._state = state
        self.query_one(RunHeader).show(state)
        self._show_map()

    def _show_map(self) -> None:
        state, grid = self._state, self.query_one(PolicyGrid)
        mapped = state.film[-1 - self._back] if self._back < len(state.film) else state.mapped
        layout = state.map_layout
        shown = (layout, mapped, self._shows_best)
        if layout is not None and not layout.why_not and shown != self._shown:
            self._shown = shown
            grid.show(best_policy(layout) if self._shows_best else MappedPolicy(layout, mapped))
        grid.fit()
        self._show_texts()

    @on(PolicyGrid.Pointed)
    def _show_texts(self) -> None:
        grid = self.query_one(PolicyGrid)
        policy, cell = grid.policy, grid.pointed
        self.query_one("#map-count", Words).update(self._headline(policy))
        if not policy.layout.panels:
            return
        words = ""
        if cell is not None:
            state = cell.cell.words if cell.cell.action is None else "a field of a board"
            words = f"{one_line(state)}\n{describe(policy, cell)}"
        self.query_one("#map-cell", Words).update(words)
        signs = Content.assemble(*legend(policy.layout, has_colours=not self.app.no_color))
        self.query_one("#map-legend", Words).update(signs)

    def _headline(self, policy: MappedPolicy) -> Content:
        """The agreement of the policy with the best actions, its update and its prompt."""
        state, mapped = self._state, policy.mapped
        if not policy.layout.panels:
            return Content(why_no_map(state))
        if self._shows_best:
            again = f"{key_of(self.app, 'map.optimal', 'o')} shows the policy again"
            return Content.styled(f"{best_name(policy.layout)}; {again}", "bold")
        if mapped is None:
            return Content.styled(why_not_yet(state), "$accent")
        when = f"  update {mapped.update:,} · prompt v{mapped.prompt_version}"
        if self._back:
            when += f" · map {len(state.film) - self._back:,} of {len(state.film):,}"
        elif not state.map_is_present:
            when += f" (now {state.updates:,})"
        words = policy.words or "no best action is known"
        return Content.assemble((words, "bold"), (when, "$aside"))

    def action_frame(self, back: int) -> None:
        self._back = max(0, min(self._back + back, len(self._state.film) - 1))
        self._shows_best = False
        self.show(self._state)

    def action_swap(self) -> None:
        self._shows_best = not self._shows_best
        self._show_map()


def why_not_yet(state: RunState) -> str:
    """The reason for an empty map."""
    if state.progress is not None and state.live:
        return one_line(progress_text(state.progress))
    if not state.live:
        return "the run ended before its policy was mapped"
    return "the map is computed once the current turns are played"


def why_no_map(state: RunState) -> str:
    if state.map_layout is not None and state.map_layout.why_not:
        return one_line(state.map_layout.why_not)
    if state.run is None:
        return "The map comes once the model is loaded."
    return "There is no map of this environment."
