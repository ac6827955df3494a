"""Wordings of observations: what is played in which, and what is only read."""

from __future__ import annotations

import pytest

from llamagym_tui.errors import UsageError
from llamagym_tui.game.environment import drawn_wording
from llamagym_tui.settings import RunConfig
from llamagym_tui.setup.catalog import agent_of
from llamagym_tui.trainer.builders import Builders
from llamagym_tui.trainer.rollout.rollout import Rollout
from tests.toy_env import CountAgent


class WordyAgent(CountAgent):
    """Tells the count in three ways."""

    wordings = (
        lambda observation: f"After {observation}.",
        lambda observation, info: f"{observation} by now, {info}.",
    )


OWN = ["Steps: 0.", "Steps: 1."]
OTHER = ["After 0.", "After 1."]
KEPT_BACK = ["0 by now, {}.", "1 by now, {}."]


def played(rollout: Rollout, steps: int = 8) -> list:
    rollout.wording = None
    for _ in range(steps):
        rollout.step()
    return rollout.take_batch()


def test_each_training_episode_has_one_wording_and_none_the_last(make_rollout) -> None:
    rollout, _ = make_rollout(WordyAgent(), batch_turns=16)
    batch = played(rollout)
    told = {each.episode: [turn.observation for turn in each.turns] for each in batch}
    assert len(told) == 8
    for episode, texts in told.items():
        assert texts == (OWN, OTHER)[drawn_wording(rollout.seed, episode, 2)]
    numbers = {(turn.observation, turn.wording) for each in batch for turn in each.turns}
    assert numbers == {(text, number) for number, each in enumerate((OWN, OTHER)) for text in each}


@pytest.mark.parametrize("history", [0, None])
def test_as_many_episodes_as_are_played_in_a_wording_are_read_in_the_last_without_earlier_turns(
    make_rollout, history
) -> None:
    rollout, _ = make_rollout(WordyAgent(), batch_turns=16)
    rollout.policy.history = history
    first, second = (rollout.policy.chat.opening("Count.", text) for text in KEPT_BACK)
    expected = [first, second if history == 0 else None]
    for trajectory in played(rollout):
        read = [turn.kept_back for turn in trajectory.turns]
        assert read == (expected if trajectory.episode % 2 == 0 else [None, None])


def test_without_the_setting_all_is_in_the_first_wording_and_nothing_else_is_read(
    make_rollout,
) -> None:
    rollout, _ = make_rollout(WordyAgent())
    rollout.step()
    rollout.step()
    turns = [turn for each in rollout.take_batch() for turn in each.turns]
    assert {turn.observation for turn in turns} == set(OWN)
    assert {(turn.wording, turn.kept_back) for turn in turns} == {(0, None)}


def test_as_many_episodes_in_a_row_as_there_are_wordings_have_each_of_them() -> None:
    drawn = [drawn_wording(3, episode, 5) for episode in range(500)]
    blocks = [drawn[first : first + 5] for first in range(0, 500, 5)]
    assert all(sorted(block) == [0, 1, 2, 3, 4] for block in blocks)
    assert len({tuple(block) for block in blocks}) > 40
    assert drawn == [drawn_wording(3, episode, 5) for episode in range(500)]
    assert drawn != [drawn_wording(4, episode, 5) for episode in range(500)]


@pytest.mark.parametrize(
    ("wordings", "held_out", "wording"), [(True, True, 2), (True, False, 0), (False, True, 0)]
)
def test_evaluations_of_a_run_with_wordings_have_the_last_one(
    make_policy, monkeypatch, wordings, held_out, wording
) -> None:
    class Stopped(Exception):
        pass

    def look(rollout: Rollout) -> None:
        assert rollout.wording == wording
        raise Stopped

    monkeypatch.setattr(Rollout, "step", look)
    config = RunConfig(agent="blackjack", run_dir="", wordings=wordings)
    with pytest.raises(Stopped):
        Builders(config).evaluate(
            WordyAgent(), make_policy(), episodes=1, greedy=True, held_out=held_out
        )


def test_an_agent_with_one_wording_cannot_be_asked_for_several() -> None:
    with pytest.raises(UsageError, match="words its observations in one way"):
        agent_of(RunConfig(agent="kitchen", run_dir="", wordings=True))
