"""A model behind an endpoint: which one is asked, what is asked again, what stays a secret, one sentence where it
fails."""

from __future__ import annotations

import json
import re
import socket
from collections.abc import Iterator

import pytest

from llamagym_tui.errors import GeneratorError, UsageError
from llamagym_tui.game.chat import system, user
from llamagym_tui.game.endpoint import KEY, TRIES, Endpoint, Tokens
from tests.chat_server import Chat, serving

SECRET = "sk-very-secret"


@pytest.fixture
def chat(monkeypatch: pytest.MonkeyPatch) -> Chat:
    monkeypatch.delenv(KEY, raising=False)
    return Chat(lambda messages: f"{len(messages)}: {messages[-1]['content']}")


@pytest.fixture
def address(chat: Chat) -> Iterator[str]:
    with serving(chat) as found:
        yield found


class Waits:
    """Takes no time; how long each wait was to be."""

    def __init__(self) -> None:
        self.seconds: list[float] = []

    async def __call__(self, seconds: float) -> None:
        self.seconds.append(seconds)


def asked(name: str, *words: str, waits: Waits | None = None) -> tuple[list[str], Endpoint]:
    with Endpoint(name, wait=waits or Waits()) as endpoint:
        conversations = [[system("Play."), user(each)] for each in words]
        seeds = list(range(len(words)))
        answers = endpoint.replies(conversations, seeds, max_tokens=2, temperature=0.5)
    texts = []
    for answer in answers:
        if isinstance(answer, GeneratorError):
            raise answer
        texts.append(answer.text)
    return texts, endpoint


def test_replies_come_in_the_order_of_the_conversations_with_their_tokens(
    chat: Chat, address: str
) -> None:
    texts, endpoint = asked(address, "one", "two or", "three")
    assert texts == ["2: one", "2: two or", "2: three"]
    assert endpoint.tokens == Tokens(read=7, written=7)
    by_seed = sorted(chat.requests, key=lambda request: request["seed"])
    assert by_seed[1] == {
        "model": "small",
        "messages": [
            {"role": "system", "content": "Play."},
            {"role": "user", "content": "two or"},
        ],
        "max_tokens": 2,
        "temperature": 0.5,
        "seed": 1,
    }
    assert chat.keys == {None}


@pytest.mark.parametrize("ending", ["", "/", "#large:4b"])
def test_the_model_is_the_one_that_is_named_or_the_only_one(
    chat: Chat, address: str, ending: str
) -> None:
    _, endpoint = asked(f"{address}{ending}", "x")
    assert endpoint.model == ending.removeprefix("#").strip("/") or "small"
    assert chat.requests[0]["model"] == ("large:4b" if "#" in ending else "small")
    bare = address.removesuffix("/v1")
    assert asked(f"{bare}{ending}", "x")[0] == ["2: x"]


def test_among_several_models_one_has_to_be_named(chat: Chat, address: str) -> None:
    chat.models = ("a", "b")
    with pytest.raises(UsageError) as refused:
        Endpoint(address)
    assert str(refused.value) == f"{address} has 2 models (a, b); name one, as {address}#a."


def test_what_passes_is_asked_again_and_a_server_says_when(chat: Chat, address: str) -> None:
    chat.faults = [(503, {}, ""), (429, {"Retry-After": "7"}, ""), (500, {}, "")]
    waits = Waits()
    assert asked(address, "x", waits=waits)[0] == ["2: x"]
    assert waits.seconds == [1, 7, 14]
    assert len(chat.requests) == 4


@pytest.mark.parametrize(
    ("status", "tries", "todo"),
    [(503, TRIES, ""), (400, 1, ""), (401, 1, f"; its key is taken from {KEY}")],
)
def test_what_does_not_pass_is_one_sentence_without_the_key(
    chat: Chat,
    address: str,
    monkeypatch: pytest.MonkeyPatch,
    status: int,
    tries: int,
    todo: str,
) -> None:
    monkeypatch.setenv(KEY, f" {SECRET}\n")
    chat.faults = [(status, {}, f"Not with\n{SECRET}.")] * TRIES
    with pytest.raises(GeneratorError) as refused:
        asked(address, "x")
    assert str(refused.value) == f"The endpoint {address} refuses ({status}): Not with …{todo}."
    assert len(chat.requests) == tries
    assert chat.keys == {f"Bearer {SECRET}"}


