"""Supervised training: the tokens of a rollout, loss on the replies alone, and nothing changed but the weights."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from benchmarks.exact_blackjack import STATES
from benchmarks.hit_probabilities import hit_probabilities
from llamagym_tui.agents.blackjack import BlackjackAgent
from llamagym_tui.demos import files as demo_files
from llamagym_tui.engine.learning import trl_training as sft
from llamagym_tui.engine.learning.imitation import learn_from
from llamagym_tui.engine.learning.ppo import PPO
from llamagym_tui.engine.model.loading import load_model_and_tokenizer
from llamagym_tui.engine.policy.episode import Episode
from llamagym_tui.engine.policy.policy import Policy
from llamagym_tui.engine.policy.sampler import Sampler
from llamagym_tui.engine.tokens.tokenization import ChatTokenizer
from llamagym_tui.errors import LlamaGymError
from llamagym_tui.game.chat import Conversation, assistant, system, user
from llamagym_tui.settings import GenerationConfig, PPOConfig, SFTSettings, WarmStartStats

AGENT = BlackjackAgent()
HIT, STICK = AGENT.format_action(1), AGENT.format_action(0)
REWRITING = (
    "{% for m in messages %}{{ m['role'] }}:"
    "{{ '-' if m['role'] == 'assistant' and not loop.last else m['content'] }}\n{% endfor %}"
    "{% if add_generation_prompt %}assistant:{% endif %}"
)
"""Shows of earlier replies a dash."""


def hand(*totals: int, reply: str = STICK) -> Conversation:
    """One hand that hits until the last total."""
    turns: Conversation = [system(AGENT.get_system_prompt())]
    for index, total in enumerate(totals):
        turns += [
            user(AGENT.format_observation((total, 10, 0))),
            assistant(reply if index == len(totals) - 1 else HIT),
        ]
    return turns


def imitate(
    policy: Policy, conversations: list[Conversation], settings: SFTSettings, **more: Any
) -> WarmStartStats:
    return learn_from(PPO(policy, PPOConfig()), conversations, settings, **more)


def test_rows_have_the_ids_and_the_mask_of_a_rollout(make_policy) -> None:
    policy = make_policy(max_new_tokens=8)
    episode, sampler = Episode(policy, AGENT.get_system_prompt()), Sampler(policy)
    conversation: Conversation = [system(AGENT.get_system_prompt())]
    for total in (12, 17):
        text = AGENT.format_observation((total, 10, 0))
        prompt = episode.observe(text)
        (reply,) = sampler.reply([prompt])
        # As a model would reply that has learnt the format.
        reply.ids = list(policy.chat.reply_ids(HIT))
        reply.logprobs, reply.ended = [0.0] * len(reply.ids), True
        conversation += [user(text), assistant(episode.reply(reply))]
    (segment,) = episode.finish("terminated").segments
    (row,) = sft.examples(policy, conversation)
    assert row.input_ids == [*segment.prefix, *segment.ids]
    trained = [label != sft.NOT_TRAINED for label in row.labels]
    assert trained == [False] * len(segment.prefix) + segment.mask


def test_loss_falls_on_the_replies_and_their_ends_alone(make_policy) -> None:
    policy = make_policy()
    (row,) = sft.examples(policy, hand(12, 20))
    trained = [label for label in row.labels if label != sft.NOT_TRAINED]
    assert trained == [*policy.chat.reply_ids(HIT), *policy.chat.reply_ids(STICK)]
    assert trained[-1] == policy.chat.end_ids[0]
    assert all(
        label in (token, sft.NOT_TRAINED)
        for token, label in zip(row.input_ids, row.labels, strict=True)
    )


def test_a_template_that_rewrites_history_gets_a_row_a_turn(make_policy, tokenizer) -> None:
    policy = make_policy()
    kept = tokenizer.chat_template
    try:
        tokenizer.chat_template = REWRITING
        policy.chat = ChatTokenizer(tokenizer)
        rows = sft.examples(policy, hand(12, 20))
        assert [policy.chat.text(row.input_ids).count("assistant:") for row in rows] == [1, 2]
        trained = [
            policy.chat.text([label for label in row.labels if label != sft.NOT_TRAINED]).strip()
            for row in rows
        ]
        assert trained == [HIT, STICK]
    finally:
        tokenizer.chat_template = kept


def test_training_changes_weights_and_leaves_everything_else_as_it_was(make_policy) -> None:
    policy = make_policy()
    lm, tokenizer = policy.model.causal_lm, policy.chat.tokenizer
    before = {name: weight.detach().clone() for name, weight in policy.model.named_parameters()}
    random.seed(1), np.random.seed(1), torch.manual_seed(1)
    state = (
        lm.config.to_dict(),
        set(vars(lm)),
        tokenizer.pad_token,
        torch.get_num_threads(),
        torch.get_rng_state(),
    )
    reported: list[tuple[int, int]] = []
    stats = imitate(
        policy,
        [hand(12, 20)] * 8,
        SFTSettings(epochs=10, min_steps=0, batch_size=4, lr=1e-2),
        progress=lambda step, steps, loss: reported.append((step, steps)),
    )
    assert reported == [(step, 20) for step in range(1, 21)]
    assert stats.last_loss < 0.5 * stats.first_loss
    assert (stats.steps, stats.cancelled) == (20, False)
    after = dict(policy.model.named_parameters())
    assert all(
        torch.equal(after[name], weight) == name.startswith("v_head")
        for name, weight in before.items()
    )
    assert all(weight.requires_grad and weight.dtype == torch.float32 for weight in after.values())
    assert state[:4] == (
        lm.config.to_dict(),
        set(vars(lm)),
        tokenizer.pad_token,
        torch.get_num_threads(),
    )
    assert torch.equal(state[4], torch.get_rng_state())
    assert (policy.version, policy.model.training, lm.training) == (1, False, False)


def test_with_an_adapter_the_adapter_alone_is_trained(make_policy) -> None:
    policy = make_policy(lora=True)
    before = {name: weight.detach().clone() for name, weight in policy.model.named_parameters()}
    wanted = {name: weight.requires_grad for name, weight in policy.model.named_parameters()}
    stats = imitate(
        policy, [hand(12, 20)] * 4, SFTSettings(epochs=10, min_steps=0, batch_size=4, lr=1e-2)
    )
    after = dict(policy.model.named_parameters())
    changed = {name for name, weight in before.items() if not torch.equal(after[name], weight)}
    assert changed == {name for name in before if "lora_" in name}
    assert {name: weight.requires_grad for name, weight in after.items()} == wanted
    assert stats.last_loss < stats.first_loss


def test_a_cancelled_training_keeps_what_it_has_learnt_and_plays_on(make_policy) -> None:
    policy = make_policy()
    seen: list[int] = []
    stats = imitate(
        policy,
        [hand(12, 20)] * 8,
        SFTSettings(epochs=10, min_steps=0, batch_size=4),
        progress=lambda step, steps, loss: seen.append(step),
        should_stop=lambda: len(seen) >= 2,
    )
    assert stats.cancelled
    assert stats.steps < 5
    assert policy.version == 1
    opening = policy.chat.opening(AGENT.get_system_prompt(), "Your total: 12.")
    (reply,) = Sampler(policy).reply([opening])
    assert reply.ids


@pytest.mark.slow
def test_the_same_seed_gives_the_same_weights(make_policy) -> None:
    def trained(seed: int) -> tuple[WarmStartStats, torch.Tensor]:
        policy = make_policy()
        settings = SFTSettings(epochs=1, min_steps=5, batch_size=2)
        stats = imitate(policy, [hand(total) for total in range(4, 8)], settings, seed=seed)
        return stats, policy.model.causal_lm.get_input_embeddings().weight.detach()

    (stats, first), (_, again), (_, other) = trained(3), trained(3), trained(4)
    assert stats.steps == 6  # three passes: one is two steps, and five are wanted
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def test_a_training_that_diverges_is_an_error_and_no_policy(make_policy) -> None:
    with pytest.raises(
        LlamaGymError, match=r"diverged and its policy is lost; try a lower sft\.lr"
    ):
        imitate(
            make_policy(), [hand(12)] * 4, SFTSettings(epochs=1, min_steps=4, warmup=0.0, lr=1e30)
        )


@pytest.mark.slow
def test_twenty_hands_of_a_person_move_the_hit_rate_on_their_totals(bundled: Path) -> None:
    loaded = load_model_and_tokenizer(str(bundled), "cpu")
    policy = Policy(loaded.model, loaded.tokenizer, GenerationConfig(), [STICK, HIT])
    person = [
        hand(total, reply=HIT if total < 17 else STICK)
        for total in (12, 13, 14, 15, 16, 17, 18, 19, 20, 10) * 2
    ]
    states = [(total, 10, 0) for total in (12, 13, 14, 15, 16, 17, 18, 19, 20)]

    def distance() -> float:
        rates = hit_probabilities(policy, AGENT.get_system_prompt(), states)
        return sum(abs(rate - (state[0] < 17)) for state, rate in rates.items()) / len(states)

    before = distance()
    imitate(policy, person, SFTSettings())
    assert distance() < 0.5 * before


@pytest.mark.slow
def test_the_demonstrations_that_ship_teach_blackjack(bundled: Path) -> None:
    loaded = load_model_and_tokenizer(str(bundled), "cpu")
    policy = Policy(loaded.model, loaded.tokenizer, GenerationConfig(), [STICK, HIT])
    shipped = demo_files.read(Path(__file__).resolve().parents[3] / "sft_data" / "blackjack.jsonl")
    imitate(policy, [demo.messages for demo in shipped], SFTSettings())
    chosen = hit_probabilities(policy, AGENT.get_system_prompt())
    right = sum((chosen[state] > 0.5) == bool(AGENT.expert(state)) for state in STATES)
    assert right / len(STATES) > 0.9
