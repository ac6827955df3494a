"""Tokens, ends and masks are known without weights, and are those of a policy that has them."""

from __future__ import annotations

from pathlib import Path

import pytest

from llamagym_tui.engine.learning.trl_training import examples
from llamagym_tui.engine.model.loading import load_model_and_tokenizer
from llamagym_tui.engine.policy.policy import Policy
from llamagym_tui.engine.policy.weightless import WeightlessPolicy, load_chat
from llamagym_tui.errors import ModelLoadError
from llamagym_tui.game.chat import assistant, system, user
from llamagym_tui.settings import GenerationConfig

PLAYED = [
    system("Play."),
    user("Your total: 15."),
    assistant('{"action": 1}'),
    user("Your total: 18."),
    assistant('{"action": 0}'),
]


@pytest.mark.parametrize("history", [None, 0])
def test_a_conversation_is_trained_as_by_the_policy_with_weights(history: int | None) -> None:
    loaded = load_model_and_tokenizer("bundled", "cpu")
    policy = Policy(loaded.model, loaded.tokenizer, GenerationConfig())
    policy.history = history
    chat = load_chat("bundled")
    assert chat.end_ids == policy.chat.end_ids
    assert chat.model_ends == policy.chat.model_ends == (1,)
    assert examples(WeightlessPolicy(chat, history), PLAYED) == examples(policy, PLAYED)


def test_a_folder_without_a_tokenizer_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "model.safetensors").write_text("none")
    (tmp_path / "config.json").write_text('{"model_type": "llama"}')
    with pytest.raises(ModelLoadError, match=r"The model in .* does not load: "):
        load_chat(str(tmp_path))
