"""Where the time of training goes: rollout, environment, update, reference, other; and how fast it computes.

    python -m benchmarks.breakdown
    python -m benchmarks.breakdown --threads 2 --set generation.policy=score

Trains from the bundled model with the defaults, without a session, and prints shares of the time, padding among the
tokens that were computed, and the FLOP/s (`forward_counts` has the formula) beside the machine's own rate of fp32
matrix products on the same threads: of large matrices, and of the model's. The update's rate over these comes last.
Everything is measured from outside: methods are wrapped for the time of the measurement, and counting is not timed.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Annotated, Any

import gymnasium
import torch
import typer

from benchmarks.bare_run import BareRun, machine, settings
from benchmarks.forward_counts import ForwardCounts, Shape, counting
from llamagym_tui.engine.learning.reference import Reference
from llamagym_tui.engine.model.forward import Backbone, Encoded
from llamagym_tui.trainer.rollout import rollout as rollouts

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


class Stopwatch:
    """Time by section; what is inside another section is not counted in the outer one."""

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self.seconds: dict[str, float] = defaultdict(float)
        self._clock, self._open, self._since = clock, ["other"], clock()

    @contextmanager
    def section(self, name: str) -> Iterator[None]:
        """The time of a block belongs to `name`."""
        self._switch()
        self._open.append(name)
        try:
            yield
        finally:
            self._switch()
            self._open.pop()

    def phase(self) -> str:
        """The innermost of `PHASES` that is open."""
        return next((name for name in reversed(self._open) if name in PHASES), "other")

    def restart(self) -> None:
        """Forget what was measured."""
        self.seconds.clear()
        self._since = self._clock()

    def _switch(self) -> None:
        now = self._clock()
        self.seconds[self._open[-1]] += now - self._since
        self._since = now

    @contextmanager
    def around(self, owner: Any, method: str, name: str | Callable[[], str]) -> Iterator[None]:
        """Every call of a method is a section, for a while."""
        wrapped = getattr(owner, method)

        def timed(*args: Any, **kwargs: Any) -> Any:
            with self.section(name if isinstance(name, str) else name()):
                return wrapped(*args, **kwargs)

        setattr(owner, method, timed)
        try:
            yield
        finally:
            setattr(owner, method, wrapped)


class TimedEnv(gymnasium.Wrapper[Any, Any, Any, Any]):
    """An environment whose steps are a section."""

    def __init__(self, env: gymnasium.Env[Any, Any], watch: Stopwatch) -> None:
        super().__init__(env)
        self.watch = watch

    def step(self, action: Any) -> Any:
        """As the environment's."""
        with self.watch.section("environment"):
            return self.env.step(action)

    def reset(self, **options: Any) -> Any:
        """As the environment's."""
        with self.watch.section("environment"):
            return self.env.reset(**options)


def main(
    agent: Annotated[str, typer.Option(help="Agent to train.")] = "blackjack",
    updates: Annotated[int, typer.Option(help="Updates to measure, after two that do not count.")] = 10,
    threads: Annotated[int, typer.Option(help="Of torch.")] = 1,
    change: Annotated[list[str] | None, typer.Option("--set", help="A setting, as in ppo.epochs=3.")] = None,
) -> None:
    """Train, and say where the time went."""
    print(f"{machine()}, {threads} threads", flush=True)
    watch = Stopwatch()
    make_env = rollouts.make_env
    rollouts.make_env = lambda agent: TimedEnv(make_env(agent), watch)
    run = BareRun(settings(agent, change or []), threads=threads)
    backbone = run.policy.model.backbone
    counts = ForwardCounts(Shape.of(backbone), times_training=2 if run.policy.model.is_adapted else 3)
    episodes = 0
    for _ in range(2):
        run.update()
    with sections(watch, run), counting(counts, watch.phase), timing_forwards(watch):
        watch.restart()
        for _ in range(updates):
            episodes += run.update().episodes
            with watch.section("counting"):
                counts.add_up()
    tell_time(watch, episodes)
    tell_tokens(counts)
    tell_rates(watch, counts, backbone)