@pytest.mark.parametrize("key", ["sk-\x00", "sk-a\nb", "schlüssel"])
def test_a_key_that_no_header_may_have_is_refused_and_not_told(
    address: str, monkeypatch: pytest.MonkeyPatch, key: str
) -> None:
    monkeypatch.setattr("os.environ", {KEY: key})
    with pytest.raises(UsageError, match=KEY) as refused:
        Endpoint(address)
    assert key not in str(refused.value)


@pytest.mark.parametrize("name", ["http://me:word@host/v1", "https://host/v1?key=word"])
def test_an_address_has_no_secret(name: str) -> None:
    with pytest.raises(UsageError, match=f"put the key in {KEY}") as refused:
        Endpoint(name)
    assert "word" not in str(refused.value)


def test_where_nobody_listens_it_is_told_at_once() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"http://127.0.0.1:{free.getsockname()[1]}/v1"
        waits = Waits()
        with pytest.raises(GeneratorError, match=r"does not answer .* start it, or correct"):
            asked(f"{address}#any", "x", waits=waits)
    assert waits.seconds == []


PASSING: list[tuple[int, dict[str, str], str]] = [
    (200, {}, '{"error": {"message": "Rate limit exceeded", "code": 429}}'),
    (200, {}, '{"error": {"message": "busy", "code": "502"}}'),
    (200, {}, '{"error": {"message": "busy", "status": "503 Service Unavailable"}}'),
    (200, {}, '{"error": {"message": "busy", "code": "rate_limit_exceeded"}}'),
    (200, {}, '{"error": "busy"}'),
    (200, {}, '{"choices": [{"error": {"code": 502}, "message": {"content": ""}}]}'),
    (200, {}, '{"choices": null, "usage": null}'),
    (200, {}, '{"choices": []}'),
    (200, {}, "{}"),
    (200, {}, '{"choices": [{"message": {"cont'),
    (200, {}, "<html>The gateway is away.</html>"),
    (200, {}, ""),
    (200, {"Content-Length": "999"}, '{"choices": ['),
    (524, {}, "<html>error code: 524</html>"),
    (529, {}, "overloaded"),
]


@pytest.mark.parametrize("fault", PASSING)
def test_a_fault_that_passes_is_asked_again_in_whatever_envelope_it_comes(
    chat: Chat, address: str, fault: tuple[int, dict[str, str], str]
) -> None:
    chat.faults = [fault, fault]
    waits = Waits()
    assert asked(f"{address}#small", "x", waits=waits)[0] == ["2: x"]
    assert waits.seconds == [1, 2]


@pytest.mark.parametrize("code", ["401", '"401"'])
def test_an_error_in_an_answer_of_200_that_does_not_pass_is_told_in_the_words_of_the_server(
    chat: Chat, address: str, code: str
) -> None:
    chat.faults = [(200, {}, f'{{"error": {{"message": "No such user", "code": {code}}}}}')]
    with pytest.raises(GeneratorError, match=rf"refuses \(401\): .*No such user.*{KEY}"):
        asked(address, "x")
    assert len(chat.requests) == 1


@pytest.mark.parametrize("body", ["{}", "<html>Welcome</html>", '{"choices": []}'])
def test_an_answer_that_stays_of_another_kind_is_told_with_its_words(
    chat: Chat, address: str, body: str
) -> None:
    chat.faults = [(200, {}, body)] * TRIES
    with pytest.raises(GeneratorError, match=rf"is no chat completion .*: {re.escape(body)}; a"):
        asked(address, "x")


def test_tokens_that_are_not_counted_are_none_and_what_is_thought_is_not_said(
    chat: Chat, address: str
) -> None:
    parts = [{"type": "thinking", "thinking": []}, {"type": "text", "text": "stick"}]
    body = {"choices": [{"message": {"content": parts}}], "usage": {"prompt_tokens": None}}
    chat.faults = [(200, {}, json.dumps(body))]
    texts, endpoint = asked(address, "x")
    assert (texts, endpoint.tokens) == (["stick"], Tokens(0, 0))
