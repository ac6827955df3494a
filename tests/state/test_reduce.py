"""The reducer: what the trainer confirmed, what is only asked for, and bounds on everything."""

from __future__ import annotations

from functools import reduce as fold
from pathlib import Path

import pytest
from msgspec import structs

from llamagym_tui.protocol.commands import Pause, SetMode, SetSystemPrompt
from llamagym_tui.protocol.events import (
    AnyEvent,
    CheckpointSaved,
    DemonstrationsRead,
    DepthMeasured,
    EpisodeStarted,
    ModeChanged,
    Progressed,
    PromptChanged,
    RolledBack,
    SessionFailed,
    SettingsChanged,
    SettingsMeasured,
    UpdateFinished,
    WarningRaised,
)
from llamagym_tui.state import run
from llamagym_tui.state.pending import Pending
from llamagym_tui.state.reduce import reduce, trainer_lost
from llamagym_tui.state.returns import RECENT
from llamagym_tui.state.run import Mark, RunState, requested
from llamagym_tui.state.texts import measured_text
from llamagym_tui.state.transcript import Notice
from tests import fakes


def after(*events: AnyEvent, state: RunState | None = None) -> RunState:
    return fold(reduce, events, state or run.initial_state(fakes.config(Path("run"))))


def started(*events: AnyEvent) -> RunState:
    return after(*fakes.opening_events(), *events)


def test_run_started_brings_the_trainers_names_and_prompt():
    state = started()
    assert (state.agent, state.phase, state.prompt_version) == ("Blackjack", "rolling_out", 1)
    assert state.system_prompt == fakes.PROMPT


def test_counted_episodes_move_the_counters_and_the_mean():
    state = started(fakes.counted([1.0, -1.0, -1.0, -1.0], 4))
    assert (state.episodes, state.episodes_per_s) == (4, 212.0)
    assert state.recent_mean is not None
    assert state.recent_mean.mean == -0.5


def test_the_batch_under_way_counts_turns_up_to_the_live_batch_size():
    played = fakes.counted([1.0, -1.0, -1.0, -1.0], 4)
    state = started(SettingsChanged(changes={"ppo.batch_size": 6}), played)
    assert state.batch_progress == (4, 6)
    collecting = Progressed(doing="playing", done=5, total=6)
    assert after(collecting, state=state).batch_progress == (5, 6)
    assert after(played, state=state).batch_progress == (6, 6)


def test_a_prompt_is_pending_then_confirmed_then_watched():
    asked = requested(started(), SetSystemPrompt(system_prompt="Hit below 13."))
    assert (asked.prompt_version, asked.prompt_requested) == (1, "Hit below 13.")
    old = EpisodeStarted(episode=5, system_prompt=fakes.PROMPT, prompt_version=1, mode="train")
    taken = after(old, PromptChanged(prompt_version=2, system_prompt="Hit below 13."), state=asked)
    assert taken.prompt_requested is None
    assert taken.prompt_awaits_reset
    new = EpisodeStarted(episode=6, system_prompt="Hit below 13.", prompt_version=2, mode="train")
    assert not after(new, state=taken).prompt_awaits_reset


def test_the_mean_return_starts_anew_with_another_prompt_or_mode():
    state = started(
        fakes.counted([1.0] * 8, 8), PromptChanged(prompt_version=2, system_prompt="new")
    )
    assert state.recent == ()
    late = fakes.counted([1.0], 9, prompt_version=1)
    new = fakes.counted([-1.0], 10, prompt_version=2)
    state = after(late, new, state=state)
    assert state.recent == (-1.0,)
    assert state.returns.episodes == 10


def test_a_change_by_a_persons_hand_leaves_a_mark_and_a_notice():
    state = started(fakes.counted([1.0] * 8, 8), ModeChanged(mode="inference"))
    assert [(mark.episode, mark.label) for mark in state.marks] == [(8, "not learning")]
    assert state.transcript.entries[-1].fact == Notice("not learning: the model only plays")


def test_the_curve_of_a_branch_begins_with_a_mark_at_its_parents_update():
    config = structs.replace(fakes.config(Path("run")), parent="/runs/late@12")
    began = structs.replace(fakes.run_started(), episodes=5000, updates=12)
    state = after(began, fakes.counted([1.0] * 8, 5008), began, state=run.initial_state(config))
    assert state.marks == (Mark(5000, "branch of late at update 12", 12),)
    assert state.returns.start == 5000


def test_updates_and_evaluations_are_kept():
    evaluation = fakes.evaluation(-0.081, episodes=1000, return_stderr=0.03)
    state = started(UpdateFinished(update=3, episodes=2400, stats=fakes.STATS), evaluation)
    assert (state.updates, state.stats, state.evaluations) == (3, fakes.STATS, (evaluation,))
    # 1.96 · 0.03 = 0.0588
    note = "Evaluation: mean return −0.081 ± 0.059 over 1,000 greedy episodes"
    assert state.transcript.entries[-1].fact == Notice(note)


