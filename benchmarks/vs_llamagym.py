"""How many more episodes a second than LlamaGym 0.1.1, on the same weights, prompts, threads and PPO epochs.

    python -m benchmarks.vs_llamagym
    python -m benchmarks.vs_llamagym --threads 1 --repeats 5 --set ppo.batch_size=2048
    python -m benchmarks.vs_llamagym --threads 1 --repeats 1 --size 5M
    python -m benchmarks.vs_llamagym --threads 1 --repeats 2 --model smollm2

LlamaGym runs in an environment of its own (`llamagym_environment`, made at the first run) and in a process of its own
(`llamagym_side`): one hand after the other, an update every 16 turns, its default. Ours plays and learns as `train`
does, with its default batch. Both start from the first bundled model (`first_model`), sample at most 32 tokens, train
all weights and make 4 PPO epochs; ours is also timed with its default epochs, and with an adapter on its head alone,
which is what `train` begins with where prompts repeat. Both are loaded first, make one update that does not count, and
then take turns, so that a busy machine slows down both; loading is not timed. The ratio, the median and the range of
those of each round, comes last. With `--size`, both have the same random weights, so that a reply is free text of 32
tokens, which names no action; ours has 128 environments and trains all weights, and `generate, 4 epochs` is the only
variant. LlamaGym takes a reply without an action for a stick: there, ratios of turns count. With `--model`, ours plays
and learns as `train --model NAME` does when nothing else is said, from the weights that LlamaGym has. Beyond the
bundled model LlamaGym trains an adapter in all layers, as in its example, and so does ours where it samples free text.
That an adapter on the head reads each prompt once falls into the first update, which does not count.
"""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import IO, Annotated, Any, NamedTuple

import typer

from benchmarks import llamagym_environment
from benchmarks.bare_run import BareRun, settings
from benchmarks.decoding import SHAPES, build_model
from benchmarks.timing import alternate, machine, ratios, spread
from llamagym_tui.agents.blackjack import BlackjackAgent
from llamagym_tui.config import RunConfig
from llamagym_tui.engine.model.sources import model_folder
from llamagym_tui.model_registry import BUNDLED, full_name
from llamagym_tui.setup.run_config import run_config

FIRST_MODEL = Path(__file__).with_name("first_model")
"""The first bundled model: the weights of both sides, whatever ships now."""
BUNDLED_MODEL = Path(__file__).parents[1] / "llamagym_tui/bundled_model"
SIDE = Path(__file__).with_name("llamagym_side.py")
LLAMAGYM = "LlamaGym 0.1.1, 4 epochs"
HEAD = "as train starts it"
SAMPLED = ("generation.policy=generate",)
SCORED = ("generation.policy=score",)
FREE_TEXT = (*SAMPLED, "lora.layers=all", "ppo.epochs=4", "n_envs=32", "ppo.batch_size=32")
"""With an adapter in all layers, as LlamaGym's: one on the head learns nothing where no reply names an action."""
OURS = {
    "generate, 4 epochs": ("generation.policy=generate", "ppo.epochs=4"),
    "score, 4 epochs": ("generation.policy=score", "ppo.epochs=4"),
    "generate, default epochs": ("generation.policy=generate",),
    "score, default epochs": ("generation.policy=score",),
}


class Slice(NamedTuple):
    """What one side did in one round."""

    episodes: int
    turns: int
    updates: int
    elapsed_s: float
    processor_s: float
    """Of all threads; on a busy machine less than `elapsed_s` allows."""


