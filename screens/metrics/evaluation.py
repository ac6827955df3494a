"""The evaluations of a run: request one, follow it, and see it next to earlier ones, or compared prompts."""

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Horizontal, Vertical, VerticalScroll
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Checkbox, Input, Static

from llamagym_tui.protocol.commands import CancelEvaluation, ComparePrompts, Evaluate
from llamagym_tui.protocol.events import EvaluationFinished
from llamagym_tui.protocol.literal import one_line
from llamagym_tui.returns import MeanReturn, evaluated_return, with_unit
from llamagym_tui.screens.policy_map.mapped_policy import compared_maps
from llamagym_tui.screens.widgets.command_asked import CommandAsked
from llamagym_tui.screens.widgets.fields import OneLineInput
from llamagym_tui.screens.widgets.key_bar import KeyBar, key_of
from llamagym_tui.screens.widgets.look import ASIDE
from llamagym_tui.screens.widgets.numbers import baselines, plain
from llamagym_tui.state.comparison import prompts_text
from llamagym_tui.state.prompts import played_by
from llamagym_tui.state.run import RunState

MOST_EPISODES = 1_000_000


class EpisodesInput(OneLineInput):
    HELP = "How many episodes are played. Four times as many halve the confidence interval. enter begins."
    # The field's own key, not the dialog's: what was typed before it is there when it comes.
    BINDINGS = [
        Binding("enter", "submit", "Evaluate", tooltip="Begin now; the run goes on afterwards.")
    ]

    def check_consume_key(self, key: str, character: str | None) -> bool:
        """Letters are no part of a number, so that they are left to the dialog's keys."""
        return super().check_consume_key(key, character) and not (character or "").isalpha()


class GreedyBox(Checkbox):
    """Whether the likeliest reply is taken each time: marked or empty, as Textual's differ in colour alone."""

    HELP = "Greedy: the likeliest reply each time. Else replies are sampled, as in the run."

    def watch_value(self) -> None:
        self.BUTTON_INNER = "X" if self.value else " "
        super().watch_value()


