"""Imitation by an adapter on the head alone: it learns which reply a state has, and what it cannot obey is refused."""

from __future__ import annotations

from statistics import fmean

import pytest

from llamagym_tui.config import SFTSettings
from llamagym_tui.engine.learning.head_ppo import HeadPPO
from llamagym_tui.engine.learning.head_sft import STEPS, train_head_on
from llamagym_tui.engine.learning.scoring import probabilities_of_actions
from llamagym_tui.engine.policy.episode import Episode
from llamagym_tui.errors import UsageError
from llamagym_tui.game.chat import assistant, system, user
from tests.engine.conftest import REPLIES
from tests.engine.learning.test_head_ppo import OBSERVATIONS, head_learner, head_policy

LESSONS = [
    [system("Play."), user(observation), assistant(REPLIES[number % 2])]
    for number, observation in enumerate(OBSERVATIONS)
]


@pytest.fixture(params=["score", "generate"])
def learner(request, tokenizer) -> HeadPPO:
    learner = head_learner(head_policy(tokenizer, request.param, r=24))
    assert isinstance(learner, HeadPPO)
    return learner


def scores(learner: HeadPPO) -> list[float]:
    """Probability of the lesson's reply among both, by observation."""
    prompts = [Episode(learner.policy, "Play.").prompt_for(each) for each in OBSERVATIONS]
    found = probabilities_of_actions(learner.policy, prompts)
    return [each[number % 2] / sum(each) for number, each in enumerate(found)]


def test_it_learns_the_reply_that_each_observation_has(learner: HeadPPO) -> None:
    assert fmean(scores(learner)) < 0.6
    seen: list[tuple[int, int, float]] = []
    stats = train_head_on(learner, LESSONS, SFTSettings(), progress=lambda *each: seen.append(each))
    assert fmean(scores(learner)) > 0.7
    assert (stats.steps, stats.demonstrations, stats.cancelled) == (STEPS, len(LESSONS), False)
    assert stats.last_loss < stats.first_loss
    assert [each[:2] for each in seen] == [(step, STEPS) for step in range(1, STEPS + 1)]
    assert (seen[0][2], seen[-1][2]) == (stats.first_loss, stats.last_loss)
    assert learner.policy.version == 1


def test_a_stop_leaves_what_the_steps_have_learnt(learner: HeadPPO) -> None:
    asked: list[int] = []

    def should_stop() -> bool:
        asked.append(1)
        return len(asked) > 3

    stats = train_head_on(learner, LESSONS, SFTSettings(), should_stop=should_stop)
    assert (stats.steps, stats.cancelled) == (3, True)
    assert learner.narrow.up.any()


def test_settings_of_steps_that_it_does_not_make_are_refused(learner: HeadPPO) -> None:
    with pytest.raises(UsageError, match=r"has no use for sft\.epochs, sft\.lr: leave it out"):
        train_head_on(learner, LESSONS, SFTSettings(lr=1e-4, epochs=9))
    assert train_head_on(learner, LESSONS, SFTSettings(max_examples=2)).demonstrations == 2
