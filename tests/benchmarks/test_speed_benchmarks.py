from __future__ import annotations

import json

import pytest
import torch

from benchmarks import llamagym_environment
from benchmarks.bare_run import settings
from benchmarks.breakdown import Tokens, phase
from benchmarks.llamagym_environment import old_config, old_tokenizer
from benchmarks.timing import Spread, Stopwatch, alternate, ratios
from benchmarks.vs_llamagym import prompts
from llamagym_tui.engine.model.forward import Backbone
from llamagym_tui.engine.model.sources import bundled_model_path
from llamagym_tui.errors import UsageError


def test_settings_are_changed_as_by_set() -> None:
    changes = ["ppo.epochs=4", "generation.policy=score", "n_envs=3"]
    config = settings("blackjack", changes, model="weights")
    assert (config.ppo.epochs, config.generation.policy) == (4, "score")
    assert (config.n_envs, config.model) == (3, "weights")
    with pytest.raises(UsageError, match="epoch"):
        settings("blackjack", ["ppo.epoch=4"])


def test_variants_take_turns_and_every_second_round_has_the_reverse_order() -> None:
    calls: list[str] = []
    variants = {name: lambda name=name: calls.append(name) or len(calls) for name in "ab"}
    assert alternate(variants, rounds=2, warm_up=1) == {"a": [4, 5], "b": [3, 6]}
    assert "".join(calls) == "abbaab"


def test_a_ratio_is_formed_within_each_round() -> None:
    found = ratios([2.0, 6.0, 5.0], [1.0, 2.0, 5.0])
    assert found == Spread(median=2.0, low=1.0, high=3.0)
    assert f"{found:.1f}" == "2.0 (1.0 to 3.0)"


def test_time_inside_an_inner_section_is_not_counted_in_the_outer_one() -> None:
    times = iter([0.0, 1.0, 3.0, 7.0, 8.0])
    watch = Stopwatch(clock=lambda: next(times))
    with watch.section("update"), watch.section("backward"):
        assert phase(watch) == "update"
    assert dict(watch.spent) == {"other": 1.0, "update": 2.0 + 1.0, "backward": 4.0}


def test_padding_is_the_run_of_padding_that_ends_a_row(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Backbone, "encode", lambda self, ids: ids)
    watch = Stopwatch()
    tokens = Tokens(watch, pad_id=0)
    with tokens.counting(), watch.section("update"):
        Backbone.encode(None, torch.tensor([[5, 0, 7, 0, 0], [5, 6, 7, 8, 0]]))
        Backbone.encode(None, torch.tensor([[5, 6]]))
    assert (tokens.computed["update"], tokens.padding["update"]) == (12, 3)


def test_the_converted_model_has_the_names_of_2024() -> None:
    config = old_config(json.loads((bundled_model_path() / "config.json").read_text("utf-8")))
    assert config["rope_theta"] == 10000.0
    assert config["torch_dtype"] == "float32"
    assert "rope_parameters" not in config
    merged = old_tokenizer(
        {"version": "1.0", "model": {"type": "BPE", "ignore_merges": False, "merges": [["a", "b"]]}}
    )
    assert merged["model"] == {"type": "BPE", "merges": ["a b"]}


def test_llamagym_can_cut_a_rendered_conversation_between_prompt_and_reply() -> None:
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(bundled_model_path())
    tokenizer.chat_template = llamagym_environment.TEMPLATE
    chat = [{"role": "system", "content": "S"}, {"role": "user", "content": "U"}]
    prompt = tokenizer.apply_chat_template(chat, tokenize=False, add_generation_prompt=True)
    whole = tokenizer.apply_chat_template(
        [*chat, {"role": "assistant", "content": "R"}], tokenize=False
    )
    assert prompt == "<|system|>S<|end|><|user|>U<|end|>[/INST] <|assistant|>"
    assert whole == prompt + "R<|end|>"


def test_llamagym_gets_every_hand_in_our_agents_words() -> None:
    texts = prompts()["observations"]
    assert texts["12 1 0"] == "Your total: 12. Usable ace: no. Dealer shows: ace."
    assert len(texts) == 30 * 10 * 2
