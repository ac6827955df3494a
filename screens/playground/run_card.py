"""A run on one card, to share: the plain sentence, the curve, the first and the last map of its policy.

Key `C` opens it, and the end of a run at its limit; it shows the run as it was then.
"""

from itertools import zip_longest
from pathlib import Path

from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Horizontal, Vertical
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Static

from llamagym_tui.protocol.literal import one_line
from llamagym_tui.run_store import about, name_of
from llamagym_tui.screens.playground.figures import FirstSight
from llamagym_tui.screens.playground.return_chart import ReturnChart
from llamagym_tui.screens.policy_map.mapped_policy import MappedPolicy, Spot, sign
from llamagym_tui.screens.policy_map.screen import why_no_map
from llamagym_tui.screens.widgets.key_bar import KeyBar, key_of
from llamagym_tui.screens.widgets.look import ASIDE
from llamagym_tui.state.run import RunState

ROOMY = 150
"""Cells of a terminal from which the signs of a map have gaps."""
MAP_WIDTH = 24
"""Cells for the panels of a map next to each other, with one cell for each of its states; twice that with gaps."""


class RunCard(ModalScreen[None]):
    CSS_PATH = "run_card.tcss"
    BINDING_GROUP_TITLE = "Card"
    BINDINGS = [
        Binding(
            "y",
            "app.share",
            "Copy and save",
            tooltip="The run as text, and its card as an SVG file in its folder.",
            id="card.save",
        ),
        Binding("escape,enter,C,q", "dismiss", "Back", tooltip="Back to the run.", id="card.back"),
    ]

    def __init__(self, state: RunState) -> None:
        super().__init__()
        self._state = state

    def compose(self) -> ComposeResult:
        state, folder = self._state, Path(self._state.run_dir)
        with Vertical(classes="dialog") as dialog:
            name = name_of(about(folder)) or folder.name
            dialog.border_title = Content(one_line(f"{name} · {state.agent} · {state.model}"))
            yield FirstSight(state, id="card-sight")
            with Horizontal():
                yield ReturnChart()
                yield Static(self._maps(), id="card-maps", markup=False)
            dialog.border_subtitle = "reversed: another action is best"
            share = f"To share: {key_of(self.app, 'card.save', 'y')}, or llamagym-tui report {folder.name}"
            yield Static(Content.styled(one_line(share), ASIDE), markup=False)
        yield KeyBar()

    def on_mount(self) -> None:
        self.query_one(FirstSight).show(self._state)
        self.query_one(ReturnChart).show(self._state)

    def _maps(self) -> Content:
        """The first map and the last one, next to each other."""
        state, spaced = self._state, self.app.size.width >= ROOMY
        if state.map_layout is None or not state.film:
            return Content.styled(why_no_map(state), ASIDE)
        maps = [
            small_map(MappedPolicy(state.map_layout, each), spaced=spaced)
            for each in (state.film[0], state.film[-1])
        ]
        return Content("\n").join(_next_to(*maps, gap=4))


def small_map(policy: MappedPolicy, *, spaced: bool) -> list[Content]:
    """A line for each row of states, a sign for the likeliest action in each, reversed where another one is best."""
    update = f"update {policy.mapped.update:,}" if policy.mapped else ""
    count = (
        f" · {policy.count.agreeing:,} of {policy.count.states:,}" if policy.count.states else ""
    )
    between = " " if spaced else ""
    most_cells = 2 * MAP_WIDTH if spaced else MAP_WIDTH
    lines, shelf = [Content.styled(f"{update}{count}", "bold")], list[Content]()
    for number, panel in enumerate(policy.layout.panels):
        block = [Content.styled(one_line(panel.title), ASIDE)]
        for row in range(len(panel.rows)):
            cells = [
                policy.cells.get(Spot(number, row, column)) for column in range(len(panel.columns))
            ]
            signs = [
                (sign(policy.layout, cell), "reverse" if cell and cell.agrees is False else "")
                for cell in cells
            ]
            block.append(
                Content(between).join(Content.styled(text, style) for text, style in signs)
            )
        both = _next_to(shelf, block, gap=2) if shelf else block
        if both[1].cell_length > most_cells and shelf:
            lines, both = [*lines, *shelf], block
        shelf = both
    return [*lines, *shelf]


def _next_to(left: list[Content], right: list[Content], *, gap: int) -> list[Content]:
    wide = max(line.cell_length for line in left) + gap
    pairs = zip_longest(left, right, fillvalue=Content(""))
    return [one.pad_right(wide - one.cell_length) + other for one, other in pairs]
