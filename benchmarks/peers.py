"""What people would use instead, next to ours: same weights, minutes of one processor, and evaluation.

    python -m benchmarks.peers
    python -m benchmarks.peers --worlds blackjack --peers trl --minutes 1 --folder trial

Peers: `ours` (`train` with its defaults), `trl` (GRPO of TRL 1.16 with a rollout function, `peers_trl`), `llamagym`
(LlamaGym 0.1.1 in an environment of its own, Blackjack alone: its conversations are cut at 256 positions) and `agilerl`
(LLMPPO of AgileRL 2.58, `peers_agilerl`, in an environment of its own of 7 GB; AGILERL_ENVIRONMENT is the folder of one
that exists). Each begins with the bundled model and is evaluated by `eval`, on seeds that none has trained on, under
the prompts that it was trained with. Results are added to `results.jsonl` in the folder; what is there is not run
again. Ends with the table.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from statistics import median
from typing import Annotated, Any

import typer

from benchmarks import llamagym_environment, own_environment
from benchmarks.timing import machine, summary
from benchmarks.vs_llamagym import answer_of, llamagym_process, prompts
from benchmarks.world_rows import ROWS
from benchmarks.worlds import SEED, Records, Way, train_to
from llamagym_tui.agents.frozen_lake import MAPS
from llamagym_tui.setup import catalog

BUNDLED = Path(__file__).parents[1] / "llamagym_tui/bundled_model"
LR = {"blackjack": 3e-5, "frozen_lake": 3e-5}
"""Of GRPO, the best of 1e-4 and 3e-5 on Blackjack; TRL's own 1e-6 hardly moves a model of this size."""
AGILERL_LR = 1e-3
"""Of LLMPPO's adapters, the best of 1e-4 and 1e-3 after a minute of Blackjack; its own is 5e-7."""
MAX_TURNS = 20
"""Of a training episode of GRPO and LLMPPO, whose conversations are whole; longer ones would take most of its time."""
SLICE_S = 5.0
"""Of LlamaGym between two looks at the clock."""


def main(
    worlds: Annotated[list[str] | None, typer.Option(help="blackjack, frozen_lake. (both)")] = None,
    peers: Annotated[
        list[str] | None, typer.Option(help="Of ours, trl, llamagym, agilerl. (all)")
    ] = None,
    minutes: Annotated[
        list[float] | None, typer.Option(help="Marks; again for each. (1, 2, 5 and 10)")
    ] = None,
    seeds: Annotated[int, typer.Option(help="Runs of each.")] = 1,
    folder: Annotated[Path, typer.Option(help="Of results and runs.")] = Path("runs/peers"),
) -> None:
    marks, folder = sorted(minutes or [1, 2, 5, 10]), folder.absolute()
    folder.mkdir(parents=True, exist_ok=True)
    records = Records(folder / "results.jsonl")
    for world in worlds or list(LR):
        for peer in peers or list(PEERS):
            if peer == "llamagym" and world != "blackjack":
                continue
            for seed in range(1, seeds + 1):
                run(records, world, peer, seed, marks, folder)
    print(machine())
    print(table(records, marks))


def run(
    records: Records, world: str, peer: str, seed: int, marks: Sequence[float], folder: Path
) -> None:
    """Train a peer to each mark and evaluate it there; a run that was cut off begins again."""
    where = {"world": world, "peer": peer, "seed": seed}
    known = {each["minutes"] for each in records.of(**where)}
    if known >= set(marks):
        return
    place = folder / f"{world}-{peer}-{seed}"
    shutil.rmtree(place, ignore_errors=True)
    for minutes, model, more in PEERS[peer](world, seed, marks, place):
        if minutes in known:
            continue
        episodes = ROWS[world].episodes
        whole = () if peer == "ours" else ("--history", "all")
        words = ("--model", model, "--episodes", episodes, "--seed", SEED, "--threads", 1, *whole)
        found = {way: summary("eval", world, *words, f"--{way}") for way in ("greedy", "sampled")}
        returns = {way: each["mean_return"] for way, each in found.items()}
        error = found["sampled"]["return_stderr"]
        records.add({**where, "minutes": minutes, **returns, "stderr": error, **more})
        print(f"{world}, {peer}, seed {seed}, {minutes:g} min: {returns}", flush=True)


Marks = Iterator[tuple[float, Path, dict[str, Any]]]
"""Minutes, the model's folder by then, and what else is known."""


def ours(world: str, seed: int, marks: Sequence[float], place: Path) -> Marks:
    way, last = Way(place, marks, 1, "bundled", [], None), dict[str, Any]()
    for mark in marks:
        last = train_to(ROWS[world], seed, place / "run", mark, way, last)
        yield mark, place / "run", last


