"""Turns with admissible actions of their own: what is computed ahead, chosen, scored and trained on follows them."""

from __future__ import annotations

import math
from functools import partial

import pytest
from msgspec.structs import replace

from llamagym_tui.engine.learning.ppo import PPO
from llamagym_tui.engine.policy.decisions import probabilities_of_actions
from llamagym_tui.engine.policy.episode import Episode, prompt_after, replayed
from llamagym_tui.engine.policy.sampler import Sampler
from llamagym_tui.errors import PromptTooLongError
from llamagym_tui.settings import PPOConfig
from tests.engine.policy.test_sampler import scored

SETS = (
    ("go north", "take key"),
    ("go north",),
    None,
    ("open chest", "open door", "wait"),
    ("go north", "take key"),
)


@pytest.fixture
def make(make_policy):
    return partial(make_policy, max_new_tokens=8, temperature=0.8)


def play(policy, turns: int = 3) -> list[Episode]:
    """Five episodes; in every turn each has another of `SETS`."""
    sampler = Sampler(policy)
    episodes = [Episode(policy, "Play.") for _ in SETS]
    for turn in range(turns):
        prompts = []
        for slot, episode in enumerate(episodes):
            observation = "same" if turn == 0 else f"more {slot} " * (slot + 1)
            prompts.append(episode.observe(observation, SETS[(slot + turn) % 5]))
        replies = sampler.reply(prompts, [episode.trie for episode in episodes])
        for episode, reply in zip(episodes, replies, strict=True):
            episode.reply(reply)
            episode.reward(float(turn))
    return episodes


@pytest.mark.parametrize("history", [None, 0])
@pytest.mark.parametrize("kind", ["generate", "score"])
def test_rows_with_different_actions_are_those_of_plain_forwards(make, kind, history):
    policy = make(policy=kind)
    policy.history = history
    for segment in [
        segment for episode in play(policy) for segment in episode.finish("terminated").segments
    ]:
        ids = [*segment.prefix, *segment.ids]
        for turn in segment.turns:
            start, end = len(segment.prefix) + turn.start, len(segment.prefix) + turn.end
            if kind == "score":  # the temperature divides scores, and no tokens' logits
                policy.generation = replace(policy.generation, temperature=1.0)
            logprobs, value = scored(policy, ids, start, end)
            assert turn.logprobs == pytest.approx(logprobs, abs=1e-4)
            assert turn.value == pytest.approx(value, abs=1e-4)


def test_a_reply_is_chosen_among_the_actions_of_its_turn_by_their_scores(make):
    policy = make(policy="score", normalization="token")
    for slot, episode in enumerate(play(policy)):
        for number, turn in enumerate(episode.finish("terminated").turns):
            actions = SETS[(slot + number) % 5]
            assert turn.actions == actions
            assert turn.choice.replies == policy.trie_of(actions).replies
            assert policy.chat.text(turn.choice.replies[turn.choice.chosen]) in (
                actions or ['{"action": 0}', '{"action": 1}']
            )
            assert len(turn.choice.divisors) == len(turn.choice.replies)
    first = play(policy, turns=1)[3].finish("terminated").turns[0].choice
    prompt = policy.chat.opening("Play.", "same")
    (shares,) = probabilities_of_actions(policy, [prompt], policy.trie_of(SETS[3]))
    assert math.exp(first.logprob) == pytest.approx(shares[first.chosen], abs=1e-4)
    assert sum(shares) == pytest.approx(1.0)


def test_replies_part_where_the_actions_of_their_turn_do(make):
    policy = make()
    ids = list(policy.chat.reply_ids("open door"))
    found = replayed(policy, [
        {"role": "user", "content": "x", "actions": ["open chest", "open door"]},
        {"role": "assistant", "content": "open door"},
        {"role": "user", "content": "y", "actions": ["open door", "wait"]},
        {"role": "assistant", "content": "open door"},
        {"role": "user", "content": "z"},
        {"role": "assistant", "content": "open door"},
    ]).finish("terminated").turns  # fmt: skip
    shared = ids[
        : [a == b for a, b in zip(ids, policy.chat.reply_ids("open chest"), strict=False)].index(
            False
        )
    ]
    assert [[branch.at for branch in turn.branches] for turn in found] == [[len(shared)], [0], []]


@pytest.mark.parametrize("kind", ["generate", "score"])
def test_an_update_scores_turns_with_different_actions_as_they_were_sampled(make, kind):
    policy = make(policy=kind, normalization="word")
    batch = [episode.finish("terminated") for episode in play(policy)]
    stats = PPO(policy, PPOConfig(lr=0.0, mini_batch_size=15, epochs=1, kl_coef=0.0)).update(batch)
    assert stats.first_ratio < 1e-4
    if kind == "score":
        prompts = [policy.chat.opening("Play.", "same")] * 5
        entropies = [
            sum(
                -p * math.log(p)
                for p in probabilities_of_actions(policy, [prompt], policy.trie_of(actions))[0]
            )
            for prompt, actions in zip(prompts, SETS, strict=True)
        ]
        alone = PPO(policy, PPOConfig(lr=0.0, mini_batch_size=5, epochs=1, kl_coef=0.0))
        found = alone.update([episode.finish("terminated") for episode in play(policy, turns=1)])
        assert found.action_entropy == pytest.approx(sum(entropies) / 5, abs=1e-4)


def test_the_longest_reply_of_the_turn_must_fit(make):
    policy = make(policy="score")
    policy.context = 20
    policy.require_fit(10, policy.trie_of(("wait",)))
    with pytest.raises(PromptTooLongError, match="a reply of up to"):
        policy.require_fit(10, policy.trie_of(("take the very long thing from the other table",)))


def test_the_actions_after_a_conversation_are_those_of_its_last_message(make):
    policy = make()
    episode = replayed(policy, [{"role": "user", "content": "x", "actions": ["wait"]}])
    assert episode.trie.replies == (policy.chat.reply_ids("wait"),)
    assert prompt_after(
        policy, [{"role": "user", "content": "x", "actions": ["wait"]}]
    ) == policy.chat.opening("", "x")
