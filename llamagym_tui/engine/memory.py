"""How much memory a run takes at its peak, by arithmetic on the model's shape and the run's settings.

Notation: B environments, C columns of trees in a forward, P tokens of the shared system prompt, N scored tokens, and
D, Q, F, V as in `llamagym_tui.engine.model.shape`; b bytes of an element of activations, L layers. Bytes of

    weights      parameters x b; with 8 or 4 bits, matrices x 1 or 0.56, the rest x 2
    adapter      rank x (inputs + outputs) of every matrix, fp32
    gradients    one element for each trained weight, in its type
    optimizer    two such elements (Adam's moments)
    reference    parameters x b with full fine-tuning, else nothing: the same model without its adapter
    cache        B x columns x L x 2 x keys x b; columns double from the system prompt's until the longest
                 conversation has room
    rollout      B x opening tokens x (4 D + 3 F) x b + B x longest x 2 Q x b (one layer) + 5 B V fp32 (logits)
    activations  (C + P) x (L + 1) x (4 D + 4 Q + 4 F) x b, with full fine-tuning 6 D: norms keep their inputs;
                 in half precision 36 D more, because norms compute in fp32; and the prefix's keys and values,
                 repeated for each tree, C / 128 x P x L x 2 Q x b; on the host all that x 1.7 with an adapter, whose
                 passing results lie between what is kept, and x 1.1 without
    logits       6 N V fp32: logits, log-probabilities, their exponentials, and gradients of these
    step         3 elements of the largest trained matrix, while Adam changes it
    value head   129 D + 257 weights, with gradient and moments, fp32

and the peak is what stays, plus the largest of what comes and goes: rollout, update (activations and logits), step.
`base` is what the process holds before: the interpreter with its libraries, or the driver's context on a GPU.
"""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Literal

from llamagym_tui.config import RunConfig
from llamagym_tui.engine.learning.batch import Row, group_by_size, pack_into_trees
from llamagym_tui.engine.model.shape import (
    FP32,
    GIB,
    LOGIT_COPIES,
    MOST_COLUMNS,
    ModelShape,
    activation_bytes,
    forward_limits,
)
from llamagym_tui.engine.policy.trajectory import Choice, Segment, Turn
from llamagym_tui.engine.tokens.token_tree import TREE_COLUMNS

HEAP = {False: 1.7, True: 1.1}
"""Resident over kept bytes of activations on the host, with an adapter and with full fine-tuning: what is freed between
them is too small for the allocator to give back. Measured; an allocator that gives it back costs 60 % more time."""
SAMPLING_COPIES = 5

Bits = Literal[4, 8]


@dataclass(frozen=True, slots=True)
class Precision:
    dtype_bytes: int = 4
    """Bytes of an element of activations, and of weights that are not quantized."""
    bits: Bits | None = None
    """Of the elements of quantized matrices; None: they are not."""


@dataclass(frozen=True, slots=True)
class Workload:
    prefix: int
    """P: tokens of the system prompt, the same in all conversations."""
    opening: int
    """Tokens of the longest first message after it."""
    longest: int
    """Tokens of the longest conversation after it."""
    columns: float
    """Of an update's trees, for each turn on them."""
    scored: float
    """Scored tokens for each turn."""
    largest_tree: int
    most_scored: int
    """Scored tokens of the longest conversation."""


def workload_of(
    prefix: int, episodes: Sequence[Sequence[Sequence[int]]], reply: int, choices: Sequence[Sequence[int]] = ()
) -> Workload:
    """Lengths of conversations, packed into the trees of an update.

    Args:
        prefix: P.
        episodes: of each the token ids of its prompts, the prefix left out; at least one, none empty.
        reply: tokens of the longest allowed reply; the estimate assumes that no two replies begin alike.
        choices: admissible replies, if one of them is chosen whole.
    """
    fresh = itertools.count(-1, -1)
    alternatives = tuple(map(tuple, choices))
    scored = sum(map(len, alternatives)) or reply
    rows = []
    for prompts in episodes:
        segment = Segment(())
        for number, prompt in enumerate(prompts):
            ids = alternatives[number % len(choices)] if choices else tuple(itertools.islice(fresh, reply))
            start = len(segment.ids) + len(prompt)
            choice = Choice(0, 0.0, alternatives, (1.0,) * len(choices)) if choices else None
            segment.ids += [*prompt, *ids]
            segment.turns.append(Turn(start, start + len(ids), (0.0,) * len(ids), 0.0, 0.0, choice=choice))
        rows.append(Row(segment, 0))
    groups = list(group_by_size(pack_into_trees(rows), tokens=MOST_COLUMNS))
    turns = [len(row.segment.turns) for row in rows]
    return Workload(
        prefix=prefix,
        opening=max(len(prompts[0]) for prompts in episodes),
        longest=max(len(row.segment.ids) for row in rows),
        columns=sum(len(group) * len(group[0].tree) for group in groups) / sum(turns),
        scored=scored,
        largest_tree=max(len(group[0].tree) for group in groups),
        most_scored=max(turns) * scored,
    )


