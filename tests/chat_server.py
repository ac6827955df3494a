"""A server of chat completions in this process, as Ollama, LM Studio, llama.cpp's and vLLM are ones."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass
class Chat:
    reply: Callable[[list[dict[str, str]]], str | list[str]]
    """Its reply to the messages of a conversation, or the names of the functions that it calls."""
    models: tuple[str, ...] = ("small",)
    faults: list[tuple[int, dict[str, str], str]] = field(default_factory=list)
    """Status, headers and words with which the next requests for replies are refused."""
    refused_from: int = 10**9
    """The number of the first request, from 0, that is refused for good, and all after it."""
    requests: list[dict[str, Any]] = field(default_factory=list)
    keys: set[str | None] = field(default_factory=set)

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        reply = self.reply(request["messages"])
        message: dict[str, Any] = {"role": "assistant", "content": reply}
        if isinstance(reply, list):
            calls = [
                {"id": "1", "type": "function", "function": {"name": name, "arguments": "{}"}}
                for name in reply
            ]
            message |= {"content": None, "tool_calls": calls}
        written = len(str(reply).split())
        is_cut = written > request["max_tokens"]
        choice = {
            "index": 0,
            "message": message,
            "finish_reason": "length" if is_cut else "stop",
        }
        read = sum(len(each["content"].split()) for each in request["messages"])
        return {
            "object": "chat.completion",
            "choices": [choice],
            "usage": {"prompt_tokens": read, "completion_tokens": written},
        }


@contextmanager
def serving(chat: Chat) -> Iterator[str]:
    """Answer requests meanwhile; the address."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            assert self.path == "/v1/models"
            chat.keys.add(self.headers["Authorization"])
            self.send(200, {}, json.dumps({"data": [{"id": name} for name in chat.models]}))

        def do_POST(self) -> None:
            request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            assert self.path == "/v1/chat/completions"
            chat.requests.append(request)
            chat.keys.add(self.headers["Authorization"])
            if len(chat.requests) > chat.refused_from:
                self.send(400, {}, "out of credit")
            elif chat.faults:
                self.send(*chat.faults.pop(0))
            else:
                self.send(200, {}, json.dumps(chat.answer(request)))

        def send(self, status: int, headers: dict[str, str], words: str) -> None:
            body = words.encode()
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            if "Content-Length" not in headers:
                self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *args: object) -> None:
            """Quiet."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/v1"
        finally:
            server.shutdown()
