"""Demonstrations and preferences for an adapter on the head alone: which reply a state has, and what is refused."""

from __future__ import annotations

from math import log
from statistics import fmean

import pytest

from llamagym_tui.engine.learning.imitation import (
    PREFERRED,
    STEPS,
    learn_from,
)
from llamagym_tui.engine.learning.ppo import PPO
from llamagym_tui.engine.policy.decisions import probabilities_of_actions
from llamagym_tui.engine.policy.episode import Episode, prompt_after
from llamagym_tui.errors import UsageError
from llamagym_tui.game.chat import Preference, assistant, system, user
from llamagym_tui.settings import DPOSettings, SFTSettings
from tests.engine.conftest import REPLIES
from tests.engine.learning.test_head_ppo import OBSERVATIONS, head_learner, head_policy

LESSONS = [
    [system("Play."), user(observation), assistant(REPLIES[number % 2])]
    for number, observation in enumerate(OBSERVATIONS)
]


@pytest.fixture
def learner(tokenizer) -> PPO:
    return head_learner(head_policy(tokenizer, r=24))


def scores(learner: PPO) -> list[float]:
    """Probability of the lesson's reply among both, by observation."""
    prompts = [Episode(learner.policy, "Play.").prompt_for(each) for each in OBSERVATIONS]
    found = probabilities_of_actions(learner.policy, prompts)
    return [each[number % 2] / sum(each) for number, each in enumerate(found)]


def test_it_learns_the_reply_that_each_observation_has(learner: PPO) -> None:
    assert fmean(scores(learner)) < 0.6
    seen: list[tuple[int, int, float]] = []
    stats = learn_from(learner, LESSONS, SFTSettings(), progress=lambda *each: seen.append(each))
    assert fmean(scores(learner)) > 0.7
    assert (stats.steps, stats.demonstrations, stats.cancelled) == (STEPS, len(LESSONS), False)
    assert stats.last_loss < stats.first_loss
    assert [each[:2] for each in seen] == [(step, STEPS) for step in range(1, STEPS + 1)]
    assert (seen[0][2], seen[-1][2]) == (stats.first_loss, stats.last_loss)
    assert learner.policy.version == 1


def test_a_stop_leaves_what_the_steps_have_learnt(learner: PPO) -> None:
    asked: list[int] = []

    def should_stop() -> bool:
        asked.append(1)
        return len(asked) > 3

    stats = learn_from(learner, LESSONS, SFTSettings(), should_stop=should_stop)
    assert (stats.steps, stats.cancelled) == (3, True)
    assert learner.steps.narrow.up.any()


def test_settings_of_steps_that_it_does_not_make_are_refused(learner: PPO) -> None:
    with pytest.raises(UsageError, match=r"does not use sft\.epochs, sft\.lr: leave it out"):
        learn_from(learner, LESSONS, SFTSettings(lr=1e-4, epochs=9))
    assert learn_from(learner, LESSONS, SFTSettings(max_examples=2)).demonstrations == 2


def preference(number: int, chosen: int) -> Preference:
    """Of one of both replies to an observation, after a turn that is no one's to learn from."""
    before = [system("Play."), user("You begin."), assistant(REPLIES[chosen])]
    asked = [*before, user(OBSERVATIONS[number])]
    return Preference(asked, chosen=REPLIES[chosen], rejected=REPLIES[1 - chosen])


def test_preferred_replies_become_likelier_where_they_were_preferred_and_not_everywhere(
    learner: PPO,
) -> None:
    pairs = [preference(number, number % 2) for number in range(8)]
    with pytest.raises(UsageError, match="ask again after the first update"):
        learn_from(learner, pairs, DPOSettings())
    learn_from(learner, [[*each[:2], assistant(REPLIES[0])] for each in LESSONS], SFTSettings())

    def margins() -> list[float]:
        """Nats by which the second reply is likelier than the first, by observation."""
        prompts = [
            prompt_after(learner.policy, preference(number, number % 2).prompt)
            for number in range(8)
        ]
        return [log(two / one) for one, two in probabilities_of_actions(learner.policy, prompts)]

    before = margins()
    losses: list[float] = []
    stats = learn_from(
        learner,
        pairs,
        DPOSettings(beta=0.5),
        progress=lambda step, steps, loss: losses.append(loss),
    )
    after = margins()
    assert stats.first_loss == losses[0] == pytest.approx(log(2), abs=1e-5)
    assert stats.last_loss == losses[-1] < stats.first_loss
    assert (stats.demonstrations, stats.steps, stats.cancelled) == (8, len(losses), False)
    for number, (was, now) in enumerate(zip(before, after, strict=True)):
        wanted = 1 if number % 2 else -1
        assert wanted * now > 0 or wanted * (now - was) > 0
    if stats.steps < STEPS:
        assert (
            min(now * (1 if number % 2 else -1) for number, now in enumerate(after))
            >= PREFERRED - 0.01
        )


def test_settings_of_preferences_that_it_has_no_use_for_are_refused(learner: PPO) -> None:
    with pytest.raises(UsageError, match=r"does not use dpo\.lr: leave it out"):
        learn_from(learner, [preference(0, 1)], DPOSettings(lr=1e-4))
