"""The lines of the playground: how good the policy is, and what goes on now."""

import time
from collections.abc import Callable, Iterator
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
from llamagym_tui.screens.policy_map.mapped_policy import (
    MappedPolicy,
    Spot,
    changed_choices,
    play_changes,
)
from llamagym_tui.screens.widgets.key_bar import KeyOf, key_of
from llamagym_tui.screens.widgets.look import ASIDE
from llamagym_tui.screens.widgets.numbers import baselines, plain, share, track
from llamagym_tui.screens.widgets.run_header import PHASES, StateText
from llamagym_tui.state.prompts import PromptEdit
from llamagym_tui.state.returns import counted
from llamagym_tui.state.run import RunState
from llamagym_tui.state.transcript import Notice

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
STEADY_S = 2.0
"""Least number of seconds between two headlines."""
EDIT_S = 30.0
"""Seconds for which the effect of a prompt edit has the status line."""
NOTICE_S = 8.0
"""Seconds for which a notice has it."""
HINT_S = 8.0
"""Seconds in turn for what to try next and for what was just learnt, until the prompt was edited."""
BETWEEN = "  ·  "
"""Stands between two sentences."""
QUICK_S = 2.0
"""Seconds of an update with its batch, below which its progress would only flicker."""
NARROW_BAR, WIDE_BAR = 10, 30
"""Cells of the bar from random play to the best."""
MOST_STATE = 32
"""Characters of a state that the last update changed."""


STEPS = {
    "loading the libraries": "libraries",
    "loading the model": "model",
    "making the environments": "environments",
    "": "first turns",
}
"""The steps of a start by what the trainer does, in order, and their names."""


class Sentence(NamedTuple):
    text: str
    tone: Tone


