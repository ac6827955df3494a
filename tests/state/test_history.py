"""What a run was before it is resumed: its history out of its own events, and nothing that holds only in a session."""

from __future__ import annotations

from functools import reduce as fold
from pathlib import Path

from msgspec.structs import replace

from llamagym_tui.protocol.events import (
    AnyEvent,
    CheckpointSaved,
    PromptChanged,
    RunFinished,
    RunStarted,
    SettingsChanged,
    UpdateFinished,
)
from llamagym_tui.runs import event_log
from llamagym_tui.state.history import History
from llamagym_tui.state.reduce import reduce, trainer_lost
from llamagym_tui.state.run import RunState, initial_state, restarted
from tests import fakes
from tests.recorded_run import record

EVALUATION = fakes.evaluation(-0.1, episodes=100, return_stderr=0.02)
END = RunFinished(episodes=10, env_steps=14, updates=2, elapsed_s=5.0)


def update(number: int, episodes: int) -> UpdateFinished:
    return UpdateFinished(
        update=number, episodes=episodes, stats=replace(fakes.STATS, entropy=float(number))
    )


def first_session() -> list[AnyEvent]:
    """Four episodes under v1 and an update, six under v2 and another one, a checkpoint, an evaluation, the end."""
    return [
        *fakes.opening_events(),
        fakes.counted([1.0, 1.0, 1.0, -1.0], 4),
        update(1, 4),
        PromptChanged(prompt_version=2, system_prompt="Win."),
        fakes.counted([1.0, -1.0] * 3, 10, prompt_version=2),
        update(2, 10),
        SettingsChanged(changes={"ppo.lr": 1e-4}),
        CheckpointSaved(update=2),
        EVALUATION,
        END,
    ]


def taken_up(episodes: int, updates: int, **changes: object) -> RunStarted:
    started = replace(fakes.run_started("run"), prompt_version=2, system_prompt="Win.")
    return replace(started, episodes=episodes, updates=updates, **changes)


def opening(tmp_path: Path) -> RunState:
    return initial_state(fakes.config(tmp_path / "run", resume=True))


def read(tmp_path: Path) -> History:
    past = History(tmp_path / "run", fakes.config(tmp_path / "run", resume=True))
    while not past.complete:
        past.read_on()
    return past


def recalled(tmp_path: Path, *events: AnyEvent) -> RunState:
    record(tmp_path / "run", events)
    return read(tmp_path).recalled_in(opening(tmp_path))


def under(state: RunState) -> list[tuple[int, str, int, float]]:
    return [
        (known.version, known.text, known.under("train").episodes, sum(known.under("train").recent))
        for known in state.prompts
    ]


def test_a_resumed_run_is_what_the_live_one_was(tmp_path: Path):
    lived = fold(reduce, first_session(), opening(tmp_path))
    state = recalled(tmp_path, *first_session())
    assert (state.prompts, state.history, state.returns, state.marks) == (
        lived.prompts,
        lived.history,
        lived.returns,
        lived.marks,
    )


def test_what_came_after_the_checkpoint_is_taken_back_when_the_trainer_tells_where_the_run_goes_on(
    tmp_path: Path,
):
    later = PromptChanged(prompt_version=3, system_prompt="Win now.")
    lost = [fakes.counted([-1.0] * 5, 15, prompt_version=2), update(3, 15), later]
    state = recalled(tmp_path, *first_session()[:-1], *lost)
    assert (state.updates, state.stats) == (3, update(3, 15).stats)
    state = reduce(state, taken_up(10, 2))
    assert (state.updates, state.stats, state.episodes, state.returns.episodes) == (
        2,
        update(2, 10).stats,
        10,
        10,
    )
    assert state.history.values("entropy") == [(4, 1.0), (10, 2.0)]
    assert [mark.episode for mark in state.marks] == [4, 10]
    assert under(state) == [
        (1, fakes.PROMPT, 4, 2.0),
        (2, "Win.", 6, 0.0),
        (3, "Win now.", 0, 0.0),
    ]


def test_what_stands_before_a_line_that_is_no_event_is_known(tmp_path: Path):
    folder = record(tmp_path / "run", first_session()[:6])
    with (folder / "events.jsonl").open("a") as log:
        log.write('{"type":"Miracle"}\n')
    past = read(tmp_path)
    assert "is no event" in past.fault
    assert past.recalled_in(opening(tmp_path)).stats == update(1, 4).stats


def test_the_events_of_the_next_session_are_not_read(tmp_path: Path):
    folder = record(tmp_path / "run", first_session()[:6])
    past = History(folder, fakes.config(folder, resume=True))
    log = event_log.EventLog(folder / "events.jsonl")
    log.append(update(2, 10))
    log.close()
    while not past.complete:
        past.read_on()
    assert past.recalled_in(opening(tmp_path)).updates == 1


def test_a_trainer_that_is_started_again_goes_on_from_its_checkpoint(tmp_path: Path):
    state = fold(
        reduce,
        [*first_session()[:-2], fakes.counted([1.0] * 5, 15, prompt_version=2), update(3, 15)],
        opening(tmp_path),
    )
    again = restarted(trainer_lost(state, "The trainer died."))
    assert (again.updates, again.run) == (3, None)
    state = reduce(again, taken_up(10, 2))
    assert (state.updates, state.stats, len(state.history.samples)) == (2, update(2, 10).stats, 2)
    assert [known.under("train").episodes for known in state.prompts] == [4, 6]
