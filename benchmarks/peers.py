"""Ours next to other libraries: the same weights, minutes of one processor, and evaluation.

    python -m benchmarks.peers
    python -m benchmarks.peers --worlds blackjack --peers trl --minutes 1 --folder trial
    python -m benchmarks.peers --model smollm2 --minutes 10 --minutes 20 --folder runs/peers-smollm2

Peers: `ours` (`train` with its defaults), `trl` (GRPO of TRL 1.16 with a rollout function, `peers_trl`), `llamagym`
(LlamaGym 0.1.1 in an environment of its own, Blackjack alone: its conversations are cut at 256 positions) and `agilerl`
(LLMPPO of AgileRL 2.58, `peers_agilerl`, in an environment of its own of 7 GB). Each begins with the same model. `eval`
evaluates all of them on seeds that none has trained on, under the prompts of their training; Blackjack without the luck
of its cards (`steady_blackjack`). Everywhere a reply that names no action plays the fallback action, which in Blackjack
is to stick, and in training costs half a chip. Results are added to `results.jsonl` in the folder; what is there is not
run again. Ends with the table.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Annotated, Any, NamedTuple

import typer

from benchmarks import own_environment
from benchmarks.llamagym_environment import answer_of, llamagym_process, prompts, template_today
from benchmarks.timing import machine, summary
from benchmarks.worlds import ROWS, SEED, Records, Way, train_to
from llamagym_tui.agents.frozen_lake import MAPS
from llamagym_tui.engine.model.sources import model_folder
from llamagym_tui.runs import model_registry
from llamagym_tui.setup import catalog

BUNDLED = Path(__file__).parents[1] / "llamagym_tui/bundled_model"
WORLDS = ("blackjack", "frozen_lake")
MAX_TURNS = 20
"""Of a training episode of GRPO and LLMPPO, whose conversations are whole; longer ones would take most of its time."""
SLICE_S = 5.0
"""Of LlamaGym between two looks at the clock."""


class Subject(NamedTuple):
    """A model that is trained, and how."""

    name: str
    """As of `train`."""
    folder: Path
    """Of its weights before training."""
    settings: Mapping[str, Mapping[str, Any]]
    """Of each of the peers."""
    ways: Mapping[str, Sequence[object]]
    """Options of `eval` for each evaluation, by its name in the results."""
    episodes: int | None
    """Episodes of each evaluation; by default those of the world's row."""


BUNDLED_SETTINGS: Mapping[str, Mapping[str, Any]] = {
    # The best of 1e-4 and 3e-5 on Blackjack; TRL's own 1e-6 hardly moves a model of this size.
    "trl": {"lr": 3e-5, "batch": 128, "lora": None},
    # The best of 1e-4 and 1e-3 after a minute of Blackjack; its own is 5e-7.
    "agilerl": {"lr": 1e-3, "batch_size": 128, "mini_batch_size": 32, "update_epochs": 2},
    "llamagym": {"adapter": False},
}
LARGE_SETTINGS: Mapping[str, Mapping[str, Any]] = {
    # Adapter and learning rate of GRPO in TRL's guide to adapters ("LoRA Without Regret", Qwen3-0.6B), which wants
    # fewer than 32 episodes in an update.
    "trl": {
        "lr": 5e-5,
        "batch": 16,
        "lora": {"r": 1, "lora_alpha": 32, "target_modules": "all-linear"},
    },
    # Learning rate and epochs of its configuration ppo_llm.yaml (Qwen2.5-0.5B-Instruct).
    "agilerl": {"lr": 5e-5, "batch_size": 16, "mini_batch_size": 8, "update_epochs": 1},
    "llamagym": {"adapter": True},
}
"""Of models for which all weights are too many. Batches are small, or none of the peers has an update in a minute."""
BUNDLED_WAYS: Mapping[str, Sequence[object]] = {"greedy": ["--greedy"], "sampled": ["--sampled"]}
LARGE_WAYS: Mapping[str, Sequence[object]] = {
    "sampled": ["--sampled"],
    "scored": ["--sampled", "--set", "generation.policy=score"],
}
"""As it was trained, and where it has to choose one of the replies that name an action, as ours does in training."""
LARGE_EPISODES = 500


