"""How the policy played in training and in inference, by hand-worked numbers."""

from __future__ import annotations

import math

import msgspec
import pytest

from llamagym_tui.protocol.events import (
    AnyEvent,
    EpisodesCounted,
    ModeChanged,
    PromptChanged,
    RolledBack,
    SettingsChanged,
)
from llamagym_tui.returns import RECENT
from llamagym_tui.state.play_counts import Manner, PlayCounts
from llamagym_tui.state.reduce import reduce
from llamagym_tui.state.run import RunState, initial_state
from llamagym_tui.trainer.rollout.episode_counts import EpisodeCounter, Stopwatch
from tests import fakes
from tests.fake_parts import Clock, Ended

PLAIN = Manner(1, 1.0, "generate, 32 tokens")


def counted(
    returns: list[float], stick: int, hit: int, *, failures: int = 0, **changes: object
) -> EpisodesCounted:
    fields = {"mode": "train", "prompt_version": 1, "lengths": [2] * len(returns), **changes}
    return EpisodesCounted(
        returns=returns,
        parse_failures=failures,
        actions=[stick, hit],
        episodes=len(returns),
        env_steps=0,
        episodes_per_s=1.0,
        **fields,  # type: ignore[arg-type]
    )


def after(*events: AnyEvent, state: RunState | None = None) -> RunState:
    state = state or reduce(initial_state(fakes.config("/runs/demo")), fakes.run_started())  # type: ignore[arg-type]
    for event in events:
        state = reduce(state, event)
    return state


def test_both_modes_are_counted_apart():
    state = after(
        counted([1.0, -1.0, -1.0, -1.0], 3, 4, failures=1),
        ModeChanged(mode="inference"),
        counted([1.0, 1.0, -1.0], 4, 2, mode="inference"),
    )
    train, inference = state.play.train, state.play.inference
    assert (train.returns.episodes, inference.returns.episodes) == (4, 3)
    mean = train.returns.mean_return
    assert mean is not None
    assert mean.mean == -0.5
    assert math.isclose(mean.stderr, 0.5), "the deviation of 1, -1, -1, -1 is 1"
    assert (train.failure_share, inference.failure_share) == (1 / 8, 0.0)
    assert [train.action_share(action) for action in (0, 1)] == [3 / 7, 4 / 7]
    assert [inference.action_share(action) for action in (0, 1)] == [2 / 3, 1 / 3]


def test_what_was_not_played_has_no_shares():
    play = after().play
    assert play.train.returns.mean_return is None
    assert (play.inference.failure_share, play.inference.action_share(0)) == (None, None)


def test_each_switch_to_inference_begins_its_count_and_training_keeps_its_own():
    state = after(
        counted([1.0], 1, 0), ModeChanged(mode="inference"), counted([1.0], 1, 0, mode="inference")
    )
    state = after(ModeChanged(mode="train"), state=state)
    assert state.play.inference.returns.episodes == 1, "it stays to be looked at"
    state = after(ModeChanged(mode="inference"), state=state)
    assert (state.play.train.returns.episodes, state.play.inference.returns.episodes) == (1, 0)
    state = after(
        counted([1.0], 1, 0, mode="inference"), ModeChanged(mode="inference"), state=state
    )
    assert state.play.inference.returns.episodes == 1, "this was no switch"


def test_another_temperature_begins_only_the_count_of_what_is_played_now():
    state = after(
        counted([1.0], 1, 0), ModeChanged(mode="inference"), counted([1.0], 1, 0, mode="inference")
    )
    state = after(SettingsChanged(changes={"generation.temperature": 0.5}), state=state)
    state = after(counted([-1.0, -1.0], 0, 4, mode="inference"), state=state)
    train, inference = state.play.train, state.play.inference
    assert (train.manner, train.returns.episodes) == (PLAIN, 1)
    assert (inference.manner, inference.returns.episodes) == (PLAIN._replace(temperature=0.5), 2)
    assert inference.actions == (0, 4)


def test_a_setting_of_ppo_begins_no_count():
    state = after(counted([1.0], 1, 0), SettingsChanged(changes={"ppo.lr": 1e-4}))
    assert after(counted([1.0], 1, 0), state=state).play.train.returns.episodes == 2


def test_episodes_of_an_older_prompt_count_in_neither():
    state = after(counted([1.0], 1, 0), PromptChanged(prompt_version=2, system_prompt="new"))
    state = after(counted([1.0], 1, 0), counted([0.0], 0, 1, prompt_version=2), state=state)
    assert state.play.train.manner == PLAIN._replace(prompt_version=2)
    assert state.play.train.actions == (0, 1)


def test_nothing_counts_of_a_policy_that_was_rolled_back():
    state = after(counted([1.0], 1, 0), RolledBack(update=0, reason="requested"))
    assert state.play == PlayCounts()


def test_the_last_thousand_training_episodes_stand_for_it_in_bounded_memory():
    state = after(
        *(counted([0.0] * 10, 20, 0) for _ in range(300)),
        *(counted([1.0] * 10, 0, 20) for _ in range(100)),
    )
    train = state.play.train
    assert RECENT <= train.returns.episodes < RECENT + 100
    assert train.returns.total == 1000
    assert len(state.play.stretches) <= 18


def test_an_old_log_without_counts_of_actions_has_shares_of_none():
    old = counted([1.0], 1, 0)
    state = after(
        EpisodesCounted(
            **{name: getattr(old, name) for name in old.__struct_fields__ if name != "actions"}
        )
    )
    assert (state.play.train.actions, state.play.train.action_share(0)) == ((), None)
    assert after(counted([1.0], 1, 0), state=state).play.train.actions == (1, 0)


@pytest.mark.parametrize("mode", ["train", "inference"])
def test_another_number_of_actions_begins_the_count_anew(mode):
    state = after(
        *([ModeChanged(mode="inference")] if mode == "inference" else []),
        counted([1.0], 1, 0, mode=mode),
    )
    wider = msgspec.structs.replace(counted([0.0], 0, 0, mode=mode), actions=[0, 1, 4])
    state = after(wider, wider, state=state)
    played = state.play.train if mode == "train" else state.play.inference
    assert (played.returns.episodes, played.actions) == (2, (0, 2, 8))


def test_the_trainer_tells_how_often_each_action_was_named():
    clock = Clock()
    counter = EpisodeCounter(Stopwatch(clock), clock)
    counter.add([Ended(1.0, actions=(2, 1)), Ended(0.0, actions=(0, 4))])
    (event,) = counter.take_events(env_steps=7)
    assert event.actions == [2, 5]
