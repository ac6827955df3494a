"""A run on one card, to share: sentence, curve, the first and the last map of its policy, prompt, command.

Key `C` opens it, and the end of a run at its limit; it shows the run as it was then.
"""

from collections.abc import Callable
from itertools import zip_longest
from pathlib import Path

from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Horizontal, VerticalScroll
from textual.content import Content
from textual.screen import ModalScreen
from textual.style import Style
from textual.widgets import Static

from llamagym_tui.protocol.literal import literal, one_line
from llamagym_tui.run_store import about, name_of
from llamagym_tui.screens.playground.card_picture import earned_text, first_and_last
from llamagym_tui.screens.playground.figures import FirstSight
from llamagym_tui.screens.playground.reproduction import known_command
from llamagym_tui.screens.playground.return_chart import ReturnChart
from llamagym_tui.screens.policy_map.grid import cell_style
from llamagym_tui.screens.policy_map.mapped_policy import (
    MappedCell,
    MappedPolicy,
    Spot,
    policy_warmth,
    sign,
)
from llamagym_tui.screens.policy_map.screen import why_no_map
from llamagym_tui.screens.widgets.key_bar import KeyBar, key_of
from llamagym_tui.screens.widgets.look import ASIDE
from llamagym_tui.state.run import RunState

ROOMY = 150
"""Cells of a terminal from which the signs of a map have gaps."""
LEAST_CHART = 12
"""Rows of the curve."""
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
        maps = self._maps()
        with VerticalScroll(classes="dialog") as dialog:
            name = name_of(about(folder)) or folder.name
            dialog.border_title = Content(one_line(f"{name} · {state.agent} · {state.model}"))
            yield FirstSight(state, id="card-sight")
            yield Static(Content.styled(one_line(earned_text(state)), ASIDE), markup=False)
            with Horizontal() as row:
                row.styles.height = max(LEAST_CHART, len(maps))
                yield ReturnChart()
                yield Static(Content("\n").join(maps), id="card-maps", markup=False)
            how = "reversed" if self.app.native_ansi_color else "not filled"
            dialog.border_subtitle = Content(f"{how}: another action is best")
            yield Static(self._again(), markup=False)
            share = f"To share: {key_of(self.app, 'card.save', 'y')}, or llamagym-tui report {folder.name}"
            yield Static(Content.styled(one_line(share), ASIDE), markup=False)
        yield KeyBar()

    def on_mount(self) -> None:
        self.query_one(FirstSight).show(self._state)
        self.query_one(ReturnChart).show(self._state)

    def _again(self) -> Content:
        """The prompt, and the command that does it again."""
        state = self._state
        return Content.assemble(
            (f"prompt v{state.prompt_version}", "bold $text-primary"),
            f" {literal(state.system_prompt or '(none)')}\n",
            ("to do it again", "bold $text-primary"),
            f" {one_line(known_command(state))}",
        )

    def _maps(self) -> list[Content]:
        """The first map and the last one, next to each other."""
        state, spaced = self._state, self.app.size.width >= ROOMY
        layout = state.map_layout
        if layout is None or not state.film:
            return [Content.styled(why_no_map(state), ASIDE)]

        def style_of(cell: MappedCell) -> Style:
            if cell.agrees is False:
                return Style(bold=True, reverse=True if self.app.native_ansi_color else None)
            return cell_style(self.app, cell, policy_warmth(layout, cell))

        maps = [
            small_map(MappedPolicy(layout, each), style_of, spaced=spaced)
            for each in first_and_last(state)
        ]
        return maps[0] if len(maps) == 1 else _next_to(*maps, gap=4)


def small_map(
    policy: MappedPolicy, style_of: Callable[[MappedCell], Style], *, spaced: bool
) -> list[Content]:
    """A line for each row of states, a sign for the likeliest action in each."""
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
            signs = []
            for column in range(len(panel.columns)):
                cell = policy.cells.get(Spot(number, row, column))
                style = Style() if cell is None else style_of(cell)
                signs.append(Content.styled(f"{sign(policy.layout, cell)}{between}", style))
            block.append(Content("").join(signs))
        both = _next_to(shelf, block, gap=2) if shelf else block
        if both[1].cell_length > most_cells and shelf:
            lines, both = [*lines, *shelf], block
        shelf = both
    return [*lines, *shelf]


def _next_to(left: list[Content], right: list[Content], *, gap: int) -> list[Content]:
    wide = max(line.cell_length for line in left) + gap
    pairs = zip_longest(left, right, fillvalue=Content(""))
    return [one.pad_right(wide - one.cell_length) + other for one, other in pairs]
