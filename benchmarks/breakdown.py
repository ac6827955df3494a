"""Where the time of training goes: rollout, environment, update, reference, other; and how fast it computes.

    python -m benchmarks.breakdown
    python -m benchmarks.breakdown --threads 2 --set generation.policy=score

Trains from the bundled model with the defaults, without a session. Prints shares of the time, padding among the tokens
that were computed, FLOP/s next to the machine's own rate of fp32 matrix products on the same threads, and how many
tokens rollouts computed over the distinct ones of their batches: those of prompts, replies and admissible replies,
each after all that stands before it. Time and FLOPs come from different updates of the same run, because counting
takes time; methods are wrapped for the measurement. FLOPs are those of matrix products and attention, masked pairs
included.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Annotated, Any

import torch
import typer
from gymnasium.wrappers import OrderEnforcing, TimeLimit
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode, sdpa_backward_flop_count, sdpa_flop_count

from benchmarks.bare_run import BareRun, settings
from benchmarks.timing import Stopwatch, machine
from llamagym_tui.engine.learning.reference import Reference
from llamagym_tui.engine.model.forward import Backbone, Encoded
from llamagym_tui.engine.policy.policy import Policy
from llamagym_tui.engine.policy.trajectory import Trajectory
from llamagym_tui.engine.tokens.token_tree import TokenTree, TreeRows

PHASES = ("rollout", "update", "reference")
TABLE = {
    "rollout: model": ("rollout forward",),
    "rollout: Python": ("rollout",),
    "environment": ("environment",),
    "update: forward": ("update forward",),
    "update: backward": ("backward",),
    "update: optimizer": ("optimizer",),
    "update: packing, losses, figures": ("update",),
    "reference": ("reference", "reference forward"),
    "other": ("other",),
}
MODEL = {
    "rollout": ("rollout forward",),
    "update": ("update forward", "backward"),
    "reference": ("reference forward",),
}
"""Sections of each phase in which the model computes."""
ATTENTION = {
    torch.ops.aten._scaled_dot_product_flash_attention_for_cpu: lambda q, k, v, *_, **__: sdpa_flop_count(q, k, v),
    torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward: (
        lambda gradient, q, k, v, *_, **__: sdpa_backward_flop_count(gradient, q, k, v)
    ),
}
"""Left out by torch's own counter."""
COUNTED = 2
"""Updates whose FLOPs are counted."""


class Tokens:
    """Tokens of every forward by phase, and padding among them: the run of padding that ends a row."""

    def __init__(self, watch: Stopwatch, pad_id: int) -> None:
        self.computed: Counter[str] = Counter()
        self.padding: Counter[str] = Counter()
        self._watch, self._pad_id, self._forwards = watch, pad_id, list[tuple[str, Tensor]]()

    @contextmanager
    def counting(self) -> Iterator[None]:
        encode, encode_flat = Backbone.encode, Backbone.encode_flat

        def watched(backbone: Backbone, ids: Tensor, *args: Any, **kwargs: Any) -> Encoded:
            self._forwards.append((phase(self._watch), ids))
            return encode(backbone, ids, *args, **kwargs)

        def watched_flat(backbone: Backbone, prefix: Sequence[int], trees: TreeRows, read: Tensor) -> Encoded:
            self._forwards += [(phase(self._watch), torch.tensor([prefix])), (phase(self._watch), trees.ids)]
            return encode_flat(backbone, prefix, trees, read)

        Backbone.encode, Backbone.encode_flat = watched, watched_flat
        try:
            yield
        finally:
            Backbone.encode, Backbone.encode_flat = encode, encode_flat
        for name, ids in self._forwards:
            self.computed[name] += ids.numel()
            self.padding[name] += int(((ids.flip(-1) != self._pad_id).cumsum(-1) == 0).sum())


def main(
    agent: Annotated[str, typer.Option(help="Agent to train.")] = "blackjack",
    updates: Annotated[int, typer.Option(help="Updates to time, after two that do not count.")] = 10,
    threads: Annotated[int, typer.Option(help="Of torch.")] = 1,
    change: Annotated[list[str] | None, typer.Option("--set", help="A setting, as in ppo.epochs=3.")] = None,
) -> None:
    print(f"{machine()}, {threads} threads", flush=True)
    run = BareRun(settings(agent, change or []), threads=threads)
    trained(run, 2, Stopwatch())
    watch = Stopwatch()
    tokens = Tokens(watch, run.loaded.tokenizer.pad_token_id)
    batches: list[list[Trajectory]] = []
    take_batch = run.rollout.take_batch
    run.rollout.take_batch = lambda: batches.append(take_batch()) or batches[-1]
    with tokens.counting():
        episodes = trained(run, updates, watch)
    run.rollout.take_batch = take_batch
    with FlopCounterMode(display=False, custom_mapping=ATTENTION) as counter:
        flops = Stopwatch(counter.get_total_flops)
        trained(run, COUNTED, flops)
    print_time(watch, episodes)
    print_tokens(tokens)
    print_rates(watch, updates, flops)
    computed, distinct = tokens.computed["rollout"], sum(distinct_tokens(run.policy, batch) for batch in batches)
    print(f"rollout: {computed:,} tokens computed, {distinct:,} distinct: {computed / distinct:.2f} times as many")


