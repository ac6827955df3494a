"""Memory before the weights are loaded: shapes counted by hand, free memory, and a run that does not fit."""

from __future__ import annotations

import dataclasses
from types import SimpleNamespace

import pytest
from transformers import GPT2Config, LlamaConfig, Qwen2Config

from llamagym_tui.engine.memory import host_free, require_memory
from llamagym_tui.engine.model.loading import load_model_and_tokenizer
from llamagym_tui.engine.model.shape import (
    ACTIVATIONS,
    LOGITS,
    ModelShape,
    activation_bytes,
    counted_shape,
    forward_limits,
    read_config,
    shape_of,
)
from llamagym_tui.engine.model.sources import bundled_model_path
from llamagym_tui.errors import UsageError
from llamagym_tui.settings import LoraConfig, RunConfig

TINY = ModelShape(
    hidden=8, layers=2, queries=8, keys=4, inner=16, vocabulary=10,
    parameters=1000, linears=(("a.q", 8, 8), ("a.down", 16, 8)),
)  # fmt: skip
QWEN = Qwen2Config(
    hidden_size=896, num_hidden_layers=24, num_attention_heads=14, num_key_value_heads=2,
    intermediate_size=4864, vocab_size=151_936, tie_word_embeddings=True,
)  # fmt: skip


def test_a_forward_of_a_half_billion_parameter_model_is_bounded_by_both_budgets():
    shape = shape_of(QWEN)
    limits = forward_limits(shape)
    column = activation_bytes(shape, full=True, dtype_bytes=4)
    assert ACTIVATIONS - column < limits.tokens * column <= ACTIVATIONS
    assert LOGITS - 3 * 151_936 * 4 < limits.scored * 3 * 151_936 * 4 <= LOGITS
    assert forward_limits(shape, scores_all=True)[:2] == limits[:2]
    wide = forward_limits(dataclasses.replace(shape, vocabulary=400_000), scores_all=True)
    assert wide[:2] == (LOGITS // (3 * 400_000 * 4),) * 2
    assert (
        forward_limits(shape_of(LlamaConfig.from_pretrained(bundled_model_path()))).tokens == 16_384
    )


def test_what_a_column_keeps_is_counted_by_hand():
    shape = ModelShape(hidden=10, layers=2, queries=8, keys=4, inner=20, vocabulary=50)
    # Of each of two layers, and of one more: 6 or 4 of the hidden size, 4 of the queries, 4 of the inner width.
    assert activation_bytes(shape, full=True, dtype_bytes=4) == 3 * (60 + 32 + 80) * 4
    assert activation_bytes(shape, full=False, dtype_bytes=4) == 3 * (40 + 32 + 80) * 4
    assert activation_bytes(shape, full=False, dtype_bytes=2) == 3 * ((40 + 32 + 80) * 2 + 360)
    assert shape.adapter(LoraConfig(layers="head", r=3)) == 3 * (10 + 50)
    large = dataclasses.replace(shape, hidden=10**8, vocabulary=10**7)
    assert forward_limits(large)[:2] == (256, 256)


def test_weights_are_counted_from_the_configuration_as_they_load():
    shape = counted_shape(read_config(str(bundled_model_path()), local=True)[0])
    loaded = load_model_and_tokenizer(full_finetuning=False, lora=LoraConfig(layers="all", r=4))
    assert shape.parameters == loaded.parameters
    assert shape.adapter(LoraConfig(layers="all", r=4)) == sum(
        p.numel() for p in loaded.model.pretrained_model.parameters() if p.requires_grad
    )
    assert counted_shape(QWEN).parameters == 494_032_768


def test_shapes_of_other_architectures_are_read_too():
    gpt = counted_shape(GPT2Config(n_embd=32, n_layer=2, n_head=4, vocab_size=50))
    assert (gpt.hidden, gpt.inner, gpt.keys, len(gpt.linears)) == (32, 128, 32, 8)


@pytest.mark.parametrize(
    ("line", "mounted", "limit", "usage", "cache", "none"),
    [
        ("0::/a/b/c", "sys/fs/cgroup", "memory.max", "memory.current", "inactive_file", "max"),
        (
            "4:memory:/a/b/c", "sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes",
            "total_inactive_file", str(2**60),
        ),
    ],
)  # fmt: skip
def test_a_control_group_may_leave_less_than_the_machine(
    tmp_path, monkeypatch, line, mounted, limit, usage, cache, none
):
    monkeypatch.setattr("psutil.virtual_memory", lambda: SimpleNamespace(available=4_000_000))
    assert host_free(tmp_path) == 4_000_000
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/self/cgroup").write_text(f"9:cpu:/\n{line}\n")
    group = tmp_path / mounted / "a/b"
    group.mkdir(parents=True)
    (group / limit).write_text("3000000\n")
    (group / usage).write_text("2500000\n")
    (group / "memory.stat").write_text(f"anon 5\n{cache} 100000\n")
    assert host_free(tmp_path) == 600_000
    (group / limit).write_text(f"{none}\n")
    assert host_free(tmp_path) == 4_000_000


@pytest.mark.parametrize(
    ("elements", "full", "fits"), [(4, True, True), (3.9, True, False), (1, False, True)]
)
def test_a_run_whose_weights_and_moments_do_not_fit_is_refused(
    monkeypatch: pytest.MonkeyPatch, elements: float, full: bool, fits: bool
) -> None:
    config = RunConfig(agent="blackjack", run_dir="", full_finetuning=full, device="cpu")
    read, _ = read_config(str(bundled_model_path()), local=True)
    there = int(elements * 4 * counted_shape(read).parameters)
    monkeypatch.setattr("llamagym_tui.engine.memory.free_memory", lambda device: there)
    if fits:
        require_memory(config, learns=True)
        return
    with pytest.raises(UsageError, match=r"weights and what trains them, and .* are free on cpu"):
        require_memory(config, learns=True)
