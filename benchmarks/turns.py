"""Turns that are played and learnt from in a processor second, rollout and update together, with one thread.

    python -m benchmarks.turns cart_pole history=all --updates 3
    python -m benchmarks.turns blackjack ppo.epochs=1 --prompt-tokens 1000 --other ../old
    python -m benchmarks.turns blackjack --size 0.5B --warm-up 0 --updates 1 --other ../old n_envs=16 ppo.batch_size=32
    python -m benchmarks.turns counting history=all --turn 5 --turn 50 --other ../old
    python -m benchmarks.turns blackjack --reach -0.1 --other ../old

With `--other`, code of this checkout and of another one run in turn, each in a process of its own, and the last lines
are ratios, formed within each round. With `--turn` nothing is trained: the processor seconds of these turns of a
rollout, per environment, in a world whose observations never repeat (`counting`). Imports what older versions have,
too: this file runs by their code.
"""

from __future__ import annotations

import json
import tempfile
import time
from collections import deque
from functools import partial
from pathlib import Path
from resource import RUSAGE_SELF, getrusage
from statistics import fmean, median
from typing import Annotated, Any

import gymnasium
import typer
from gymnasium import spaces

from benchmarks import memory
from benchmarks.bare_run import BareRun, settings
from benchmarks.first_frame import environment
from benchmarks.timing import alternate, machine, ratios, spread
from llamagym_tui.agents.cart_pole import CartPoleAgent
from llamagym_tui.trainer.rollout.rollout import Rollout

FIRST_MODEL = Path(__file__).with_name("first_model")
"""Of both sides of `--other`: each checkout ships another one."""
SIZES = {"5M": "6M-full", "20M": "20M-full", "135M": "135M-adapter", "0.5B": "0.5B-adapter"}
"""Settings of `benchmarks.memory` with such a shape."""
SENTENCE = " The dealer shows one card and keeps the other one hidden until the player sticks."
ENVS = 16
"""Of the rollout whose turns are timed."""
AROUND = 2
"""Turns on either side of one whose median is its time."""
BATCHES = 3
"""Whose mean return must reach a bar, so that one lucky batch does not."""


class Counting(gymnasium.Env[int, int]):
    """It never ends and never shows a number twice."""

    shown = 0

    def __init__(self) -> None:
        self.observation_space = spaces.Discrete(10**9)
        self.action_space = spaces.Discrete(2)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[int, dict[str, Any]]:
        super().reset(seed=seed)
        return self.next(), {}

    def step(self, action: int) -> tuple[int, float, bool, bool, dict[str, Any]]:
        return self.next(), 0.0, False, False, {}

    def next(self) -> int:
        Counting.shown += 1
        return 100_000_000 + Counting.shown


class CountingAgent(CartPoleAgent):
    env_id = "LlamaCounting-v0"

    def format_observation(self, observation: Any) -> str:
        return f"Observation: {observation}"


def main(
    agent: Annotated[str, typer.Argument(help="As of `train`, or counting.")],
    changes: Annotated[
        list[str] | None, typer.Argument(help="NAME=VALUE, as `train --set` takes them.")
    ] = None,
    updates: Annotated[int, typer.Option(help="That count.")] = 2,
    warm_up: Annotated[int, typer.Option(help="Updates before them.")] = 1,
    size: Annotated[
        str | None,
        typer.Option(help=f"Random weights, trained as by benchmarks.memory: {[*SIZES]}."),
    ] = None,
    prompt_tokens: Annotated[
        int, typer.Option(help="Of the system prompt, at least, by more sentences.")
    ] = 0,
    turn: Annotated[list[int] | None, typer.Option(help="Of a rollout, to be timed alone.")] = None,
    reach: Annotated[
        float | None,
        typer.Option(help=f"Mean return of {BATCHES} batches; processor seconds until then."),
    ] = None,
    other: Annotated[Path | None, typer.Option(help="Folder of another checkout.")] = None,
    rounds: Annotated[int, typer.Option(help="Of both checkouts.")] = 1,
    model: Annotated[str, typer.Option(help="As of `train`.")] = "bundled",
    as_json: Annotated[bool, typer.Option("--json", help="All figures, in one line.")] = False,
) -> None:
    if other is not None:
        words = [
            agent,
            *(changes or []),
            "--updates",
            updates,
            "--warm-up",
            warm_up,
            "--prompt-tokens",
            prompt_tokens,
        ]
        words += [word for each in turn or [] for word in ("--turn", each)]
        words += [] if reach is None else ["--reach", reach]
        compare(
            words, size, FIRST_MODEL if model == "bundled" else Path(model), other.resolve(), rounds
        )
        return
    adapted = {} if size is None else {"full_finetuning": memory.SETTINGS[SIZES[size]].full}
    known = "cart_pole" if agent == "counting" else agent
    run = BareRun(settings(known, ["seed=11", *(changes or [])], model=model, **adapted), threads=1)
    if prompt_tokens:
        run.rollout.set_system_prompt(lengthened(run, prompt_tokens), 1)
    if turn:
        figures = turn_ms(run, turn)
    elif reach is not None:
        figures = {"processor s": reached_s(run, reach)}
    else:
        made = [one_update(run) for _ in range(warm_up + updates)][warm_up:]
        figures = {name: median(each[name] for each in made) for name in made[0]}
    print(
        json.dumps(figures)
        if as_json
        else "\n".join(f"{name} {figure}" for name, figure in figures.items())
    )


