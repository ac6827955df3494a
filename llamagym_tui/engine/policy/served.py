"""Replies that are sampled apart from the learner, which scores them again.

Either a server samples them, or transformers' continuous batching in this process, with paged keys and values: that
pays on a GPU, for models from about 0.3 billion weights on. The server has OpenAI's completions API for prompts of
token ids, returns the ids and log-probabilities that it sampled, and loads adapters while it runs, as vLLM does. It
gets each version of the policy as an adapter. The log-probabilities that PPO starts from are the learner's own; a
token's weight in the loss corrects for what was sampled from instead (other kernels, another precision), truncated:
min(learner's probability / the other's, `LARGEST_WEIGHT`). Source of truncated weights: arXiv:1802.01561, section 4.1.
"""

import math
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
from transformers import ContinuousBatchingConfig, GenerationConfig

from llamagym_tui.engine.model.forward import Encoded
from llamagym_tui.engine.own_torch import own_torch
from llamagym_tui.engine.policy.policy import Policy
from llamagym_tui.engine.policy.sampler import LOGITS_AT_ONCE, Reply, Sampler
from llamagym_tui.engine.tokens.token_tree import ActionTrie, TokenTree
from llamagym_tui.errors import ConfigError, GeneratorError

LARGEST_WEIGHT = 2.0
"""The largest weight of a token in the loss, where truncated importance weights end."""
TIMEOUT_S = 600.0
"""Seconds for one request; a server may compile at its first."""
CONTINUOUS = "generate_batch"
"""In place of a server's address: transformers' continuous batching."""


class Logprobs(Struct, frozen=True):
    """What the server says of the tokens that it sampled."""

    token_logprobs: list[float]


class Served(Struct, frozen=True):
    """A reply as the server answers it."""

    index: int
    token_ids: list[int]
    """The end of the turn included."""
    logprobs: Logprobs


def sampler_of(policy: Policy, slots: int) -> Sampler:
    """The sampler that a policy's settings ask for."""
    if policy.generation.server is None:
        return Sampler(policy, slots)
    if policy.generation.server == CONTINUOUS:
        return ContinuousSampler(policy, slots)
    return ServedSampler(policy, slots)