class EvaluationDialog(ModalScreen[None]):
    CSS_PATH = ["../widgets/dialogs.tcss", "evaluation.tcss"]
    BINDING_GROUP_TITLE = "Evaluation"
    HELP = "An evaluation plays episodes with the present policy and prompt; they count in nothing else."
    BINDINGS = [
        Binding("escape", "dismiss", "Close", tooltip="Back; an evaluation under way goes on."),
        Binding(
            "c",
            "turn",
            "Comparison",
            tooltip="The last two prompts that were compared.",
            id="evaluation.turn",
        ),
        Binding(
            "n",
            "narrower",
            "Narrower",
            tooltip="Again, to half the interval.",
            id="evaluation.narrower",
        ),
        Binding(
            "e",
            "cancel",
            "Cancel it",
            tooltip="End it without a result.",
            id="evaluation.cancel",
            priority=True,
        ),
    ]

    def __init__(self, state: RunState, *, compares: bool = False) -> None:
        """A dialog on a run; `compares`: on its comparison of prompts, not its evaluations."""
        super().__init__(classes="-compares" if compares else None)
        self._state = state
        self._compares = compares

    def compose(self) -> ComposeResult:
        with Vertical(classes="dialog"):
            with Horizontal(id="evaluation-form"):
                yield Static("episodes", id="episodes-label", markup=False)
                yield EpisodesInput(
                    "1000", type="integer", id="episodes", may_submit=self._may_begin
                )
                yield GreedyBox(
                    "greedy", True, id="greedy", tooltip="The likeliest reply each time."
                )
            yield Static(id="evaluation-status", markup=False)
            with VerticalScroll(id="evaluation-scroll"):
                yield Static(id="evaluation-results", markup=False)
        yield KeyBar()

    def on_mount(self) -> None:
        self.query_one("#evaluation-scroll" if self._compares else "#episodes").focus()
        title = "two prompts, the same seeds" if self._compares else "evaluate"
        self.query_one(".dialog").border_title = Content(title)
        self.show(self._state)

    def show(self, state: RunState) -> None:
        self._state = state
        self.query_one("#evaluation-status", Static).update(self._status())
        results = [evaluation_line(found, state) for found in reversed(state.evaluations)]
        known = {} if self._compares else baselines(state)
        results = comparison_lines(state) if self._compares else results
        if known and results:
            lines = " · ".join(f"{name} {plain(value)}" for name, value in known.items())
            results.insert(0, Content.styled(lines, ASIDE))
        self.query_one("#evaluation-results", Static).update(Content("\n").join(results))
        self.refresh_bindings()

    @on(Input.Changed, "#episodes")
    def judge_at_once(self) -> None:
        """Say what is wrong with a number while it is typed."""
        self.show(self._state)

    def _episodes(self) -> int | None:
        text = self.query_one(EpisodesInput).value.strip()
        return (
            int(text)
            if text.isascii() and text.isdigit() and 1 <= int(text) <= MOST_EPISODES
            else None
        )

    def _status(self) -> Content:
        state = self._state
        if state.pending.evaluation_cancelled:
            return Content.styled("cancelled; it ends between two steps", "$accent")
        if state.phase == "evaluating":
            cancel = key_of(self.app, "evaluation.cancel", "e")
            return Content.styled(
                f"playing: {one_line(state.detail)} · {cancel} cancels", "bold $primary"
            )
        if state.pending.evaluation is not None:
            return Content.styled("requested; it starts when the current step ends", "$accent")
        if not state.live or state.run is None:
            return Content.styled("There is no trainer to play it.", ASIDE)
        if self._compares:
            return Content()
        if self._episodes() is None:
            return Content.styled(
                f"Episodes are a whole number from 1 to {MOST_EPISODES:,}.", "$error"
            )
        return Content.styled("enter begins; greedy: the likeliest reply each time", ASIDE)

    def _may_begin(self, *, compares: bool = False) -> bool:
        state = self._state
        free = (
            state.live
            and state.run is not None
            and state.pending.evaluation is None
            and state.phase != "evaluating"
        )
        return (
            free and self.is_mounted and compares == self._compares and self._episodes() is not None
        )

    @on(Input.Submitted)
    def begin(self) -> None:
        episodes = self._episodes()
        if episodes is not None and self._may_begin():
            greedy = self.query_one(GreedyBox).value
            self.post_message(CommandAsked(Evaluate(episodes=episodes, greedy=greedy)))

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Only what is under way, or requested, can be cancelled."""
        state = self._state
        if action in ("turn", "narrower"):
            return state.comparison is not None and (
                action == "turn" or self._may_begin(compares=True)
            )
        under_way = state.live and (
            state.phase == "evaluating" or state.pending.evaluation is not None
        )
        return action != "cancel" or (under_way and not state.pending.evaluation_cancelled)

    def action_turn(self) -> None:
        self._compares = not self._compares
        self.set_class(self._compares, "-compares")
        self.on_mount()

    def action_narrower(self) -> None:
        if (found := self._state.comparison) is not None:
            versions = found.a.prompt_version or 0, found.b.prompt_version or 0
            texts = found.a.system_prompt, found.b.system_prompt
            again = ComparePrompts(
                system_prompts=texts, versions=versions, half_width=found.enough / 2
            )
            self.post_message(CommandAsked(again))

    def action_cancel(self) -> None:
        self.post_message(CommandAsked(CancelEvaluation()))


def interval(mean: MeanReturn) -> str:
    """A mean with its 95 % confidence interval; of a single episode none is known."""
    return (
        f"{mean.mean_text}, 95 % interval {mean.interval_text}" if mean.episodes > 1 else mean.text
    )


def evaluation_line(found: EvaluationFinished, state: RunState) -> Content:
    how = "greedy" if found.greedy else "sampled"
    return Content.assemble(
        (with_unit(interval(evaluated_return(found)), one_line(state.return_unit)), "bold"),
        (f"  {found.episodes:,} {how} in {found.elapsed_s:,.1f} s", ASIDE),
        (f" · {found.outdated}" if found.outdated else "", "$text-warning"),
        (played_by(found, state.prompts, lead="\n  "), ASIDE),
    )


def comparison_lines(state: RunState) -> list[Content]:
    """The last comparison of prompts: one sentence, both means, and both maps with where they differ."""
    if (found := state.comparison) is None:
        return []
    lines = [
        Content("A  ") + evaluation_line(found.a, state),
        Content("B  ") + evaluation_line(found.b, state),
    ]
    head = Content.styled(prompts_text(found, state.prompts, state.run), "bold")
    return [head, *lines, *map(Content, compared_maps(state.map_layout, found.maps))]
