"""Supervised training: the tokens of a rollout, loss on the replies alone, and nothing changed but the weights."""

from __future__ import annotations

import random
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from benchmarks.exact_blackjack import STATES
from benchmarks.hit_probabilities import hit_probabilities
from llamagym_tui.agents.blackjack import BlackjackAgent
from llamagym_tui.config import GenerationConfig, SFTSettings, WarmStartStats
from llamagym_tui.demos import files as demo_files
from llamagym_tui.engine.learning import sft
from llamagym_tui.engine.model.loading import load_model_and_tokenizer
from llamagym_tui.engine.policy.episode import Episode
from llamagym_tui.engine.policy.policy import Policy
from llamagym_tui.engine.policy.sampler import Sampler
from llamagym_tui.engine.tokens.tokenization import ChatTokenizer
from llamagym_tui.errors import LlamaGymError, UsageError
from llamagym_tui.game.chat import Conversation, assistant, system, user

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
    stats = sft.train_on(
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


def test_no_word_of_a_training_leaves_the_machine(
    make_policy, monkeypatch: pytest.MonkeyPatch
) -> None:
    from huggingface_hub import constants
    from huggingface_hub.utils import _telemetry

    sent: list[str] = []
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(_telemetry, "_start_telemetry_thread", lambda: sent.append("telemetry"))
    sft.train_on(make_policy(), [hand(12)], SFTSettings(epochs=2, min_steps=0))
    assert sent == []


def test_it_trains_where_the_model_is_and_shows_no_bar_of_its_own(
    make_policy, monkeypatch: pytest.MonkeyPatch
) -> None:
    given, arguments = [], sft.arguments
    monkeypatch.setattr(
        sft, "arguments", lambda *a, **k: given.append(arguments(*a, **k)) or given[-1]
    )
    sft.train_on(make_policy(), [hand(12)], SFTSettings(epochs=2, min_steps=0))
    assert given[0].use_cpu, "although there may be an accelerator"
    assert given[0].disable_tqdm


def test_with_an_adapter_the_adapter_alone_is_trained(make_policy) -> None:
    policy = make_policy(lora=True)
    before = {name: weight.detach().clone() for name, weight in policy.model.named_parameters()}
    wanted = {name: weight.requires_grad for name, weight in policy.model.named_parameters()}
    stats = sft.train_on(
        policy, [hand(12, 20)] * 4, SFTSettings(epochs=10, min_steps=0, batch_size=4, lr=1e-2)
    )
    after = dict(policy.model.named_parameters())
    changed = {name for name, weight in before.items() if not torch.equal(after[name], weight)}
    assert changed == {name for name in before if "lora_" in name}
    assert {name: weight.requires_grad for name, weight in after.items()} == wanted
    assert stats.last_loss < stats.first_loss


@pytest.mark.parametrize(
    ("lora", "few"), [pytest.param(False, 1, marks=pytest.mark.slow), (True, 2)]
)
def test_a_batch_in_several_forwards_is_the_same_step(
    make_policy, monkeypatch: pytest.MonkeyPatch, lora: bool, few: int
) -> None:
    hands = [hand(12, 20), hand(4, 9, 15, 21), hand(18), hand(13, 14), hand(7, 19), hand(16)]

    def trained(at_once: int) -> tuple[WarmStartStats, dict[str, torch.Tensor]]:
        monkeypatch.setattr(sft, "rows_at_once", lambda *_: at_once)
        policy = make_policy(lora=lora)
        settings = SFTSettings(epochs=2, min_steps=0, batch_size=4, lr=1e-3)
        stats = sft.train_on(policy, hands, settings)
        return stats, {name: each.detach() for name, each in policy.model.named_parameters()}

    whole, weights = trained(4)
    parts, same = trained(few)
    assert (parts.steps, parts.cancelled) == (whole.steps, False) == (4, False)
    assert parts.first_loss == pytest.approx(whole.first_loss, abs=1e-3)
    for name, each in weights.items():
        torch.testing.assert_close(same[name], each, atol=2e-5, rtol=1e-3, msg=name)


def test_forwards_hold_as_many_rows_as_there_is_memory_for(
    make_policy, monkeypatch: pytest.MonkeyPatch
) -> None:
    policy = make_policy()
    lm = policy.model.causal_lm
    # D 32, Q 32, F 64, two layers and one more while the gradient goes back; 4 bytes each.
    a_token = 2 * 3 * (6 * 32 + 4 * 32 + 4 * 64) * 4 + 4 * lm.config.vocab_size * 4

    def at_once(free_tokens: float, batch_size: int = 16) -> int:
        monkeypatch.setattr(sft, "free_memory", lambda device: 2 * a_token * free_tokens)
        return sft.rows_at_once(policy, batch_size, longest=100)

    assert [at_once(tokens) for tokens in (1601, 1599, 799, 99)] == [16, 8, 4, 1]
    assert at_once(801, batch_size=9) == 3, "a batch is a whole number of forwards"
    with pytest.raises(
        UsageError,
        match=r"the longest conversation, 100 tokens, would take .* are free on cpu: let",
    ):
        at_once(49)
    monkeypatch.setattr(sft, "ACTIVATIONS", 250 * a_token)
    assert at_once(1_000_000) == 2


def test_a_cancelled_training_keeps_what_it_has_learnt_and_plays_on(make_policy) -> None:
    policy = make_policy()
    seen: list[int] = []
    stats = sft.train_on(
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


@pytest.mark.parametrize("looks", [5, 7], ids=["on the way there", "on the way back"])
def test_a_training_ends_amid_a_step_with_what_whole_steps_have_learnt(make_policy, looks) -> None:
    def trained(**options: Any) -> tuple[WarmStartStats, Policy]:
        policy = make_policy()
        settings = SFTSettings(epochs=4, min_steps=0, batch_size=4, warmup=0)
        return sft.train_on(policy, [hand(12, 20)] * 4, settings, **options), policy

    looked = 0

    def should_stop() -> bool:
        nonlocal looked
        looked += 1
        return looked > looks  # two layers, there and back: four looks a step

    stats, policy = trained(should_stop=should_stop)
    assert (stats.steps, stats.cancelled, looked) == (1, True, looks + 1)
    done: list[int] = []
    _, other = trained(
        progress=lambda step, steps, loss: done.append(step), should_stop=lambda: bool(done)
    )
    for one, two in zip(policy.model.parameters(), other.model.parameters(), strict=True):
        assert torch.equal(one, two)
    (stack,) = [each for each in policy.model.modules() if isinstance(each, torch.nn.ModuleList)]
    assert not any(layer._forward_hooks for layer in stack)


def test_ctrl_c_ends_a_step_wherever_it_is_but_not_while_weights_are_changed(
    make_policy, monkeypatch: pytest.MonkeyPatch
) -> None:
    stopped: list[str] = []
    went_back = torch.Tensor.backward
    stepped = torch.optim.AdamW.step

    def interrupt(where: str) -> None:
        if not stopped:
            stopped.append(where)
            signal.raise_signal(signal.SIGINT)
            stopped.append("went on")

    def go_back(*inputs: Any, **options: Any) -> None:
        interrupt("between layers")
        went_back(*inputs, **options)

    def step(self: Any, *inputs: Any, **options: Any) -> Any:
        interrupt("changing weights")
        return stepped(self, *inputs, **options)

    settings = SFTSettings(epochs=4, min_steps=0, batch_size=4, warmup=0)
    before = signal.signal(signal.SIGINT, lambda number, frame: None)
    ours = signal.getsignal(signal.SIGINT)
    try:
        for target, name, made, found in (
            (torch.Tensor, "backward", go_back, ["between layers"]),
            (torch.optim.AdamW, "step", step, ["changing weights", "went on"]),
        ):
            policy = make_policy()
            stopped.clear()
            with monkeypatch.context() as patch:
                patch.setattr(target, name, made)
                stats = sft.train_on(
                    policy,
                    [hand(12, 20)] * 4,
                    settings,
                    should_stop=lambda: bool(stopped),
                )
            assert (stopped, stats.cancelled) == (found, True)
            assert stats.steps == len(found) - 1
            assert signal.getsignal(signal.SIGINT) is ours
    finally:
        signal.signal(signal.SIGINT, before)


@pytest.mark.slow
def test_the_same_seed_gives_the_same_weights_and_at_most_so_many_examples(make_policy) -> None:
    def trained(seed: int) -> tuple[WarmStartStats, torch.Tensor]:
        policy = make_policy()
        settings = SFTSettings(epochs=1, min_steps=5, batch_size=2, max_examples=4)
        stats = sft.train_on(policy, [hand(total) for total in range(4, 20)], settings, seed=seed)
        return stats, policy.model.causal_lm.get_input_embeddings().weight.detach()

    (stats, first), (_, again), (_, other) = trained(3), trained(3), trained(4)
    assert stats.demonstrations == 4
    assert stats.steps == 6  # three passes: one is two steps, and five are wanted
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def test_a_training_that_diverges_is_an_error_and_no_policy(make_policy) -> None:
    with pytest.raises(
        LlamaGymError, match=r"diverged and its policy is lost; try a lower sft\.lr"
    ):
        sft.train_on(
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
    sft.train_on(policy, person, SFTSettings())
    assert distance() < 0.5 * before


@pytest.mark.slow
def test_the_demonstrations_that_ship_teach_blackjack(bundled: Path) -> None:
    loaded = load_model_and_tokenizer(str(bundled), "cpu")
    policy = Policy(loaded.model, loaded.tokenizer, GenerationConfig(), [STICK, HIT])
    shipped = demo_files.read(Path(__file__).resolve().parents[3] / "sft_data" / "blackjack.jsonl")
    sft.train_on(policy, [demo.messages for demo in shipped], SFTSettings())
    chosen = hit_probabilities(policy, AGENT.get_system_prompt())
    right = sum((chosen[state] > 0.5) == bool(AGENT.expert(state)) for state in STATES)
    assert right / len(STATES) > 0.9
