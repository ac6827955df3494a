"""How many more generated tokens a second are trained on than by TRL 1.16's GRPO, on the same weights and prompts.

    python -m benchmarks.vs_trl
    python -m benchmarks.vs_trl --model smollm2 --minutes 3 --rounds 2

Both play Blackjack by free text of at most 32 tokens, on one thread, and train once on every token that they sample.
TRL's side is that of `peers` (`peers_trl`), with its settings there: for a model of this kind an adapter of rank 1 in
all layers, and 16 episodes in an update. Ours has an adapter in all layers, too, 128 environments and as many turns in
an update of one epoch, by GRPO and by PPO. What is counted is processor time without loading; an update that has begun
is finished. The sides take turns, and ratios are formed within each round.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from benchmarks.bare_run import BareRun, settings
from benchmarks.peers import subject_of, trl
from benchmarks.timing import alternate, machine, ratios, spread

TRL = "TRL 1.16, GRPO"
OURS = ("grpo", "ppo")
"""Learners of our side."""
CHANGES = (
    "n_envs=128",
    "ppo.batch_size=128",
    "ppo.mini_batch_size=128",
    "ppo.epochs=1",
    "ppo.critic_warmup_updates=0",
    "generation.policy=generate",
    "generation.max_new_tokens=32",
    "lora.layers=all",
)


def main(
    model: Annotated[str, typer.Option(help="As of train; one that is on this machine.")] = (
        "smollm2"
    ),
    minutes: Annotated[
        float, typer.Option(help="Of a processor, each side in a round, at least.")
    ] = 2.0,
    rounds: Annotated[int, typer.Option(help="Of all sides.")] = 1,
    seed: Annotated[int, typer.Option(help="Of all sides.")] = 1,
    change: Annotated[
        list[str] | None, typer.Option("--set", help="A setting of ours, as of train.")
    ] = None,
) -> None:
    print(machine(), flush=True)
    sides: dict[str, Callable[[], float]] = {TRL: partial(theirs, model, minutes, seed)}
    for learner in OURS:
        changes = [f"seed={seed}", f"ppo.learner={learner}", *CHANGES, *(change or [])]
        sides[f"this, {learner}"] = partial(ours, model, changes, minutes)
    rates = alternate(sides, rounds, warm_up=0)
    print(
        "tokens trained on a second of processor time: "
        + ", ".join(f"{name} {spread(found):.1f}" for name, found in rates.items())
    )
    over = [
        f"{name} {ratios(found, rates[TRL]):.2f}" for name, found in rates.items() if name != TRL
    ]
    print("over TRL: " + ", ".join(over))


def theirs(model: str, minutes: float, seed: int) -> float:
    """Sampled tokens a second, all of them trained on."""
    with tempfile.TemporaryDirectory() as folder:
        subject = subject_of(model)
        [(_, _, found)] = trl(subject, "blackjack", seed, [minutes], Path(folder) / "trl")
    return found["tokens"] / found["processor_s"]


def ours(model: str, changes: list[str], minutes: float) -> float:
    """The same of updates until the minutes are over, one at least."""
    run = BareRun(settings("blackjack", changes, model=model, full_finetuning=False), threads=1)
    tokens = 0
    began = time.process_time()
    while time.process_time() - began < 60 * minutes:
        run.play()
        batch = run.rollout.take_batch()
        tokens += sum(sum(segment.mask) for each in batch for segment in each.segments)
        run.learner.update(batch)
    return tokens / (time.process_time() - began)


if __name__ == "__main__":
    typer.run(main)
