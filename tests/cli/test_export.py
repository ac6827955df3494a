"""What `export` leaves: a folder that transformers answers from by itself."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM, LlamaForCausalLM, pipeline
from typer.testing import CliRunner

from llamagym_tui.cli import export
from llamagym_tui.cli.main import app
from llamagym_tui.engine.model.loading import load_model_and_tokenizer
from llamagym_tui.engine.model.sources import bundled_model_path
from llamagym_tui.engine.model.value_head import AutoModelForCausalLMWithValueHead
from llamagym_tui.protocol.events import EvaluationFinished
from llamagym_tui.runs.run_folder import MODEL_DIR
from llamagym_tui.settings import GenerationConfig, LoraConfig
from tests import fakes
from tests.recorded_run import record

ASKED = [
    {"role": "system", "content": 'Reply with {"action": 0} to stick or {"action": 1} to hit.'},
    {"role": "user", "content": "Your total: 20. Usable ace: no. Dealer shows: 10."},
]


@pytest.fixture(scope="module")
def adapter(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, torch.Tensor]:
    """A folder with an adapter that has learnt something, and its logits of some ids."""
    folder = tmp_path_factory.mktemp("adapter") / MODEL_DIR
    loaded = load_model_and_tokenizer(
        "bundled", "cpu", full_finetuning=False, lora=LoraConfig(layers="all", r=2)
    )
    torch.manual_seed(0)
    for name, weights in loaded.model.pretrained_model.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(weights, std=0.1)
    loaded.model.save_pretrained(folder)
    loaded.tokenizer.save_pretrained(folder)
    with torch.no_grad():
        return folder, loaded.model.pretrained_model(torch.tensor([[5, 6, 7]])).logits


@pytest.fixture
def adapted(tmp_path: Path, adapter: tuple[Path, torch.Tensor]) -> tuple[Path, torch.Tensor]:
    """A run that has trained that adapter, and the logits."""
    events = [
        *fakes.opening_events(),
        *fakes.learning(2),
        EvaluationFinished(
            episodes=200,
            greedy=True,
            mean_return=-0.25,
            return_stderr=0.07,
            parse_failure_rate=0.0,
            elapsed_s=1.0,
        ),
    ]
    run_dir = record(
        tmp_path / "one", events, generation=GenerationConfig(temperature=0.5, max_new_tokens=12)
    )
    folder, logits = adapter
    shutil.copytree(folder, run_dir / MODEL_DIR)
    return run_dir, logits


def exported(*words: object) -> str:
    result = CliRunner().invoke(app, ["export", *map(str, words)])
    assert result.exit_code == 0, result.output
    return result.stdout


def test_a_merged_model_is_a_plain_folder_that_a_pipeline_answers_with(
    tmp_path: Path, adapted: tuple[Path, torch.Tensor]
) -> None:
    run_dir, logits = adapted
    out = tmp_path / "plain"
    assert exported(run_dir, out, "--merge") == f"The model of one is in {out}\n"
    assert not [
        file.name for file in out.iterdir() if "adapter" in file.name or "value" in file.name
    ]
    with torch.no_grad():
        now = AutoModelForCausalLM.from_pretrained(out)(torch.tensor([[5, 6, 7]])).logits
    torch.testing.assert_close(now, logits, atol=1e-4, rtol=1e-4)
    answering = pipeline("text-generation", str(out))
    sampling = answering.model.generation_config
    assert (sampling.temperature, sampling.top_k, sampling.max_new_tokens, sampling.do_sample) == (
        0.5,
        0,
        12,
        True,
    )
    said = answering(ASKED)[0]["generated_text"][-1]
    assert said["role"] == "assistant"
    prompt = answering.tokenizer.apply_chat_template(ASKED, add_generation_prompt=True)["input_ids"]
    ids = answering(ASKED, return_tensors=True)[0][
        "generated_token_ids"
    ]  # their text may be cut into others
    assert ids[: len(prompt)] == prompt
    assert len(prompt) < len(ids) <= len(prompt) + 12


def test_sampling_and_ends_are_the_runs_and_not_the_base_models(tmp_path: Path) -> None:
    events = [*fakes.opening_events(), *fakes.learning(2)]
    run_dir = record(tmp_path / "one", events, generation=GenerationConfig(temperature=0.5))
    shutil.copytree(bundled_model_path(), run_dir / MODEL_DIR)
    own = {"repetition_penalty": 1.1, "min_p": 0.1, "suppress_tokens": [7], "eos_token_id": 0}
    (run_dir / MODEL_DIR / "generation_config.json").write_text(json.dumps(own))
    exported(run_dir, tmp_path / "a")
    written = json.loads((tmp_path / "a" / "generation_config.json").read_text("utf-8"))
    assert not {"repetition_penalty", "min_p", "suppress_tokens"} & written.keys()
    assert written["temperature"] == 0.5
    assert {0, 1} <= set(written["eos_token_id"])


def test_without_merge_an_adapter_stays_one(
    adapted: tuple[Path, torch.Tensor], tmp_path: Path
) -> None:
    exported(adapted[0], tmp_path / "adapter")
    assert json.loads((tmp_path / "adapter" / "adapter_config.json").read_text("utf-8"))["r"] == 2
    assert export.OF_BASE in (tmp_path / "adapter" / "README.md").read_text("utf-8")
    assert not list((tmp_path / "adapter").glob("value*"))


def test_what_cannot_be_exported_is_one_sentence_and_leaves_nothing(
    adapted: tuple[Path, torch.Tensor], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*words: object) -> str:
        return CliRunner().invoke(app, ["export", *map(str, words)]).stderr

    monkeypatch.setenv("PATH", "")
    converter = (
        "--gguf needs --merge and llama.cpp's convert_hf_to_gguf.py on the PATH; leave --gguf out."
    )
    assert (
        refused(adapted[0], tmp_path / "a", "--merge", "--gguf") == f"llamagym-tui: {converter}\n"
    )
    assert (
        refused(adapted[0], tmp_path)
        == f"llamagym-tui: {tmp_path} is there already; name a new folder.\n"
    )
    empty = record(tmp_path / "two", fakes.opening_events())
    assert "has no checkpoint" in refused(empty, tmp_path / "a")
    monkeypatch.setattr(
        export, "load_model_and_tokenizer", lambda *_: pytest.fail("it is refused before")
    )
    under_file = tmp_path / "two" / "events.jsonl" / "a"
    assert f"{under_file} cannot be written (Not a directory); name another folder." in refused(
        adapted[0], under_file
    )
    assert not (tmp_path / "a").exists()


def test_what_is_not_the_model_that_was_trained_leaves_nothing(
    adapted: tuple[Path, torch.Tensor], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    as_it_is = LlamaForCausalLM.save_pretrained

    def saved_otherwise(lm: Any, folder: Path, **_: object) -> None:
        lm.lm_head.weight.data[5] += 0.1
        as_it_is(lm, folder)

    for method, broken, said in (
        (
            "merged",
            lambda model: model.pretrained_model.unload(),
            "the merged model is not the model",
        ),
        ("save_pretrained", saved_otherwise, "what is loaded from there is not the model"),
    ):
        with monkeypatch.context() as broke:
            kind = AutoModelForCausalLMWithValueHead if method == "merged" else LlamaForCausalLM
            broke.setattr(kind, method, broken)
            words = ["export", str(adapted[0]), str(tmp_path / "out"), "--merge"]
            result = CliRunner().invoke(app, words)
        assert result.exit_code == 1
        assert said in result.stderr
        assert [path.name for path in tmp_path.iterdir()] == ["one"]


def test_a_run_that_has_trained_an_adapter_is_evaluated_with_it(
    adapted: tuple[Path, torch.Tensor],
) -> None:
    words = ["eval", "blackjack", "--model", str(adapted[0]), "--episodes", "2", "--envs", "2"]
    result = CliRunner().invoke(app, words)
    assert result.exit_code == 0, result.output
    assert "over 2 episodes" in result.output
