"""Measures the worth of pretraining: SmolLM2 and random weights of its shape, trained alike on Blackjack.

    python -m benchmarks.reading
    python -m benchmarks.reading --model smollm2 --episodes 60000

Any network tells the prompts of Blackjack apart and learns them. So this measures what was not trained on: hands that
were kept back, the wording that is kept for evaluations, and how few turns are needed. Both train with the defaults and
a fixed batch. Returns are exact.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Annotated, Any

import torch
import typer

from benchmarks.exact_blackjack import STATES, State, expected_return, optimal_policy
from benchmarks.hands_kept_back import KEPT_BACK
from benchmarks.hit_probabilities import AGENT, hit_probabilities, load_policy
from benchmarks.timing import summary, updates_of
from llamagym_tui.engine.model.sources import model_folder
from llamagym_tui.engine.policy.policy import Policy
from llamagym_tui.game.observed import wording_of
from llamagym_tui.runs.model_registry import full_name
from llamagym_tui.settings import GenerationConfig

CONTROL = "control"
"""Name of the model with random weights."""
BATCH = 1024
"""Turns of a batch."""
WANTED_RETURN = -0.10
"""Of sampled play, as the mean over `BATCHES` batches in a row."""
BATCHES = 3


def main(
    model: Annotated[list[str] | None, typer.Option(help="smollm2, control. (both)")] = None,
    episodes: Annotated[int, typer.Option(help="Of each training on hands.")] = 60_000,
    seed: Annotated[int, typer.Option(help="Of the runs, and of the random weights.")] = 1,
) -> None:
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        for name in model or ["smollm2", CONTROL]:
            weights = control(Path(folder) / "random", seed) if name == CONTROL else name
            common = ("--model", weights, "--seed", seed, "--threads", 1)
            for line in measured(common, Path(folder) / name, episodes):
                print(f"{name}, seed {seed}: {line}", flush=True)


def control(folder: Path, seed: int, model: str = "smollm2") -> str:
    """A folder with a model of the same shape and tokenizer, and random weights."""
    from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

    name = full_name(model)
    source = model_folder(name) or name
    torch.manual_seed(seed)
    config = AutoConfig.from_pretrained(source)
    AutoModelForCausalLM.from_config(config, dtype=torch.float32).save_pretrained(folder)
    AutoTokenizer.from_pretrained(source).save_pretrained(folder)
    return str(folder)


def measured(common: Sequence[object], folder: Path, episodes: int) -> Iterator[str]:
    """Train on some of the hands, on all, and in all wordings but one, and look at the play of each."""
    agent = Path(__file__).with_name("hands_kept_back.py")
    yield trained(agent, common, folder / "hands", episodes)
    yield from judged(load_policy(folder / "hands" / "model"))
    yield trained("blackjack", common, folder / "speed", min(episodes, 20_000))
    yield reached([update["stats"] for update in updates_of(folder / "speed")])
    yield trained("blackjack", (*common, "--wordings"), folder / "wordings", episodes)
    yield from reworded(load_policy(folder / "wordings" / "model"))


def trained(agent: object, common: Sequence[object], run_dir: Path, episodes: int) -> str:
    limits = ("--episodes", episodes, "--final-episodes", 0, "--set", f"ppo.batch_size={BATCH}")
    found = summary("train", agent, *common, "--run-dir", run_dir, *limits)
    return f"{found['updates']} updates, {found['env_steps']} turns in {found['elapsed_s']:.0f} s"


def judged(policy: Policy) -> Iterator[str]:
    """The play of hands that were kept back, and of hands in other words."""
    policy.generation = GenerationConfig(policy="score")
    own = hit_probabilities(policy, AGENT.get_system_prompt())
    book = optimal_policy()
    kept_back = like(own, book, KEPT_BACK)
    others = like(own, book, set(STATES) - KEPT_BACK)
    best_guess = expected_return(lambda state: float(own[state] > 0.5))
    yield (
        f"like basic strategy {kept_back:.3f} of hands kept back, {others:.3f} of the others; "
        f"greedy {best_guess:+.4f}, sampled {expected_return(own.__getitem__):+.4f}"
    )


def reworded(policy: Policy) -> Iterator[str]:
    """The play of all hands in each wording; the last one was never played in training."""
    policy.generation = GenerationConfig(policy="score")
    book = optimal_policy()
    for wording in range(1 + len(AGENT.wordings)):
        told = wording_of(AGENT, wording)
        found = hit_probabilities(policy, AGENT.get_system_prompt(), told=told)
        sampled = expected_return(found.__getitem__)
        yield (
            f"wording {wording + 1}: like basic strategy {like(found, book, STATES):.3f}, sampled {sampled:+.4f}"
        )


def like(
    found: Mapping[State, float], book: Mapping[State, bool], states: Iterable[State]
) -> float:
    """Share of states in which the likelier action is that of basic strategy."""
    return fmean(float((found[state] > 0.5) == book[state]) for state in states)


def reached(batches: Sequence[Mapping[str, Any]]) -> str:
    """After how many turns the sampled play of batches first had the wanted return."""
    turns = 0
    for at, stats in enumerate(batches):
        last = batches[max(0, at + 1 - BATCHES) : at + 1]
        # The batch was played by the policy before its own update, so its turns are not counted.
        if len(last) == BATCHES and fmean(each["mean_return"] for each in last) >= WANTED_RETURN:
            return f"{WANTED_RETURN} after {turns} turns, {at} updates"
        turns += stats["turns"]
    return f"{WANTED_RETURN} not reached in {turns} turns"


if __name__ == "__main__":
    typer.run(main)
