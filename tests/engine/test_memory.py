"""Memory before the weights are loaded: limits counted by hand, free memory, and a run that does not fit."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from transformers import GPT2Config, LlamaConfig, Qwen2Config

from llamagym_tui.engine.model.loading import host_free, load_model_and_tokenizer, require_memory
from llamagym_tui.engine.model.shape import (
    ACTIVATIONS,
    LOGITS,
    activation_bytes,
    forward_limits,
    parameters_of,
    read_config,
)
from llamagym_tui.engine.model.sources import bundled_model_path
from llamagym_tui.errors import UsageError
from llamagym_tui.settings import RunConfig

QWEN = Qwen2Config(
    hidden_size=896, num_hidden_layers=24, num_attention_heads=14, num_key_value_heads=2,
    intermediate_size=4864, vocab_size=151_936, tie_word_embeddings=True,
)  # fmt: skip


def test_a_forward_of_a_half_billion_parameter_model_is_bounded_by_both_budgets():
    limits = forward_limits(QWEN)
    column = activation_bytes(QWEN, 4)
    assert ACTIVATIONS - column < limits.tokens * column <= ACTIVATIONS
    assert LOGITS - 3 * 151_936 * 4 < limits.scored * 3 * 151_936 * 4 <= LOGITS
    assert forward_limits(read_config(str(bundled_model_path()))).tokens == 16_384


def test_the_numbers_that_a_column_keeps_are_counted_by_hand():
    sizes = {"hidden_size": 12, "num_attention_heads": 2, "vocab_size": 50}
    config = LlamaConfig(**sizes, num_hidden_layers=2, intermediate_size=20, head_dim=4)
    # Of each of two layers, and of one more: 6 of the hidden size, 4 of the queries, 4 of the inner width.
    assert activation_bytes(config, 4) == 3 * (72 + 32 + 80) * 4
    assert activation_bytes(config, 2) == 3 * ((72 + 32 + 80) * 2 + 36 * 12)
    large = LlamaConfig(
        hidden_size=10**8, num_attention_heads=1, intermediate_size=20, vocab_size=10**7
    )
    assert forward_limits(large)[:2] == (256, 256)
    gpt = GPT2Config(n_embd=32, n_layer=2, n_head=4, vocab_size=50)
    assert activation_bytes(gpt, 4) == 3 * (6 * 32 + 4 * 32 + 4 * 128) * 4


def test_weights_are_counted_from_the_configuration_as_they_load():
    counted = parameters_of(read_config(str(bundled_model_path())))
    assert counted == load_model_and_tokenizer().parameters
    assert parameters_of(QWEN) == 494_032_768


def test_a_control_group_may_have_less_than_the_machine(tmp_path, monkeypatch):
    monkeypatch.setattr("psutil.virtual_memory", lambda: SimpleNamespace(available=4_000_000))
    limit = tmp_path / "memory.max"
    assert host_free(limit) == 4_000_000
    limit.write_text("3000000\n")
    assert host_free(limit) == 3_000_000
    limit.write_text("max\n")
    assert host_free(limit) == 4_000_000


@pytest.mark.parametrize(
    ("elements", "full", "fits"), [(4, True, True), (3.9, True, False), (1, False, True)]
)
def test_a_run_whose_weights_and_moments_do_not_fit_is_refused(
    monkeypatch: pytest.MonkeyPatch, elements: float, full: bool, fits: bool
) -> None:
    config = RunConfig(agent="blackjack", run_dir="", full_finetuning=full, device="cpu")
    there = int(elements * 4 * parameters_of(read_config(str(bundled_model_path()))))
    monkeypatch.setattr("llamagym_tui.engine.model.loading.free_memory", lambda device: there)
    if fits:
        require_memory(config, learns=True)
        return
    with pytest.raises(UsageError, match=r"weights and their training, and .* are free on cpu"):
        require_memory(config, learns=True)
