"""What was learnt under one system prompt, under another: the same shifts of logits, by observation, within bounds."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest
import torch

from llamagym_tui.engine.learning.carrying import MOST, MOST_MARGIN, Seen, carried, seen_in
from llamagym_tui.engine.learning.directions import KEPT_BACK
from llamagym_tui.engine.learning.packing import batch_rows
from llamagym_tui.engine.learning.ppo import PPO
from llamagym_tui.engine.policy.policy import Policy, states_of
from tests.engine.conftest import REPLIES
from tests.engine.learning.test_head_ppo import OBSERVATIONS, head_learner, head_policy, play

BEFORE = "Play."
AFTER = "Play well."


def learnt(tokenizer) -> tuple[Policy, PPO]:
    """A policy with a direction for each observation, that has taken in a batch under `BEFORE`."""
    policy = head_policy(tokenizer, r=32)
    learner = head_learner(policy)
    learner.steps.narrow.scale = 2.0
    learner.use_prompt(BEFORE)
    learner.update(play(policy))
    return policy, learner


def margins(policy: Policy, prompt: str) -> list[float]:
    """Nats by which the adapter puts the second reply before the first, on each observation, where the two part."""
    assert policy.narrow is not None
    first, second = (policy.chat.reply_ids(reply) for reply in REPLIES)
    parting = next(
        at for at, (one, two) in enumerate(zip(first, second, strict=True)) if one != two
    )
    opened = [policy.chat.opening(prompt, text) for text in OBSERVATIONS]
    hidden = states_of(policy, opened, policy.trie).hidden[:, parting]
    rows = policy.narrow.up[[first[parting], second[parting]]]
    shifts = policy.narrow.shifts(hidden, policy.narrow.down, rows)
    return (shifts[:, 1] - shifts[:, 0]).tolist()


@pytest.mark.parametrize("times", [0.5, 100.0])
def test_under_a_new_prompt_each_observation_is_shifted_as_it_was_within_bounds(
    tokenizer, times
) -> None:
    policy, learner = learnt(tokenizer)
    torch.manual_seed(0)
    with torch.no_grad():
        rows = torch.randn(len(learner.steps.narrow.trained), len(learner.steps.narrow.down))
        learner.steps.narrow.up[learner.steps.narrow.trained] = times * rows / 5
    before = margins(policy, BEFORE)
    assert learner.use_prompt(AFTER)
    expected = [min(max(margin, -MOST_MARGIN), MOST_MARGIN) for margin in before]
    assert (expected != before) == (times > 1)
    assert margins(policy, AFTER) == pytest.approx(expected, abs=0.5 if times > 1 else 0.1)


def test_learning_goes_on(tokenizer) -> None:
    policy, learner = learnt(tokenizer)
    learner.use_prompt(AFTER)
    rate = learner.steps.optimizer.param_groups[0]["lr"]
    up = learner.steps.narrow.up.detach().clone()
    learner.update(play(policy))
    assert not torch.equal(learner.steps.narrow.up, up)
    assert learner.steps.optimizer.param_groups[0]["lr"] > rate / 4


def test_nothing_is_carried_before_the_first_batch(tokenizer) -> None:
    policy = head_policy(tokenizer)
    learner = head_learner(policy)
    learner.use_prompt(BEFORE)
    assert carried(policy, [], (BEFORE, AFTER)) is None
    assert learner.use_prompt(AFTER)
    assert not learner.steps.narrow.up.any()
    assert not learner.steps.narrow.down.any()


def test_observations_are_kept_once_and_not_without_end(tokenizer, monkeypatch) -> None:
    policy = head_policy(tokenizer)
    rows = batch_rows(play(policy, 60))
    assert len(seen_in(rows)) == len(OBSERVATIONS) < MOST
    monkeypatch.setattr("llamagym_tui.engine.learning.carrying.MOST", 7)
    assert len(seen_in(rows)) == 7


def test_under_a_new_prompt_the_mean_of_each_wording_is_left_out(tokenizer) -> None:
    policy, _ = learnt(tokenizer)
    told = ("You see {}.", "There is {} here.", "Now {} is seen.")
    seen = []
    for wording, words in zip((0, 1, KEPT_BACK), told, strict=True):
        prompts = [policy.chat.opening(BEFORE, words.format(each)) for each in range(20)]
        seen += [Seen(None, prompt.rest, wording) for prompt in prompts]
    found = carried(policy, seen, (BEFORE, AFTER))
    assert found is not None
    parting = next(iter(policy.trie.partings)) + 1
    for words in told:
        prompts = [policy.chat.opening(AFTER, words.format(each)) for each in range(20)]
        mean = states_of(policy, prompts, policy.trie).hidden[:, parting].mean(0)
        assert (found.down[1:] @ mean).abs().max() < 1e-3


def test_what_a_batch_saw_is_kept_with_its_wordings_and_an_older_record_is_read(tokenizer) -> None:
    policy = head_policy(tokenizer)
    (trajectory,) = play(policy, 1)
    segment = trajectory.segments[0]
    prompt = policy.chat.opening(BEFORE, "Kept back.")
    segment.turns[0] = replace(segment.turns[0], wording=1, kept_back=prompt)
    seen = seen_in(batch_rows([trajectory]))
    rest = tuple(segment.ids[: segment.turns[0].start])
    assert seen == [Seen(None, rest, 1), Seen(None, prompt.rest, KEPT_BACK)]
    assert msgspec.json.decode(b"[null, [4, 5]]", type=Seen) == Seen(None, (4, 5), 0)
