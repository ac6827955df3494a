"""Models that do not load, and the messages for them; a hub of our own answers on this machine's loopback."""

from __future__ import annotations

import json
import os
import shutil
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any, ClassVar

import huggingface_hub
import pytest
import torch
from huggingface_hub import constants
from safetensors.torch import load_file, save_file
from transformers import (
    AddedToken,
    BertConfig,
    BertForMaskedLM,
    T5Config,
    T5ForConditionalGeneration,
)

from llamagym_tui.engine.model import hub, load_faults
from llamagym_tui.engine.model.loading import load_model_and_tokenizer
from llamagym_tui.errors import ModelLoadError
from llamagym_tui.settings import LoraConfig
from tests.engine.conftest import tiny_llama
from tests.engine.model.test_hub import FILES
from tests.engine.small_tokenizers import CHATML, qwen_like

TINY = {
    "hidden_size": 16,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "intermediate_size": 16,
}


class Hub(BaseHTTPRequestHandler):
    """Has one gated model and nothing else; keeps the token that it was shown for its models."""

    shown: ClassVar[dict[str, str | None]] = {}

    def do_GET(self) -> None:
        if "/someone/" in self.path:
            self.shown[self.path] = self.headers.get("Authorization")
        is_gated = "/someone/gated/" in self.path or self.path.endswith("/someone/gated")
        self.send_response(403 if is_gated else 404)
        self.send_header("X-Error-Code", "GatedRepo" if is_gated else "RepoNotFound")
        self.send_header("Content-Length", "0")
        self.end_headers()

    do_HEAD = do_GET  # noqa: N815

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def messages_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[..., list[str]]]:
    """Makes messages for models of our hub, which do not load, with a token in the environment or none."""
    server = HTTPServer(("127.0.0.1", 0), Hub)
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    for name in list(os.environ):
        if name.lower().endswith("_proxy") or name.startswith(("HF_", "HUGGING")):
            monkeypatch.delenv(name)
    there = f"http://127.0.0.1:{server.server_port}"
    monkeypatch.setattr(constants, "ENDPOINT", there)
    monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", there + FILES)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr(constants, "HF_TOKEN_PATH", str(tmp_path / "token"))
    monkeypatch.setattr(hub, "_last", hub._Asked())
    huggingface_hub.close_session()  # it keeps the proxies that there were

    def make(names: list[str], token: str | None) -> list[str]:
        Hub.shown.clear()
        if token is not None:
            monkeypatch.setenv("HF_TOKEN", token)
        messages = []
        for name in names:
            with pytest.raises(ModelLoadError) as error:
                load_model_and_tokenizer(name, "cpu")
            messages.append(str(error.value))
        return messages

    yield make
    huggingface_hub.close_session()
    server.shutdown()
    server.server_close()


INSTEAD = "or use --model bundled"


@pytest.mark.parametrize(
    ("path", "error", "said"),
    [
        (None, OSError("a Gated repo"), "Model 'a/b' is gated and the token here gives no access: "
         f"ask for it on its hub page, {INSTEAD}."),
        ("x", OSError("gated"), "The model in 'x' does not load: gated"),
        (None, ValueError("Unrecognized configuration class T5"),
         f"Model 'a/b' is no causal language model: choose one that writes text on from text, {INSTEAD}."),
        ("x", ValueError("pass trust_remote_code=True"),
         "The model in 'x' needs code of its own, which is never run here: "
         f"choose one that transformers has, {INSTEAD}."),
        (None, ValueError("contains custom code"),
         f"Model 'a/b' needs code of its own, which is never run here: choose one that transformers has, {INSTEAD}."),
        ("x", OSError("no file named model.safetensors"),
         "The model in 'x' does not load: no file named model.safetensors"),
        (None, OSError("no file named model.safetensors"),
         f"Model 'a/b' has no safetensors, and nothing else is read: choose another, {INSTEAD}."),
        (None, OSError("is not a valid model identifier"),
         f"There is no model 'a/b' on the hub, or it is private: check its name, {INSTEAD}."),
        (None, OSError("Repository Not Found"),
         f"There is no model 'a/b' on the hub, or it is private: check its name, {INSTEAD}."),
        ("x", OSError("Repository Not Found"), "The model in 'x' does not load: Repository Not Found"),
        (None, KeyError(), f"Model 'a/b' does not load (KeyError): check its name, {INSTEAD}."),
        ("x", OSError("a\n b" + "c" * 197), f"The model in 'x' does not load: a b{'c' * 197}"),
        ("x", OSError("a\n b" + "c" * 198), f"The model in 'x' does not load: a b{'c' * 197}…"),
    ],
)  # fmt: skip
def test_each_cause_has_its_sentence(monkeypatch, path, error, said):
    monkeypatch.setattr(load_faults.huggingface_hub, "get_token", lambda: "hf_secret")
    assert load_faults.sentence("a/b", None if path is None else Path(path), error) == said
    monkeypatch.setattr(load_faults.huggingface_hub, "get_token", lambda: None)
    assert load_faults.sentence("a/b", None, OSError("gated")) == (
        f"Model 'a/b' is gated: ask for access on its hub page and set HF_TOKEN, {INSTEAD}."
    )


@pytest.mark.parametrize(
    "model",
    [
        BertForMaskedLM(BertConfig(vocab_size=64, **TINY)),
        T5ForConditionalGeneration(
            T5Config(vocab_size=64, d_model=16, d_kv=8, d_ff=16, num_layers=1, num_heads=2)
        ),
    ],
    ids=["encoder", "encoder-decoder"],
)
def test_a_model_that_is_not_causal_is_refused(model, tmp_path, tokenizer):
    model.save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    with pytest.raises(ModelLoadError, match="is no causal language model"):
        load_model_and_tokenizer(str(tmp_path), "cpu")