class ServedSampler(Sampler):
    def __init__(self, policy: Policy, slots: int) -> None:
        """Raises ConfigError if what is trained cannot be sent as an adapter."""
        super().__init__(policy, slots)
        if policy.generation.server != CONTINUOUS and not policy.model.is_adapted:
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

    @own_torch()
    @torch.inference_mode()
    def reply(
        self,
        slots: Sequence[int],
        prompts: Sequence[Sequence[int]],
        tries: Sequence[ActionTrie] | None = None,
        *,
        greedy: bool = False,
        on_token: Callable[[int, int], None] = lambda index, token: None,
    ) -> list[Reply]:
        """As of `Sampler`, raising GeneratorError; tokens are known together. This sampling has no seed."""
        for slot, prompt in zip(slots, prompts, strict=True):
            self._whole[slot] += prompt
        served = self._served([self._whole[slot] for slot in slots], greedy=greedy)
        counts = [(len(choice.token_ids), len(choice.logprobs.token_logprobs)) for choice in served]
        if len(served) != len(slots) or not all(ids == logprobs > 0 for ids, logprobs in counts):
            raise self._unreadable(
                f"{len(served):,} replies to {len(slots):,} prompts, or not of each token"
            )
        trees = [TokenTree.of(choice.token_ids[:-1]) for choice in served]
        encoded = self._prefilled(slots, prompts, trees)
        # The last id of a reply is not fed: the next prompt begins with it.
        self._slots.keep(slots, trees, [list(range(len(tree))) for tree in trees])
        own = iter(self._scored(encoded, served))
        values = self.policy.values(encoded.hidden[:, 0])
        replies: list[Reply] = []
        for slot, choice, value in zip(slots, served, values, strict=True):
            ids = choice.token_ids
            self._whole[slot] += ids[:-1]
            for token in ids:
                on_token(len(replies), token)
            logprobs = list(islice(own, len(ids)))
            weights = importance_weights(logprobs, choice.logprobs.token_logprobs)
            replies.append(
                Reply(ids, logprobs, value, ids[-1] in self.policy.chat.end_ids, weights=weights)
            )
        return replies

    def _scored(self, encoded: Encoded, served: Sequence[Served]) -> list[float]:
        """Log-probability of each token of the replies, one reply after the other."""
        of_tokens = [
            (row, at, token)
            for row, each in enumerate(served)
            for at, token in enumerate(each.token_ids)
        ]
        size = max(1, LOGITS_AT_ONCE // self.policy.model.backbone.vocabulary)
        scored: list[float] = []
        for part in torch.tensor(of_tokens, device=encoded.hidden.device).split(size):
            rows, columns, ids = part.T
            logits = encoded.logits_at(rows, columns)
            logprobs = (logits / self.policy.generation.temperature).log_softmax(-1)
            scored += logprobs.gather(1, ids[:, None]).squeeze(-1).tolist()
        return scored

    def _served(self, prompts: Sequence[list[int]], *, greedy: bool) -> Sequence[Served]:
        """Replies to whole prompts, in their order."""
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
            choices = msgspec.convert(msgspec.json.decode(body)["choices"], list[Served])
        except (ValueError, KeyError, TypeError) as error:
            raise self._unreadable(error) from error
        return sorted(choices, key=lambda choice: choice.index)

    def _unreadable(self, reason: object) -> GeneratorError:
        return GeneratorError(
            f"{self.policy.generation.server} answers without token ids and log-probabilities ({reason}); "
            "a server that knows return_token_ids is needed, such as vLLM, or leave generation.server out."
        )

    def _adapter(self) -> str:
        """The name under which the server has the policy as it is now; it is loaded there first if it is new."""
        version, before = self._loaded
        if version != self.policy.version:
            # A name of its own each time: another sampler of this process may have loaded the same version.
            name = f"llamagym-{uuid4().hex[:12]}"
            folder = Path(self._adapters.name)
            self.policy.model.pretrained_model.save_pretrained(folder / name)
            self._post("load_lora_adapter", {"lora_name": name, "lora_path": str(folder / name)})
            self._loaded = (self.policy.version, name)
            if before:
                self._post("unload_lora_adapter", {"lora_name": before})
                shutil.rmtree(folder / before)
        return self._loaded[1]

    def _post(self, path: str, content: dict[str, Any]) -> bytes:
        """What the server answers to a request."""
        server = str(self.policy.generation.server).rstrip("/")
        headers = {"Content-Type": "application/json"}
        key = os.environ.get("OPENAI_API_KEY")
        if key:
            headers["Authorization"] = f"Bearer {key}"
        try:
            request = Request(f"{server}/{path}", msgspec.json.encode(content), headers)
            with urlopen(request, timeout=TIMEOUT_S) as answer:
                return bytes(answer.read())
        except HTTPError as error:
            words = error.read(300).decode(errors="replace").strip()
            raise GeneratorError(
                f"The server at {server} refuses {path} ({error.code}): {words}"
            ) from error
        except (OSError, ValueError, HTTPException) as error:
            reason = error.reason if isinstance(error, URLError) else error
            raise GeneratorError(
                f"The server at {server} does not answer {path} ({reason}); start it, or leave generation.server out."
            ) from error


class ContinuousSampler(ServedSampler):
    """Samples by transformers' continuous batching, in this process."""

    def _served(self, prompts: Sequence[list[int]], *, greedy: bool) -> Sequence[Served]:
        generation = self.policy.generation
        ends = list(self.policy.chat.end_ids)
        config = GenerationConfig(
            do_sample=not greedy,
            max_new_tokens=generation.max_new_tokens,
            eos_token_id=ends,
            pad_token_id=ends[0],
        )
        if not greedy:  # the whole distribution, as it is scored
            config.temperature = generation.temperature
            config.top_k = 0
            config.top_p = 1.0
        # By itself it takes most of the memory that is free: as much as these conversations need will do.
        batching = ContinuousBatchingConfig(
            return_logprobs=True, max_batch_tokens=min(8192, sum(map(len, prompts)))
        )
        lengths = [len(ids) + generation.max_new_tokens for ids in prompts]
        batching.num_blocks = sum(math.ceil(length / batching.page_size) + 1 for length in lengths)
        model = self.policy.model.backbone.lm
        with torch.inference_mode(mode=False), torch.no_grad():
            found = model.generate_batch(prompts, config, batching)
        outputs = list(found.values())
        faults = [output.error for output in outputs if output.error]
        if faults:
            raise GeneratorError(
                f"generate_batch failed ({faults[0]}): lower --envs, or leave generation.server out."
            )
        return [
            Served(at, each.generated_tokens, Logprobs(each.logprobs))
            for at, each in enumerate(outputs)
        ]


def importance_weights(learner: Sequence[float], server: Sequence[float]) -> list[float]:
    """Truncated weight of each token, from its log-probabilities under the learner and the server."""
    ratios = (torch.tensor(learner) - torch.tensor(server)).exp()
    return list(map(float, ratios.clamp(max=LARGEST_WEIGHT)))
