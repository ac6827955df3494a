"""The weights that training begins with: a Llama whose first two layers find what stands behind a name.

What takes a model this small thousands of steps to come upon is put there by hand, and is learnt further like all else.
"""

from __future__ import annotations

import torch
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

HIDDEN = 128
LAYERS = 4
HEADS = 4
INNER = 344


def new_model(tokenizer: PreTrainedTokenizerFast, seed: int) -> LlamaForCausalLM:
    torch.manual_seed(seed)
    model = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=len(tokenizer),
            hidden_size=HIDDEN,
            num_hidden_layers=LAYERS,
            num_attention_heads=HEADS,
            num_key_value_heads=HEADS,
            intermediate_size=INNER,
            max_position_embeddings=4096,
            tie_word_embeddings=True,
            initializer_range=0.05,
            bos_token_id=None,
            eos_token_id=tokenizer.eos_token_id,
            pad_token_id=tokenizer.pad_token_id,
        )
    )
    join_forms(model, tokenizer)
    order_numbers(model, tokenizer)
    look_back(model)
    with torch.no_grad():
        model.model.embed_tokens.weight *= 4
    return model


@torch.no_grad()
def look_back(model: LlamaForCausalLM) -> None:
    """Begin with what finding a value by its name is made of, which takes many steps to come about by itself.

    Embeddings begin in the lower half of the dimensions, with one constant in common, of which the first layer's
    queries and keys are made: by their rotation its heads attend to the token 1, 2, 3, 4 places back, and copy a
    projection of it to dimensions of their own. The second layer's heads attend to what came 1 or 2 places after a
    token like this one, and to tokens like the one that came 1 or 2 places before this one.
    """
    size, half, share = HIDDEN // HEADS, HIDDEN // 2, HIDDEN // 2 // HEADS
    frequencies = 10_000.0 ** (-torch.arange(size // 2) / (size // 2))
    strength = torch.where(frequencies > 0.05, 0.8, 0.0)
    slow = torch.cat(
        [torch.arange(size // 2 - share // 2, size // 2), torch.arange(size - share // 2, size)]
    )
    first, second = model.model.layers[0].self_attn, model.model.layers[1].self_attn
    embeddings = model.model.embed_tokens.weight
    embeddings[:, half:] = 0
    embeddings *= 2**0.5
    embeddings[:, 0] = 0.05 * HIDDEN**0.5
    for layer in model.model.layers:
        layer.mlp.down_proj.weight *= 0.1
        layer.self_attn.o_proj.weight *= 0.3
    for weights in (
        first.q_proj.weight,
        first.k_proj.weight,
        second.q_proj.weight,
        second.k_proj.weight,
    ):
        weights *= 0.1
    for weights in (first.v_proj.weight, first.o_proj.weight):
        weights *= 0.1
    for head in range(HEADS):
        rows, angle = slice(head * size, (head + 1) * size), (head + 1) * frequencies
        first.q_proj.weight[rows, 0] = torch.cat([strength, torch.zeros(size // 2)])
        first.k_proj.weight[rows, 0] = torch.cat([strength * angle.cos(), strength * angle.sin()])
    projections = [torch.linalg.qr(torch.randn(half - 1, share))[0].T for _ in range(HEADS)]
    copies = [slice(half + head * share, half + (head + 1) * share) for head in range(HEADS)]
    for head, (projection, copy) in enumerate(zip(projections, copies, strict=True)):
        first.v_proj.weight[head * size + slow, 1:half] = projection
        first.o_proj.weight[copy, head * size + slow] = 0.32 * torch.eye(share)
    for head in range(HEADS):
        at, which = head * size + slow, head // 2
        after, before = second.q_proj, second.k_proj
        if head % 2:
            after, before = before, after
        after.weight[at, 1:half] = 2 * projections[which]
        before.weight[at, copies[which]] = 2 * torch.eye(share)


@torch.no_grad()
def join_forms(model: LlamaForCausalLM, tokenizer: PreTrainedTokenizerFast) -> None:
    """Begin with nearly the same embedding for all forms of a word: with a space before it, without, with a capital."""
    weights, first = model.model.embed_tokens.weight, dict[str, int]()
    for index in range(len(tokenizer)):
        word = tokenizer.decode([index]).strip().lower()
        if index != (shared := first.setdefault(word, index)):
            weights[index] = 0.9 * weights[shared] + 0.19**0.5 * weights[index]


@torch.no_grad()
def order_numbers(model: LlamaForCausalLM, tokenizer: PreTrainedTokenizerFast) -> None:
    """Begin with embeddings of numbers that are the more alike the nearer the numbers are, and all distinct."""
    apart = torch.arange(100.0)[:, None] - torch.arange(100.0)
    kernel = (
        0.4 * (-((apart / 40) ** 2) / 2).exp()
        + 0.3 * (-((apart / 8) ** 2) / 2).exp()
        + 0.3 * torch.eye(100)
    )
    drawn = 0.05 * torch.linalg.cholesky(kernel) @ torch.randn(100, HIDDEN - 1)
    for form in ("{}", " {}"):
        ids = [tokenizer.encode(form.format(number))[0] for number in range(100)]
        model.model.embed_tokens.weight[ids, 1:] = drawn