def main(
    threads: Annotated[
        list[int] | None, typer.Option(help="Of torch on both sides; again for each. (1 and 2)")
    ] = None,
    repeats: Annotated[int, typer.Option(help="Rounds in which each side runs once.")] = 3,
    seconds: Annotated[
        float, typer.Option(help="Of a side in a round, at least; a begun update is finished.")
    ] = 15.0,
    change: Annotated[
        list[str] | None, typer.Option("--set", help="A setting of ours, as in ppo.epochs=3.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Of both sides.")] = 1,
    environment: Annotated[
        Path | None, typer.Option(help="Folder of LlamaGym's environment. (user's cache)")
    ] = None,
    size: Annotated[str | None, typer.Option(help=f"Random weights: {', '.join(SHAPES)}.")] = None,
    model: Annotated[str | None, typer.Option(help="As of train, with its defaults.")] = None,
    python: Annotated[
        str | None, typer.Option(help="Python 3.11 that makes it. (this one, or python3.11)")
    ] = None,
) -> None:
    interpreter = llamagym_environment.interpreter(environment, python)
    print(machine(), flush=True)
    with tempfile.TemporaryDirectory() as folder:
        if size is not None:
            build_model(SHAPES[size], Path(folder), FIRST_MODEL)
            sides = of_random_weights(Path(folder), change or [], seed)
        elif model is not None:
            sides = as_started(model, change or [], seed)
        else:
            sides = of_first_model(change or [], seed)
        for count in threads or [1, 2]:
            compare(interpreter, count, repeats, seconds, seed, sides)


class Sides(NamedTuple):
    """What plays against what."""

    weights: Path
    """Folder of the model on both sides."""
    variants: Mapping[str, RunConfig]
    """Ours, by their names."""
    tokens: tuple[int, int] = (3, 6)
    """How many tokens LlamaGym's replies have on average."""
    counts_turns: bool = False
    """Whether rates are of turns and not of episodes."""
    adapter: bool = False
    """Whether LlamaGym trains one."""


def of_first_model(changes: Sequence[str], seed: int) -> Sides:
    variants = {
        name: settings("blackjack", [f"seed={seed}", *own, *changes], model=str(FIRST_MODEL))
        for name, own in OURS.items()
    }
    variants[HEAD] = started(str(FIRST_MODEL), [*SAMPLED, *changes], seed)
    return Sides(FIRST_MODEL, variants)


def of_random_weights(weights: Path, changes: Sequence[str], seed: int) -> Sides:
    name, own = next(iter(OURS.items()))
    large = ("n_envs=128", "ppo.batch_size=128", "generation.max_new_tokens=32")
    changed = [f"seed={seed}", *own, *large, *changes]
    config = settings("blackjack", changed, model=str(weights), full_finetuning=True)
    return Sides(weights, {name: config}, tokens=(30, 32), counts_turns=True)


def as_started(model: str, changes: Sequence[str], seed: int) -> Sides:
    is_bundled = full_name(model) == full_name(BUNDLED)
    ways = {HEAD: SAMPLED} if is_bundled else {"score": SCORED, "free text, 4 epochs": FREE_TEXT}
    variants = {name: started(model, [*way, *changes], seed) for name, way in ways.items()}
    weights = BUNDLED_MODEL if is_bundled else model_folder(full_name(model))
    tokens = (3, 6) if is_bundled else (20, 32)
    return Sides(Path(weights or model), variants, tokens, not is_bundled, not is_bundled)


def started(model: str, changes: Sequence[str], seed: int) -> RunConfig:
    """The settings with which `train` begins: an adapter on the head alone, unless another one is named."""
    return run_config(
        agent="blackjack",
        run_dir=None,
        resume=False,
        model=model,
        seed=seed,
        assignments=changes,
    )


def compare(
    interpreter: Path, threads: int, repeats: int, seconds: float, seed: int, sides: Sides
) -> None:
    with llamagym_process(
        interpreter, threads, seed, sides.weights, adapter=sides.adapter
    ) as llamagym:
        variants: dict[str, Callable[[float], Slice]] = {
            LLAMAGYM: partial(theirs, llamagym, tokens=sides.tokens)
        }
        for name, config in sides.variants.items():
            variants[name] = partial(ours, BareRun(config, threads=threads))
        for run in variants.values():
            run(0.0)  # one update, not counted
        slices = alternate(
            {name: partial(run, seconds) for name, run in variants.items()}, repeats, warm_up=0
        )
    rates = {
        name: [part.episodes / part.elapsed_s for part in parts] for name, parts in slices.items()
    }
    for name, parts in slices.items():
        episodes = sum(part.episodes for part in parts)
        print(
            f"{threads} threads, {name}: {spread(rates[name]):.1f} episodes/s,"
            f" {episodes / sum(part.processor_s for part in parts):.1f} a second of processor time,"
            f" {sum(part.turns for part in parts) / episodes:.2f} turns an episode,"
            f" {sum(part.updates for part in parts)} updates"
        )
    if sides.counts_turns:
        rates = {
            name: [part.turns / part.processor_s for part in parts]
            for name, parts in slices.items()
        }
        print(
            "turns a second of processor time: "
            + ", ".join(f"{name} {spread(rates[name]):.2f}" for name in rates)
        )
    of_ours = [
        f"{name} {ratios(found, rates[LLAMAGYM]):.1f}"
        for name, found in rates.items()
        if name != LLAMAGYM
    ]
    print(f"ratio on {threads} threads: " + ", ".join(of_ours))


