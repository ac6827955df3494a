"""Replies that a server samples, apart from the learner, which scores them again.

The server has OpenAI's completions API for prompts of token ids, returns the ids and log-probabilities that it sampled,
and loads adapters while it runs, as vLLM does. It gets each version of the policy as an adapter. The log-probabilities
that PPO starts from are the learner's own; a token's weight in the loss corrects for what the server sampled from
instead (other kernels, another precision), truncated: min(learner's probability / server's, `LARGEST_WEIGHT`).
Source of truncated weights: arXiv:1802.01561, section 4.1.
"""

import os
import shutil
from collections.abc import Callable, Sequence
from http.client import HTTPException
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen
from uuid import uuid4

import msgspec
import torch
from msgspec import Struct

from llamagym_tui.engine.model.forward import Encoded
from llamagym_tui.engine.policy.policy import Policy
from llamagym_tui.engine.policy.sampler import LOGITS_AT_ONCE, Reply, Sampler
from llamagym_tui.engine.tokens.token_tree import ActionTrie, TokenTree
from llamagym_tui.errors import ConfigError, GeneratorError

LARGEST_WEIGHT = 2.0
TIMEOUT_S = 600.0
"""Of one request; a server may compile at its first."""


class Logprobs(Struct, frozen=True):
    token_logprobs: list[float]


class Served(Struct, frozen=True):
    """A reply as the server answers it."""

    index: int
    token_ids: list[int]
    """The end of the turn included."""
    logprobs: Logprobs


class Completion(Struct, frozen=True):
    choices: list[Served]


def sampler_of(policy: Policy, slots: int) -> Sampler:
    return Sampler(policy, slots) if policy.generation.server is None else ServedSampler(policy, slots)