def subject_of(model: str) -> Subject:
    """The settings for a model, by its name or folder.

    Raises:
        typer.BadParameter: no folder on this machine has the same weights for all.
    """
    if model == model_registry.BUNDLED:
        return Subject(model, BUNDLED, BUNDLED_SETTINGS, BUNDLED_WAYS, None)
    folder = model_folder(model_registry.full_name(model))
    if folder is None:
        raise typer.BadParameter(f"{model} is in no folder on this machine: name one.")
    return Subject(model, folder, LARGE_SETTINGS, LARGE_WAYS, LARGE_EPISODES)


def main(
    worlds: Annotated[list[str] | None, typer.Option(help="blackjack, frozen_lake. (both)")] = None,
    peers: Annotated[
        list[str] | None, typer.Option(help="Of ours, trl, llamagym, agilerl. (all)")
    ] = None,
    model: Annotated[
        str, typer.Option(help="As of train; one that is on this machine.")
    ] = "bundled",
    minutes: Annotated[
        list[float] | None, typer.Option(help="Marks; again for each. (1, 2, 5 and 10)")
    ] = None,
    seeds: Annotated[int, typer.Option(help="Runs of each.")] = 1,
    folder: Annotated[Path, typer.Option(help="Of results and runs, one for each model.")] = Path(
        "runs/peers"
    ),
) -> None:
    marks, folder = sorted(minutes or [1, 2, 5, 10]), folder.absolute()
    folder.mkdir(parents=True, exist_ok=True)
    records = Records(folder / "results.jsonl")
    subject = subject_of(model)
    for world in worlds or WORLDS:
        for peer in peers or list(PEERS):
            if peer == "llamagym" and world != "blackjack":
                continue
            for seed in range(1, seeds + 1):
                run(records, subject, world, peer, seed, marks, folder)
    print(machine())
    print(table(records, marks))


def run(
    records: Records,
    subject: Subject,
    world: str,
    peer: str,
    seed: int,
    marks: Sequence[float],
    folder: Path,
) -> None:
    """Train a peer to each mark and evaluate it there; a run that was cut off begins again.

    Raises:
        typer.BadParameter: the folder has results of another model.
    """
    if others := {each["model"] for each in records.all} - {subject.name}:
        raise typer.BadParameter(
            f"The folder has results of {others.pop()}: name another --folder."
        )
    where = {"model": subject.name, "world": world, "peer": peer, "seed": seed}
    known = {each["minutes"] for each in records.of(**where)}
    if known >= set(marks):
        return
    place = folder / f"{world}-{peer}-{seed}"
    shutil.rmtree(place, ignore_errors=True)
    for minutes, trained, more in PEERS[peer](subject, world, seed, marks, place):
        if minutes in known:
            continue
        returns = evaluated(subject, world, trained, is_ours=peer == "ours")
        records.add({**where, "minutes": minutes, **returns, **more})
        print(f"{world}, {peer}, seed {seed}, {minutes:g} min: {returns}", flush=True)


def evaluated(subject: Subject, world: str, trained: Path, *, is_ours: bool) -> dict[str, float]:
    """Mean returns by ways of playing, the standard error of sampled play, and its share of replies without action."""
    episodes = subject.episodes or ROWS[world].episodes
    # The peers' own temperature; a run of ours keeps the one that it trained with.
    whole = () if is_ours else ("--history", "all", "--set", "generation.temperature=1")
    words = ("--model", trained, "--episodes", episodes, "--seed", SEED, "--threads", 1, *whole)
    agent = ROWS[world].evaluated or world
    found = {name: summary("eval", agent, *words, *way) for name, way in subject.ways.items()}
    returns = {name: each["mean_return"] for name, each in found.items()}
    sampled = found["sampled"]
    more = {"stderr": sampled["return_stderr"], "unread": sampled["parse_failure_rate"]}
    return returns | more


Marks = Iterator[tuple[float, Path, dict[str, Any]]]
"""Minutes, the model's folder by then, and what else is known."""


def ours(subject: Subject, world: str, seed: int, marks: Sequence[float], place: Path) -> Marks:
    way = Way(place, subject.name)
    last: dict[str, Any] = {}
    for mark in marks:
        last = train_to(ROWS[world], seed, place / "run", mark, way, last)
        yield mark, place / "run", last


