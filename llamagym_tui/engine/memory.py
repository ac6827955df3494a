"""How much memory a run takes at its peak, by arithmetic on the model's shape and the run's settings: at most, about.

Notation: B environments, C columns of an update's forward, P tokens of the shared system prompt, N scored tokens, and
D, Q, F, V as in `llamagym_tui.engine.model.shape`; b bytes of an element of activations, L layers. Bytes of

    weights   parameters x b
    training  4 elements for each trained weight, its gradient, Adam's moments and what it was before the last step,
              which may be undone (3 of an adapter on the head alone, where that is not kept); with an
              adapter its weights too, rank x (inputs + outputs) of every matrix in fp32; with full fine-tuning the
              reference, if it is used
    cache     B x columns x L x 2 x keys x b; columns double from the system prompt's until the longest
              conversation has room
    rollout   B x opening tokens x (4 D + 3 F) x b + B x longest x 2 Q x b (one layer) + 5 B V fp32 (logits)
    update    (C + P) x (L + 1) x (4 D + 4 Q + 4 F) x b, with full fine-tuning 6 D: norms keep their inputs; in half
              precision 36 D more, because norms compute in fp32; and the prefix's keys and values, repeated for each
              tree, C / 128 x P x L x 2 Q x b; on the host all that x 1.7 with an adapter, whose passing results lie
              between what is kept, and x 1.1 without; and 3 N V fp32: log-probabilities, all logits, their gradient

and the peak is what stays, plus the larger of what comes and goes: rollout, update. C counts conversations as if no two
began alike. `base` is what the process holds before: the interpreter with its libraries, or the driver's context.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil
import torch

from llamagym_tui.config import RunConfig
from llamagym_tui.engine.model.shape import (
    FP32,
    GIB,
    LOGIT_COPIES,
    ModelShape,
    activation_bytes,
    forward_limits,
)
from llamagym_tui.engine.tokens.token_tree import TREE_COLUMNS

HEAP_ADAPTER = 1.7
"""Resident over kept bytes of activations on the host, with an adapter: what is freed between them is too small for the
allocator to give back. Measured; an allocator that gives it back costs 60 % more time."""
HEAP_FULL = 1.1
"""The same with full fine-tuning, which keeps nearly all that it computes."""
SAMPLING_COPIES = 5
"""Tensors of the size of a turn's logits that exist at once while a token is sampled."""


@dataclass(frozen=True, slots=True)
class Workload:
    """Lengths of conversations, in tokens."""

    prefix: int
    """P: the system prompt, the same in all conversations."""
    opening: int
    """The longest first message after it."""
    longest: int
    """The longest conversation after it."""
    turns: int
    """Turns of the conversation that has most."""
    columns: float
    """Tokens computed for each turn, what is scored included."""
    scored: int
    """N of each turn: tokens whose log-probability the update needs."""


def workload_of(
    prefix: int, episodes: Sequence[Sequence[int]], reply: int, choices: Sequence[int] = ()
) -> Workload:
    """The lengths of conversations in which no two replies begin alike.

    Args:
        prefix: P.
        episodes: the tokens of each prompt of each episode, the prefix left out; at least one, none empty.
        reply: tokens of the longest allowed reply.
        choices: tokens of each admissible reply, if one of them is chosen whole.
    """
    scored = reply
    if choices:
        # Every admissible reply is scored, and the longest of them may be the one that is kept.
        scored = sum(choices)
        reply = max(choices)
    return Workload(
        prefix=prefix,
        opening=max(prompts[0] for prompts in episodes),
        longest=max(sum(prompts) + reply * len(prompts) for prompts in episodes),
        turns=max(map(len, episodes)),
        # The mean prompt over all turns of all episodes, and what is scored behind it.
        columns=sum(map(sum, episodes)) / sum(map(len, episodes)) + scored,
        scored=scored,
    )


@dataclass(frozen=True, slots=True)
class MemoryEstimate:
    """Bytes of a run, by what they are for."""

    base: int
    weights: int
    training: int
    cache: int
    rollout: int
    update: int

    @property
    def total(self) -> int:
        """The peak."""
        return (
            self.base + self.weights + self.training + self.cache + max(self.rollout, self.update)
        )


