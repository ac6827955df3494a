"""The policy map screen (key `g`): the policy in every state that its agent lists, against the best actions."""

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding
from textual.content import Content
from textual.widgets import Static

from llamagym_tui.protocol.literal import one_line
from llamagym_tui.screens.policy_map.drawing import best_name, describe, legend
from llamagym_tui.screens.policy_map.grid import PolicyGrid
from llamagym_tui.screens.policy_map.mapped_policy import MappedPolicy, best_policy
from llamagym_tui.screens.widgets.fitted import Fitted, TooSmall
from llamagym_tui.screens.widgets.key_bar import KeyBar, key_of
from llamagym_tui.screens.widgets.run_header import RunHeader
from llamagym_tui.state.run import RunState
from llamagym_tui.state.texts import progress_text


class PolicyMapScreen(Fitted[None]):
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
        Binding("escape,g,q", "back", "Back", tooltip="Back to the run.", id="map.back"),
        Binding(
            "question_mark",
            "app.help",
            "Help",
            tooltip="Explain keys and figures.",
            id="help",
            key_display="?",
        ),
    ]

    def __init__(self, state: RunState) -> None:
        super().__init__()
        self._state = state
        self._back = 0
        """The number of maps between the shown one and the newest."""
        self._shows_best = False
        self._shown: tuple[object, ...] = ()

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
        self.query_one("#map-count", Static).update(self._headline(policy))
        if not policy.layout.panels:
            return
        words = ""
        if cell is not None:
            words = f"{one_line(cell.cell.words)}\n{describe(policy, cell)}"
        self.query_one("#map-cell", Static).update(words)
        signs = legend(policy.layout, grid.places.cell.width)
        self.query_one("#map-legend", Static).update(signs)

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

    def action_back(self) -> None:
        self.dismiss()


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