class ServedSampler(Sampler):
    def __init__(self, policy: Policy, slots: int) -> None:
        """Raises ConfigError if what is trained cannot be sent as an adapter."""
        super().__init__(policy, slots)
        if not policy.model.is_adapted:
            raise ConfigError(
                "A server gets the policy as an adapter, but here all weights are trained: "
                "add --set full_finetuning=false, or leave generation.server out."
            )
        self._whole: dict[int, list[int]] = {}
        """All ids of each slot's conversation that have been fed."""
        self._adapters = TemporaryDirectory(prefix="llamagym-adapters-")
        self._loaded = (-1, "")
        """Version and name of the adapter that the server has."""

    def restart(self, slot: int, prefix: tuple[int, ...]) -> None:
        super().restart(slot, prefix)
        self._whole[slot] = list(prefix)

    @torch.inference_mode()
    def reply(
        self,
        slots: Sequence[int],
        prompts: Sequence[Sequence[int]],
        tries: Sequence[ActionTrie] | None = None,
        *,
        greedy: bool = False,
        on_token: Callable[[int, int], None] | None = None,
    ) -> list[Reply]:
        """As of `Sampler`, raising GeneratorError; tokens are known together. The server's sampling has no seed."""
        for slot, prompt in zip(slots, prompts, strict=True):
            self._whole[slot] += prompt
        served = self._served([self._whole[slot] for slot in slots], greedy=greedy)
        trees = [TokenTree.of(choice.token_ids[:-1]) for choice in served]
        encoded = self._prefilled(slots, prompts, trees)
        # The last id of a reply is not fed: the next prompt begins with it.
        self._slots.keep(slots, trees, [list(range(len(tree))) for tree in trees])
        own, values = iter(self._scored(encoded, served)), self.policy.model.v_head(encoded.hidden[:, 0]).tolist()
        on_token = on_token or (lambda index, token: None)
        replies: list[Reply] = []
        for slot, choice, value in zip(slots, served, values, strict=True):
            ids = choice.token_ids
            self._whole[slot] += ids[:-1]
            for token in ids:
                on_token(len(replies), token)
            logprobs = list(islice(own, len(ids)))
            weights = importance_weights(logprobs, choice.logprobs.token_logprobs)
            replies.append(Reply(ids, logprobs, value, ids[-1] in self.policy.chat.end_ids, weights=weights))
        return replies

    def _scored(self, encoded: Encoded, served: Sequence[Served]) -> list[float]:
        """Log-probability of each token of the replies, one reply after the other."""
        of_tokens = [(row, at, token) for row, each in enumerate(served) for at, token in enumerate(each.token_ids)]
        size, scored = max(1, LOGITS_AT_ONCE // self.policy.model.backbone.vocabulary), list[float]()
        for part in torch.tensor(of_tokens, device=encoded.hidden.device).split(size):
            rows, columns, ids = part.T
            logprobs = (encoded.logits_at(rows, columns) / self.policy.generation.temperature).log_softmax(-1)
            scored += logprobs.gather(1, ids[:, None]).squeeze(-1).tolist()
        return scored

    def _served(self, prompts: Sequence[list[int]], *, greedy: bool) -> list[Served]:
        """The server's replies to whole prompts, in their order."""
        generation = self.policy.generation
        request = {
            "model": self._adapter(),
            "prompt": prompts,
            "max_tokens": generation.max_new_tokens,
            "temperature": 0.0 if greedy else generation.temperature,
            "stop_token_ids": self.policy.chat.end_ids,
            "logprobs": 1,
            "return_token_ids": True,
        }
        body = self._post("completions", request)
        try:
            choices = sorted(msgspec.json.decode(body, type=Completion).choices, key=lambda choice: choice.index)
            counts = [(len(choice.token_ids), len(choice.logprobs.token_logprobs)) for choice in choices]
            if len(choices) != len(prompts) or not all(ids == logprobs > 0 for ids, logprobs in counts):
                raise ValueError(f"{len(choices):,} replies to {len(prompts):,} prompts, or not of each token")
        except ValueError as error:
            raise GeneratorError(
                f"The server at {generation.server} answers without token ids and log-probabilities ({error}); "
                "a server that knows return_token_ids is needed, such as vLLM."
            ) from error
        return choices

    def _adapter(self) -> str:
        """The name under which the server has the policy as it is now; it is loaded there first if it is new."""
        version, before = self._loaded
        if version != self.policy.version:
            # A name of its own each time: another sampler of this process may have loaded the same version.
            name = f"llamagym-{uuid4().hex[:12]}"
            folder = Path(self._adapters.name)
            self.policy.model.pretrained_model.save_pretrained(folder / name)
            self._post("load_lora_adapter", {"lora_name": name, "lora_path": str(folder / name)})
            self._loaded = self.policy.version, name
            if before:
                self._post("unload_lora_adapter", {"lora_name": before})
                shutil.rmtree(folder / before)
        return self._loaded[1]

    def _post(self, path: str, content: dict[str, Any]) -> bytes:
        server = str(self.policy.generation.server).rstrip("/")
        key = os.environ.get("OPENAI_API_KEY")
        headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {key}"} if key else {})
        try:
            request = Request(f"{server}/{path}", msgspec.json.encode(content), headers)
            with urlopen(request, timeout=TIMEOUT_S) as answer:
                return bytes(answer.read())
        except HTTPError as error:
            words = error.read(300).decode(errors="replace").strip()
            raise GeneratorError(f"The server at {server} refuses {path} ({error.code}): {words}") from error
        except (OSError, ValueError, HTTPException) as error:
            reason = error.reason if isinstance(error, URLError) else error
            raise GeneratorError(
                f"The server at {server} does not answer {path} ({reason}); start it, or leave generation.server out."
            ) from error


def importance_weights(learner: Sequence[float], server: Sequence[float]) -> list[float]:
    """Truncated weight of each token, from its log-probabilities under the learner and the server."""
    ratios = (torch.tensor(learner) - torch.tensor(server)).exp()
    return list(map(float, ratios.clamp(max=LARGEST_WEIGHT)))
