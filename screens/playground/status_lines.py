"""The lines around the conversation: what a person has to know now, the progress, the last prompt edit, the watch."""

from collections import Counter
from collections.abc import Iterator
from functools import partial
from typing import Literal, NamedTuple, get_args

from textual.content import Content
from textual.widgets import Static

from llamagym_tui.protocol.commands import (
    ComparePrompts,
    Evaluate,
    LetGo,
    RollBack,
    SaveCheckpoint,
    SetSystemPrompt,
)
from llamagym_tui.protocol.literal import one_line
from llamagym_tui.returns import counted
from llamagym_tui.screens.policy_map.mapped_policy import MappedPolicy, changed_choices
from llamagym_tui.screens.widgets.key_bar import KeyOf, key_of
from llamagym_tui.screens.widgets.look import own_styles
from llamagym_tui.screens.widgets.numbers import BAR, bar
from llamagym_tui.screens.widgets.run_header import StateText, doing_text
from llamagym_tui.state.reduce import watched_text
from llamagym_tui.state.run import RunState

Tone = Literal["-error", "-warning", "-note"]
"""The weight of a sentence; the name of a style class."""
COLLECTING = "collecting turns"
"""What the trainer calls the time between two updates."""
ASKED = {
    SaveCheckpoint: "a checkpoint",
    RollBack: "a roll back",
    SetSystemPrompt: "the new system prompt",
}
"""Requests in words."""
FEWEST = 100
"""Episodes that the returns before and after a prompt edit need to be compared."""
FOLLOWED = 0.1
"""A prompt counts as followed if it changes the play in a larger share of the states."""


class Sentence(NamedTuple):
    text: str
    tone: Tone


def sentences(state: RunState, key: KeyOf) -> list[Sentence]:
    """The sentences that a state calls for, the most important first."""
    if state.finished is not None:
        return [Sentence(_farewell(state), "-note")]
    if state.failure and state.recorded:
        return [Sentence(f"The run failed here: {state.failure}", "-error")]
    if state.failure:
        ways = (
            f"{key('restart', 'r')} restarts the trainer from its last checkpoint, if there is one. "
            f"{key('table', 'h')} still opens the table."
        )
        return [Sentence(state.failure, "-error"), Sentence(ways, "-error")]
    if state.recorded:
        is_trained = state.mode == "train"
        return [] if is_trained else [Sentence("Inference: nothing was trained here.", "-warning")]
    leave = key("quit", "q")
    if state.unwritten:
        again = "again leaves without it" if state.stopping else "leaves without a new checkpoint"
        return [Sentence(f"{state.unwritten} Make room there, or {leave} {again}.", "-error")]
    if state.stopping:
        ends = "writes its checkpoint and ends" if state.is_kept else "ends"
        return [Sentence(f"The trainer {ends}. {leave} again leaves at once.", "-note")]
    found = [Sentence(state.collapse, "-error")] if state.collapse else []
    if state.wheel is not None and state.pending.of(LetGo) is None:
        waits = "; the run waits for your action" if state.awaited is not None else ""
        where = f"YOU HAVE THE WHEEL of environment {state.wheel.env + 1:,}{waits}"
        found.append(Sentence(f"{where}. {key('wheel', 'w')} goes back to it.", "-warning"))
    if state.mode == "inference":
        text = f"Inference: nothing is trained. {key('mode', 't')} trains again."
        found.append(Sentence(text, "-warning"))
    if state.phase == "paused":
        turn = key("advance.turn", ".")
        turn = "A period" if turn == "." else turn
        steps = f"{turn} makes one turn, {key('advance.update', 'u')} one update."
        found.append(Sentence(f"Paused. {key('pause', 'space')} resumes. {steps}", "-note"))
    if state.is_warm_starting:
        text = f"A warm start is under way. {key('warm_start', 'f')} shows it."
        found.append(Sentence(text, "-note"))
    return found + [Sentence(text, "-note") for text in _pending(state)]


def _pending(state: RunState) -> Iterator[str]:
    """What was requested and is not confirmed yet."""
    pending = state.pending
    if state.phase == "evaluating":
        yield f"Evaluating: {state.detail or 'starting'}. The run goes on afterwards."
    asked = [f"{name} {value}" for name, value in pending.settings.items()]
    if state.mode_intended != state.mode:
        asked.append(f"{state.mode_intended} mode")
    if state.phase != "evaluating" and pending.of(Evaluate, ComparePrompts) is not None:
        asked.append("an evaluation")
    asked += [words for kind, words in ASKED.items() if pending.of(kind) is not None]
    if asked:
        yield f"Pending: {', '.join(asked)}."
    if state.prompt_awaits_reset and state.prompt_requested is None:
        yield f"Prompt v{state.prompt_version} applies from the next episode on."


def _farewell(state: RunState) -> str:
    end, recent = state.finished, state.recent_mean
    assert end is not None
    mean = f", mean return {recent.text} over the last {recent.episodes:,}" if recent else ""
    counts = f"{counted(end.episodes, 'episode')}, {counted(end.updates, 'update')}"
    return f"The run has ended: {counts}{mean}. It is kept in {state.run_dir}."


class Banner(Static):
    """Sentences under the header; hidden while there are none."""

    DEFAULT_CSS = own_styles(__file__)

    _found: list[Sentence] = []

    def show(self, state: RunState) -> None:
        found = sentences(state, partial(key_of, self.app))
        if found == self._found:
            return
        self._found = found
        self.display = bool(found)
        for tone in get_args(Tone):
            self.set_class(bool(found) and found[0].tone == tone, tone)
        self.update(Content("\n").join([Content(one_line(sentence.text)) for sentence in found]))


