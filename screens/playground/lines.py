"""The lines of the playground: what a person has to know now, the progress, how the agent plays, the last prompt edit,
and the figures of the last update."""

from collections.abc import Iterator
from functools import partial
from typing import Literal, NamedTuple

from textual.content import Content

from llamagym_tui.protocol.commands import (
    ComparePrompts,
    Evaluate,
    LetGo,
    RollBack,
    SaveCheckpoint,
    SetSystemPrompt,
)
from llamagym_tui.protocol.literal import one_line
from llamagym_tui.screens.policy_map.mapped_policy import MappedPolicy, changed_choices
from llamagym_tui.screens.widgets.key_bar import KeyOf, key_of
from llamagym_tui.screens.widgets.numbers import BAR, bar, share
from llamagym_tui.screens.widgets.run_header import PHASES, StateText
from llamagym_tui.state.reduce import watched_text
from llamagym_tui.state.returns import counted
from llamagym_tui.state.run import RunState

Tone = Literal["-error", "-warning", "-note"]
"""The weight of a sentence; the name of a style class."""
ASKED = {
    SaveCheckpoint: "a checkpoint",
    RollBack: "a roll back",
    SetSystemPrompt: "the new system prompt",
}
"""Requests in words."""
FEWEST = 100
"""Episodes that the returns before and after a prompt edit need to be compared."""
LONGEST = 72
"""Most characters of a description of work."""
FOLLOWED = 0.1
"""A prompt counts as followed if it changes the play in a larger share of the states."""


class Sentence(NamedTuple):
    text: str
    tone: Tone


class Banner(StateText):
    """Sentences under the header; the first one gives the colour."""

    def __init__(self, state: RunState) -> None:
        super().__init__(self._lines, state, id="banner")

    def show(self, state: RunState) -> None:
        super().show(state)
        found = sentences(state, partial(key_of, self.app))
        self.set_classes(found[0].tone if found else "")

    def _lines(self, state: RunState, width: int) -> Content:
        found = sentences(state, partial(key_of, self.app))
        return Content("\n").join([Content(one_line(sentence.text)) for sentence in found])


def sentences(state: RunState, key: KeyOf) -> list[Sentence]:
    """The sentences that a state calls for, the most important first."""
    if (end := state.finished) is not None:
        counts = f"{counted(end.episodes, 'episode')}, {counted(end.updates, 'update')}"
        text = f"The run has ended: {counts}. It is kept in {state.run_dir}."
        return [Sentence(text, "-note")]
    if state.failure:
        ways = (
            f"{key('restart', 'r')} restarts the trainer from its last checkpoint, if there is one. "
            f"{key('table', 'h')} still opens the table."
        )
        found = [Sentence(state.failure, "-error")]
        return found if state.recorded else [*found, Sentence(ways, "-error")]
    if state.recorded:
        return []
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
        steps = (
            f"{key('advance.turn', '.')} makes one turn, {key('advance.update', 'u')} one update"
        )
        found.append(Sentence(f"Paused. {key('pause', 'space')} resumes; {steps}.", "-note"))
    if state.is_warm_starting:
        text = f"A warm start is under way. {key('warm_start', 'f')} shows it."
        found.append(Sentence(text, "-note"))
    return found + [Sentence(text, "-note") for text in _pending(state)]


def _pending(state: RunState) -> Iterator[str]:
    """Requests that the trainer has not confirmed."""
    pending = state.pending
    asked = []
    if state.phase != "evaluating" and pending.of(Evaluate, ComparePrompts) is not None:
        asked.append("an evaluation")
    asked += [words for kind, words in ASKED.items() if pending.of(kind) is not None]
    if asked:
        yield f"Pending: {', '.join(asked)}."
    if state.prompt_awaits_reset and state.prompt_requested is None:
        yield f"Prompt v{state.prompt_version} applies from the next episode on."


def progress_line(state: RunState, width: int) -> Content:
    """The work under way, its progress and time left, and the watched environment."""
    if not state.live:
        return Content()
    progress = state.progress
    left = ""
    if progress is not None:
        doing = one_line(progress.doing)
        done = progress.done
        total = progress.total
        if progress.left_s is not None:
            left = f" · {progress.left_s:,.0f} s left"
    elif state.phase in ("rolling_out", "paused") and state.mode == "train" and state.run:
        doing = "collecting turns"
        done, total = state.batch_progress
    else:
        return Content(_doing(state) + watching_text(state))
    track = bar(done / total)
    return Content.assemble(
        (f"{doing} ", "bold"),
        (track, "$primary"),
        ("░" * (BAR - len(track)), "$aside"),
        f" {done:,} of {total:,}{left}{watching_text(state)}",
    )


