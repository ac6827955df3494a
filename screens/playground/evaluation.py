"""The evaluations of a run (key `e`): request one, follow it, and see it beside earlier ones and compared prompts."""

from collections.abc import Mapping

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Horizontal, VerticalScroll
from textual.content import Content
from textual.widgets import Input

from llamagym_tui.protocol.commands import CancelEvaluation, ComparePrompts, Evaluate
from llamagym_tui.protocol.events import EvaluationFinished
from llamagym_tui.protocol.literal import one_line
from llamagym_tui.screens.policy_map.compared import compared_maps
from llamagym_tui.screens.widgets.dialogs import Dialog
from llamagym_tui.screens.widgets.fields import OneLineInput, Words
from llamagym_tui.screens.widgets.frame import CommandAsked, OfRun
from llamagym_tui.screens.widgets.key_bar import key_of
from llamagym_tui.screens.widgets.look import ASIDE
from llamagym_tui.screens.widgets.numbers import baselines, plain
from llamagym_tui.state.prompts import played_by
from llamagym_tui.state.returns import MeanReturn, evaluated_return, margin, with_unit
from llamagym_tui.state.run import RunState
from llamagym_tui.state.texts import prompts_text

LEAST_ROOM = 60
"""Columns for results before the first layout."""
MOST_EPISODES = 1_000_000
WAY = 32
"""Cells from the worst baseline to the best."""


class EpisodesInput(OneLineInput):
    HELP = "The number of episodes. Four times as many halve the confidence interval. enter begins."
    # The field's own key, so that it comes after what was typed before it.
    BINDINGS = [
        Binding("enter", "submit", "Evaluate", tooltip="Begin now; the run resumes afterwards.")
    ]

    def check_consume_key(self, key: str, character: str | None) -> bool:
        """Leave letters to the keys of the dialog."""
        return super().check_consume_key(key, character) and not (character or "").isalpha()


class EvaluationDialog(OfRun, Dialog[None]):
    CSS_PATH = "evaluation.tcss"
    heading = "evaluate"
    BINDING_GROUP_TITLE = "Evaluation"
    HELP = "Plays episodes with the present policy and prompt; they count in nothing else."
    BINDINGS = [
        Binding(
            "escape", "dismiss", "Close", tooltip="Back; an evaluation under way is not cancelled."
        ),
        Binding(
            "x",
            "cancel",
            "Cancel it",
            tooltip="End it without a result.",
            id="evaluation.cancel",
            priority=True,
        ),
    ]

    def body(self) -> ComposeResult:
        with Horizontal(id="evaluation-form"):
            yield Words("episodes", id="episodes-label")
            yield EpisodesInput("1000", type="integer", id="episodes", may_submit=self._may_begin)
        yield Words(id="evaluation-status")
        with VerticalScroll(id="evaluation-scroll"):
            yield Words(id="evaluation-results")

    def show(self, state: RunState) -> None:
        self._state = state
        self.query_one("#evaluation-status", Words).update(self._status())
        results = self._comparison_lines()
        results += [evaluation_line(found, state) for found in reversed(state.evaluations)]
        self.query_one("#evaluation-results", Words).update(Content("\n").join(results))
        self.refresh_bindings()

    def _comparison_lines(self) -> list[Content]:
        """The last comparison of two prompts on the same seeds: a sentence, both means, and both maps."""
        state = self._state
        if (found := state.comparison) is None:
            return []
        room = self.query_one(VerticalScroll).scrollable_content_region.width
        return [
            Content.styled(prompts_text(found, state.prompts, state.run), "bold"),
            Content("A  ") + evaluation_line(found.a, state),
            Content("B  ") + evaluation_line(found.b, state),
            *compared_maps(self.app, state.map_layout, found.maps, room or LEAST_ROOM),
            Content(),
        ]

    @on(Input.Changed, "#episodes")
    def judge_at_once(self) -> None:
        self.show(self._state)

    def _episodes(self) -> int | None:
        text = self.query_one(EpisodesInput).value.strip()
        is_number = text.isascii() and text.isdigit()
        return int(text) if is_number and 1 <= int(text) <= MOST_EPISODES else None

    def _status(self) -> Content:
        state = self._state
        if state.phase == "evaluating":
            cancel = key_of(self.app, "evaluation.cancel", "x")
            text = f"playing: {one_line(state.detail)} · {cancel} cancels"
            return Content.styled(text, "bold $primary")
        if state.pending.of(Evaluate, ComparePrompts) is not None:
            return Content.styled("requested; it starts when the current step ends", "$accent")
        if not state.live or state.run is None:
            return Content.styled("There is no trainer to play it.", ASIDE)
        if self._episodes() is None:
            text = f"Episodes are a whole number from 1 to {MOST_EPISODES:,}."
            return Content.styled(text, "$error")
        return Content.styled("enter begins; greedy: the likeliest reply each time", ASIDE)

    def _is_under_way(self) -> bool:
        state = self._state
        asked = state.pending.of(Evaluate, ComparePrompts)
        return asked is not None or state.phase == "evaluating"

    def _may_begin(self) -> bool:
        state = self._state
        is_free = state.live and state.run is not None and not self._is_under_way()
        return is_free and self.is_mounted and self._episodes() is not None

    @on(Input.Submitted)
    def begin(self) -> None:
        episodes = self._episodes()
        if episodes is not None and self._may_begin():
            self.post_message(CommandAsked(Evaluate(episodes=episodes, greedy=True)))

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        if action != "cancel":
            return True
        state = self._state
        is_cancelled = state.pending.of(CancelEvaluation) is not None
        return state.live and self._is_under_way() and not is_cancelled

    def action_cancel(self) -> None:
        self.post_message(CommandAsked(CancelEvaluation()))


def evaluation_line(found: EvaluationFinished, state: RunState) -> Content:
    how = "greedy" if found.greedy else "sampled"
    mean = evaluated_return(found)
    text = mean.text
    if mean.episodes > 1:
        text = f"{mean.mean_text}, 95 % interval {mean.interval_text}"
    return Content.assemble(
        (with_unit(text, one_line(state.return_unit)), "bold"),
        (f"  {found.episodes:,} {how} in {found.elapsed_s:,.1f} s", ASIDE),
        (f" · {found.outdated}" if found.outdated else "", "$text-warning"),
        (played_by(found, state.prompts, lead="\n  "), ASIDE),
        interval_bar(mean, baselines(state)),
    )


def interval_bar(mean: MeanReturn, known: Mapping[str, float]) -> Content:
    """A line with a mean and its 95 % interval between the worst baseline and the best; empty where there are not two.

    Args:
        known: mean returns by name, the best first.
    """
    names = list(known)
    if len(names) < 2:
        return Content()
    best, worst = known[names[0]], known[names[-1]]

    def cell(value: float) -> int:
        share = (value - worst) / (best - worst)
        return round(min(max(share, 0.0), 1.0) * (WAY - 1))

    half = margin(mean.stderr) if mean.episodes > 1 else 0.0
    low, high = cell(mean.mean - half), cell(mean.mean + half)
    way = "·" * low + "━" * (high - low + 1) + "·" * (WAY - 1 - high)
    at = cell(mean.mean)
    return Content.assemble(
        (f"\n  {names[-1]} {plain(worst)} {way[:at]}", ASIDE),
        ("●", "bold $primary"),
        (f"{way[at + 1 :]} {plain(best)} {names[0]}", ASIDE),
    )
