"""A model behind OpenAI's chat completions, as Ollama, LM Studio, llama.cpp's server and vLLM offer them.

It is named in place of a model by its address and, if the server has several models, one model's name after a ``#``:
``http://localhost:11434/v1#qwen3:4b``. The key is read from the environment variable OPENAI_API_KEY and goes to that
address alone. The `openai` client asks a busy server again.
"""

import os
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from urllib.parse import urlsplit

from llamagym_tui.errors import MOST_WORDS, GeneratorError, UsageError, require_library
from llamagym_tui.game.chat import Conversation

KEY = "OPENAI_API_KEY"
"""The environment variable that has the key."""
NO_KEY = "none"
"""Sent where there is no key, as the client wants one."""
TIMEOUT_S = 300.0
"""Seconds for a reply: at its first one a server may load its model."""
RETRIES = 4
PAUSE_S = 2.0
"""Seconds before the first retry of a request that was answered without a reply; each retry waits as much longer."""
CONNECTIONS = 16
"""Requests under way at the same time, at most."""
LARGEST_SEED = 2**31
"""Servers take seeds of 32 bits with a sign."""
DEFAULT_PATH = "/v1"
"""Where such servers have their interface, if an address has no path."""


def require_address(name: str) -> str:
    """The address of an endpoint, with its path and without the model's name.

    Raises:
        UsageError: it is no address, or has a key in it.
    """
    parts = urlsplit(name)
    if parts.username or parts.password or parts.query:
        raise UsageError(
            f"An endpoint's address has no user, key or query, as it is kept in files: put the key in {KEY}."
        )
    if not parts.hostname:
        raise UsageError(f"{name} names no host, as http://localhost:11434/v1 does.")
    return f"{parts.scheme}://{parts.netloc}{parts.path.rstrip('/') or DEFAULT_PATH}"


class Endpoint:
    """A connection to an endpoint, and the model that plays there."""

    def __init__(self, name: str) -> None:
        """Connect to the endpoint of this address.

        Raises:
            UsageError: it is no address, `openai` is not installed, or the server has several models and none is named.
            GeneratorError: the server does not say which models it has.
        """
        self._address = require_address(name)
        require_library("openai", "openai")
        import openai

        self._errors = openai.OpenAIError
        self._key = os.environ.get(KEY, "").strip()
        self._client = openai.OpenAI(
            base_url=self._address,
            api_key=self._key or NO_KEY,
            max_retries=RETRIES,
            timeout=TIMEOUT_S,
        )
        self.model = urlsplit(name).fragment or self._only_model()
        """The name by which the server knows the model."""

    def replies(
        self,
        conversations: Sequence[Conversation],
        seeds: Sequence[int],
        *,
        max_tokens: int,
        temperature: float,
    ) -> list[str]:
        """Replies to conversations, asked for at the same time.

        Args:
            seeds: of the sampling of each.
            max_tokens: of a reply, at most.
            temperature: 0 for the likeliest reply.
        Raises:
            GeneratorError: the server refuses, or does not answer.
        """

        def reply(conversation: Conversation, seed: int) -> str:
            messages: Any = [
                {"role": each["role"], "content": each["content"]} for each in conversation
            ]
            answer: Any = None
            for attempt in range(RETRIES + 1):
                time.sleep(PAUSE_S * attempt)
                try:
                    answer = self._client.chat.completions.create(
                        model=self.model,
                        messages=messages,
                        max_tokens=max_tokens,
                        temperature=temperature,
                        seed=seed % LARGEST_SEED,
                    )
                    if answer.choices:
                        return _text(answer.choices[0].message.content)
                except (self._errors, TypeError, AttributeError) as error:
                    raise self._fault(error) from error
            # Some gateways write the fault of the server behind them into an answer of status 200.
            raise self._fault(getattr(answer, "error", None) or "its answer has no choices")

        with ThreadPoolExecutor(CONNECTIONS) as threads:
            return list(threads.map(reply, conversations, seeds))

    def _only_model(self) -> str:
        try:
            names = [each.id for each in self._client.models.list()]
        except (self._errors, TypeError, AttributeError) as error:
            raise self._fault(error) from error
        if len(names) == 1:
            return names[0]
        if not names:
            raise UsageError(f"{self._address} has no model; load one there first.")
        known = ", ".join(names[:20])
        raise UsageError(
            f"{self._address} has {len(names):,} models ({known}); name one, as {self._address}#{names[0]}."
        )

    def _fault(self, error: object) -> GeneratorError:
        words = " ".join(str(error).split())[:MOST_WORDS].rstrip(".")
        if self._key:  # some servers repeat it
            words = words.replace(self._key, "…")
        return GeneratorError(
            f"The endpoint {self._address} gives no reply ({words}); its key comes from {KEY}, most addresses end with "
            f"{DEFAULT_PATH}, and #NAME names a model."
        )


def _text(content: Any) -> str:
    """The text of a message, which some servers give in parts, with thoughts among them."""
    if isinstance(content, list):
        return "".join(part.get("text", "") for part in content)
    return content or ""