def trl(subject: Subject, world: str, seed: int, marks: Sequence[float], place: Path) -> Marks:
    setup = {"agent": world, **common(subject, seed, marks, place), **subject.settings["trl"]}
    yield from marks_of([sys.executable, str(Path(__file__).with_name("peers_trl.py"))], setup)


def common(subject: Subject, seed: int, marks: Sequence[float], place: Path) -> dict[str, Any]:
    """Settings that GRPO and LLMPPO share."""
    paths = {"model": str(subject.folder), "folder": str(place)}
    return {**paths, "seed": seed, "minutes": list(marks), "max_turns": MAX_TURNS, "threads": 1}


def marks_of(
    command: Sequence[str], setup: Mapping[str, Any], environment: Mapping[str, str] | None = None
) -> Marks:
    """Train in a process of its own, and only then yield what it has saved, so that no evaluation runs beside it.

    Raises:
        RuntimeError: it failed; the marks before are yielded.
    """
    place = Path(setup["folder"])
    place.mkdir(parents=True)
    with (place / "log").open("w") as log:
        made = subprocess.run(
            [*command, json.dumps(setup)],
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            env=environment,
            check=False,
        )
    for line in made.stdout.splitlines():
        found = json.loads(line)
        yield found.pop("minutes"), Path(found.pop("model")), found
    if made.returncode:
        raise RuntimeError(
            f"{command[-1]} ended with {made.returncode}; its error is in {place / 'log'}."
        )


def llamagym(subject: Subject, world: str, seed: int, marks: Sequence[float], place: Path) -> Marks:
    place.mkdir(parents=True)
    with (
        (place / "log").open("w") as log,
        llamagym_process(
            subject.folder, seed, adapter=subject.settings["llamagym"]["adapter"], log=log
        ) as process,
    ):
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
            as_trained(target, subject.folder)
            yield mark, target, known


def as_trained(folder: Path, source: Path) -> None:
    """Give a model that LlamaGym has trained today's files, and the chat template that it was trained with."""
    for name in (
        "config.json",
        "generation_config.json",
        "tokenizer.json",
        "tokenizer_config.json",
    ):
        shutil.copy(source / name, folder)
    template = template_today(source)
    (folder / "chat_template.jinja").write_text(template, encoding="utf-8")


def agilerl(subject: Subject, world: str, seed: int, marks: Sequence[float], place: Path) -> Marks:
    agent = catalog.find_agent(world, {})()
    setup = {"env_id": agent.env_id, "env_kwargs": dict(agent.env_kwargs), **texts(world)}
    setup |= common(subject, seed, marks, place) | subject.settings["agilerl"]
    environment = own_environment.variables() | {"HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
    command = [str(agilerl_python()), str(Path(__file__).with_name("peers_agilerl.py"))]
    for minutes, model, found in marks_of(command, setup, environment):
        for name in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja"):
            shutil.copy(subject.folder / name, model)
        yield minutes, model, found


def agilerl_python() -> Path:
    """The Python of AgileRL's environment in the user's cache, made first if it is not there."""
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


PEERS: dict[str, Callable[[Subject, str, int, Sequence[float], Path], Marks]] = {
    "ours": ours,
    "trl": trl,
    "llamagym": llamagym,
    "agilerl": agilerl,
}


WAYS = ("greedy", "sampled", "scored")


def table(records: Records, marks: Sequence[float]) -> str:
    """A row a world and peer: its returns at each mark, medians of the seeds."""
    ways = [name for name in WAYS if all(name in each for each in records.all)]
    ends = ["replies without action", "turns", "updates"]
    heads = ["world", "who", *(f"{mark:g} min, {' / '.join(ways)}" for mark in marks), *ends]
    lines = [heads, ["---"] * len(heads)]
    for world, peer in dict.fromkeys((each["world"], each["peer"]) for each in records.all):
        runs = {mark: records.of(world=world, peer=peer, minutes=mark) for mark in marks}
        returns = [
            " / ".join(f"{median(each[way] for each in runs[mark]):+.3f}" for way in ways)
            if runs[mark]
            else ""
            for mark in marks
        ]
        last = runs[marks[-1]]
        counts = [
            format(median(each[name] for each in last), spec) if last else ""
            for name, spec in (("unread", ".1%"), ("turns", ",.0f"), ("updates", ",.0f"))
        ]
        lines.append([world, peer, *returns, *counts])
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


if __name__ == "__main__":
    typer.run(main)
