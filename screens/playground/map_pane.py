"""The policy map beside the curve: the newest one, its age, and for a moment what is another since the one before.

It asks the trainer for nothing: maps come by themselves, for a small share of the time (`trainer/probes/map_policy`).
"""

import time

from rich.segment import Segment
from textual import on
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.content import Content
from textual.events import Click, MouseMove
from textual.geometry import Size
from textual.style import Style
from textual.widgets import Static

from llamagym_tui.protocol.events import PolicyMapLaidOut
from llamagym_tui.protocol.literal import one_line
from llamagym_tui.screens.playground.figures import age
from llamagym_tui.screens.policy_map.grid import PolicyGrid, largest_places
from llamagym_tui.screens.policy_map.mapped_policy import MappedPolicy, Spot
from llamagym_tui.screens.policy_map.screen import describe, short_legend, why_not_yet
from llamagym_tui.screens.widgets.look import ASIDE
from llamagym_tui.state.run import RunState

FLASH_S = 2.0
"""Seconds for which a cell that has changed is seen to have."""
CHANGED = 0.1
"""Change of a probability from which on a cell has."""
TITLE = 1
"""Rows above the cells."""
NOWHERE = Spot(-1, -1, -1)


class LiveGrid(PolicyGrid, can_focus=False):
    """The cells, with the cursor on the state that is played, while there is time to see it; the mouse says what a
    cell holds, a click opens the whole map."""

    BINDINGS = []
    flashing: frozenset[Spot] = frozenset()
    """Cells that have just changed."""

    def __init__(self, *, id: str) -> None:
        super().__init__(id=id)
        self.cursor = NOWHERE
        self._spots: dict[str, Spot] = {}
        """Where each state is, by its words."""

    def _place(self) -> None:
        self.places = largest_places(self.policy.layout, *self.size)
        self.virtual_size = Size(self.places.width, self.places.height)
        self.refresh()
        self.post_message(self.Placed())

    def _cell(self, spot: Spot, width: int, *, middle: bool, best: bool) -> Segment:
        segment = super()._cell(spot, width, middle=middle, best=best)
        if spot in self.flashing and segment.style is not None:
            flash = Style(reverse=True, bold=True).rich_style
            return Segment(segment.text, segment.style + flash)
        return segment

    def show(self, policy: MappedPolicy) -> None:
        cursor = self.cursor
        super().show(policy)
        self.cursor = cursor if cursor in policy.cells else NOWHERE
        self._spots = {cell.cell.words: spot for spot, cell in policy.cells.items()}

    def place_on(self, words: str) -> None:
        """Put the cursor on the state with these words; on none if there is none."""
        spot = self._spots.get(words, NOWHERE)
        if spot != self.cursor:
            self.cursor = spot
            self.refresh()

    def on_mouse_move(self, event: MouseMove) -> None:
        cell = self.policy.cells.get(Spot(*event.style.meta.get("spot", NOWHERE)))
        self.tooltip = None
        if cell is not None:
            words = Content.styled(one_line(cell.cell.words), "bold")
            self.tooltip = Content("\n").join([words, describe(self.policy, cell)])

    async def on_click(self, event: Click) -> None:
        await self.screen.run_action("policy_map")


class MapPane(Vertical):
    DEFAULT_CSS = (
        "MapPane { height: auto; & > Static { height: 1; text-wrap: nowrap; text-overflow: ellipsis; } "
        "& > LiveGrid { height: auto; background: $background; } }"
    )

    def __init__(self, *, id: str) -> None:
        super().__init__(id=id)
        self._changed_at = 0.0
        self._shown_title = Content()
        self._state: RunState | None = None

    def compose(self) -> ComposeResult:
        yield Static(id="map-title", markup=False)
        yield LiveGrid(id="live-map")

    def fit(
        self, layout: PolicyMapLaidOut | None, width: int, height: int, *, is_alone: bool = False
    ) -> bool:
        """Take the rows that the largest cells need in some room; False: there is no map, or none has room.

        `is_alone`: it is shown in any case, and scrolls.
        """
        if layout is None or not layout.panels:
            return False
        places = largest_places(layout, width, height - TITLE)
        is_whole = places.width <= width and places.height <= height - TITLE
        if is_whole or is_alone:
            self.styles.height = TITLE + places.height
            self.query_one(LiveGrid).styles.height = places.height
        return is_whole

    def show(self, state: RunState) -> None:
        layout = state.map_layout
        if layout is None or not layout.panels or not self.display:
            return
        grid = self.query_one(LiveGrid)
        if layout is not grid.policy.layout or state.mapped is not grid.policy.mapped:
            before = grid.policy
            grid.show(MappedPolicy(layout, state.mapped))
            self._flash(changed_cells(before, grid.policy))
        has_time = state.watching.turn_s > 0 or state.phase == "paused"
        grid.place_on(state.view.seen if has_time else "")
        self._state = state
        self._show_title()

    @on(LiveGrid.Placed)
    def _show_title(self) -> None:
        """Its legend goes by the size of the cells, which is known once they are laid out."""
        if self._state is None:
            return
        title = self._title(self._state, self.query_one(LiveGrid))
        if not title.is_same(self._shown_title):
            self._shown_title = title
            self.query_one("#map-title", Static).update(title, layout=False)

    def _flash(self, changed: frozenset[Spot]) -> None:
        grid = self.query_one(LiveGrid)
        if changed and self.app.animation_level != "none":
            self._changed_at = time.monotonic()
            grid.flashing = changed
            self.set_timer(FLASH_S, self._settle)

    def _settle(self) -> None:
        if time.monotonic() - self._changed_at >= 0.9 * FLASH_S:
            grid = self.query_one(LiveGrid)
            grid.flashing = frozenset()
            grid.refresh()

    @staticmethod
    def _title(state: RunState, grid: LiveGrid) -> Content:
        if state.mapped is None:
            return Content.styled(f"policy map · {why_not_yet(state)}", ASIDE)
        assert state.map_layout is not None
        when = age(state.updates - state.mapped.update)
        legend = short_legend(state.map_layout, grid.places.cell.width)
        return Content.assemble(("policy map", "bold"), (f" · {when} · {legend}", ASIDE))


def changed_cells(before: MappedPolicy, after: MappedPolicy) -> frozenset[Spot]:
    """Cells of one layout in which another action is the likeliest, or a probability is much another."""
    if before.layout is not after.layout:
        return frozenset()
    found = set()
    for spot, cell in after.cells.items():
        was = before.cells[spot]
        if len(was.shares) != len(cell.shares) or not cell.shares:
            continue
        moved = max(abs(a - b) for a, b in zip(was.shares, cell.shares, strict=True))
        if was.choice != cell.choice or moved >= CHANGED:
            found.add(spot)
    return frozenset(found)