def test_a_model_with_code_of_its_own_is_refused_and_the_code_not_run(tmp_path, tokenizer):
    tiny_llama(len(tokenizer)).save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    own = {
        "model_type": "strange",
        "auto_map": {"AutoConfig": "strange.Config", "AutoModelForCausalLM": "strange.LM"},
    }
    (tmp_path / "config.json").write_text(json.dumps({**config, **own}))
    (tmp_path / "strange.py").write_text("raise SystemExit('this code was run')")
    with pytest.raises(ModelLoadError, match="code of its own, which is never run"):
        load_model_and_tokenizer(str(tmp_path), "cpu")


def test_pickled_weights_are_refused_unread(tmp_path, tokenizer):
    lm = tiny_llama(len(tokenizer))
    lm.config.save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    torch.save(lm.state_dict(), tmp_path / "pytorch_model.bin")
    with pytest.raises(
        ModelLoadError, match=r"no safetensors but pytorch_model\.bin, which may run code"
    ):
        load_model_and_tokenizer(str(tmp_path), "cpu")


def test_an_adapter_whose_base_model_is_gone_gets_a_sentence(tmp_path, tokenizer, monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.delenv("HTTPS_PROXY", raising=False)
    monkeypatch.delenv("https_proxy", raising=False)
    base, adapter = tmp_path / "base", tmp_path / "adapter"
    tiny_llama(len(tokenizer)).save_pretrained(base)
    tokenizer.save_pretrained(base)
    loaded = load_model_and_tokenizer(
        str(base), "cpu", full_finetuning=False, lora=LoraConfig(layers="all", r=2)
    )
    loaded.model.save_pretrained(adapter)
    tokenizer.save_pretrained(adapter)
    base.rename(tmp_path / "elsewhere")
    with pytest.raises(ModelLoadError, match="base"):
        load_model_and_tokenizer(str(adapter), "cpu")


UP = "model.layers.1.mlp.up_proj.weight"


def written(folder: Path, tokenizer: Any, lm: Any) -> Path:
    lm.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def change(file: Path, how: Callable[[dict[str, torch.Tensor]], object]) -> None:
    weights = load_file(file)
    how(weights)
    save_file(weights, file, {"format": "pt"})


@pytest.mark.parametrize(
    ("how", "said"),
    [
        (lambda w: w.pop(UP), rf"lacks the weight {UP}, which would be drawn at random: take"),
        (lambda w: w.update(odd=torch.ones(1)), "has the weight odd, which its configuration has"),
        (lambda w: w.update(odd=w.pop(UP)), rf"lacks the weight {UP}, .*, and has the weight odd"),
        (
            lambda w: w.update({UP: w[UP][1:].clone()}),
            rf"has {UP} in the shape \(63, 32\), and its configuration asks for \(64, 32\)",
        ),
        (lambda w: w.update(a=w.pop(UP), b=torch.ones(1)), "has the weights a and 1 other, which"),
    ],
)
def test_a_model_whose_files_have_not_its_weights_is_refused_by_name(
    tmp_path, tokenizer, how, said
):
    folder = written(tmp_path / "a", tokenizer, tiny_llama(len(tokenizer)))
    change(folder / "model.safetensors", how)
    with pytest.raises(ModelLoadError, match=said):
        load_model_and_tokenizer(str(folder), "cpu")


@pytest.fixture(scope="module")
def saved_adapter(tmp_path_factory, tokenizer) -> Path:
    """The folder of an adapter of rank 2, on a model beside it."""
    at = tmp_path_factory.mktemp("adapter")
    base = written(at / "base", tokenizer, tiny_llama(len(tokenizer)))
    lora = LoraConfig(layers="all", r=2)
    loaded = load_model_and_tokenizer(str(base), "cpu", full_finetuning=False, lora=lora)
    loaded.model.save_pretrained(at / "adapter")
    return at / "adapter"


DOWN = "base_model.model.model.layers.0.mlp.down_proj.lora_A.weight"


def test_an_adapter_that_does_not_fit_its_settings_and_its_base_is_refused(tmp_path, saved_adapter):
    folder = tmp_path / "changed"
    shutil.copytree(saved_adapter, folder)
    change(folder / "adapter_model.safetensors", lambda w: w.update({DOWN: w[DOWN][1:].clone()}))
    with pytest.raises(ModelLoadError, match=rf"^The adapter in '{folder}' has other weights"):
        load_model_and_tokenizer(str(folder), "cpu")
    assert load_model_and_tokenizer(str(saved_adapter), "cpu").model.is_adapted


WITH_TURNS = CHATML.replace("<|im_start|>", "<|turn|>")


@pytest.mark.parametrize(
    ("template", "token"),
    [
        (WITH_TURNS, AddedToken("<|turn|>", special=True)),
        (CHATML, AddedToken("<|turn|>", special=False)),
        (None, AddedToken("turn")),
    ],
)
def test_a_tokenizer_with_a_token_that_the_model_has_no_row_for_is_refused(
    tmp_path, template, token
):
    tokenizer = qwen_like()
    lm = tiny_llama(len(tokenizer))
    tokenizer.add_tokens([token])
    tokenizer.chat_template = template
    folder = written(tmp_path / "a", tokenizer, lm)
    with pytest.raises(
        ModelLoadError, match=r"has 300 tokens and the model 299 rows of embeddings"
    ):
        load_model_and_tokenizer(str(folder), "cpu")
