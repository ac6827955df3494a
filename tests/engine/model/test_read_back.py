"""What is written is what was trained: each folder is loaded again and compared, or nothing of it stays."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import peft
import pytest
import torch
from transformers import (
    AutoModelForCausalLM,
    BitsAndBytesConfig,
    LlamaConfig,
    LlamaForCausalLM,
)

from llamagym_tui import AutoModelForCausalLMWithValueHead
from llamagym_tui.agents.blackjack import BlackjackAgent
from llamagym_tui.engine.model import value_head
from llamagym_tui.engine.model.read_back import Sample, read_back, require_same_in_memory
from llamagym_tui.errors import RunStoreError

SOME = ["q_proj", "v_proj"]
KINDS: dict[str, Callable[[], peft.PeftConfig]] = {
    "all linear": lambda: peft.LoraConfig(r=2, target_modules="all-linear", task_type="CAUSAL_LM"),
    "DoRA with biases": lambda: peft.LoraConfig(
        r=2, target_modules=SOME, use_dora=True, bias="all"
    ),
    "head": lambda: peft.LoraConfig(r=2, target_modules=["lm_head"]),
    "embeddings": lambda: peft.LoraConfig(r=2, target_modules=["embed_tokens"]),
    "embeddings and head": lambda: peft.LoraConfig(r=2, target_modules=["embed_tokens", "lm_head"]),
    "tied by PEFT": lambda: peft.LoraConfig(
        r=2, target_modules=["embed_tokens"], ensure_weight_tying=True
    ),
    "a copy of the embeddings": lambda: peft.LoraConfig(
        r=2, target_modules=SOME, modules_to_save=["embed_tokens"]
    ),
    "a copy of the head": lambda: peft.LoraConfig(
        r=2, target_modules=SOME, modules_to_save=["lm_head"]
    ),
    "some tokens": lambda: peft.TrainableTokensConfig(token_indices=[1, 2, 60]),
    "some tokens of the head": lambda: peft.LoraConfig(
        r=2, target_modules=SOME, trainable_token_indices={"lm_head": [1, 2]}
    ),
    "LoHa on the head": lambda: peft.LoHaConfig(r=2, target_modules=["lm_head"]),
    "OFT on the head": lambda: peft.OFTConfig(r=0, oft_block_size=8, target_modules=["lm_head"]),
    "IA3 on the head": lambda: peft.IA3Config(target_modules=["lm_head"], feedforward_modules=[]),
    "AdaLoRA": lambda: peft.AdaLoraConfig(target_modules=SOME, total_step=9, init_r=4, target_r=2),
    "RandLoRA": lambda: peft.RandLoraConfig(r=2, target_modules=SOME),
}
"""Adapters of PEFT's by what they are on."""
UNTIED = ("all linear", "head", "embeddings", "a copy of the head", "some tokens of the head")
"""Those of which an untied model is tried out, too, in the tests that are not slow."""


class Spelled:
    """A tokenizer of 64 ids; `save_pretrained` writes nothing that is read."""

    def __call__(self, text: str) -> dict[str, list[int]]:
        return {"input_ids": [ord(letter) % 64 for letter in text]}


