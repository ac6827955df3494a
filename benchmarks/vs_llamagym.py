"""How many more episodes a second than LlamaGym 0.1.1, on the same weights, prompts, threads and PPO epochs.

    python -m benchmarks.vs_llamagym
    python -m benchmarks.vs_llamagym --threads 1 --repeats 5 --set ppo.batch_size=2048

LlamaGym runs in an environment of its own (`llamagym_environment`, made at the first run) and in a process of its own
(`llamagym_side`): one hand after the other, an update every 16 turns, as it comes. Ours plays and learns as `train`
does, with its default batch. Both start from the bundled model, sample at most 32 tokens, train all weights and make
4 PPO epochs; ours is also timed with its default epochs. Both are loaded first, make one update that does not count,
and then take turns, so that a busy machine slows down both; loading is not timed. The ratio of medians comes last.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer

from benchmarks import llamagym_environment
from benchmarks.bare_run import BareRun, machine, settings
from llamagym_tui.agents.blackjack import BlackjackAgent
from llamagym_tui.engine.model.loading import bundled_model_path
from llamagym_tui.errors import ConfigError

SIDE = Path(__file__).with_name("llamagym_side.py")
LLAMAGYM = "LlamaGym 0.1.1, 4 epochs"
OURS = {
    "generate, 4 epochs": ("generation.policy=generate", "ppo.epochs=4"),
    "score, 4 epochs": ("generation.policy=score", "ppo.epochs=4"),
    "generate, default epochs": ("generation.policy=generate",),
    "score, default epochs": ("generation.policy=score",),
}


class Slice(NamedTuple):
    """What one side did in one of its turns."""

    episodes: int
    turns: int
    updates: int
    elapsed_s: float
    processor_s: float
    """Of all threads; on a busy machine less than `elapsed_s` allows."""

    @property
    def rate(self) -> float:
        """Episodes a second."""
        return self.episodes / self.elapsed_s


def main(
    threads: Annotated[list[int] | None, typer.Option(help="Of torch on both sides; again for each. (1 and 2)")] = None,
    repeats: Annotated[int, typer.Option(help="Turns of each side.")] = 3,
    seconds: Annotated[float, typer.Option(help="Of a turn, at least; the update under way is ended.")] = 15.0,
    change: Annotated[list[str] | None, typer.Option("--set", help="A setting of ours, as in ppo.epochs=3.")] = None,
    seed: Annotated[int, typer.Option(help="Of both sides.")] = 1,
    environment: Annotated[Path | None, typer.Option(help="Folder of LlamaGym's environment. (user's cache)")] = None,
    python: Annotated[str | None, typer.Option(help="Python 3.11 that makes it. (this one, or python3.11)")] = None,
) -> None:
    """Time both sides in turn."""
    folder = (environment or llamagym_environment.default_folder()).expanduser().absolute()
    interpreter = llamagym_environment.interpreter(folder, python or llamagym_environment.default_python())
    print(machine(), flush=True)
    ratios = {count: compare(interpreter, count, repeats, seconds, change or [], seed) for count in threads or [1, 2]}
    for count, found in ratios.items():
        print(f"ratio on {count} threads: " + ", ".join(f"{name} {ratio:.1f}" for name, ratio in found.items()))


def compare(
    interpreter: Path, threads: int, repeats: int, seconds: float, changes: Sequence[str], seed: int
) -> dict[str, float]:
    """Ratio of our median rate to LlamaGym's, for each kind of ours."""
    with ExitStack() as stack:
        llamagym = stack.enter_context(llamagym_process(interpreter, threads, seed))
        runs = our_runs(threads, [f"seed={seed}", *changes])
        slices: dict[str, list[Slice]] = {name: [] for name in (LLAMAGYM, *runs)}
        ask(llamagym, 0.0)
        for run in runs.values():
            run.update()
        for _ in range(repeats):
            slices[LLAMAGYM].append(ask(llamagym, seconds))
            for name, run in runs.items():
                slices[name].append(ours(run, seconds))
    medians = {name: statistics.median(part.rate for part in parts) for name, parts in slices.items()}
    for name, parts in slices.items():
        seen = " ".join(f"{part.rate:.1f}" for part in parts)
        episodes = sum(part.episodes for part in parts)
        print(
            f"{threads} threads, {name}: {medians[name]:.1f} episodes/s ({seen}),"
            f" {episodes / sum(part.processor_s for part in parts):.1f} a second of processor time,"
            f" {sum(part.turns for part in parts) / episodes:.2f} turns an episode,"
            f" {sum(part.updates for part in parts)} updates"
        )
    return {name: medians[name] / medians[LLAMAGYM] for name in runs}


