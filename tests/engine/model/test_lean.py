"""The lean path of the Llama family: what it computes is the model's own, or it is not taken."""

from __future__ import annotations

import logging
from typing import Any

import pytest
import torch
from torch import Tensor

from llamagym_tui.config import GenerationConfig, LoraConfig, PPOConfig
from llamagym_tui.engine.learning.packing import Row, forwards
from llamagym_tui.engine.learning.ppo import PPO
from llamagym_tui.engine.model import forward, lean
from llamagym_tui.engine.model.shape import ForwardLimits
from llamagym_tui.engine.model.sharing import checked_backbone
from llamagym_tui.engine.model.value_head import AutoModelForCausalLMWithValueHead, with_adapter
from llamagym_tui.engine.policy.policy import Policy
from llamagym_tui.engine.policy.slots import Slots
from llamagym_tui.engine.policy.trajectory import Segment, Turn
from llamagym_tui.engine.tokens.token_tree import TokenTree
from tests.engine.conftest import REPLIES, tiny_llama
from tests.engine.learning.test_ppo import collect
from tests.engine.model.test_architectures import SMALL, tiny

VOCABULARY = 64
FAMILY: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("llama", {}),
    "one layer, no shared heads, tied": (
        "llama", {"num_hidden_layers": 1, "num_key_value_heads": 4, "tie_word_embeddings": True},
    ),
    "heads of 24": ("llama", {"head_dim": 24}),
    "heads of 128": ("llama", {"head_dim": 128, "num_key_value_heads": 1}),
    "biases": ("llama", {"attention_bias": True, "mlp_bias": True}),
    "scaled rotation": ("llama", {"rope_parameters": {"rope_type": "linear", "factor": 4.0, "rope_theta": 1e4}}),
    "mistral": ("mistral", {"sliding_window": None}),
    "qwen2": ("qwen2", {}),
    "qwen3": ("qwen3", {"head_dim": 16}),
}  # fmt: skip


def rows(length: int, count: int = 6, prefix: int = 9) -> list[Row]:
    """Conversations that part at random, of two turns each."""
    torch.manual_seed(1)
    base, found = torch.randint(VOCABULARY, (length,)).tolist(), []
    for number in range(count):
        own = torch.randint(VOCABULARY, (length,)).tolist()
        at = number * length // count
        ids = [*base[:at], *own[at : length - 5 * number]]
        turns = [
            Turn(len(ids) - 9, len(ids) - 6, (-1.0,) * 3, 0.0, 0.0),
            Turn(len(ids) - 2, len(ids), (-1.0,) * 2, 0, 0),
        ]
        found.append(Row(Segment(tuple(base[:prefix]), ids, turns), 2 * number, 5 * number))
    return found


def computed(
    model: AutoModelForCausalLMWithValueHead, batch: list[Row], *, is_lean: bool
) -> list[Tensor]:
    """Log-probabilities, values, and gradients of a loss of both."""
    backbone = model.backbone
    backbone.flat_is_exact = is_lean
    weights = [weight for weight in model.parameters() if weight.requires_grad]
    logprobs, values = torch.zeros(5 * len(batch)), torch.zeros(2 * len(batch))
    for part in forwards(batch, ForwardLimits(10_000, flat=backbone.is_lean), torch.device("cpu")):
        encoded = part.encode(backbone)
        logprobs = logprobs.index_put((part.decisions.indices,), part.score(encoded, 0.8).logprobs)
        values = values.index_put(
            (part.turns.indices,), model.v_head(encoded.hidden[part.turns.rows, part.turns.columns])
        )
    loss = (logprobs * torch.arange(1, len(logprobs) + 1)).mean() + values.square().mean()
    gradients = torch.autograd.grad(loss, weights, allow_unused=True, materialize_grads=True)
    return [logprobs.detach(), values.detach(), *gradients]


def difference(ours: list[Tensor], theirs: list[Tensor]) -> float:
    """The largest, over the largest of each tensor."""
    largest = max(float(each.abs().max()) for each in theirs[2:])
    floors = [0.0, 0.0, *[1e-3 * largest] * len(theirs[2:])]
    return max(
        float((one - other).abs().max()) / max(float(other.abs().max()), floor)
        for one, other, floor in zip(ours, theirs, floors, strict=True)
    )


