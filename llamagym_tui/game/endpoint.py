"""A model that plays from elsewhere: a server with OpenAI's chat completions, such as Ollama, LM Studio, llama.cpp's or
vLLM.

It is named in place of a model by its address and, where it has several models, the name of one after a ``#``:
``http://localhost:11434/v1#qwen3:4b``. A key comes from the environment variable OPENAI_API_KEY; it is sent to that
address alone, and stands in no setting, file or message. A server that is busy or restarts is asked again, some times,
whether it says so by a status, by an error in an answer of 200, or by half an answer. Whose turn it is, and what a
reply means, is the caller's.
"""

import asyncio
import os
import re
from collections.abc import Awaitable, Callable, Sequence
from typing import Annotated, Any, NamedTuple, Self

import httpx2
import msgspec
from msgspec import Meta, Struct

from llamagym_tui.errors import MOST_WORDS, GeneratorError, UsageError
from llamagym_tui.game.chat import Conversation

KEY = "OPENAI_API_KEY"
"""The environment variable that has the key."""
TIMEOUT = httpx2.Timeout(300.0, connect=10.0, pool=None)
"""Seconds for a reply, and for a connection: at its first one a server may load its model."""
CONNECTIONS = 16
"""Requests under way at the same time, at most; a server may answer one after the other."""
TRIES = 5
"""How often a reply is asked for, at most."""
FIRST_WAIT_S = 1.0
"""Seconds before it is asked for again, twice as long each time, unless the server names others."""
LONGEST_WAIT_S = 60.0
_BROKEN_OFF = (httpx2.ReadError, httpx2.RemoteProtocolError)
"""Raised where a server has begun to answer."""
PASSES = {408, 409, 425, 429, 500, 502, 503, 504, *range(520, 531), 598, 599}
"""Status codes of what may have passed a little later; gateways have some of their own from 520 on."""
DEFAULT_PATH = "/v1"
"""Where such servers have their interface, if an address has no path."""


class Tokens(NamedTuple):
    """What a server has read and written, by its own count; 0: it counts none."""

    read: int = 0
    written: int = 0

    def __str__(self) -> str:
        return f"{self.read:,} tokens read and {self.written:,} written"


class Answer(NamedTuple):
    """A reply, with what it took."""

    text: str
    tokens: Tokens
    is_cut: bool
    """Whether it ended only because it may have no more tokens."""


class _Part(Struct):
    type: str = ""
    text: str | None = None


class _Message(Struct):
    content: str | list[_Part] | None = None

    @property
    def text(self) -> str:
        """What is said in it, without what is thought."""
        if isinstance(self.content, list):
            said = [part for part in self.content if part.type not in ("thinking", "reasoning")]
            return "".join(part.text or "" for part in said)
        return self.content or ""


class _Choice(Struct):
    message: _Message
    finish_reason: str | None = None


class _Usage(Struct):
    prompt_tokens: int | None = 0
    completion_tokens: int | None = 0


class _Completion(Struct):
    choices: Annotated[list[_Choice], Meta(min_length=1)]
    usage: _Usage | None = None


class _Model(Struct):
    id: str


class _Models(Struct):
    data: list[_Model]


class _PassingFault(GeneratorError):
    """A fault that may have passed a little later."""

    retry_after: str | None = None
    """The seconds to wait that the server has named in a header."""


def require_address(name: str) -> httpx2.URL:
    """The address of an endpoint, with its path.

    Raises:
        UsageError: it is none, or has something of a key.
    """
    try:
        address = httpx2.URL(name)
    except httpx2.InvalidURL as error:
        raise UsageError(f"{name} is no address of an endpoint: {error}.") from error
    if address.userinfo or address.query:
        raise UsageError(
            f"An endpoint's address has no user, key or query, as it is kept in files: put the key in {KEY}."
        )
    if not address.host:
        raise UsageError(f"{name} names no host, as http://localhost:11434/v1 does.")
    path = address.path.rstrip("/") or DEFAULT_PATH
    return address.copy_with(path=path, fragment=None)