class Headline(StateText):
    """How good the policy is, changed every `STEADY_S` at most, so that it can be read."""

    def __init__(self, state: RunState, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__(headline, state, id="headline")
        self._clock = clock
        self._next_at = 0.0

    def show(self, state: RunState) -> None:
        if self._clock() < self._next_at and state.live:
            return
        before = self._painted
        super().show(state)
        has_figures = state.recent_mean is not None or state.mapped is not None
        if has_figures and not self._text(state, self.content_size.width).is_same(before):
            self._next_at = self._clock() + STEADY_S


def headline(state: RunState, width: int) -> Content:
    """The mean return: the exact one of the newest map's policy where it is known, else that of the last episodes."""
    unit = f" {one_line(state.return_unit)}" if state.return_unit else ""
    mean = state.recent_mean
    if state.exact_return is not None:
        value, text = state.exact_return, plain(state.exact_return)
    elif mean is not None:
        value, text = mean.mean, mean.text.removeprefix("+")
    else:
        return Content.styled(_before_figures(state), ASIDE)
    parts = [Content.styled(text, "bold"), Content.styled(unit, ASIDE)]
    known = baselines(state)
    random, best = known.get("random"), known.get("best", known.get("expert"))
    if random is not None and best is not None and best > random:
        cells = WIDE_BAR if width >= 100 else NARROW_BAR
        reached = min(max((value - random) / (best - random), 0.0), 1.0)
        parts += [
            Content.styled(f"   random {plain(random)} ▕", ASIDE),
            track(reached, cells),
            Content.styled(f"▏ {plain(best)} best", ASIDE),
        ]
    return Content("").join(parts).truncate(width, ellipsis=True)


def _before_figures(state: RunState) -> str:
    if state.run is None:
        return "How well it plays is shown here after its first episodes."
    return "No episode has ended yet."


class Status(StateText):
    """The line that is always there: what a person has to know now, or what goes on and what was just learnt.

    It has more rows only for an error.
    """

    def __init__(self, state: RunState, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__(self._lines, state, id="status")
        self._clock = clock
        self._edit: PromptEdit | None = None
        self._edit_until = 0.0
        self._notice: Notice | None = None
        self._notice_until = 0.0
        self._news: tuple[object, str] = ((), "")

    def show(self, state: RunState) -> None:
        edit = state.edit
        if edit is not None and (self._edit is None or edit.version != self._edit.version):
            self._edit_until = self._clock() + EDIT_S
        self._edit = edit
        if (notice := state.transcript.notice) is not self._notice:
            self._notice = notice
            self._notice_until = self._clock() + NOTICE_S
        super().show(state)
        self.display = True
        found = sentences(state, partial(key_of, self.app))
        self.set_classes(found[0].tone if found else "")

    def _lines(self, state: RunState, width: int) -> Content:
        found = sentences(state, partial(key_of, self.app))
        texts = [Content(one_line(each.text)) for each in found]
        if found and found[0].tone != "-note":
            text = Content(BETWEEN).join(texts)
            return text if found[0].tone == "-error" else text.truncate(width, ellipsis=True)
        now = self._clock()
        if now < self._edit_until and (effect := edit_line(state)):
            texts.insert(0, effect)
        elif (
            self._notice is not None and now < self._notice_until and not state.prompt_awaits_reset
        ):
            texts.insert(0, Content.styled(one_line(self._notice.text), "$accent"))
        if not texts:
            learnt_now, next_step = self._learnt(state), hint(state, partial(key_of, self.app))
            is_new_here = state.prompt_version == 0 and now % (2 * HINT_S) < HINT_S
            told = (is_new_here and next_step) or learnt_now or next_step
            texts = [work_line(state), Content.styled(told, ASIDE)]
            if texts[0] and sum(each.cell_length for each in texts) + len(BETWEEN) > width:
                texts.pop()  # What is only half told is not told.
        return Content(BETWEEN).join(filter(None, texts)).truncate(width, ellipsis=True)

    def _learnt(self, state: RunState) -> str:
        """What the last update changed, worked out once for each map."""
        if self._news[0] is not state.film:
            self._news = (state.film, learnt(state))
        return self._news[1]


def sentences(state: RunState, key: KeyOf) -> list[Sentence]:
    """The sentences that a state calls for, the most important first."""
    if (end := state.finished) is not None:
        counts = f"{counted(end.episodes, 'episode')}, {counted(end.updates, 'update')}"
        text = f"The run has ended: {counts}. It is kept in {state.run_dir}."
        return [Sentence(text, "-note")]
    if state.failure:
        ways = (
            f"{key('restart', 'r')} resumes from the last checkpoint, if there is one. "
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
        text = f"Not learning: it only plays. {key('mode', 't')} learns again."
        found.append(Sentence(text, "-warning"))
    if state.phase == "paused":
        steps = (
            f"{key('advance.turn', '.')} makes one turn, {key('advance.update', 'u')} one update"
        )
        found.append(Sentence(f"Paused. {key('pause', 'space')} resumes; {steps}.", "-note"))
    if state.is_warm_starting:
        detail = f": {one_line(state.detail, LONGEST)}" if state.detail else ""
        text = f"A warm start is under way{detail}. {key('warm_start', 'f')} shows it."
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


def work_line(state: RunState) -> Content:
    """The work under way with its progress and the time left; the number of updates, where they are quick."""
    if not state.live:
        return Content()
    progress = state.progress
    left = ""
    if state.phase in ("rolling_out", "updating") and is_quick(state):
        return Content.styled(f"update {state.updates:,}", "bold")
    if progress is not None and progress.doing != "playing":
        doing = one_line(progress.doing)
        done, total = progress.done, progress.total
    elif state.phase in ("rolling_out", "paused") and state.mode == "train" and state.run:
        done, total = state.batch_progress
        doing = f"playing {total:,} turns, then it learns"
    else:
        return (
            start_line(state) if state.phase == "loading" else Content.styled(_doing(state), "bold")
        )
    if progress is not None and progress.left_s is not None:
        left = f", {progress.left_s:,.0f} s left"
    return Content.assemble(
        (f"{doing} ", "bold"), track(done / total), f" {done:,} of {total:,}{left}"
    )


def start_line(state: RunState) -> Content:
    """The steps of a start: those that are done, the one under way, those to come."""
    if state.detail not in STEPS:
        return Content.styled(one_line(state.detail, LONGEST), "bold")
    now = list(STEPS).index(state.detail)
    steps = [
        Content.styled(f"✓ {name}", ASIDE)
        if number < now
        else Content.styled(f"▸ {name}", "bold")
        if number == now
        else Content.styled(f"· {name}", ASIDE)
        for number, name in enumerate(STEPS.values())
    ]
    return Content("   ").join(steps)


def is_quick(state: RunState) -> bool:
    """True if updates follow each other so fast that nobody can follow the progress of one."""
    stats = state.stats
    return stats is not None and stats.rollout_s + stats.update_s < QUICK_S


def _doing(state: RunState) -> str:
    """The phase of a run, with what the trainer says about it."""
    phase = PHASES[state.phase]
    if not state.detail or state.phase in ("rolling_out", "updating", "paused"):
        return phase
    return f"{phase}: {one_line(state.detail, LONGEST)}"


def learnt(state: RunState) -> str:
    """The states in which the last update changed the preferred action: one in words, and the number of the others."""
    layout = state.map_layout
    if layout is None or len(state.film) < 2:
        return ""
    before, after = (MappedPolicy(layout, mapped) for mapped in state.film[-2:])
    changed = changed_choices(before, after)
    if not changed:
        return ""

    def gain(spot: Spot) -> tuple[float, Spot]:
        old, new = _shares_of_choice(before, after, spot)
        return new - old, spot

    spot = max(changed, key=gain)
    old, new = _shares_of_choice(before, after, spot)
    action = one_line(layout.action_names[after.cells[spot].choice or 0])
    words = f"{_place(after, spot)} now {action} ({share(old, 0)} → {share(new, 0)})"
    if len(changed) > 1:
        words += f", {len(changed) - 1:,} more"
    judged = [agrees for each in changed if (agrees := after.cells[each].agrees) is not None]
    return f"{words}; {sum(judged):,} of {len(judged):,} right" if judged else words


def _shares_of_choice(before: MappedPolicy, after: MappedPolicy, spot: Spot) -> tuple[float, float]:
    """Probability of the action that is preferred now, before and after."""
    choice = after.cells[spot].choice
    assert choice is not None, "it has changed to this one"
    return before.cells[spot].share(choice), after.cells[spot].share(choice)


def _place(policy: MappedPolicy, spot: Spot) -> str:
    """A state in a few words: its row and column in a table, else the agent's words."""
    panel = policy.layout.panels[spot.panel]
    if policy.layout.action is None:
        return one_line(policy.cells[spot].cell.words, MOST_STATE)
    return one_line(f"{panel.title} {panel.rows[spot.row]} v {panel.columns[spot.column]}")


def hint(state: RunState, key: KeyOf) -> str:
    """What a person could do next."""
    if state.run is None or state.recorded or state.mode != "train":
        return ""
    if not state.updates:
        return "its first replies are guesses"
    if state.prompt_version == 0:
        return f"try {key('prompt', 'p')}: tell it something; or {key('table', 'h')}: play yourself"
    return f"{key('policy_map', 'g')} shows what it does in each state"


def edit_line(state: RunState) -> Content:
    """The effect of the last prompt edit on play and returns; empty while it is unknown."""
    if state.edit is None:
        return Content()
    parts = [*_play_changes(state), *_return_change(state)]
    prompt = f"prompt v{state.edit.version}"
    return Content.styled(f"{prompt}: {'; '.join(parts)}", "$accent") if parts else Content()


def _play_changes(state: RunState) -> Iterator[str]:
    """In how many states another action is preferred, and which action gained most."""
    edit, layout = state.edit, state.map_layout
    if edit is None or edit.before is None or edit.after is None or layout is None:
        return
    before, after = MappedPolicy(layout, edit.before), MappedPolicy(layout, edit.after)
    states = after.choices.total()
    if states and states == before.choices.total():
        yield play_changes(before, after)
        if len(changed_choices(before, after)) <= FOLLOWED * states:
            yield "the model hardly follows it"


def _return_change(state: RunState) -> Iterator[str]:
    """The mean return of the last episodes before the edit and of the first ones after it."""
    assert state.edit is not None
    versions = {known.version: known.under(state.mode).last for known in state.prompts}
    before = versions.get(state.edit.version_before)
    after = versions.get(state.edit.version)
    if before is not None and after is not None and min(before.episodes, after.episodes) >= FEWEST:
        yield f"return {before.mean_text} → {after.text}"