def trl(world: str, seed: int, marks: Sequence[float], place: Path) -> Marks:
    place.mkdir()
    setup = {
        "agent": world,
        "model": str(BUNDLED),
        "folder": str(place),
        "seed": seed,
        "minutes": list(marks),
    }
    words = json.dumps({**setup, "max_turns": MAX_TURNS, "lr": LR[world], "threads": 1})
    command = [sys.executable, str(Path(__file__).with_name("peers_trl.py")), words]
    with (place / "log").open("w") as log:
        made = subprocess.run(
            command, stdout=subprocess.PIPE, stderr=log, text=True, check=True
        ).stdout
    for line in made.splitlines():
        if line.startswith('{"minutes"'):
            found = json.loads(line)
            yield found.pop("minutes"), Path(found.pop("model")), found


def llamagym(world: str, seed: int, marks: Sequence[float], place: Path) -> Marks:
    python = llamagym_environment.interpreter(None, None)
    with llamagym_process(python, 1, seed, BUNDLED) as process:
        assert process.stdin is not None
        spent_s, known = 0.0, {"turns": 0, "episodes": 0, "updates": 0}
        for mark in marks:
            while spent_s < 60 * mark:
                print(min(SLICE_S, 60 * mark - spent_s), file=process.stdin, flush=True)
                slice_ = answer_of(process)
                spent_s += slice_["processor_s"]
                known = {name: value + slice_[name] for name, value in known.items()}
            target = place / f"{mark:g}"
            print(f"save {target}", file=process.stdin, flush=True)
            answer_of(process)
            as_trained(target)
            yield mark, target, known


def as_trained(folder: Path) -> None:
    """Give a model that LlamaGym has trained today's files, and the chat template that it was trained with."""
    for name in (
        "config.json",
        "generation_config.json",
        "tokenizer.json",
        "tokenizer_config.json",
    ):
        shutil.copy(BUNDLED / name, folder)
    (folder / "chat_template.jinja").write_text(llamagym_environment.TEMPLATE, encoding="utf-8")


def agilerl(world: str, seed: int, marks: Sequence[float], place: Path) -> Marks:
    place.mkdir()
    agent = catalog.find_agent(world, {})()
    setup = {"env_id": agent.env_id, "env_kwargs": dict(agent.env_kwargs), **texts(world)}
    setup |= {"model": str(BUNDLED), "folder": str(place), "seed": seed, "minutes": list(marks)}
    words = json.dumps({**setup, "max_turns": MAX_TURNS, "lr": AGILERL_LR, "threads": 1})
    command = [str(agilerl_python()), str(Path(__file__).with_name("peers_agilerl.py")), words]
    environment = {
        name: value
        for name, value in os.environ.items()
        if name not in ("PYTHONPATH", "PYTHONHOME")
    }
    environment |= {"HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
    with (
        (place / "log").open("w") as log,
        subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=log, text=True, env=environment
        ) as process,
    ):
        assert process.stdout is not None
        for line in process.stdout:
            found = json.loads(line)
            model = Path(found.pop("model"))
            for name in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja"):
                shutil.copy(BUNDLED / name, model)
            yield found.pop("minutes"), model, found
    if process.returncode:
        raise RuntimeError(
            f"AgileRL's process ended with {process.returncode}; its error is in {place / 'log'}."
        )


def agilerl_python() -> Path:
    """Of the environment in AGILERL_ENVIRONMENT; else of one in the user's cache, made first if it is not there."""
    if exists := os.environ.get("AGILERL_ENVIRONMENT"):
        return Path(exists) / "bin/python"
    requirements = Path(__file__).with_name("agilerl_requirements.txt")
    return own_environment.interpreter(
        own_environment.default_folder("agilerl-2.58.0"), sys.executable, requirements
    )


def texts(world: str) -> dict[str, Any]:
    """Our agent's system prompt, and its text of every observation, by the observation's numbers."""
    if world == "blackjack":
        return prompts()
    agent = catalog.find_agent(world, {})()
    states = range(len(MAPS["4x4"]) * len(MAPS["4x4"][0]))
    observations = {str(state): agent.format_observation(state) for state in states}
    return {"system_prompt": agent.get_system_prompt(), "observations": observations}


PEERS: dict[str, Callable[[str, int, Sequence[float], Path], Marks]] = {
    "ours": ours,
    "trl": trl,
    "llamagym": llamagym,
    "agilerl": agilerl,
}


def table(records: Records, marks: Sequence[float]) -> str:
    """A row a world and peer: greedy and sampled return at each mark, medians of the seeds."""
    heads = ["world", "who", *(f"{mark:g} min" for mark in marks), "turns", "updates"]
    lines = [heads, ["---"] * len(heads)]
    for world, peer in dict.fromkeys((each["world"], each["peer"]) for each in records.all):
        runs = {mark: records.of(world=world, peer=peer, minutes=mark) for mark in marks}
        both = [
            " / ".join(
                f"{median(each[way] for each in runs[mark]):+.3f}" for way in ("greedy", "sampled")
            )
            if runs[mark]
            else ""
            for mark in marks
        ]
        last = runs[marks[-1]]
        counts = [
            f"{median(each[name] for each in last):,.0f}" if last else ""
            for name in ("turns", "updates")
        ]
        lines.append([world, peer, *both, *counts])
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


if __name__ == "__main__":
    typer.run(main)