@pytest.fixture
def base(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """Makes small causal LMs that are loaded from a folder; their tokenizer is `Spelled`."""
    from llamagym_tui.engine.model import read_back

    monkeypatch.setattr(read_back, "AutoTokenizer", type("_", (), {"from_pretrained": _spelled}))

    def made(*, tied: bool = True, **options: Any) -> Any:
        torch.manual_seed(0)
        config = LlamaConfig(
            vocab_size=64,
            hidden_size=16,
            num_hidden_layers=1,
            num_attention_heads=2,
            num_key_value_heads=2,
            intermediate_size=32,
            initializer_range=0.3,
            tie_word_embeddings=tied,
        )
        LlamaForCausalLM(config).save_pretrained(tmp_path / "base")
        return AutoModelForCausalLM.from_pretrained(tmp_path / "base", **options)

    return made


def _spelled(*_: object, **__: object) -> Spelled:
    return Spelled()


def trained(lm: Any, config: Any = None) -> AutoModelForCausalLMWithValueHead:
    """A model whose trained weights are no longer what they were at first."""
    model = AutoModelForCausalLMWithValueHead.from_pretrained(lm, peft_config=config).eval()
    torch.manual_seed(1)
    for weight in model.pretrained_model.parameters():
        if weight.requires_grad:
            weight.data.add_(0.2 * torch.randn_like(weight))
    return model


def sample_of(lm: Any) -> Sample:
    return Sample.of(lm, Spelled(), ["abc", "a longer text"])


def logprobs(lm: Any) -> torch.Tensor:
    with torch.no_grad():
        return lm(torch.arange(64)[None]).logits.float().log_softmax(-1)


@pytest.mark.filterwarnings("ignore")  # PEFT's, of weights that are tied
@pytest.mark.parametrize(
    ("kind", "tied"),
    [
        pytest.param(
            kind,
            tied,
            id=f"{kind}-{'tied' if tied else 'untied'}",
            marks=[] if tied or kind in UNTIED else pytest.mark.slow,
        )
        for kind in KINDS
        for tied in (True, False)
    ],
)
def test_an_adapter_of_any_kind_is_loaded_and_merged_as_it_was_trained(
    kind: str, tied: bool, base: Callable[..., Any], tmp_path: Path
) -> None:
    model = trained(base(tied=tied), KINDS[kind]())
    then = logprobs(model.pretrained_model)
    assert float((then - logprobs(base(tied=tied))).abs().max()) > 0.02, "it was trained"
    sample = sample_of(model.pretrained_model)
    with read_back(tmp_path / "adapter", sample) as draft:
        model.save_pretrained(draft)
    merged = model.merged()
    require_same_in_memory(merged, sample, "the merged model")
    with read_back(tmp_path / "merged", sample) as draft:
        merged.save_pretrained(draft)
    for folder in ("adapter", "merged"):
        again = AutoModelForCausalLMWithValueHead.from_pretrained(tmp_path / folder)
        torch.testing.assert_close(logprobs(again.pretrained_model), then, atol=1e-3, rtol=0)


def test_what_is_loaded_as_another_model_leaves_nothing_and_says_why(
    base: Callable[..., Any], tmp_path: Path
) -> None:
    lm = base()
    lm.model.embed_tokens.weight.data[60] += 1  # a token that no prompt in words has
    model = trained(lm, KINDS["all linear"]())
    out = tmp_path / "out"
    with (
        pytest.raises(RunStoreError, match=r"differs from what was trained by .* nats; an adapter"),
        read_back(out, sample_of(model.pretrained_model)) as draft,
    ):
        model.save_pretrained(draft)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["base"]


def test_what_cannot_be_read_again_or_is_divided_otherwise_is_refused(
    base: Callable[..., Any], tmp_path: Path
) -> None:
    lm, out = base(), tmp_path / "out"
    other = sample_of(lm)._replace(texts=["abd", "a longer text"])
    wider, narrower = base(), base()
    wider.resize_token_embeddings(65)
    narrower.resize_token_embeddings(63)
    of_wider = sample_of(wider)
    of_narrower = of_wider._replace(prompts=[[1]], logprobs=sample_of(narrower).logprobs[:1])
    assert of_narrower.difference(lm) == of_wider.difference(lm) == float("inf")
    for sample, write, said in (
        (
            other,
            lm.save_pretrained,
            "what is loaded from there has a tokenizer that divides a text",
        ),
        (
            of_wider,
            lm.save_pretrained,
            "what is loaded from there has another vocabulary, or no finite numbers; some of its weights have no",
        ),
        (sample_of(lm), str, r"it cannot be loaded again \(ValueError: "),  # nothing is written
    ):
        with (
            pytest.raises(RunStoreError, match=f"^Nothing was written to {out}: {said}"),
            read_back(out, sample) as draft,
        ):
            write(draft)
        assert sorted(path.name for path in tmp_path.iterdir()) == ["base"]


def test_a_folder_keeps_its_other_files_and_no_file_of_another_model(
    base: Callable[..., Any], tmp_path: Path
) -> None:
    out = tmp_path / "out"
    out.mkdir()
    (out / "notes.txt").write_text("mine")
    lm = base()
    with read_back(out, sample_of(lm)) as draft:
        lm.save_pretrained(draft)
    assert (out / "notes.txt").exists()
    assert (out / "model.safetensors").exists()
    (out / "adapter_config.json").write_text("{}")  # an adapter is loaded before whole weights
    with (
        pytest.raises(RunStoreError, match=r"another model, adapter_config\.json, .*name another"),
        read_back(out, sample_of(lm)) as draft,
    ):
        lm.save_pretrained(draft)
    whole = tmp_path / "whole"
    whole.mkdir()
    (whole / "config.json").write_text("{}")
    adapted = trained(lm, KINDS["all linear"]()).pretrained_model
    with (
        pytest.raises(RunStoreError, match=r"another model, config\.json, "),
        read_back(whole, sample_of(adapted)) as draft,
    ):
        adapted.save_pretrained(draft)


def test_new_tokens_are_saved_with_an_adapter(base: Callable[..., Any], tmp_path: Path) -> None:
    lm = base()
    lm.resize_token_embeddings(67)
    model = trained(lm, KINDS["all linear"]())
    with read_back(tmp_path / "out", sample_of(model.pretrained_model)) as draft:
        model.save_pretrained(draft)
    again = AutoModelForCausalLMWithValueHead.from_pretrained(tmp_path / "out")
    ids = torch.arange(67)[None]
    torch.testing.assert_close(again(ids).logits, model(ids).logits)


def test_weights_of_bfloat16_get_a_merge_in_float32_alone(
    base: Callable[..., Any], tmp_path: Path
) -> None:
    model = trained(base(dtype=torch.bfloat16), KINDS["all linear"]())
    sample = sample_of(model.pretrained_model)
    with read_back(tmp_path / "adapter", sample) as draft:
        model.save_pretrained(draft)
    with pytest.raises(RunStoreError, match="Nothing was written: merging differs from what was"):
        require_same_in_memory(model.merged(), sample, "merging")
    model = AutoModelForCausalLMWithValueHead.from_pretrained(tmp_path / "adapter")
    sample = sample_of(model.pretrained_model)
    require_same_in_memory(model.merged(), sample, "merging")


def test_an_adapter_on_a_model_that_has_no_place_is_refused(tmp_path: Path) -> None:
    shape = {"hidden_size": 16, "num_attention_heads": 2, "intermediate_size": 32}
    lm = LlamaForCausalLM(LlamaConfig(vocab_size=64, num_hidden_layers=1, **shape))
    model = AutoModelForCausalLMWithValueHead.from_pretrained(lm, peft_config=KINDS["all linear"]())
    with (
        pytest.raises(RunStoreError, match="on a model that was made in memory"),
        read_back(tmp_path / "out", sample_of(model.pretrained_model)) as draft,
    ):
        model.save_pretrained(draft)


def test_the_base_of_an_adapter_is_quantized_as_it_was_in_training(
    base: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = trained(base(), KINDS["all linear"]())
    model.causal_lm.config.quantization_config = BitsAndBytesConfig(load_in_8bit=True)
    model.save_pretrained(tmp_path / "out")
    kept = json.loads((tmp_path / "out" / "base_quantization.json").read_text())
    assert kept["load_in_8bit"] is True
    asked: dict[str, Any] = {}
    plain = base()

    def loaded(_: str, **options: Any) -> Any:
        asked.update(options)
        return plain, {"mismatched_keys": [], "missing_keys": [], "unexpected_keys": []}

    monkeypatch.setattr(value_head.AutoModelForCausalLM, "from_pretrained", loaded)
    AutoModelForCausalLMWithValueHead.from_pretrained(tmp_path / "out")
    assert asked["quantization_config"]["load_in_8bit"]


def test_an_agent_that_is_saved_over_another_base_leaves_what_was_there(
    tokenizer: Any, tmp_path: Path
) -> None:
    from tests.engine.conftest import tiny_llama

    tiny_llama(len(tokenizer)).save_pretrained(tmp_path / "base")
    model = AutoModelForCausalLMWithValueHead.from_pretrained(
        tmp_path / "base", peft_config=KINDS["all linear"]()
    )
    agent = BlackjackAgent(model, tokenizer)
    agent.save(tmp_path / "out")
    before = json.loads((tmp_path / "out" / "adapter_config.json").read_text())
    assert before["base_model_name_or_path"] == str(tmp_path / "base")
    model.causal_lm.model.norm.weight.data *= 1.1  # of the base, which is not saved
    with pytest.raises(RunStoreError, match="merge it into them"):
        agent.save(tmp_path / "out")
    assert not list(tmp_path.glob(".llamagym*"))
