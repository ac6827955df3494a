"""A server of chat completions in this process, as Ollama and llama.cpp's server are ones."""

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
    reply: Callable[[list[dict[str, str]]], str]
    """Its reply to the messages of a conversation."""
    models: tuple[str, ...] = ("small",)
    faults: list[tuple[int, str]] = field(default_factory=list)
    """Status and words with which the next requests for replies are refused."""
    requests: list[dict[str, Any]] = field(default_factory=list)
    keys: set[str | None] = field(default_factory=set)


@contextmanager
def serving(chat: Chat) -> Iterator[str]:
    """Answer requests for a while; yields the address."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send(200, json.dumps({"object": "list", "data": [{"id": m} for m in chat.models]}))

        def do_POST(self) -> None:
            request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            assert self.path == "/v1/chat/completions"
            chat.requests.append(request)
            chat.keys.add(self.headers["Authorization"])
            if chat.faults:
                self.send(*chat.faults.pop(0))
                return
            message = {"role": "assistant", "content": chat.reply(request["messages"])}
            choice = {"index": 0, "message": message, "finish_reason": "stop"}
            self.send(200, json.dumps({"object": "chat.completion", "choices": [choice]}))

        def send(self, status: int, words: str) -> None:
            body = words.encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.send_header("Retry-After-Ms", "1")
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
