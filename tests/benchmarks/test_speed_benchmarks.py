from __future__ import annotations

import json

import pytest
import torch

from benchmarks import llamagym_environment
from benchmarks.bare_run import settings
from benchmarks.breakdown import Stopwatch
from benchmarks.counting_agent import CountingAgent, CountingEnv
from benchmarks.forward_counts import Forward, Shape, Tokens, counted
from benchmarks.llamagym_environment import old_config, old_tokenizer
from benchmarks.long_conversations import near
from benchmarks.vs_llamagym import prompts
from llamagym_tui.engine.model.loading import bundled_model_path
from llamagym_tui.errors import ConfigError


def test_settings_are_changed_by_words() -> None:
    config = settings("blackjack", ["ppo.epochs=4", "generation.policy=score", "n_envs=3"])
    assert (config.ppo.epochs, config.generation.policy, config.n_envs) == (4, "score", 3)
    with pytest.raises(ConfigError, match="epoch"):
        settings("blackjack", ["ppo.epoch=4"])


def test_padding_is_the_run_of_zeros_that_no_read_position_sees() -> None:
    ids = torch.tensor([[5, 0, 7, 0, 0], [5, 6, 7, 8, 0]])
    visible = torch.ones(2, 5, 7, dtype=torch.bool).tril(2)  # two cached columns before
    assert counted(ids, visible, [(torch.tensor([0, 1]), torch.tensor([2, 4]))]) == Tokens(10, 2)


def test_zeros_at_the_end_of_a_row_that_are_read_are_tokens() -> None:
    ids, visible = torch.tensor([[5, 0, 0]]), torch.ones(1, 3, 3, dtype=torch.bool).tril()
    assert counted(ids, visible, [(torch.tensor([0]), torch.tensor([1]))]) == Tokens(3, 1)


def test_flops_of_a_forward_are_those_of_the_formula() -> None:
    # Weights 100 and attention 10: 2 x 3 tokens x 100, and 4 x 10 x 3 tokens x 5 columns.
    forward = Forward("update", torch.zeros(1, 3, dtype=torch.long), torch.zeros(1, 1, 3, 5), trains=True)
    assert forward.flops(Shape(weights=100, attention=10, head=1000)) == 600 + 600


def test_time_inside_an_inner_section_is_not_counted_in_the_outer_one() -> None:
    times = iter([0.0, 1.0, 3.0, 7.0, 8.0])
    watch = Stopwatch(clock=lambda: next(times))
    with watch.section("update"), watch.section("backward"):
        assert watch.phase() == "update"
    assert dict(watch.seconds) == {"other": 1.0, "update": 2.0 + 1.0, "backward": 4.0}


def test_a_turn_is_averaged_with_the_two_before_and_after_it() -> None:
    assert near([1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0, 100.0], 5) == (3 + 4 + 5 + 6 + 8) / 5


def test_the_converted_model_has_the_names_of_2024() -> None:
    config = old_config(json.loads((bundled_model_path() / "config.json").read_text("utf-8")))
    assert config["rope_theta"] == 10000.0
    assert config["torch_dtype"] == "float32"
    assert "rope_parameters" not in config
    merged = old_tokenizer({"version": "1.0", "model": {"type": "BPE", "ignore_merges": False, "merges": [["a", "b"]]}})
    assert merged["model"] == {"type": "BPE", "merges": ["a b"]}


def test_llamagym_can_cut_a_rendered_conversation_between_prompt_and_reply() -> None:
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(bundled_model_path())
    tokenizer.chat_template = llamagym_environment.TEMPLATE
    asked = [{"role": "system", "content": "S"}, {"role": "user", "content": "U"}]
    prompt = tokenizer.apply_chat_template(asked, tokenize=False, add_generation_prompt=True)
    whole = tokenizer.apply_chat_template([*asked, {"role": "assistant", "content": "R"}], tokenize=False)
    assert prompt == "<|system|>S<|end|><|user|>U<|end|>[/INST] <|assistant|>"
    assert whole == prompt + "R<|end|>"


def test_llamagym_is_told_every_hand_in_our_agents_words() -> None:
    told = prompts()["observations"]
    assert told["12 1 0"] == "Your total: 12. Usable ace: no. Dealer shows: ace."
    assert len(told) == 30 * 10 * 2


def test_the_counting_conversation_has_its_length() -> None:
    env, agent = CountingEnv(turns=3), CountingAgent()
    env.reset()
    assert [env.step(0)[2] for _ in range(3)] == [False, False, True]
    assert "3" in agent.format_observation(3)
