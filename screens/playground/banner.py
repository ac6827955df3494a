"""What a person has to know now, as sentences: a dead trainer, a mode without training, what waits for confirmation."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Literal, NamedTuple, get_args

from textual.content import Content
from textual.widgets import Static

from llamagym_tui.protocol.literal import one_line
from llamagym_tui.returns import counted
from llamagym_tui.screens.widgets.key_bar import KeyOf, key_of
from llamagym_tui.screens.widgets.look import own_styles
from llamagym_tui.state.run import RunState
from llamagym_tui.state.wheel import wheel_texts

Tone = Literal["-error", "-warning", "-note"]
"""How much a sentence weighs; the name of a style class."""


class Sentence(NamedTuple):
    text: str
    tone: Tone


def sentences(state: RunState, demos_path: Callable[[], str], key: KeyOf) -> list[Sentence]:
    """Every sentence that a state calls for, the weightiest first; `demos_path` is called when the trainer is gone."""
    if state.recorded:
        return _recorded(state)
    if state.failure:
        kept = (
            f"Your demonstrations are safe in {path}; "
            if Path(path := demos_path()).exists()
            else ""
        )
        kept += f"{key('table', 'h')} still opens the table."
        again = f"{key('restart', 'r')} starts the trainer again, from its last checkpoint if there is one."
        return [Sentence(text, "-error") for text in (state.failure, kept, again)]
    if state.finished is not None:
        return [Sentence(_farewell(state), "-note")]
    if state.unwritten:
        return [Sentence(_unwritten(state, key), "-error")]
    if state.stopping:
        again = f"{key('quit', 'q')} again leaves at once."
        ends = "writes its checkpoint and ends" if state.is_kept else "ends"
        return [Sentence(f"The trainer {ends}. {again}", "-note")]
    found = [Sentence(state.collapse, "-error")] if state.collapse else []
    found += [Sentence(text, "-warning") for text in wheel_texts(state.wheel, key)]
    if state.mode == "inference":
        train = f"{key('mode', 't')} trains again."
        found.append(
            Sentence(
                f"Inference: nothing is trained, no episode enters a batch. {train}", "-warning"
            )
        )
    if state.phase == "paused":
        turn, update = key("advance.turn", "."), key("advance.update", "u")
        steps = f"{'A period' if turn == '.' else turn} makes one turn, {update} one update."
        found.append(Sentence(f"Paused. {key('pause', 'space')} resumes. {steps}", "-note"))
    if (training := state.warm_start).under_way:
        far = (
            f": step {training.step:,} of {training.steps:,}"
            if training.steps and training.result is None
            else ""
        )
        found.append(
            Sentence(f"A warm start is under way{far}. {key('warm_start', 'f')} shows it.", "-note")
        )
    return found + [Sentence(text, "-note") for text in _awaited(state)]


def _unwritten(state: RunState, key: KeyOf) -> str:
    """What cannot be written, how long that is waited for, and the two ways out."""
    leave = key("quit", "q")
    if state.stopping:
        return f"{state.unwritten} Make room there; or {leave} again leaves without it."
    return (
        f"{state.unwritten} Make room there; or {leave} leaves, and what was learnt since the last checkpoint is "
        "lost."
    )


def _recorded(state: RunState) -> list[Sentence]:
    """What a replay shows at this moment, in the past tense."""
    if state.failure:
        return [Sentence(f"Here the run failed: {state.failure}", "-error")]
    if state.finished is not None:
        return [Sentence(_farewell(state), "-note")]
    if state.mode == "inference":
        return [Sentence("Inference: nothing was trained here.", "-warning")]
    return []


def _awaited(state: RunState) -> list[str]:
    """What is under way apart from the run, and what was requested and is not there yet."""
    pending, texts = state.pending, []
    if state.mode_requested not in (None, state.mode):
        texts.append(f"{state.mode_requested} mode is requested; the trainer confirms it soon.")
    if state.phase == "evaluating":
        texts.append(f"Evaluating: {state.detail or 'it begins'}. The run goes on afterwards.")
    elif pending.evaluation is not None:
        texts.append("An evaluation is requested; the trainer begins it soon.")
    if pending.settings:
        names = ", ".join(f"{name} {value}" for name, value in pending.settings.items())
        texts.append(f"Pending, not confirmed yet: {names}.")
    if pending.checkpoint:
        texts.append("A checkpoint is requested; the trainer writes it soon.")
    if pending.roll_back:
        texts.append("A roll back is requested; the trainer does it soon.")
    if state.prompt_requested is not None:
        texts.append("The new system prompt is pending: the trainer has not confirmed it yet.")
    elif state.prompt_awaits_reset:
        texts.append(f"Prompt v{state.prompt_version} applies from the next episode on.")
    return texts


def _farewell(state: RunState) -> str:
    end, recent = state.finished, state.recent_mean
    assert end is not None
    mean = f", mean return {recent.text} over the last {recent.episodes:,}" if recent else ""
    counts = f"{counted(end.episodes, 'episode')}, {counted(end.updates, 'update')}"
    return f"The run has ended: {counts}{mean}. It is kept in {state.run_dir}."


class Banner(Static):
    """Sentences under the header; absent while there are none."""

    DEFAULT_CSS = own_styles(__file__)

    _found: list[Sentence] = []

    def show(self, state: RunState, demos_path: Callable[[], str]) -> None:
        found = sentences(state, demos_path, partial(key_of, self.app))
        if found == self._found:
            return
        self._found = found
        self.display = bool(found)
        for tone in get_args(Tone):
            self.set_class(bool(found) and found[0].tone == tone, tone)
        self.update(Content("\n").join([Content(one_line(sentence.text)) for sentence in found]))