def our_runs(threads: int, changes: Sequence[str]) -> dict[str, BareRun]:
    """Each kind of ours, loaded; one whose settings are not there is left out, and said to be."""
    runs = {}
    for name, own in OURS.items():
        try:
            config = settings("blackjack", [*own, *changes])
        except ConfigError as error:
            print(f"Left out, {name}: {error}", flush=True)
            continue
        runs[name] = BareRun(config, threads=threads)
    return runs


def ours(run: BareRun, seconds: float) -> Slice:
    """Updates until `seconds` have passed."""
    episodes = turns = updates = 0
    began, processor = time.perf_counter(), time.process_time()
    while (elapsed_s := time.perf_counter() - began) < seconds:
        stats = run.update()
        episodes, turns, updates = episodes + stats.episodes, turns + stats.turns, updates + 1
    return Slice(episodes, turns, updates, elapsed_s, time.process_time() - processor)


@contextmanager
def llamagym_process(interpreter: Path, threads: int, seed: int) -> Iterator[subprocess.Popen[str]]:
    """LlamaGym, loaded and waiting."""
    with tempfile.TemporaryDirectory() as folder:
        model = Path(folder) / "model"
        llamagym_environment.convert(bundled_model_path(), model)
        setup = Path(folder) / "setup.json"
        setup.write_text(json.dumps({"model": str(model), "threads": threads, "seed": seed, **prompts()}))
        offline = {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_VERBOSITY": "error", "PYTHONWARNINGS": "ignore"}
        environment = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PYTHONHOME")}
        process = subprocess.Popen(
            [str(interpreter), str(SIDE), str(setup)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment | offline,
        )
        try:
            assert answer(process)["parameters"] > 0
            yield process
        finally:
            assert process.stdin is not None
            process.stdin.close()
            process.wait()


def prompts() -> dict[str, Any]:
    """Our agent's system prompt, and its words for every observation of Blackjack."""
    agent = BlackjackAgent()
    seen = [(total, dealer, ace) for total in range(2, 32) for dealer in range(1, 11) for ace in (0, 1)]
    texts = {" ".join(map(str, state)): agent.format_observation(state) for state in seen}
    return {"system_prompt": agent.get_system_prompt(), "observations": texts}


def ask(llamagym: subprocess.Popen[str], seconds: float) -> Slice:
    """Let LlamaGym play and train; what it did.

    Raises:
        RuntimeError: it did not train, or its replies are not those of the bundled model.
    """
    assert llamagym.stdin is not None
    llamagym.stdin.write(f"{seconds}\n")
    llamagym.stdin.flush()
    did = answer(llamagym)
    if not did["weight_change"] > 0:
        raise RuntimeError("LlamaGym's weights did not change: it did not train.")
    if not 3 <= did["reply_tokens"] <= 6:
        raise RuntimeError(f"LlamaGym's replies have {did['reply_tokens']:.1f} tokens: the conversion is broken.")
    return Slice(did["episodes"], did["turns"], did["updates"], did["elapsed_s"], did["processor_s"])


def answer(llamagym: subprocess.Popen[str]) -> dict[str, Any]:
    """The next line of LlamaGym's side.

    Raises:
        RuntimeError: it ended instead; why is on stderr.
    """
    assert llamagym.stdout is not None
    line = llamagym.stdout.readline()
    if not line:
        raise RuntimeError("LlamaGym's side ended; its words are above.")
    return json.loads(line)


if __name__ == "__main__":
    typer.run(main)
