"""The policy map (key `g`): what the policy does in every state that its agent lists, next to optimal play.

It shows the trainer's last map, which is computed often while this screen is open, else rarely.
"""

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding
from textual.content import Content
from textual.widgets import Static

from llamagym_tui.protocol.commands import WatchPolicyMap
from llamagym_tui.protocol.events import PolicyMapLaidOut, RunStarted
from llamagym_tui.protocol.literal import one_line
from llamagym_tui.screens.conversation.turns import LEAST_REST
from llamagym_tui.screens.policy_map.grid import PolicyGrid
from llamagym_tui.screens.policy_map.mapped_policy import BEST, DIFFERS, MappedCell, MappedPolicy
from llamagym_tui.screens.widgets.command_asked import CommandAsked
from llamagym_tui.screens.widgets.fitted import WIDE, KeptScreen, TooSmall
from llamagym_tui.screens.widgets.key_bar import KeyBar, key_of
from llamagym_tui.screens.widgets.look import ASIDE
from llamagym_tui.screens.widgets.numbers import share
from llamagym_tui.screens.widgets.run_header import RunHeader
from llamagym_tui.state.prompts import named
from llamagym_tui.state.reduce import progress_text
from llamagym_tui.state.run import RunState

LONG = 4
"""Rows for the text of a cell, where two are not enough."""