def ours(run: BareRun, seconds: float) -> Slice:
    """Updates until `seconds` have passed, one at least."""
    began, processor = time.perf_counter(), time.process_time()
    made = [run.update()]
    while (elapsed_s := time.perf_counter() - began) < seconds:
        made.append(run.update())
    episodes, turns = (
        sum(getattr(stats, name) for stats in made) for name in ("episodes", "turns")
    )
    return Slice(episodes, turns, len(made), elapsed_s, time.process_time() - processor)


@contextmanager
def llamagym_process(
    interpreter: Path,
    threads: int,
    seed: int,
    weights: Path = FIRST_MODEL,
    *,
    adapter: bool = False,
    log: IO[str] | None = None,
) -> Iterator[subprocess.Popen[str]]:
    """LlamaGym, loaded and ready.

    Args:
        adapter: whether it trains one; else all weights.
        log: what it prints. None: it is on stderr.
    """
    with tempfile.TemporaryDirectory() as folder:
        model = Path(folder) / "model"
        llamagym_environment.convert(weights, model)
        setup = Path(folder) / "setup.json"
        setup.write_text(
            json.dumps(
                {
                    "model": str(model),
                    "threads": threads,
                    "seed": seed,
                    "adapter": adapter,
                    **prompts(),
                }
            )
        )
        offline = {
            "HF_HUB_OFFLINE": "1",
            "TRANSFORMERS_VERBOSITY": "error",
            "PYTHONWARNINGS": "ignore",
        }
        environment = {
            name: value
            for name, value in os.environ.items()
            if name not in ("PYTHONPATH", "PYTHONHOME")
        }
        process = subprocess.Popen(
            [str(interpreter), str(SIDE), str(setup)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            env=environment | offline,
        )
        try:
            assert answer_of(process)["parameters"] > 0
            yield process
        finally:
            assert process.stdin is not None
            process.stdin.close()
            process.wait()


def prompts() -> dict[str, Any]:
    """Our agent's system prompt, and its text of every observation of Blackjack."""
    agent = BlackjackAgent()
    seen = [
        (total, dealer, ace) for total in range(2, 32) for dealer in range(1, 11) for ace in (0, 1)
    ]
    texts = {" ".join(map(str, state)): agent.format_observation(state) for state in seen}
    return {"system_prompt": agent.get_system_prompt(), "observations": texts}


def theirs(
    llamagym: subprocess.Popen[str], seconds: float, tokens: tuple[int, int] = (3, 6)
) -> Slice:
    """Let LlamaGym play and train, with replies of so many tokens on average.

    Raises:
        RuntimeError: it did not train, or its replies are not those of that model.
    """
    assert llamagym.stdin is not None
    llamagym.stdin.write(f"{seconds}\n")
    llamagym.stdin.flush()
    did = answer_of(llamagym)
    if not did["weight_change"] > 0:
        raise RuntimeError("LlamaGym's weights did not change: it did not train.")
    if not tokens[0] <= did["reply_tokens"] <= tokens[1]:
        raise RuntimeError(
            f"LlamaGym's replies have {did['reply_tokens']:.1f} tokens: the conversion is broken."
        )
    return Slice(
        did["episodes"], did["turns"], did["updates"], did["elapsed_s"], did["processor_s"]
    )


def answer_of(llamagym: subprocess.Popen[str]) -> dict[str, Any]:
    """The next line of LlamaGym's side.

    Raises:
        RuntimeError: it ended instead; the cause is on stderr.
    """
    assert llamagym.stdout is not None
    line = llamagym.stdout.readline()
    if not line:
        raise RuntimeError("LlamaGym's process ended; its error is above.")
    return json.loads(line)


if __name__ == "__main__":
    typer.run(main)
