"""A thought that takes all the room is closed, and the action is asked for: by tokens that are not the policy's own."""

from __future__ import annotations

import pytest
import torch

from llamagym_tui.config import GenerationConfig, PPOConfig
from llamagym_tui.engine.learning.ppo import PPO
from llamagym_tui.engine.model import lean
from llamagym_tui.engine.model.value_head import AutoModelForCausalLMWithValueHead
from llamagym_tui.engine.policy.episode import Episode
from llamagym_tui.engine.policy.policy import Policy
from llamagym_tui.engine.policy.sampler import Sampler
from llamagym_tui.engine.policy.trajectory import NONE_FORCED
from tests.engine.conftest import tiny_llama
from tests.engine.policy.test_turn_ends import CHATML, Family

QWEN3 = Family(
    *CHATML, "<|im_end|> <|im_start|>", "<|im_start|> <|im_end|>", "<think> </think>", "<|im_end|>"
)
"""The model itself begins a thought, if it thinks."""
R1 = Family(
    "<|User|>%", "<|Assistant|><think>\n", "<|end|>", "<|end|> <|User|>",
    "<|end|> <|User|> <|Assistant|>", "<think> </think>", "<|end|>",
)  # fmt: skip
"""Every reply begins within a thought, as in the templates of DeepSeek-R1."""
EPISODES = 24
LONGEST = 26
REPLIES = ("act up", "act down")
CLOSED = "\n</think>\n\nact "
"""What closes a thought, and what all admissible replies begin with."""


def thinking(family: Family, longest: int = LONGEST) -> Policy:
    tokenizer = family.tokenizer()
    model = AutoModelForCausalLMWithValueHead(tiny_llama(len(tokenizer)))
    torch.nn.init.normal_(model.v_head.out.weight)
    return Policy(model, tokenizer, GenerationConfig(max_new_tokens=longest), REPLIES)


def played(policy: Policy) -> list[Episode]:
    """Episodes of one reply each."""
    sampler = Sampler(policy, EPISODES)
    episodes = [Episode(policy, "") for _ in range(EPISODES)]
    prompts = [episode.observe(f"room {at}") for at, episode in enumerate(episodes)]
    for slot, prompt in enumerate(prompts):
        sampler.restart(slot, prompt.restart or ())
    replies = sampler.reply(range(EPISODES), [prompt.ids for prompt in prompts])
    for episode, reply in zip(episodes, replies, strict=True):
        episode.reply(reply)
        episode.reward(float(len(reply.ids) % 2))
    return episodes


@pytest.fixture(params=["lean", "general", "together"])
def path(request, monkeypatch: pytest.MonkeyPatch) -> None:
    """A model of the Llama family, or of any; or some tokens are drawn before the host sees them, as on a GPU."""
    if request.param == "general":
        monkeypatch.setattr(lean, "FAMILY", frozenset())
    if request.param == "together":
        made = Sampler.__init__

        def draws_together(sampler: Sampler, policy: Policy, slots: int) -> None:
            made(sampler, policy, slots)
            sampler._together = 7

        monkeypatch.setattr(Sampler, "__init__", draws_together)


@pytest.mark.usefixtures("path")
def test_a_thought_is_closed_where_an_action_has_just_room_behind_it() -> None:
    policy = thinking(R1)
    budget = policy.thought_budget(policy.trie)
    forced = 0
    for episode in played(policy):
        (segment,) = episode.segments
        (turn,) = segment.turns
        ids = segment.ids[turn.start : turn.end]
        assert len(ids) <= LONGEST
        first, after = turn.forced
        if turn.forced == NONE_FORCED:
            assert len(ids) <= budget or not policy.chat.is_thinking(ids[: int(budget)])
            continue
        forced += 1
        assert first == budget
        assert policy.chat.tokenizer.decode(ids[first:after]) == CLOSED
        assert LONGEST - after >= max(len(reply) for reply in REPLIES) + 1 - len("act ")
        assert not policy.chat.is_thinking(ids[:after])
    assert forced > EPISODES / 2


@pytest.mark.usefixtures("path")
def test_what_was_put_in_is_not_the_policys_and_what_follows_is_sampled_behind_it() -> None:
    policy = thinking(R1)
    episodes = played(policy)
    for episode in episodes:
        (segment,) = episode.segments
        (turn,) = segment.turns
        whole = [*segment.prefix, *segment.ids]
        with torch.no_grad():
            logprobs = policy.model.causal_lm(torch.tensor([whole])).logits[0].log_softmax(-1)
        before = len(segment.prefix)
        plain = [logprobs[before + at - 1, segment.ids[at]].item() for at in turn.sampled_at]
        assert turn.logprobs == pytest.approx(plain, abs=1e-4)
        first, after = (turn.start + at for at in turn.forced)
        assert not any(segment.mask[first:after])
        assert sum(segment.mask) == len(turn.logprobs)
    turns = [episode.segments[0].turns[0] for episode in episodes]
    assert any(turn.forced != NONE_FORCED for turn in turns)
    learner = PPO(policy, PPOConfig(critic_warmup_updates=0, credit="token", batch_size=8))
    stats = learner.update([episode.finish("terminated") for episode in episodes])
    assert stats.first_ratio < 1e-4
    lengths = [turn.end - turn.start for turn in turns]
    rows = [episode.segments[0] for episode in episodes]
    thoughts = [policy.chat.thought_tokens(row.ids[row.turns[0].start :]) for row in rows]
    assert sum(thoughts) > sum(turn.forced[0] for turn in turns) > 0
    assert stats.thought_tokens == pytest.approx(sum(thoughts) / len(turns))
    assert stats.answer_tokens == pytest.approx(sum(lengths) / len(turns) - stats.thought_tokens)


def test_a_thought_that_the_model_begins_itself_is_closed_and_no_other_reply_is() -> None:
    policy = thinking(QWEN3)
    tag = policy.chat.tokenizer.convert_tokens_to_ids("<think>")
    head = policy.model.causal_lm.lm_head
    head.weight = torch.nn.Parameter(head.weight.detach().clone())  # no longer the embedding's
    with torch.no_grad():
        head.weight[tag] *= 12  # begun in some replies, and not in others
    budget = int(policy.thought_budget(policy.trie))
    thought = 0
    for episode in played(policy):
        (turn,) = episode.segments[0].turns
        ids = episode.segments[0].ids[turn.start : turn.end]
        first, _ = turn.forced
        if turn.forced == NONE_FORCED:
            assert len(ids) <= budget or not policy.chat.is_thinking(ids[:budget])
        else:
            assert policy.chat.is_thinking(ids[:first])
            thought += 1
    assert 0 < thought < EPISODES


def test_a_thought_without_room_for_an_action_is_not_closed() -> None:
    policy = thinking(R1, longest=len("act down") + 2)
    assert all(episode.segments[0].turns[0].forced == NONE_FORCED for episode in played(policy))


@pytest.mark.parametrize(
    ("reply", "thought"),
    [
        ("ab</think>act up<|end|>", 3),
        ("ab", 2),
        ("act up<|end|>", 0),
        ("<think>ab</think>\nact up<|end|>", 4),
    ],
)
def test_tokens_of_a_thought_are_counted_through_its_end(reply: str, thought: int) -> None:
    chat = thinking(R1).chat
    ids = chat.tokenizer(reply)["input_ids"]
    assert chat.thought_tokens(ids) == thought