def model_of(lm: Any) -> AutoModelForCausalLMWithValueHead:
    model = AutoModelForCausalLMWithValueHead(lm)
    torch.nn.init.normal_(model.v_head.out.weight)
    return model.eval()


@pytest.mark.parametrize("name", FAMILY)
@pytest.mark.parametrize("lora", [False, True])
def test_log_probabilities_values_and_gradients_are_those_of_the_general_path(name, lora):
    kind, settings = FAMILY[name]
    lm = tiny(kind, {**SMALL, "vocab_size": VOCABULARY} | settings)
    if lora:
        lm = with_adapter(lm, LoraConfig(layers="all", r=4, alpha=8.0, target_modules="all-linear"))
        for weight in (weight for weight in lm.parameters() if weight.requires_grad):
            torch.nn.init.normal_(weight, std=0.02)
    model = model_of(lm)
    assert model.backbone.flat_is_exact
    batch = rows(50)
    assert (
        difference(computed(model, batch, is_lean=True), computed(model, batch, is_lean=False))
        < 1e-5
    )


@torch.inference_mode()
def decoded(
    model: AutoModelForCausalLMWithValueHead, contexts: list[list[int]], prefix: int, steps: int
) -> Tensor:
    """(B, steps, V) log-probabilities after each of the last ids of B contexts, in slots that share a prefix."""
    slots, found = Slots(model.backbone, len(contexts)), []
    every, prompts = list(range(len(contexts))), [context[prefix:-steps] for context in contexts]
    for slot in every:
        slots.restart(slot, tuple(contexts[0][:prefix]))
    slots.prefill(every, prompts, [TokenTree()] * len(contexts))
    for at in range(-steps, 0):
        found.append(slots.append(every, [context[at] for context in contexts]).log_softmax(-1))
    return torch.stack(found, dim=1)


@pytest.mark.parametrize("name", FAMILY)
def test_what_follows_each_token_is_what_the_model_itself_computes(name, monkeypatch):
    kind, settings = FAMILY[name]
    model = model_of(tiny(kind, {**SMALL, "vocab_size": VOCABULARY} | settings))
    assert model.backbone.is_lean
    torch.manual_seed(2)
    shared = torch.randint(VOCABULARY, (17,)).tolist()
    contexts = [[*shared, *torch.randint(VOCABULARY, (size,)).tolist()] for size in (9, 4, 23)]
    passed = []
    monkeypatch.setattr(
        forward, "next_states", lambda *args: passed.append(args) or lean.next_states(*args)
    )
    found = decoded(model, contexts, prefix=17, steps=3)
    assert len(passed) == 3
    for own, context in zip(found, contexts, strict=True):
        with torch.inference_mode():
            whole = model.backbone.lm(torch.tensor([context])).logits[0, -3:].log_softmax(-1)
        assert torch.allclose(own, whole, rtol=0, atol=1e-5)


def test_conversations_without_a_common_prefix_are_decoded_as_those_of_any_model(monkeypatch):
    model = model_of(tiny_llama(VOCABULARY))
    assert model.backbone.is_lean
    monkeypatch.setattr(forward, "next_states", None)
    slots, contexts = Slots(model.backbone, 2), [[1, 2, 3, 9, 8, 7], [4, 5, 6, 9, 8, 7]]
    for slot, context in enumerate(contexts):
        slots.restart(slot, tuple(context[:3]))
    with torch.inference_mode():
        slots.prefill([0, 1], [[9, 8]] * 2, [TokenTree()] * 2)
        whole = model.backbone.lm(torch.tensor(contexts)).logits[:, -1]
        assert torch.allclose(slots.append([0, 1], [7, 7]), whole, rtol=0, atol=1e-5)


def test_a_model_whose_shared_keys_are_read_wrongly_takes_the_path_of_any_model(
    monkeypatch, caplog
):
    lm = tiny("llama", {**SMALL, "vocab_size": VOCABULARY})
    of_all = lean._of_all
    monkeypatch.setattr(lean, "_of_all", lambda grouped, shared: of_all(grouped, 2 * shared))
    backbone, plain_because = checked_backbone(lm)
    assert (backbone.shares, plain_because, backbone.is_lean) == (True, None, False)
    assert "reads shared keys wrongly" in caplog.text


