"""Models with longrope, whose positions depend on a forward's longest row: no row passes their first length."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM, Phi3Config, Phi3ForCausalLM

from llamagym_tui.config import GenerationConfig
from llamagym_tui.engine.model.forward import Backbone
from llamagym_tui.engine.model.loading import load_model_and_tokenizer
from llamagym_tui.engine.model.shape import context_of, first_length
from llamagym_tui.engine.policy.episode import Episode
from llamagym_tui.engine.policy.policy import Policy
from llamagym_tui.errors import PromptTooLongError

LONGROPE = {
    "rope_type": "longrope",
    "rope_theta": 10_000.0,
    "short_factor": [1.0] * 4,
    "long_factor": [1.0, 4.0, 16.0, 40.0],
    "original_max_position_embeddings": 96,
}


def a_phi(vocabulary: int, **rope: Any) -> Any:
    torch.manual_seed(0)
    config = Phi3Config(
        vocab_size=vocabulary,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=4,
        intermediate_size=64,
        max_position_embeddings=1024,
        original_max_position_embeddings=96,
        pad_token_id=0,
        rope_parameters=LONGROPE | rope,
    )
    return Phi3ForCausalLM(config).eval()


def test_a_model_with_two_lists_of_factors_reads_what_the_first_one_is_for():
    def context(rope: dict[str, Any]) -> tuple[int | None, int | None]:
        config = AutoConfig.for_model("llama", max_position_embeddings=1024, rope_parameters=rope)
        return first_length(config), context_of(config)

    assert context(LONGROPE) == (96, 96)
    assert context(LONGROPE | {"long_factor": [1.0] * 4}) == (None, 1024)  # the same at any length
    assert context({"rope_type": "default", "rope_theta": 1e4}) == (None, 1024)
    assert context({"rope_type": "dynamic", "rope_theta": 1e4, "factor": 2.0}) == (None, 1024)


@pytest.mark.parametrize("shares", [True, False])
def test_no_forward_has_a_row_that_would_change_the_positions_of_others(shares):
    backbone = Backbone(a_phi(64), shares=shares)
    row = list(range(64)) + list(range(32))
    expected = backbone.lm(torch.tensor([row[:40]])).logits[0, -1]
    beside = backbone.encode_rows((), [row, row[:40]])
    assert torch.allclose(
        beside.logits_at(torch.tensor([1]), torch.tensor([39]))[0], expected, atol=1e-5
    )
    with pytest.raises(PromptTooLongError, match="97 tokens is longer than the 96 for which"):
        backbone.encode_rows((), [[*row, 1], row[:40]])
    with pytest.raises(PromptTooLongError, match="97 tokens is longer"):
        backbone.encode_rows(row[:60], [[*row[60:], 1]])


def test_a_conversation_leaves_out_the_oldest_turns_before_it_passes_the_first_length(
    tmp_path, tokenizer
):
    a_phi(len(tokenizer)).save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    loaded = load_model_and_tokenizer(str(tmp_path), "cpu")
    assert loaded.warning is not None
    assert "reads at most 96 tokens here, as one longer conversation would" in loaded.warning
    policy = Policy(loaded.model, loaded.tokenizer, GenerationConfig(max_new_tokens=12), [], 0)
    episode = Episode(policy, "You play.")
    for _ in range(9):
        prompt = episode.observe("You stand on a step.")
        episode.add_untrained_reply("on")
        assert len(episode.segments[-1].prefix) + len(episode.segments[-1].ids) <= 96
    assert prompt.restart is not None
    with pytest.raises(PromptTooLongError, match="more than the 96 that the model reads"):
        Episode(policy, "You play.").require_fit("You stand on a step. " * 20)


def test_a_model_of_the_lean_family_with_longrope_takes_the_path_that_looks_at_lengths(
    tmp_path: Path, tokenizer
):
    config = AutoConfig.for_model(
        "llama",
        vocab_size=len(tokenizer),
        hidden_size=32,
        num_hidden_layers=1,
        num_attention_heads=4,
        intermediate_size=32,
        max_position_embeddings=1024,
        rope_parameters=LONGROPE | {"original_max_position_embeddings": 40},
    )
    AutoModelForCausalLM.from_config(config).save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    backbone = load_model_and_tokenizer(str(tmp_path), "cpu").model.backbone
    assert backbone.shares
    assert not backbone.is_lean