class PolicyMapScreen(KeptScreen):
    CSS_PATH = "screen.tcss"
    BINDING_GROUP_TITLE = "Policy map"
    HELP = "What the policy does in each state, as the first turn of an episode, next to optimal play or the expert's."
    BINDINGS = [
        Binding(
            "o",
            "swap",
            "Best",
            tooltip="Show what is best in place of the policy.",
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
            tooltip="The maps of the run as one animated SVG.",
            id="map.film",
            show=False,
        ),
        Binding("escape,g,q", "back", "Back", tooltip="Back to the conversation.", id="map.back"),
        Binding(
            "question_mark",
            "app.help",
            "Help",
            tooltip="What keys and figures mean.",
            id="help",
            key_display="?",
        ),
    ]

    def __init__(self, state: RunState) -> None:
        super().__init__(state)
        self._state = state
        self._watched_run: RunStarted | None = None
        self._back = 0
        """Maps of the run after the one that is shown."""

    def compose(self) -> ComposeResult:
        yield TooSmall()
        yield RunHeader(self._state, id="run-header")
        yield Static(id="map-count", markup=False)
        yield PolicyGrid(id="map-grid")
        yield Static(id="map-cell", markup=False)
        yield Static(id="map-legend", markup=False)
        yield KeyBar()

    def on_mount(self) -> None:
        self.show(self._state)

    def reopen(self, of: RunState) -> None:
        """Show the policy of a run as it is now."""
        self._watched_run = None
        self._back = 0
        self.query_one(PolicyGrid).optimal_instead = False
        self.show(of)

    def show(self, state: RunState) -> None:
        self._state = state
        self.query_one(RunHeader).show(state)
        if (
            state.live
            and state.run is not None
            and state.map_layout
            and self._watched_run is not state.run
        ):
            self._watched_run = state.run  # a restarted trainer does not know that the map is open
            self._watch(True)
        mapped = state.film[-1 - self._back] if 0 < self._back < len(state.film) else state.mapped
        layout, grid = state.map_layout, self.query_one(PolicyGrid)
        known = layout is grid.policy.layout and mapped is grid.policy.mapped
        if layout is not None and not layout.why_not and not known:
            grid.show(MappedPolicy(layout, mapped))
        self._show_texts()

    def _show_texts(self) -> None:
        policy = self.query_one(PolicyGrid).policy
        self.query_one("#map-count", Static).update(self._count(policy))
        self.query_one("#map-legend", Static).update(
            legend(policy.layout) if policy.layout.panels else ""
        )
        self._show_cell()

    @on(PolicyGrid.Placed)
    def _fit(self) -> None:
        self._show_texts()
        self.refresh_bindings()

    @on(PolicyGrid.Pointed)
    def _show_cell(self) -> None:
        grid, widget = self.query_one(PolicyGrid), self.query_one("#map-cell", Static)
        lines: list[Content] = []
        if (cell := grid.pointed) is not None:
            lines = [Content.styled(one_line(cell.cell.words), "bold"), describe(grid.policy, cell)]
            signs = Content.styled(short_legend(grid.policy.layout, grid.places.cell.width), ASIDE)
            room = self.app.size.width - 2 - lines[0].cell_length - signs.cell_length
            if room > 0 and self.app.size.width < WIDE and not grid.optimal_instead:
                lines[0] = Content.assemble(lines[0], " " * room, signs)
        widget.update(Content("\n").join(lines))
        has_room = grid.size.height + widget.size.height - grid.virtual_size.height >= LONG
        is_long = any(line.cell_length > widget.content_size.width for line in lines)
        widget.set_class(has_room and (is_long or widget.has_class("-long")), "-long")

    def _count(self, policy: MappedPolicy) -> Content:
        if not policy.layout.panels:
            return Content(why_no_map(self._state))
        if self.query_one(PolicyGrid).optimal_instead:
            again = f"{key_of(self.app, 'map.optimal', 'o')} shows the policy again"
            lines = [Content.styled(f"{BEST[policy.layout.best_is_experts][2]}; {again}", "bold")]
        elif policy.mapped is None:
            lines = [Content.styled(why_not_yet(self._state), "$accent")]
        else:
            lines = agreement(policy)
        width = self.query_one("#map-count").content_size.width or self.app.size.width - 2
        of_when = self._of_when(policy)
        pairs = [(left, right) for left in lines for right in of_when]
        fitting = [pair for pair in pairs if sum(part.cell_length for part in pair) + 2 <= width]
        left, right = next(iter(fitting), (lines[-1], of_when[-1]))
        return Content.assemble(
            left, " " * max(1, width - left.cell_length - right.cell_length), right
        )

    def _of_when(self, policy: MappedPolicy) -> list[Content]:
        """The update and prompt of the map, the longest text first."""
        state, mapped = self._state, policy.mapped
        if mapped is None:
            return [Content("")]
        version, watched = mapped.prompt_version, state.map_watched and state.live
        short = long = (
            f" · map {len(state.film) - self._back:,} of {len(state.film):,}" if self._back else ""
        )
        if not self._back and state.map_is_present:
            short = long = " · live" if watched else ""
        elif not self._back:
            short, long = (
                f" (now {state.updates:,}{more})"
                for more in ("", ", its map is coming" if watched else "")
            )
        to_come = f" (v{state.prompt_version} to come)" if version != state.prompt_version else ""
        prompts = (
            f" · prompt {named(state.prompts, version)}",
            f" · prompt v{version}",
            f" · v{version}",
        )
        texts = [*(f"{prompt}{to_come}{long}" for prompt in prompts), f"{to_come}{short}"]
        return [Content.styled(f"update {mapped.update:,}{text}", ASIDE) for text in texts]

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        if action == "swap":
            grid = self.query_one(PolicyGrid)
            return bool(grid.policy.layout.panels) and (
                not grid.places.with_optimal or grid.optimal_instead
            )
        return super().check_action(action, parameters)

    def action_frame(self, back: int) -> None:
        self._back = max(0, min(self._back + back, len(self._state.film) - 1))
        self.show(self._state)

    def action_swap(self) -> None:
        grid = self.query_one(PolicyGrid)
        grid.optimal_instead = not grid.optimal_instead
        self._fit()

    def action_back(self) -> None:
        if self._watched_run is not None:
            self._watch(False)
        self.dismiss()

    def _watch(self, on: bool) -> None:
        self.app.post_message(
            CommandAsked(WatchPolicyMap(on=on))
        )  # a dismissed screen posts nothing