def test_at_1200_columns_they_are_too():
    model, batch = model_of(tiny_llama(VOCABULARY)), rows(1200, count=2, prefix=300)
    assert (
        difference(computed(model, batch, is_lean=True), computed(model, batch, is_lean=False))
        < 1e-5
    )


def test_only_what_is_read_passes_the_last_layers_feed_forward():
    model, batch, widths = model_of(tiny_llama(VOCABULARY)), rows(50), []
    assert model.backbone.is_lean
    for layer in model.causal_lm.model.layers:
        layer.mlp.register_forward_hook(
            lambda module, inputs, output: widths.append(output.shape[:-1].numel())
        )
    (part,) = forwards(batch, ForwardLimits(10_000, flat=True), torch.device("cpu"))
    part.encode(model.backbone)
    read = {*zip(part.place_rows.tolist(), part.place_columns.tolist(), strict=True)}
    read |= {*zip(part.turns.rows.tolist(), part.turns.columns.tolist(), strict=True)}
    assert widths == [9 + len(part.trees.trees[0]), len(read)]


@pytest.mark.parametrize(("large", "times"), [(lean.LARGE, 0), (1, 2)])
def test_a_large_forward_gives_memory_back_between_its_layers(monkeypatch, large, times):
    model, done = (
        model_of(tiny("llama", {**SMALL, "vocab_size": VOCABULARY, "num_hidden_layers": 6})),
        [],
    )
    assert model.backbone.is_lean
    monkeypatch.setattr(lean, "LARGE", large)
    monkeypatch.setattr(lean, "return_freed_memory", lambda: done.append("given back"))
    (part,) = forwards(rows(50), ForwardLimits(10_000, flat=True), torch.device("cpu"))
    part.encode(model.backbone)
    assert len(done) == times  # before the first layer and the fifth


@pytest.mark.parametrize(
    ("kind", "settings"),
    [
        ("mistral", {"sliding_window": 7}),
        ("mixtral", {"num_local_experts": 4}),
        ("gpt2", {"n_embd": 32, "n_head": 4}),
    ],
)
def test_other_architectures_and_windows_take_the_general_path_without_a_word(
    kind, settings, caplog
):
    backbone, plain_because = checked_backbone(
        tiny(kind, {**SMALL, "vocab_size": VOCABULARY} | settings)
    )
    assert (backbone.shares, plain_because, backbone.is_lean) == (True, None, False)
    assert not [record for record in caplog.records if record.name.startswith("llamagym_tui")]


@pytest.mark.parametrize("is_broken", [False, True])
def test_a_llama_that_is_not_quite_one_takes_the_general_path_with_a_line_in_the_log(
    tokenizer, caplog, is_broken
):
    lm = tiny_llama(len(tokenizer))
    if is_broken:
        lm.model.layers[0].register_forward_hook(lambda module, inputs, output: output * 1.001)
    policy = Policy(model_of(lm), tokenizer, GenerationConfig(max_new_tokens=6), REPLIES)
    assert policy.model.backbone.is_lean == (not is_broken)
    assert ("the lean one would be off by" in caplog.text) == is_broken
    ppo = PPO(policy, PPOConfig(epochs=1, mini_batch_size=8, critic_warmup_updates=0, kl_coef=0.1))
    assert ppo.limits.flat == (not is_broken)
    assert ppo.reference is not None
    stats = ppo.update(collect(policy, episodes=8))
    assert stats.first_ratio < 1e-4
    assert abs(stats.kl_ref) < 1e-5


def test_a_lean_path_whose_gradient_alone_is_off_is_not_taken(monkeypatch, caplog):
    def off(decoder, flat):
        states = lean.read_states(decoder, flat)
        return states + 1e-3 * (states - states.detach())

    monkeypatch.setattr(forward, "read_states", off)
    backbone, _ = checked_backbone(tiny_llama(VOCABULARY))
    assert backbone.shares
    assert not backbone.is_lean
    assert "off by 0.001 of its gradient" in caplog.text


def test_a_lean_path_that_fails_is_not_taken(monkeypatch, caplog):
    monkeypatch.setattr(lean, "_rotated", None)
    backbone, plain_because = checked_backbone(tiny_llama(VOCABULARY))
    assert (backbone.shares, plain_because, backbone.is_lean) == (True, None, False)
    assert "the lean one fails" in caplog.text
    assert caplog.records[0].levelno == logging.WARNING