def _doing(state: RunState) -> str:
    """The phase of a run, with what the trainer says about it."""
    if state.phase == "rolling_out":
        return "playing"
    phase = PHASES[state.phase]
    if not state.detail or state.phase in ("updating", "paused"):
        return phase
    detail = one_line(state.detail, LONGEST)
    return detail if state.phase == "loading" else f"{phase}: {detail}"


def watching_text(state: RunState) -> str:
    """The watched environment and its speed; empty at full speed in the first environment."""
    text = ""
    if state.env or state.env_intended:
        text += f" · {watched_text(state)}"
    if state.env_intended != state.env:
        text += f" → {state.env_intended + 1:,}?"
    if state.turn_s or state.turn_s_intended:
        text += f" · {state.turn_s:g} s a turn"
    if state.turn_s_intended != state.turn_s:
        text += f" → {state.turn_s_intended:g} s?"
    return text


def first_sight(state: RunState, width: int = 0) -> Content:
    """The agent's play in one sentence; empty while it is unknown."""
    layout, mapped = state.map_layout, state.mapped
    played = ""
    if layout is not None and mapped is not None:
        policy = MappedPolicy(layout, mapped)
        gained = policy.count.agreeing - MappedPolicy(layout, state.film[0]).count.agreeing
        played = policy.words
        if played and gained:
            played += f" {'▲' if gained > 0 else '▼'} {abs(gained):,}"
        if played and not state.map_is_present:
            played += f" ({age(state.updates - mapped.update)})"
    return Content("; ".join(filter(None, (one_line(state.described), played))))


def age(updates: int) -> str:
    """The age of a map in updates; negative if the update was rolled back since."""
    if updates < 0:
        return "before the roll back"
    return f"{counted(updates, 'update')} ago" if updates else "now"


def edit_line(state: RunState, width: int = 0) -> Content:
    """The effect of the last prompt edit on play and returns; empty while it is unknown."""
    if state.edit is None:
        return Content()
    parts = [*_play_changes(state), *_return_change(state)]
    since = f"prompt v{state.edit.version} since {state.edit.episode:,}"
    return Content(f"{since}: {'; '.join(parts)}" if parts else "")


def _play_changes(state: RunState) -> Iterator[str]:
    """In how many states another action is preferred, and which action gained most."""
    edit, layout = state.edit, state.map_layout
    if edit is None or edit.before is None or edit.after is None or layout is None:
        return
    before, after = MappedPolicy(layout, edit.before), MappedPolicy(layout, edit.after)
    old, new = before.choices, after.choices
    states = new.total()
    if not states or states != old.total():
        return
    differing = len(changed_choices(before, after))
    of_all = f"of {states:,} {one_line(layout.noun) or 'states'}"
    if differing <= FOLLOWED * states:
        yield f"plays the same in {states - differing:,} {of_all}"
        yield "the model hardly follows this prompt"
        return
    most = max(new, key=lambda action: new[action] - old[action])
    yield f"plays differently in {differing:,} {of_all}"
    shares = f"{old[most] / states:.0%} → {new[most] / states:.0%}"
    yield f"{one_line(layout.action_names[most])} {shares}"


def _return_change(state: RunState) -> Iterator[str]:
    """The mean return of the last episodes before the edit and of the first ones after it."""
    assert state.edit is not None
    versions = {known.version: known.under(state.mode).last for known in state.prompts}
    before = versions.get(state.edit.version_before)
    after = versions.get(state.edit.version)
    if before is not None and after is not None and min(before.episodes, after.episodes) >= FEWEST:
        yield f"return {before.text} → {after.text}"


def figures(state: RunState, width: int) -> Content:
    """Mean return and the main figures of the last update, in as many rows as they need."""
    rows = [Content()]
    for name, value in _figures(state):
        cell = Content.assemble((f"{name} ", "$aside"), (value, "bold"))
        if rows[-1] and rows[-1].cell_length + 3 + cell.cell_length > width:
            rows.append(Content())
        rows[-1] += Content("   " if rows[-1] else "") + cell
    return Content("\n").join(rows)


def _figures(state: RunState) -> Iterator[tuple[str, str]]:
    mean, stats = state.recent_mean, state.stats
    has_interval = mean is not None and mean.episodes > 1
    yield "return ±95%" if has_interval else "return", "none yet" if mean is None else mean.text
    if state.dropped:
        yield "dropped", f"{state.dropped:,}"
    if stats is None:
        yield why_no_figures(state), ""
        return
    yield "update", f"{state.updates:,}"
    yield "parse fail", share(stats.parse_failure_rate)
    if stats.refusal_rate:
        yield "refused", share(stats.refusal_rate)


def why_no_figures(state: RunState) -> str:
    """A sentence in place of an update's figures."""
    if state.updates:
        return f"the figures of update {state.updates:,} are not kept"
    if not state.live or state.mode == "inference":
        return "no update: nothing is trained"
    played, wanted = state.batch_progress
    return f"first update after {wanted:,} turns ({played:,} so far)"
