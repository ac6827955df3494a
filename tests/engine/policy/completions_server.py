"""A server of completions in this process, as vLLM is one: plain transformers and PEFT, one forward for each token."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import torch
from peft import PeftModel


class Completions:
    def __init__(self, base: Any, *, bias: float = 0.0, seed: int = 0) -> None:
        """`bias`: on the logits of even ids, so that it samples from another distribution than its adapter's."""
        self.base, self.bias = base, bias
        self.generator = torch.Generator().manual_seed(seed)
        self.adapter: Any = None
        self.requests: list[tuple[str, dict[str, Any]]] = []
        self.leaves_out: tuple[str, ...] = ()
        """Fields of a reply that it does not answer."""

    def answer(self, path: str, request: dict[str, Any]) -> bytes:
        self.requests.append((path, request))
        match path.rsplit("/", 1)[-1]:
            case "load_lora_adapter":
                name = request["lora_name"]
                if self.adapter is None:
                    self.adapter = PeftModel.from_pretrained(
                        self.base, request["lora_path"], adapter_name=name
                    )
                else:
                    self.adapter.load_adapter(request["lora_path"], adapter_name=name)
                return b"Success"
            case "unload_lora_adapter":
                self.adapter.delete_adapter(request["lora_name"])
                return b"Success"
            case "completions":
                self.adapter.set_adapter(request["model"])
                replies = [self.reply(prompt, request) for prompt in request["prompt"]]
                # Not in the order of the prompts: an index says which reply is whose.
                choices = [
                    {"index": index, "text": ""} | each for index, each in enumerate(replies)
                ]
                return json.dumps({"object": "text_completion", "choices": choices[::-1]}).encode()
        raise KeyError(path)

    @torch.no_grad()
    def reply(self, prompt: list[int], request: dict[str, Any]) -> dict[str, Any]:
        ids, logprobs, temperature = [], [], request["temperature"]
        while len(ids) < request["max_tokens"] and not set(ids) & set(request["stop_token_ids"]):
            logits = self.adapter(input_ids=torch.tensor([[*prompt, *ids]])).logits[0, -1]
            logits[::2] += self.bias
            each = (logits / (temperature or 1.0)).log_softmax(-1)
            drawn = (
                torch.multinomial(each.exp(), 1, generator=self.generator)
                if temperature
                else each.argmax()
            )
            ids.append(int(drawn))
            logprobs.append(float(each[ids[-1]]))
        found = {
            "token_ids": ids,
            "logprobs": {"token_logprobs": logprobs, "tokens": [""] * len(ids)},
        }
        return {name: value for name, value in found.items() if name not in self.leaves_out}


@contextmanager
def serving(completions: Completions) -> Iterator[str]:
    """Answer requests meanwhile; the address."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            body = completions.answer(self.path, request)
            self.send_response(200)
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