@contextmanager
def sections(watch: Stopwatch, run: BareRun) -> Iterator[None]:
    """The parts of a run, each a section."""
    with ExitStack() as stack:
        for owner, method, name in (
            (run.rollout, "step", "rollout"),
            (run.ppo, "update", "update"),
            (Reference, "logprobs", "reference"),
            (torch.Tensor, "backward", "backward"),
            (run.ppo.optimizer, "step", "optimizer"),
        ):
            stack.enter_context(watch.around(owner, method, name))
        yield


@contextmanager
def timing_forwards(watch: Stopwatch) -> Iterator[None]:
    """Forwards of the model and its heads, each a section of the phase that it is in."""

    def name() -> str:
        return f"{watch.phase()} forward"

    with watch.around(Backbone, "encode", name), watch.around(Encoded, "logits_at", name):
        yield


def tell_time(watch: Stopwatch, episodes: int) -> None:
    """Print seconds and shares; the shares of rollout, update and reference together below."""
    seconds = {line: sum(watch.seconds[name] for name in names) for line, names in TABLE.items()}
    total = sum(seconds.values())
    for line, elapsed_s in seconds.items():
        print(f"{line:34} {elapsed_s:8.2f} s  {elapsed_s / total:6.1%}")
    update = sum(elapsed_s for line, elapsed_s in seconds.items() if line.startswith("update"))
    print(f"{episodes / total:.1f} episodes/s; the update takes {update / total:.1%} of the time")


def tell_tokens(counts: ForwardCounts) -> None:
    """Print how many tokens were computed, and which share of them is padding."""
    for phase in (*PHASES, "all"):
        computed, padding = (
            sum(by_phase.values()) if phase == "all" else by_phase[phase]
            for by_phase in (counts.computed, counts.padding)
        )
        print(f"tokens computed, {phase}: {computed:,}, padding {padding / max(computed, 1):.1%}")


def tell_rates(watch: Stopwatch, counts: ForwardCounts, backbone: Backbone) -> None:
    """Print FLOP/s of each phase, and the update's over those of plain matrix products."""
    spent = {
        "rollout": watch.seconds["rollout forward"],
        "update": watch.seconds["update forward"] + watch.seconds["backward"],
        "reference": watch.seconds["reference forward"],
    }
    for phase, elapsed_s in spent.items():
        flops = counts.flops[phase]
        print(
            f"{phase}: {flops / 1e9:.1f} GFLOP in {elapsed_s:.2f} s of the model, {flops / elapsed_s / 1e9:.1f} GFLOP/s"
        )
    every = sum(watch.seconds[name] for names in TABLE.values() for name in names)
    print(f"all: {sum(counts.flops.values()) / every / 1e9:.1f} GFLOP/s over all of the time")
    width = counts.typical_width()
    large, own = matmul_rate([(1024, 1024, 1024)]), matmul_rate(own_shapes(backbone, width))
    print(
        f"fp32 matmul: {large / 1e9:.1f} GFLOP/s of 1024 x 1024, {own / 1e9:.1f} of the model's shapes x {width} tokens"
    )
    achieved = counts.flops["update"] / spent["update"]
    print(f"update over matmul rate: {achieved / large:.2f} of the large, {achieved / own:.2f} of the model's shapes")


def own_shapes(backbone: Backbone, tokens: int) -> list[tuple[int, int, int]]:
    """(rows, inner, columns) of the products of one layer."""
    layer = next(m for m in backbone.decoder.modules() if isinstance(m, torch.nn.ModuleList))[0]
    return [(tokens, p.shape[1], p.shape[0]) for p in layer.parameters() if p.ndim == 2]


def matmul_rate(shapes: list[tuple[int, int, int]], seconds: float = 1.0) -> float:
    """FLOP/s of matrix products of these shapes, one after the other; the best of five trials."""
    pairs = [(torch.randn(rows, inner), torch.randn(inner, columns)) for rows, inner, columns in shapes]
    outs = [torch.empty(rows, columns) for rows, _, columns in shapes]
    flops = sum(2 * rows * inner * columns for rows, inner, columns in shapes)
    best = 0.0
    for _ in range(5):
        rounds, began = 0, time.perf_counter()
        while time.perf_counter() - began < seconds / 5:
            for (left, right), out in zip(pairs, outs, strict=True):
                torch.mm(left, right, out=out)
            rounds += 1
        best = max(best, rounds * flops / (time.perf_counter() - began))
    return best


if __name__ == "__main__":
    typer.run(main)