def first_that_fits(parts: list[Content], width: int) -> Content:
    """The first of some lines that has room, else the last one."""
    return next((line for line in parts if line.cell_length <= width), parts[-1])


class ProgressLine(StateText):
    """What the run is doing, how far that is, and how long it takes."""

    DEFAULT_CSS = "ProgressLine { height: 1; text-wrap: nowrap; text-overflow: ellipsis; }"

    def show(self, state: RunState) -> None:
        super().show(state)
        self.display = state.live

    def content_at(self, width: int) -> Content:
        state = self.state
        progress, left_s = state.progress, None
        if progress is not None:
            doing, done, total = one_line(progress.doing), progress.done, progress.total
            left_s = progress.left_s
        elif state.phase in ("rolling_out", "paused") and state.mode == "train" and state.run:
            doing, (done, total) = COLLECTING, state.batch_progress
        else:
            return Content("playing" if state.phase == "rolling_out" else doing_text(state))
        parts = [f"{done:,} of {total:,}"]
        if doing == "updating":
            epochs = int(state.settings.get("ppo.epochs") or state.config.ppo.epochs)
            parts = [f"pass {min(done * epochs // total + 1, epochs)} of {epochs}"]
        if left_s is not None:
            left = f"{left_s:.0f} s" if left_s < 120 else f"{left_s / 60:,.0f} min"
            parts.append(f"next update in {left}" if doing == COLLECTING else f"{left} left")
        track = bar(done / total)
        head = Content.assemble(
            (f"{doing} ", "bold"), (track, "$primary"), ("░" * (BAR - len(track)), "$aside")
        )
        lines = [head + f" {' · '.join(parts[:count])}" for count in range(len(parts), 0, -1)]
        return first_that_fits(lines, width)


def edit_text(state: RunState) -> str:
    """What the last prompt edit did to the play and to the returns; empty if nothing is known."""
    if state.edit is None:
        return ""
    parts = [*_play_changes(state), *_return_change(state)]
    if not parts:
        return ""
    return f"prompt v{state.edit.version} since {state.edit.episode:,}: {'; '.join(parts)}"


def _play_changes(state: RunState) -> Iterator[str]:
    """In how many states another action is preferred, and which action gained most."""
    edit, layout = state.edit, state.map_layout
    if edit is None or edit.before is None or edit.after is None or layout is None:
        return
    before, after = MappedPolicy(layout, edit.before), MappedPolicy(layout, edit.after)
    old = [cell.choice for cell in before.cells.values() if cell.choice is not None]
    new = [cell.choice for cell in after.cells.values() if cell.choice is not None]
    if not old or len(old) != len(new):
        return
    differing = len(changed_choices(before, after))
    noun = one_line(layout.noun) or "states"
    if differing <= FOLLOWED * len(new):
        yield f"plays the same in {len(new) - differing:,} of {len(new):,} {noun}"
        yield "the model hardly follows this prompt"
        return
    was, now = Counter(old), Counter(new)
    most = max(now, key=lambda action: now[action] - was[action])
    yield f"plays differently in {differing:,} of {len(new):,} {noun}"
    shares = f"{was[most] / len(old):.0%} → {now[most] / len(new):.0%}"
    yield f"{one_line(layout.action_names[most])} {shares}"


def _return_change(state: RunState) -> Iterator[str]:
    """The mean return of the last episodes before the edit and of the first ones after it."""
    assert state.edit is not None
    versions = {known.version: known for known in state.prompts}
    old = versions.get(state.edit.version_before)
    new = versions.get(state.edit.version)
    if old is None or new is None:
        return
    before = old.under(state.mode).last
    after = new.under(state.mode).last
    if before is None or after is None or min(before.episodes, after.episodes) < FEWEST:
        return
    yield f"return {before.text} → {after.text}"


class PromptLine(StateText):
    """What the last prompt edit did; it stays until the next one."""

    DEFAULT_CSS = "PromptLine { height: auto; max-height: 2; padding: 0 1; color: $accent; }"

    def show(self, state: RunState) -> None:
        self.state = state
        text = edit_text(state)
        self.display = bool(text)
        if text != self._painted.plain:
            self.refresh(layout=True)

    def content_at(self, width: int) -> Content:
        return Content(edit_text(self.state))


class WatchLine(StateText):
    """What is watched and at which speed; hidden at full speed in the first environment."""

    DEFAULT_CSS = (
        "WatchLine { display: none; height: 1; padding: 0 1; background: $surface; color: $aside; "
        "text-wrap: nowrap; text-overflow: ellipsis; }"
    )

    def show(self, state: RunState) -> None:
        super().show(state)
        self.display = bool(self._parts())

    def _parts(self) -> list[str]:
        state, parts = self.state, list[str]()
        if not state.live:
            return parts
        if state.env_intended != state.env:
            parts.append(f"{watched_text(state)} → {state.env_intended + 1:,}?")
        elif state.env:
            parts.append(watched_text(state))
        speed = f"{state.turn_s:g} s a turn" if state.turn_s else "full speed"
        if (to := state.turn_s_intended) != state.turn_s:
            parts.append(f"{speed} → {f'{to:g} s' if to else 'full speed'}?")
        elif state.turn_s:
            parts.append(f"{speed}, {key_of(self.app, 'pace.faster', '+')} faster")
        return parts

    def content_at(self, width: int) -> Content:
        parts = self._parts()
        lines = [Content(" · ".join(parts[:count])) for count in range(len(parts), 0, -1)]
        return first_that_fits(lines or [Content()], width)
