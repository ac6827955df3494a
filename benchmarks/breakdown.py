"""Where the time of training goes: rollout, environment, update, reference, other; and how fast it computes.

    python -m benchmarks.breakdown
    python -m benchmarks.breakdown --threads 2 --set generation.policy=score
    python -m benchmarks.breakdown --size 32M --updates 1 --set ppo.batch_size=128

Trains from the bundled model with the defaults, or all weights of a random one, without a session. Prints shares of the
time, padding among the tokens that were computed, FLOP/s next to the machine's own rate of fp32 matrix products on the
same threads, and how many tokens rollouts computed over the distinct ones of their batches: those of prompts, replies
and admissible replies, each after all that stands before it. Time and FLOPs come from different updates of the same
run, because counting takes time; methods are wrapped for the measurement. FLOPs are those of matrix products and
attention, masked pairs included. With one thread, seconds are those of the processor.

The last line has the FLOPs that an update needs, those of matrix products and of pairs that are not masked, over its
seconds, and that over the rate of the update's own products: each linear layer's three, at the mean size of a forward.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any

import torch
import typer
from gymnasium.wrappers import OrderEnforcing, TimeLimit
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode, sdpa_backward_flop_count, sdpa_flop_count

from benchmarks.bare_run import BareRun, settings
from benchmarks.decoding import SHAPES, build_model
from benchmarks.timing import Stopwatch, machine
from llamagym_tui.engine.learning.reference import Reference
from llamagym_tui.engine.model import forward
from llamagym_tui.engine.model.forward import Backbone, Encoded
from llamagym_tui.engine.model.shape import shape_of
from llamagym_tui.engine.policy.policy import Policy
from llamagym_tui.engine.policy.trajectory import Trajectory
from llamagym_tui.engine.tokens.flat_tree import FlatTree
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
    torch.ops.aten._scaled_dot_product_flash_attention_for_cpu: lambda q, k, v, *_, **__: (
        sdpa_flop_count(q, k, v)
    ),
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
        self._watch = watch
        self._pad_id = pad_id
        self._forwards: list[tuple[str, Tensor]] = []

    @contextmanager
    def counting(self) -> Iterator[None]:
        encode, encode_flat = Backbone.encode, Backbone.encode_flat

        def watched(backbone: Backbone, ids: Tensor, *args: Any, **kwargs: Any) -> Encoded:
            self._forwards.append((phase(self._watch), ids))
            return encode(backbone, ids, *args, **kwargs)

        def watched_flat(
            backbone: Backbone, prefix: Sequence[int], trees: TreeRows, read: Tensor
        ) -> Encoded:
            self._forwards += [
                (phase(self._watch), torch.tensor([prefix])),
                (phase(self._watch), trees.ids),
            ]
            return encode_flat(backbone, prefix, trees, read)

        Backbone.encode = watched
        Backbone.encode_flat = watched_flat
        try:
            yield
        finally:
            Backbone.encode = encode
            Backbone.encode_flat = encode_flat
        for name, ids in self._forwards:
            self.computed[name] += ids.numel()
            self.padding[name] += int(((ids.flip(-1) != self._pad_id).cumsum(-1) == 0).sum())


def main(
    agent: Annotated[str, typer.Option(help="Agent to train.")] = "blackjack",
    size: Annotated[
        str | None, typer.Option(help=f"Random weights: {', '.join(SHAPES)}. (the bundled model)")
    ] = None,
    updates: Annotated[
        int, typer.Option(help="Updates to time, after two that do not count.")
    ] = 10,
    threads: Annotated[int, typer.Option(help="Of torch.")] = 1,
    change: Annotated[
        list[str] | None, typer.Option("--set", help="A setting, as in ppo.epochs=3.")
    ] = None,
) -> None:
    print(f"{machine()}, {threads} threads", flush=True)
    with TemporaryDirectory() as folder:
        if size is not None:
            build_model(SHAPES[size], Path(folder))
        of_size = {} if size is None else {"model": folder, "full_finetuning": True}
        run = BareRun(settings(agent, change or [], **of_size), threads=threads)
    clock = time.process_time if threads == 1 else time.perf_counter
    trained(run, 2, Stopwatch())
    watch = Stopwatch(clock)
    tokens = Tokens(watch, run.loaded.tokenizer.pad_token_id)
    batches: list[list[Trajectory]] = []
    take_batch = run.rollout.take_batch
    run.rollout.take_batch = lambda: batches.append(take_batch()) or batches[-1]
    with tokens.counting():
        episodes = trained(run, updates, watch)
    run.rollout.take_batch = take_batch
    with FlopCounterMode(display=False, custom_mapping=ATTENTION) as counter:
        flops = Stopwatch(counter.get_total_flops)
        pairs = Pairs(flops)
        with pairs.counting():
            trained(run, COUNTED, flops)
    print_time(watch, episodes)
    print_tokens(tokens)
    print_rates(watch, updates, flops, clock)
    computed = tokens.computed["rollout"]
    distinct = sum(distinct_tokens(run.policy, batch) for batch in batches)
    print(
        f"rollout: {computed:,} tokens computed, {distinct:,} distinct: {computed / distinct:.2f} times as many"
    )
    if pairs.forwards:
        print_needed(run, watch, updates, flops, pairs, clock)


class Pairs:
    """Tokens of an update's flat forwards, and pairs of query and key in them, by layers of each kind."""

    def __init__(self, watch: Stopwatch) -> None:
        self.forwards = 0
        self.tokens = 0
        self.read = 0
        self.computed: Counter[str] = Counter()
        self.seen: Counter[str] = Counter()
        self._watch = watch

    @contextmanager
    def counting(self) -> Iterator[None]:
        made = forward.flat_tree

        def watched(*args: Any) -> FlatTree:
            flat = made(*args)
            if phase(self._watch) == "update":
                self.forwards += 1
                self.tokens += len(flat.ids)
                self.read += len(flat.read)
                for name in ("every", "last"):
                    masks = [blocks.mask for blocks in getattr(flat, name).blocks]
                    self.computed[name] += sum(mask.numel() for mask in masks)
                    self.seen[name] += sum(int((mask == 0).sum()) for mask in masks)
            return flat

        forward.flat_tree = watched
        try:
            yield
        finally:
            forward.flat_tree = made