@dataclass(frozen=True, slots=True)
class MemoryEstimate:
    """Bytes of a run, by what they are for."""

    base: int
    weights: int
    adapter: int
    value_head: int
    cache: int
    rollout: int
    gradients: int = 0
    optimizer: int = 0
    reference: int = 0
    activations: int = 0
    logits: int = 0
    step: int = 0

    @property
    def total(self) -> int:
        """The peak: what stays from the first update on, and the largest of what comes and goes."""
        passing = self.rollout + self.activations + self.logits + self.step
        lasting = sum(getattr(self, part.name) for part in fields(self)) - passing
        return lasting + max(self.rollout, self.activations + self.logits, self.step)


def estimate_memory(
    shape: ModelShape,
    config: RunConfig,
    workload: Workload,
    *,
    full: bool,
    precision: Precision = Precision(),
    base: int = 0,
    learns: bool = True,
    on_host: bool = True,
) -> MemoryEstimate:
    """Bytes of a run on the device of the model.

    Args:
        shape: with its weights counted.
        full: whether all weights are trained, and not an adapter.
        base: bytes that the process holds without the model.
        learns: False: replies are sampled and nothing is updated.
        on_host: False: on an accelerator, whose allocator fills its gaps.
    """
    b = precision.dtype_bytes
    adapter = 0 if full else shape.adapter(config.lora)
    trained, size = (shape.parameters, b) if full else (adapter, FP32)
    head = 129 * shape.hidden + 257
    weights = weight_bytes(shape, precision)
    uses_reference = bool(config.ppo.kl_coef or config.ppo.kl_coef_final)
    sampled = MemoryEstimate(
        base=base,
        weights=weights,
        adapter=adapter * FP32,
        value_head=head * FP32,
        cache=config.n_envs * _cache_columns(workload) * shape.layers * 2 * shape.keys * b,
        rollout=_rollout_bytes(shape, config.n_envs, workload, b),
    )
    if not learns:
        return sampled
    columns, scored = _forward_of_an_update(shape, config, workload, b)
    trees = math.ceil(columns / max(TREE_COLUMNS, workload.longest))
    activations = (columns + workload.prefix) * activation_bytes(shape, full=full, dtype_bytes=b)
    activations += trees * workload.prefix * shape.layers * 2 * shape.queries * b
    return replace(
        sampled,
        gradients=trained * size,
        optimizer=2 * trained * size,
        reference=weights if full and uses_reference else 0,
        value_head=4 * head * FP32,
        activations=int(activations * HEAP[full]) if on_host else activations,
        logits=scored * LOGIT_COPIES * shape.vocabulary * FP32,
        step=3 * size * (shape.largest if full else 0),
    )


def weight_bytes(shape: ModelShape, precision: Precision) -> int:
    """Bytes of the weights; quantized matrices have a scale for every 64 elements, and the rest takes 2 bytes each."""
    if precision.bits is None:
        return shape.parameters * precision.dtype_bytes
    matrices = sum(inputs * outputs for _, inputs, outputs in shape.linears)
    each = {8: 1.0, 4: 0.5 + FP32 / 64}[precision.bits]
    return int(matrices * each) + (shape.parameters - matrices) * 2


def _cache_columns(workload: Workload) -> int:
    """Columns of the rollout's cache; they double when a conversation outgrows them."""
    columns = max(workload.prefix, 64)
    while columns < workload.prefix + workload.longest:
        columns *= 2
    return columns


def _rollout_bytes(shape: ModelShape, rows: int, workload: Workload, b: int) -> int:
    """Bytes of a sampler's forward: one layer of the openings, keys and values for all heads, and logits."""
    layer = workload.opening * (4 * shape.hidden + 3 * shape.inner)
    heads = (workload.prefix + workload.longest) * 2 * shape.queries
    return rows * ((layer + heads) * b + SAMPLING_COPIES * shape.vocabulary * FP32)


def _forward_of_an_update(shape: ModelShape, config: RunConfig, workload: Workload, b: int) -> tuple[int, int]:
    """Columns and scored tokens of an update's largest forward; a conversation is never divided."""
    limits, turns = forward_limits(shape, b), config.ppo.mini_batch_size
    columns, scored = turns * workload.columns, turns * workload.scored
    # Whichever limit is reached first ends a forward.
    share = min(1.0, limits.tokens / columns, limits.scored / scored)
    return math.ceil(max(share * columns, workload.largest_tree)), math.ceil(max(share * scored, workload.most_scored))


def as_gib(amount: float) -> str:
    return f"{amount / GIB:.1f} GiB"