def compare(words: list[Any], size: str | None, model: Path, other: Path, rounds: int) -> None:
    # Here alone: an older version's module lacks it.
    from benchmarks.against import HERE, printed_by_code_of

    print(machine(), flush=True)
    with tempfile.TemporaryDirectory() as folder, environment() as env:
        if size is not None:
            model = Path(folder) / "weights"
            memory.build(SIZES[size], Path(folder))
            words = [*words, "--size", size]
        words = [*words, "--model", model, "--json"]

        def figures(code: Path) -> dict[str, float]:
            return json.loads(
                printed_by_code_of(code, env, Path(__file__), *words).splitlines()[-1]
            )

        sides = {"this": HERE, "other": other}
        found = alternate(
            {name: partial(figures, code) for name, code in sides.items()}, rounds, warm_up=0
        )
    for name in found["this"][0]:
        this, that = ([each[name] for each in found[side]] for side in sides)
        print(
            f"{name}: this {spread(this):.3f}, other {spread(that):.3f}, ratio {ratios(this, that):.2f}"
        )
    if found["this"][0].keys() >= {"turn 50, ms", "turn 5, ms"}:
        late, early = (
            [each[name] for each in found[side]]
            for side, name in (("this", "turn 50, ms"), ("other", "turn 5, ms"))
        )
        print(f"this version's turn 50 over the other's turn 5: {ratios(late, early):.2f}")


def one_update(run: BareRun) -> dict[str, float]:
    """Processor milliseconds of a turn by part, the process's peak so far, and turns a second."""
    began = time.process_time()
    run.play()
    played = time.process_time()
    learner = vars(run).get("learner") or vars(run)["ppo"]  # its name in older versions
    turns = learner.update(run.rollout.take_batch()).turns
    ended = time.process_time()
    return {
        "rollout, ms a turn": 1e3 * (played - began) / turns,
        "update, ms a turn": 1e3 * (ended - played) / turns,
        "peak MiB": getrusage(RUSAGE_SELF).ru_maxrss / 1024,
        "turns a second": turns / (ended - began),
    }


def reached_s(run: BareRun, bar: float) -> float:
    """Processor seconds of playing and training until the last batches have a mean return."""
    began, returns = time.process_time(), deque[float](maxlen=BATCHES)
    while len(returns) < BATCHES or fmean(returns) < bar:
        returns.append(run.update().mean_return)
    return time.process_time() - began


def turn_ms(run: BareRun, turns: list[int]) -> dict[str, float]:
    """Processor milliseconds of turns of a rollout, those of all environments together over their number."""
    rollout, last = counting_rollout(run, max(turns) + AROUND), max(turns) + AROUND
    seconds = []
    for _ in range(last):
        began = time.process_time()
        rollout.step()
        seconds.append(time.process_time() - began)
    rollout.close()
    return {
        f"turn {at}, ms": 1e3 * median(seconds[at - 1 - AROUND : at + AROUND]) / ENVS
        for at in turns
    }


def counting_rollout(run: BareRun, turns: int, envs: int = ENVS) -> Rollout:
    """Of episodes of so many turns."""
    if CountingAgent.env_id not in gymnasium.registry:
        gymnasium.register(CountingAgent.env_id, entry_point=Counting)
    return Rollout(
        CountingAgent(),
        run.policy,
        n_envs=envs,
        max_turns=turns + 1,
        batch_turns=envs * turns,
        seed=1,
    )


def lengthened(run: BareRun, tokens: int) -> str:
    prompt = run.agent.get_system_prompt()
    while len(run.loaded.tokenizer(prompt)["input_ids"]) < tokens:
        prompt += SENTENCE
    return prompt


if __name__ == "__main__":
    typer.run(main)