@pytest.mark.parametrize(
    "end",
    [
        lambda state: trainer_lost(state, "The trainer died (killed by SIGKILL)."),
        lambda state: after(
            SessionFailed(message="The trainer died (killed by SIGKILL)."), state=state
        ),
    ],
    ids=["lost", "failed"],
)
def test_a_run_that_ended_badly_says_why_and_awaits_nothing(end):
    state = end(
        requested(
            requested(requested(started(), Pause()), SetSystemPrompt(system_prompt="new")),
            SetMode(mode="inference"),
        )
    )
    assert not state.live
    assert state.failure == "The trainer died (killed by SIGKILL)."
    assert state.pending == Pending()


def test_the_recent_mean_is_of_exactly_the_last_thousand_returns():
    state = after(
        fakes.counted([1.0], 1), fakes.counted([0.0] * (RECENT - 1), RECENT), state=started()
    )
    assert (len(state.recent), sum(state.recent)) == (RECENT, 1.0)
    state = after(fakes.counted([0.5], RECENT + 1), state=state)
    assert (len(state.recent), state.recent[0], state.recent[-1]) == (RECENT, 0.0, 0.5)


def test_the_recent_mean_is_wider_by_the_root_of_the_design_effect():
    counted = fakes.counted([1.0, -1.0, -1.0, -1.0], 4)  # a variance of 1 over 4 episodes
    state = started(counted)
    assert state.recent_mean == pytest.approx((-0.5, 0.5, 4))
    stats = structs.replace(fakes.STATS, design_effect=9.0)
    state = started(counted, UpdateFinished(update=1, episodes=4, stats=stats))
    assert state.recent_mean == pytest.approx((-0.5, 1.5, 4))


def test_a_resumed_run_takes_its_curve_back_to_the_checkpoint():
    lost = trainer_lost(
        started(fakes.counted([1.0] * 10, 10), ModeChanged(mode="inference")), "The trainer died."
    )
    state = after(fakes.counted([-1.0] * 2, 6), state=run.restarted(lost))
    assert (state.episodes, sum(group.total for group in state.returns.groups)) == (6, 2.0)
    assert state.marks == ()


def test_a_resumed_run_counts_under_its_prompts_what_the_checkpoint_has():
    lost = trainer_lost(
        started(
            fakes.counted([1.0] * 4, 4),
            CheckpointSaved(update=1),
            fakes.counted([-1.0] * 6, 10),
        ),
        "The trainer died.",
    )
    begun = structs.replace(fakes.run_started(), episodes=4)
    state = after(begun, state=run.restarted(lost))
    assert [known.under("train").recent for known in state.prompts] == [(1.0,) * 4]


def test_a_roll_back_is_marked_noted_and_sets_the_updates_back():
    state = started(fakes.counted([1.0], 40), RolledBack(update=3, reason="Collapsed: x."))
    assert (state.updates, state.marks[-1].episode, state.marks[-1].label) == (3, 40, "rolled back")
    assert state.transcript.entries[-1].fact == Notice("rolled back: to update 3; Collapsed: x.")


def test_changed_settings_are_kept_and_marked_by_what_was_asked_for():
    state = started(SettingsChanged(changes={"ppo.lr_final": 1e-4, "ppo.lr": 1e-4}))
    state = after(SettingsChanged(changes={"n_envs": 8}), state=state)
    assert state.settings == {"ppo.lr_final": 1e-4, "ppo.lr": 1e-4, "n_envs": 8}
    assert [mark.label for mark in state.marks] == ["ppo.lr 0.0001", "n_envs 8"]


def test_what_each_layer_foretells_stays_in_the_state_and_outlives_a_session() -> None:
    depth = DepthMeasured(layers=[6, 12], explained=[[0.2], [0.4]], values=["reward"], read=12)
    state = after(depth)
    assert state.depth == depth
    assert run.with_history(after(), state).depth == depth


def test_measured_settings_become_those_of_the_run_with_their_reasons_and_what_is_unusual_is_told():
    values, reasons = (
        {"ppo.gamma": 0.99, "ppo.lam": 1.0},
        {"ppo.gamma": "discount 0.99: a", "ppo.lam": "lambda 1: b"},
    )
    state = started(SettingsMeasured(values=values, reasons=reasons))
    assert (state.config.ppo.gamma, state.config.measured, state.settings) == (0.99, reasons, {})
    usual = SettingsMeasured(values=dict.fromkeys(values, 1.0), reasons=reasons)
    assert measured_text(usual) == "discount 0.99: a"


@pytest.mark.parametrize(
    ("event", "note"),
    [
        (WarningRaised(message="LR is high"), "Warning: LR is high"),
        (  # no interval
            fakes.evaluation(1.0, episodes=1, greedy=False, return_stderr=0.0),
            "Evaluation: mean return +1 over 1 sampled episode",
        ),
        (
            DemonstrationsRead(
                path="demos.jsonl",
                episodes=1234,
                turns=2345,
                actions={},
                under_present_prompt=1,
            ),
            "A warm start trains on 1,234 episodes, 2,345 turns: demos.jsonl",
        ),
    ],
)
def test_what_happens_is_told_in_the_conversation_and_the_run_goes_on(event: AnyEvent, note: str):
    state = started(event)
    assert state.live
    assert state.transcript.entries[-1].fact == Notice(note)