class Endpoint:
    """A connection to an endpoint, and the model that it plays with; to be closed."""

    def __init__(
        self,
        name: str,
        *,
        wait: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        """Find out which model is meant.

        Args:
            name: its address.
            wait: lets so many seconds pass.
        Raises:
            UsageError: the address is none, or the server has several models and none is named.
            GeneratorError: the server does not say which models it has.
        """
        self._address = require_address(name)
        self._wait = wait
        self._key = os.environ.get(KEY, "").strip()
        if not (self._key.isascii() and self._key.isprintable() and " " not in self._key):
            raise UsageError(f"What {KEY} has is no key: it has signs that no header may have.")
        self._has_answered = False
        headers = {"Authorization": f"Bearer {self._key}"} if self._key else {}
        self._client = httpx2.AsyncClient(
            headers=headers, timeout=TIMEOUT, limits=httpx2.Limits(max_connections=CONNECTIONS)
        )
        self._runner = asyncio.Runner()
        self.tokens = Tokens()
        """Of all replies so far."""
        try:
            self.model = httpx2.URL(name).fragment or self._only_model()
            """The name by which the server knows the model."""
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        self._runner.run(self._client.aclose())
        self._runner.close()

    def replies(
        self,
        conversations: Sequence[Conversation],
        seeds: Sequence[int],
        *,
        max_tokens: int,
        temperature: float,
    ) -> list[Answer | GeneratorError]:
        """Replies to conversations, which are asked for at the same time; an error where the server refuses, or has not
        answered after some tries.

        Args:
            seeds: of the sampling of each, which a server may have no use for.
            max_tokens: of a reply, at most.
            temperature: 0: the likeliest reply.
        """
        asked: list[dict[str, Any]] = []
        for conversation, seed in zip(conversations, seeds, strict=True):
            messages = [{"role": each["role"], "content": each["content"]} for each in conversation]
            asked.append(
                {
                    "model": self.model,
                    "messages": messages,
                    "max_tokens": max_tokens,
                    "temperature": temperature,
                    "seed": seed,
                }
            )

        async def together() -> list[Answer | GeneratorError]:
            return await asyncio.gather(*map(self._answer, asked))

        answers = self._runner.run(together())
        given = [each.tokens for each in answers if isinstance(each, Answer)]
        self.tokens = Tokens(
            self.tokens.read + sum(each.read for each in given),
            self.tokens.written + sum(each.written for each in given),
        )
        return answers

    async def _answer(self, request: dict[str, Any]) -> Answer | GeneratorError:
        try:
            completion = await self._asked("chat/completions", _Completion, request)
        except GeneratorError as error:
            return error
        choice = completion.choices[0]
        usage = completion.usage or _Usage()
        text = choice.message.text
        return Answer(
            text,
            Tokens(usage.prompt_tokens or 0, usage.completion_tokens or 0),
            choice.finish_reason == "length",
        )

    def _only_model(self) -> str:
        models = self._runner.run(self._asked("models", _Models)).data
        names = [each.id for each in models]
        if len(names) == 1:
            return names[0]
        if not names:
            raise UsageError(f"{self._address} has no model; load one there first.")
        known = ", ".join(names[:20])
        raise UsageError(
            f"{self._address} has {len(names):,} models ({known}); name one, as {self._address}#{names[0]}."
        )

    async def _asked(
        self, path: str, kind: type[Any], request: dict[str, Any] | None = None
    ) -> Any:
        """What the server answers to a request; asked again while it is busy or away."""
        wait_s = FIRST_WAIT_S
        for tries_left in reversed(range(TRIES)):
            try:
                return self._read(await self._sent(path, request), kind)
            except _PassingFault as fault:
                if not tries_left:
                    raise
                wait_s = _seconds(fault.retry_after, wait_s)
            await self._wait(wait_s)
            wait_s = min(2 * wait_s, LONGEST_WAIT_S)
        raise AssertionError("the last try returns or raises")

    async def _sent(self, path: str, request: dict[str, Any] | None) -> httpx2.Response:
        address = f"{self._address}/{path}"
        try:
            if request is None:
                response = await self._client.get(address)
            else:
                response = await self._client.post(address, json=request)
        except (httpx2.HTTPError, OSError) as error:
            what = f"{type(error).__name__}: {error}".rstrip(": ")
            message = f"The endpoint {self._address} does not answer ({what}); start it, or correct the address."
            # One that has never answered is not there, or is none.
            is_there = self._has_answered or isinstance(error, _BROKEN_OFF)
            raise (_PassingFault if is_there else GeneratorError)(message) from error
        self._has_answered = True
        return response

    def _read(self, response: httpx2.Response, kind: type[Any]) -> Any:
        """What an answer holds, if it is of the kind that was asked for."""
        status: int | None = response.status_code
        if response.is_success:
            try:
                error = _error_in(msgspec.json.decode(response.content))
                if error is None:
                    return msgspec.json.decode(response.content, type=kind)
            except ValueError as fault:
                raise _PassingFault(
                    f"What the endpoint {self._address} answers is no chat completion ({fault})"
                    f"{self._words(response)}; a server with OpenAI's interface is needed."
                ) from fault
            status = _status_in(error)
        named = f" ({status})" if status else ""
        todo = ""
        if status in (401, 403):
            todo = f"; its key is taken from {KEY}"
        elif status == 404:
            todo = f"; most addresses end with {DEFAULT_PATH}, and #NAME names a model"
        message = f"The endpoint {self._address} refuses{named}{self._words(response)}{todo}."
        if status and status not in PASSES:
            raise GeneratorError(message)
        passing = _PassingFault(message)
        passing.retry_after = response.headers.get("Retry-After")
        raise passing

    def _words(self, response: httpx2.Response) -> str:
        """The server's own words, as the end of a clause."""
        words = " ".join(response.text.split())
        if self._key:  # some servers repeat it
            words = words.replace(self._key, "…")
        return f": {words[:MOST_WORDS].rstrip('.')}" if words else ""


def _error_in(body: Any) -> Any:
    """The error that an answer holds, for itself or in the place of a reply. None: it holds none."""
    places = [body]
    if isinstance(body, dict) and isinstance(body.get("choices"), list):
        places += body["choices"]
    for place in places:
        if isinstance(place, dict) and place.get("error"):
            return place["error"]
    return None


def _status_in(error: Any) -> int | None:
    """The status code that an error names, as a number or a text. None: it names none."""
    named = error if isinstance(error, dict) else {}
    for name in ("code", "status"):
        if found := re.match(r"[45]\d\d\b", str(named.get(name))):
            return int(found[0])
    return None


def _seconds(named: str | None, otherwise: float) -> float:
    """The seconds to wait that a server has named in a header; another number if it has named none."""
    if named is None or not named.strip().isdecimal():
        return otherwise
    return min(float(named), LONGEST_WAIT_S)
