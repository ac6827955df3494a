"""The registry of models: whose settings win, which folder is whose, and what is on this machine."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest

from llamagym_tui.runs.model_registry import ENTRIES, find, is_here, size_in_words, with_defaults
from llamagym_tui.settings import GenerationConfig, LoraConfig, RunConfig, from_dict

PHI = "microsoft/phi-2"  # replies of 16 tokens at 0.7, adapter of rank 8


def settings(model: str, **said: object) -> RunConfig:
    return from_dict(
        RunConfig,
        with_defaults({"agent": "blackjack", "run_dir": "x", "model": model, **said}, model),
    )


def test_what_was_said_wins_over_the_entry_and_the_entry_over_the_defaults() -> None:
    config = settings(PHI, generation={"temperature": 0.9})
    assert config.generation == GenerationConfig(temperature=0.9, max_new_tokens=16)
    assert config.lora == LoraConfig(r=8, alpha=16.0)
    assert settings("someone/unknown").generation == GenerationConfig()


def test_a_folder_is_known_by_what_its_run_or_its_adapter_comes_from(tmp_path: Path) -> None:
    run, adapter = tmp_path / "run", tmp_path / "adapter"
    (run / "model").mkdir(parents=True)
    adapter.mkdir()
    (run / "config.json").write_text(json.dumps({"model": PHI}))
    (adapter / "adapter_config.json").write_text(
        json.dumps({"base_model_name_or_path": "Qwen/Qwen3-0.6B"})
    )
    assert [
        entry and entry.name
        for entry in map(find, map(str, (run, run / "model", adapter, tmp_path)))
    ] == [
        PHI,
        PHI,
        "Qwen/Qwen3-0.6B",
        None,
    ]


def test_a_model_is_here_once_all_parts_of_it_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    repository = tmp_path / "models--microsoft--phi-2"
    snapshot = repository / "snapshots" / "abc"
    snapshot.mkdir(parents=True)
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text("abc")
    (snapshot / "config.json").write_text("{}")
    assert not is_here(PHI)
    parts = {"a": "model-1.safetensors", "b": "model-2.safetensors"}
    (snapshot / "model.safetensors.index.json").write_text(json.dumps({"weight_map": parts}))
    (snapshot / "model-1.safetensors").touch()
    assert not is_here(PHI)
    (snapshot / "model-2.safetensors").touch()
    assert is_here(PHI)
    assert is_here("bundled")
    assert not is_here("Qwen/Qwen3-0.6B")


def test_entries_are_sorted_by_size_and_their_settings_are_within_their_ranges() -> None:
    assert [entry.parameters for entry in ENTRIES] == sorted(entry.parameters for entry in ENTRIES)
    assert [msgspec.convert(msgspec.to_builtins(entry), type(entry)) for entry in ENTRIES] == list(
        ENTRIES
    )


def test_sizes_are_told_in_words() -> None:
    assert [size_in_words(n) for n in (12, 540_096, 134_515_008, 1_100_048_384)] == [
        "12",
        "540 k",
        "135 M",
        "1.1 B",
    ]
