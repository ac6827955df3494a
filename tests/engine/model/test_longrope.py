"""Models with longrope, whose positions depend on a forward's longest row: no row passes their first length."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from transformers import AutoConfig, Phi3Config, Phi3ForCausalLM

from llamagym_tui.engine.model.loading import load_model_and_tokenizer
from llamagym_tui.engine.model.shape import context_of, first_length
from llamagym_tui.engine.policy.episode import Episode
from llamagym_tui.engine.policy.policy import Policy
from llamagym_tui.errors import PromptTooLongError
from llamagym_tui.settings import GenerationConfig

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


def test_a_conversation_leaves_out_the_oldest_turns_before_it_passes_the_first_length(
    tmp_path, tokenizer
):
    a_phi(len(tokenizer)).save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    loaded = load_model_and_tokenizer(str(tmp_path), "cpu")
    assert loaded.warning is not None
    assert "reads at most 96 tokens here: a longer conversation would" in loaded.warning
    policy = Policy(loaded.model, loaded.tokenizer, GenerationConfig(max_new_tokens=12), [], 0)
    episode = Episode(policy, "You play.")
    for _ in range(9):
        episode.observe("You stand on a step.")
        episode.add_untrained_reply("on")
        assert len(episode.segments[-1].prefix) + len(episode.segments[-1].ids) <= 96
    with pytest.raises(PromptTooLongError, match="more than the 96 that the model reads"):
        Episode(policy, "You play.").require_fit("You stand on a step. " * 20)