def estimate_memory(
    shape: ModelShape,
    config: RunConfig,
    workload: Workload,
    *,
    full: bool,
    dtype_bytes: int = FP32,
    base: int = 0,
    learns: bool = True,
    on_host: bool = True,
) -> MemoryEstimate:
    """Bytes of a run on the device of the model.

    Args:
        shape: with its weights counted.
        full: whether all weights are trained, and not an adapter.
        dtype_bytes: of an element of activations and weights.
        base: bytes that the process holds without the model.
        learns: False: replies are sampled and nothing is updated.
        on_host: False: on an accelerator, whose allocator fills its gaps.
    """
    b = dtype_bytes
    weights = shape.parameters * b
    adapter = shape.adapter(config.lora) * FP32
    whole = (
        workload.prefix + workload.longest
    )  # the longest conversation, its system prompt included

    training = 0 if full else adapter
    update = 0
    if learns:
        if full:
            needs_reference = config.ppo.kl_coef or config.ppo.kl_coef_final
            reference = weights if needs_reference else 0
            training = 3 * weights + reference
        else:
            training = 4 * adapter
        if full or config.lora.layers != "head":
            training += weights if full else adapter  # as they were before the last step
        factor = 1.0
        if on_host:
            factor = HEAP_FULL if full else HEAP_ADAPTER
        columns, scored = _forward_of_an_update(shape, config, workload, b)
        column_bytes = activation_bytes(shape, full=full, dtype_bytes=b)
        trees = math.ceil(columns / max(TREE_COLUMNS, workload.longest))
        prefixes = trees * workload.prefix * shape.layers * 2 * shape.queries * b
        activations = (columns + workload.prefix) * column_bytes + prefixes
        update = int(activations * factor) + scored * LOGIT_COPIES * shape.vocabulary * FP32

    cached = max(workload.prefix, 64)
    while cached < whole:
        cached *= 2
    cache = config.n_envs * cached * shape.layers * 2 * shape.keys * b

    # While a first message is read, one layer's states of it, and its queries over the whole conversation.
    layer = workload.opening * (4 * shape.hidden + 3 * shape.inner) + whole * 2 * shape.queries
    rollout = config.n_envs * (layer * b + SAMPLING_COPIES * shape.vocabulary * FP32)
    return MemoryEstimate(
        base=base,
        weights=weights,
        training=training,
        cache=cache,
        rollout=rollout,
        update=update,
    )


def _forward_of_an_update(
    shape: ModelShape, config: RunConfig, workload: Workload, b: int
) -> tuple[int, int]:
    """Columns and scored tokens of an update's largest forward; a conversation is never divided."""
    limits = forward_limits(shape, b)
    turns = config.ppo.mini_batch_size
    columns = turns * workload.columns
    scored = turns * workload.scored
    # Whichever limit is reached first ends a forward.
    share = min(1.0, limits.tokens / columns, limits.scored / scored)
    most_columns = max(share * columns, workload.longest)
    most_scored = max(share * scored, workload.turns * workload.scored)
    return math.ceil(most_columns), math.ceil(most_scored)


def as_gib(amount: float) -> str:
    return f"{amount / GIB:.1f} GiB"


CONTROL_GROUPS = (
    # Where they are mounted, and the files of a group's limit and usage; the page cache within the usage, which the
    # system drops where memory is needed, by its name in `memory.stat`.
    ("sys/fs/cgroup", "memory.max", "memory.current", "inactive_file"),
    (
        "sys/fs/cgroup/memory",
        "memory.limit_in_bytes",
        "memory.usage_in_bytes",
        "total_inactive_file",
    ),
)
"""Linux's control groups, which limit the memory of this process: version 2, then version 1."""


def free_memory(device: str) -> int:
    """Bytes that are free where the model goes."""
    if device.startswith("cuda"):
        return torch.cuda.mem_get_info(torch.device(device))[0]
    if device.startswith("mps"):
        return torch.mps.recommended_max_memory() - torch.mps.driver_allocated_memory()
    return host_free()


def held_memory(device: str) -> int:
    """Bytes that this process holds already on the host; 0 for another device."""
    if device != "cpu":
        return 0
    return int(psutil.Process().memory_info().rss)


def host_free(root: Path = Path("/")) -> int:
    """Bytes of the host, under the limits of this process's control groups; `root` holds ``proc`` and ``sys``."""
    return min([psutil.virtual_memory().available, *_group_free(root)])


def _group_free(root: Path) -> Iterator[int]:
    """Bytes between usage, page cache left out, and the limit of each limited group of this process."""
    try:
        lines = (root / "proc/self/cgroup").read_text().splitlines()
    except OSError:
        return
    paths = {line.split(":", 2)[2].lstrip("/") for line in lines}
    for mounted, limit, usage, cache in CONTROL_GROUPS:
        top = root / mounted
        for path in paths:
            # In a container the path may be the host's, and the group itself be mounted at the top.
            for folder in (top / path, *(top / parent for parent in Path(path).parents)):
                try:
                    most = int((folder / limit).read_text())
                    used = int((folder / usage).read_text())
                    stat_lines = (folder / "memory.stat").read_text().splitlines()
                    stat = dict(line.split() for line in stat_lines)
                except (OSError, ValueError):  # no such group, or no limit
                    continue
                yield max(0, most - used + int(stat.get(cache, 0)))
