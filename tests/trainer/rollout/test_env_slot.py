"""The episode of one environment: what is counted of it, and where it is cut off."""

from __future__ import annotations

import re

import pytest

from llamagym_tui.errors import PromptTooLongError
from llamagym_tui.trainer.rollout.evaluation import evaluate
from tests.toy_env import CountAgent, EndlessAgent
from tests.trainer.rollout.test_failures import fill


def test_an_observation_with_half_a_character_is_played(make_rollout):
    class Halved(CountAgent):
        def format_observation(self, observation: int) -> str:
            return f"{observation}\udcff"

    rollout, warnings = make_rollout(Halved(), max_failures=1)
    fill(rollout)
    assert warnings == []
    assert rollout.slots[0].shown.text.endswith("?")


class LongWinded(EndlessAgent):
    """Its observations are longer from turn to turn, until 200 tokens do not hold one."""

    def format_observation(self, observation: int) -> str:
        return "q" * 40 * (observation + 1)


def test_a_conversation_that_the_model_cannot_read_further_ends_its_episode_as_truncated(
    make_rollout,
):
    rollout, warnings = make_rollout(LongWinded(), max_turns=50)
    rollout.policy.context = 200
    rollout.policy.history = 0
    batch = fill(rollout)
    assert {trajectory.end for trajectory in batch} == {"truncated"}
    segments = [each for trajectory in batch for each in trajectory.segments]
    lengths = [len(each.prefix) + len(each.ids) for each in segments]
    lengths += [sum(map(len, trajectory.final_prompt)) for trajectory in batch]
    assert 150 < max(lengths) <= 200
    for (
        trajectory
    ) in batch:  # the nearest value that is known is that of the last prompt that was read
        segment = trajectory.segments[-1]
        assert trajectory.final_prompt.rest == tuple(segment.ids[: segment.turns[-1].start])
    assert len(warnings) == 1
    assert re.match(
        r"Episodes of LlamaCount-v0 are cut off once an observation is too long: a prompt of \d+ tokens and a reply "
        r"of up to 6 are more than the 200 that the model reads\. They count as truncated\.",
        warnings[0],
    )


def test_a_first_prompt_that_the_model_cannot_read_ends_the_run_before_any_forward(
    make_rollout,
):
    class Verbose(CountAgent):
        def format_observation(self, observation: int) -> str:
            return "q" * 50_000

    rollout, _ = make_rollout(Verbose())
    rollout.policy.model.backbone.encode = None
    with pytest.raises(
        PromptTooLongError,
        match=r"system prompt and one observation of LlamaCount-v0 are too long: .*",
    ):
        rollout.step()
    assert rollout.live == 0
    with pytest.raises(PromptTooLongError):
        evaluate(make_rollout(Verbose())[0], 2, ended=[])


def test_of_what_is_only_played_the_watched_episode_can_be_recalled_after_its_end(make_rollout):
    rollout, _ = make_rollout(CountAgent())
    rollout.mode = "inference"
    rollout.step()
    assert len(rollout.step()) == 2
    trajectory, stage = rollout.recall(0)
    assert (len(trajectory.turns), stage) == (2, "inference")
    assert rollout.recall(1) is None