def distinct_tokens(policy: Policy, batch: Sequence[Trajectory]) -> int:
    """Of all that is read of a batch after its prefixes; the last token of a reply is not."""
    trees: dict[tuple[int, ...], TokenTree] = {}
    for segment in (segment for trajectory in batch for segment in trajectory.segments):
        tree = trees.setdefault(segment.prefix, TokenTree())
        tree.insert(segment.ids[: segment.turns[-1].end - 1])
        for turn in segment.turns:
            for reply in policy.trie_of(turn.actions).replies:
                tree.insert([*segment.ids[: turn.start], *reply[:-1]])
    return sum(map(len, trees.values()))


def trained(run: BareRun, updates: int, watch: Stopwatch) -> int:
    """Episodes of some updates, whose parts are sections of the watch."""

    def forward() -> str:
        return f"{phase(watch)} forward"

    parts: list[tuple[Any, str, str | Callable[[], str]]] = [
        (run.rollout, "step", "rollout"),
        *((wrapper, method, "environment") for wrapper in (TimeLimit, OrderEnforcing) for method in ("step", "reset")),
        (run.ppo, "update", "update"),
        (Reference, "logprobs", "reference"),
        (Tensor, "backward", "backward"),
        (run.ppo.optimizer, "step", "optimizer"),
        (Backbone, "encode", forward),
        (Backbone, "encode_flat", forward),
        (Encoded, "logits_at", forward),
    ]
    with ExitStack() as stack:
        for owner, method, name in parts:
            stack.enter_context(watch.around(owner, method, name))
        episodes = sum(run.update().episodes for _ in range(updates))
        watch.lap()
    return episodes


def phase(watch: Stopwatch) -> str:
    """The innermost of `PHASES` that is open."""
    return next((name for name in reversed(watch.sections) if name in PHASES), "other")


def print_time(watch: Stopwatch, episodes: int) -> None:
    seconds = {line: sum(watch.spent[name] for name in names) for line, names in TABLE.items()}
    total = sum(seconds.values())
    for line, elapsed_s in seconds.items():
        print(f"{line:34} {elapsed_s:8.2f} s  {elapsed_s / total:6.1%}")
    update = sum(elapsed_s for line, elapsed_s in seconds.items() if line.startswith("update"))
    print(f"{episodes / total:.1f} episodes/s; the update takes {update / total:.1%} of the time")


def print_tokens(tokens: Tokens) -> None:
    for name in (*PHASES, "all"):
        computed, padding = (
            by_phase.total() if name == "all" else by_phase[name] for by_phase in (tokens.computed, tokens.padding)
        )
        print(f"tokens computed, {name}: {computed:,}, padding {padding / max(computed, 1):.1%}")


def print_rates(watch: Stopwatch, updates: int, flops: Stopwatch) -> None:
    """FLOP/s of each phase, and the update's over that of plain matrix products.

    Args:
        watch: seconds of some updates.
        updates: how many.
        flops: FLOPs of `COUNTED` other ones.
    """
    rates = {}
    for name, parts in MODEL.items():
        computed = sum(flops.spent[part] for part in parts) / COUNTED
        elapsed_s = sum(watch.spent[part] for part in parts) / updates
        rates[name] = computed / elapsed_s
        print(
            f"{name}: {computed / 1e9:.1f} GFLOP an update in {elapsed_s:.2f} s of the model,"
            f" {rates[name] / 1e9:.1f} GFLOP/s"
        )
    every = sum(flops.spent.values()) / COUNTED / (sum(watch.spent.values()) / updates)
    print(f"all: {every / 1e9:.1f} GFLOP/s over all of the time")
    own = matmul_rate()
    print(
        f"fp32 products of 1024 x 1024: {own / 1e9:.1f} GFLOP/s; the update reaches {rates['update'] / own:.2f} of it"
    )


def matmul_rate(size: int = 1024, seconds: float = 1.0) -> float:
    """FLOP/s of fp32 products of square matrices; the best of five trials."""
    left, right, out = torch.randn(size, size), torch.randn(size, size), torch.empty(size, size)
    best = 0.0
    for _ in range(5):
        rounds, began = 0, time.perf_counter()
        while (elapsed_s := time.perf_counter() - began) < seconds / 5:
            torch.mm(left, right, out=out)
            rounds += 1
        best = max(best, rounds * 2 * size**3 / elapsed_s)
    return best


if __name__ == "__main__":
    typer.run(main)