def agreement(policy: MappedPolicy) -> list[Content]:
    """How far the policy agrees with the optimal strategy, the longest text first."""
    count, layout = policy.count, policy.layout
    if not count.states:
        is_broken = not any(cell.shares for cell in policy.cells.values())
        return [
            Content(
                "the policy's probabilities are no numbers"
                if is_broken
                else "no best action is known"
            )
        ]
    pairs = zip(layout.panels, policy.counts, strict=True)
    panels = "".join(
        f" · {one_line(panel.title)} {of.agreeing}/{of.states}" for panel, of in pairs if of.states
    )
    agreeing = Content.styled(f"agrees on {count.agreeing:,} of {count.states:,} states", "bold")
    return [agreeing + panels, agreeing] if len(layout.panels) > 1 else [agreeing]


def describe(policy: MappedPolicy, cell: MappedCell) -> Content:
    layout = policy.layout
    if not cell.shares:
        return Content.styled(_why_unknown(policy, cell), ASIDE)
    names = [one_line(name) for name in layout.action_names]
    shares = zip(names, cell.shares, strict=False)
    parts = [
        f"{n} {share(p, 0)}" if layout.action is None else f"P({n}) {share(p)}" for n, p in shares
    ]
    if layout.action is not None:
        parts.insert(0, parts.pop(layout.action))
    if (rest := 1 - sum(cell.shares)) >= LEAST_REST:
        parts.append(f"other replies {share(rest)}")
    if not cell.cell.best:
        return Content(", ".join(parts))
    best = " or ".join(names[action] for action in cell.cell.best)
    verdict = "agrees" if cell.agrees else f"{DIFFERS} differs"
    return Content.assemble(
        (f"{verdict}, {BEST[layout.best_is_experts][1]} {best}", "bold"), f": {', '.join(parts)}"
    )


def _why_unknown(policy: MappedPolicy, cell: MappedCell) -> str:
    """Why no probabilities stand in a cell."""
    if cell.cell.sign:
        return "no action here"
    if policy.mapped is None:
        return "what the policy does here is known once its map is computed"
    return "the policy's probabilities here are no numbers"


def legend(layout: PolicyMapLaidOut) -> Content:
    signs = " ".join(
        f"{one_line(sign)} {one_line(name)}"
        for sign, name in zip(layout.signs, layout.action_names, strict=True)
    )
    named = (
        f"P({one_line(layout.action_names[layout.action])})"
        if layout.action is not None
        else "the most probable action"
    )
    axes = next(
        (f"{panel.row_name} × {panel.column_name}" for panel in layout.panels if panel.row_name), ""
    )
    differs = f"{DIFFERS} differs from {BEST[layout.best_is_experts][0]}"
    parts = [f"{named}, each state as a first turn", signs, differs, one_line(axes)]
    return Content.styled(" · ".join(part for part in parts if part), ASIDE)


def short_legend(layout: PolicyMapLaidOut, width: int) -> str:
    """What stands in cells of some width, where there is no row for more."""
    differs = f"{DIFFERS} differs"
    if layout.action is not None:
        scale = "in tenths" if width <= 3 else "in %"
        return f"P({one_line(layout.action_names[layout.action])}) {scale}, {differs}"
    if width > 5:
        return differs
    certain = "alone" if width <= 3 else "10"
    return f"3 is 30–39%, {certain} 100%, {differs}"


def why_not_yet(state: RunState) -> str:
    """Why the states are still empty, and how long it takes until they are filled."""
    if state.progress is not None and state.live:
        return one_line(progress_text(state.progress))
    if not state.live:
        return "the run ended before its policy was mapped"
    return "the map is asked for: it is computed once the turns under way are played"


def why_no_map(state: RunState) -> str:
    if state.map_layout is not None and state.map_layout.why_not:
        return one_line(state.map_layout.why_not)
    if state.recorded:
        return "No map was recorded up to here."
    if state.run is None:
        return (
            "The map comes once the model is loaded."
            if state.live
            else "No map: the model was never loaded."
        )
    return "No map: this environment has no policy_map()."
