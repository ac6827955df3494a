"""What is reported once about an agent and its episodes."""

from __future__ import annotations

import re

import pytest

from tests.toy_env import CountAgent
from tests.trainer.rollout.test_failures import fill


@pytest.mark.parametrize(
    ("named", "warned"),
    [
        (12, True),
        (13, False),
        pytest.param(0, True, marks=pytest.mark.slow),
        pytest.param(25, False, marks=pytest.mark.slow),
    ],
)
def test_where_most_replies_name_no_action_one_warning_has_an_example(make_rollout, named, warned):
    class Reads(CountAgent):
        read_so_far = 0

        def extract_action(self, response: str) -> int | None:
            self.read_so_far += 1
            return 1 if self.read_so_far % 25 < named else None

    rollout, warnings = make_rollout(Reads(), batch_turns=60)
    fill(rollout)
    assert len(warnings) == warned
    if warned:
        share = round(100 * (1 - named / 25))
        told = f"{share}% of the first 50 replies name no action, for example '.+': the agent's fallback "
        assert re.match(f"{told}action is played in their place. ", warnings[0])


@pytest.mark.parametrize(
    ("own_limit", "turns", "warned"), [(9, 4, True), (4, 4, False), (4, 9, False), (4, None, False)]
)
def test_a_cut_before_the_environments_own_limit_is_reported_once(
    make_rollout, own_limit, turns, warned
):
    class Limited(CountAgent):
        env_kwargs = {"endless": True, "max_episode_steps": own_limit}  # noqa: RUF012

    rollout, warnings = make_rollout(Limited(), max_turns=turns, batch_turns=20)
    ended = []
    while len(ended) < 6:
        ended += rollout.step()
    assert {(episode.length, episode.is_truncated) for episode in ended} == {(4, True)}
    expected = (
        "Episodes of LlamaCount-v0 are cut off after 4 turns: --set max_turns=N sets another number. "
        "They count as truncated."
    )
    assert warnings == [expected] * warned