def print_needed(
    run: BareRun,
    watch: Stopwatch,
    updates: int,
    flops: Stopwatch,
    pairs: Pairs,
    clock: Callable[[], float],
) -> None:
    shape = shape_of(run.policy.model.causal_lm.config)
    computed, seen = (
        shape.queries * (by_kind["every"] * (shape.layers - 1) + by_kind["last"])
        for by_kind in (pairs.computed, pairs.seen)
    )
    # Of a pair, forward and backward are six products of 2 FLOPs a number; the scores are computed again in the latter.
    every = sum(flops.spent[part] for part in MODEL["update"])
    needed = (every - 14 * computed + 12 * seen) / COUNTED
    model_s, all_s = (
        sum(watch.spent[part] for part in parts) / updates
        for parts in (MODEL["update"], (*MODEL["update"], "update", "optimizer"))
    )
    rate = products_rate(run, pairs.tokens // pairs.forwards, pairs.read // pairs.forwards, clock)
    print(
        f"update: {pairs.tokens / pairs.forwards:,.0f} tokens a forward, {seen / max(computed, 1):.0%} of pairs seen,"
        f" which are {12 * seen / COUNTED / needed:.0%} of the needed {needed / 1e9:.1f} GFLOP in {all_s:.2f} s;"
        f" products of its shapes {rate / 1e9:.1f} GFLOP/s"
    )
    print(
        f"needed FLOP/s over it: {needed / model_s / rate:.2f} in the model, {needed / all_s / rate:.2f} in all"
    )


def products_rate(run: BareRun, tokens: int, read: int, clock: Callable[[], float]) -> float:
    """FLOP/s of the products of all linear layers, forward and both of backward, each at its best."""
    layers = [
        module
        for module in run.policy.model.causal_lm.modules()
        if isinstance(module, torch.nn.Linear)
    ]
    head = run.policy.model.backbone.head
    shapes = Counter(
        (read if layer is head else tokens, *reversed(layer.weight.shape)) for layer in layers
    )
    needed = elapsed_s = 0.0
    for (rows, inputs, outputs), count in shapes.items():
        x = torch.randn(rows, inputs)
        weight = torch.randn(outputs, inputs)
        gradient = torch.randn(rows, outputs)
        for left, right in ((x, weight.T), (gradient, weight), (gradient.T, x)):
            elapsed_s += count * best_s(left, right, clock)
            needed += count * 2 * rows * inputs * outputs
    return needed / elapsed_s


def best_s(
    left: Tensor, right: Tensor, clock: Callable[[], float], trials: int = 5, seconds: float = 0.05
) -> float:
    """Of a product; the best of some trials."""
    out, best = torch.mm(left, right), float("inf")
    for _ in range(trials):
        rounds, began = 0, clock()
        while (elapsed_s := clock() - began) < seconds:
            torch.mm(left, right, out=out)
            rounds += 1
        best = min(best, elapsed_s / rounds)
    return best


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

    def of_phase() -> str:
        return f"{phase(watch)} forward"

    parts: list[tuple[Any, str, str | Callable[[], str]]] = [
        (run.rollout, "step", "rollout"),
        *(
            (wrapper, method, "environment")
            for wrapper in (TimeLimit, OrderEnforcing)
            for method in ("step", "reset")
        ),
        (run.learner, "update", "update"),
        (Reference, "logprobs", "reference"),
        (Tensor, "backward", "backward"),
        (run.learner.optimizer, "step", "optimizer"),
        (Backbone, "encode", of_phase),
        (Backbone, "encode_flat", of_phase),
        (Encoded, "logits_at", of_phase),
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
            by_phase.total() if name == "all" else by_phase[name]
            for by_phase in (tokens.computed, tokens.padding)
        )
        print(f"tokens computed, {name}: {computed:,}, padding {padding / max(computed, 1):.1%}")


def print_rates(
    watch: Stopwatch, updates: int, flops: Stopwatch, clock: Callable[[], float]
) -> None:
    """FLOP/s of each phase, and the update's over that of plain matrix products.

    Args:
        watch: seconds of some updates.
        updates: how many.
        flops: FLOPs of `COUNTED` other ones.
        clock: of the watch.
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
    left, right = torch.randn(2, 1024, 1024)
    own = 2 * 1024**3 / best_s(left, right, clock)
    print(
        f"fp32 products of 1024 x 1024: {own / 1e9:.1f} GFLOP/s; the update reaches {rates['update'] / own:.2f} of it"
    )


if __name__ == "__main__":
    typer.run(main)
