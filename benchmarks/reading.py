"""What a language model's reading is worth: SmolLM2 and the same shape with random weights, trained in the same way.

    python -m benchmarks.reading
    python -m benchmarks.reading --part hands --model smollm2 --episodes 60000

Any network tells the prompts of Blackjack apart, and learns them. So what counts is what was not trained on: hands kept
back, other wordings of the observation, a prompt that states a rule, lakes never met; and how few turns are needed.
Both are trained by `train` with the defaults, but for a fixed batch, so that turns compare. Returns are exact.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from statistics import fmean
from typing import Annotated, Any

import torch
import typer

from benchmarks.exact_blackjack import (
    STATES,
    HitProbability,
    State,
    expected_return,
    greedy,
    optimal_policy,
)
from benchmarks.hands_kept_back import KEPT_BACK
from benchmarks.hit_probabilities import carry, load_policy
from benchmarks.learning import updates_of
from benchmarks.reworded_blackjack import RewordedBlackjackAgent
from benchmarks.timing import summary
from llamagym_tui.agents.blackjack import BlackjackAgent
from llamagym_tui.config import GenerationConfig
from llamagym_tui.engine.learning.scoring import probabilities_of_actions
from llamagym_tui.engine.model.sources import model_folder
from llamagym_tui.engine.policy.policy import Policy
from llamagym_tui.model_registry import full_name

CONTROL = "control"
"""Name of the model with random weights."""
BATCH = 1024
"""Turns of a batch."""
WANTED_RETURN = -0.10
"""Of sampled play, as the mean over `BATCHES` batches in a row."""
BATCHES = 3
DEALERS = (2, 6, 10)
"""The dealer's cards of the hands that are looked at under other prompts, which all have to be read."""
LOOKED_AT = [state for state in STATES if state[1] in DEALERS]
OWN = BlackjackAgent().get_system_prompt()
RULE_FROM = 17
RULE = f" Stick at {RULE_FROM} or more."
NUMBERS = [
    "zero", "one", "two", "three", "four", "five", "six", "seven",
    "eight", "nine", "ten", "eleven", "twelve", "thirteen", "fourteen", "fifteen",
    "sixteen", "seventeen", "eighteen", "nineteen", "twenty", "twenty-one",
]  # fmt: skip


def shown(hand: State) -> str:
    """The dealer's card."""
    return "ace" if hand[1] == 1 else str(hand[1])


def held(hand: State) -> str:
    which = "with" if hand[2] else "without"
    return f"You hold {hand[0]}, {which} an ace that counts as eleven, against the dealer's {shown(hand)}."


def terse(hand: State) -> str:
    return f"{'soft' if hand[2] else 'hard'} {hand[0]} vs {shown(hand)}"


def spelled(hand: State) -> str:
    card = "an ace" if hand[1] == 1 else f"the number {NUMBERS[hand[1]]}"
    thanks = " thanks to an ace worth eleven" if hand[2] else ""
    return f"You have {NUMBERS[hand[0]]} points{thanks}. The dealer's open card is {card}."


def as_json(hand: State) -> str:
    return json.dumps({"dealer": shown(hand), "player": hand[0], "soft": bool(hand[2])})


WORDINGS: Mapping[str, Callable[[State], str]] = {
    "reworded": RewordedBlackjackAgent().format_observation,
    "held": held,
    "terse": terse,
    "spelled": spelled,
    "as JSON": as_json,
}
"""Five ways to say what the agent's own words say, none of them met in training."""


class Part(StrEnum):
    HANDS = "hands"
    SPEED = "speed"
    MAPS = "maps"


def main(
    part: Annotated[list[Part] | None, typer.Option(help="What to measure. (all)")] = None,
    model: Annotated[list[str] | None, typer.Option(help="smollm2, control. (both)")] = None,
    episodes: Annotated[int, typer.Option(help="Of each training on hands.")] = 60_000,
    map_minutes: Annotated[float, typer.Option(help="Of each training on maps.")] = 60.0,
    seed: Annotated[int, typer.Option(help="Of the runs, and of the random weights.")] = 1,
    folder: Annotated[
        Path | None, typer.Option(help="Of the runs, which are kept. (a temporary one)")
    ] = None,
) -> None:
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as temporary:
        place = (folder or Path(temporary)).absolute()
        for name in model or ["smollm2", CONTROL]:
            weights = control(place / f"random-{seed}", seed) if name == CONTROL else name
            for each in part or list(Part):
                run_dir = place / f"{name}-{each}-{seed}"
                common = ("--model", weights, "--seed", seed, "--threads", 1, "--run-dir", run_dir)
                for line in MEASURED[each](common, run_dir, episodes, map_minutes):
                    print(f"{name}, seed {seed}: {line}", flush=True)


def control(folder: Path, seed: int, model: str = "smollm2") -> str:
    """A folder with a model of the same shape and tokenizer, and random weights."""
    if not (folder / "config.json").is_file():
        from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

        name = full_name(model)
        source = model_folder(name) or name
        torch.manual_seed(seed)
        config = AutoConfig.from_pretrained(source)
        AutoModelForCausalLM.from_config(config, dtype=torch.float32).save_pretrained(folder)
        AutoTokenizer.from_pretrained(source).save_pretrained(folder)
    return str(folder)


Common = Sequence[object]
"""Options of a run."""


def on_hands(common: Common, run_dir: Path, episodes: int, minutes: float) -> Iterator[str]:
    """What is played on hands that were kept back, under other wordings and under a rule."""
    agent = Path(__file__).with_name("hands_kept_back.py")
    yield _trained(agent, common, episodes)
    yield from judged(load_policy(run_dir / "model"))


def judged(policy: Policy) -> Iterator[str]:
    """The same of a policy that was trained so, by the scores of the two replies."""
    policy.generation = GenerationConfig(policy="score")
    own = hits(policy, STATES)
    book = optimal_policy()
    kept_back = like(own, book, KEPT_BACK)
    others = like(own, book, set(STATES) - KEPT_BACK)
    yield f"like the book {kept_back:.3f} of hands kept back, {others:.3f} of the others; {worth(own)}"
    ways: list[float] = []
    for name, told in WORDINGS.items():
        reworded = hits(policy, LOOKED_AT, told=told)
        ways.append(way(reworded))
        share = like(reworded, book, LOOKED_AT)
        yield f"worded as {name}: {ways[-1]:+.2f} of the way from random to best, {share:.2f} like the book"
    yield f"mean over the wordings {fmean(ways):+.2f}, in its own words {way(own):+.2f}"
    carry(policy, OWN + RULE)
    yield f"under{RULE} after training: {moved(own, hits(policy, LOOKED_AT, prompt=OWN + RULE))}"
    without_adapter(policy)
    before = hits(policy, LOOKED_AT)
    yield f"under{RULE} before training: {moved(before, hits(policy, LOOKED_AT, prompt=OWN + RULE))}"


def on_speed(common: Common, run_dir: Path, episodes: int, minutes: float) -> Iterator[str]:
    """How many turns it takes until sampled play is as wanted."""
    yield _trained("blackjack", common, min(episodes, 20_000))
    yield reached([update["stats"] for update in updates_of(run_dir)])


def on_maps(common: Common, run_dir: Path, episodes: int, minutes: float) -> Iterator[str]:
    """How often the goal is reached on lakes that were never met."""
    found = summary("train", "frozen_lake_maps", *common, "--minutes", minutes)
    played = found["evaluation"]
    yield (
        f"new lakes reached {played['mean_return']:.3f} ± {1.96 * played['return_stderr']:.3f} of the time, sampled, "
        f"after {found['env_steps']} turns, {found['updates']} updates and {found['elapsed_s'] / 60:.0f} minutes"
    )


MEASURED = {Part.HANDS: on_hands, Part.SPEED: on_speed, Part.MAPS: on_maps}


def _trained(agent: object, common: Common, episodes: int) -> str:
    limits = ("--episodes", episodes, "--final-episodes", 0, "--set", f"ppo.batch_size={BATCH}")
    found = summary("train", agent, *common, *limits)
    return f"{found['updates']} updates, {found['env_steps']} turns in {found['elapsed_s']:.0f} s"


def hits(
    policy: Policy,
    states: Sequence[State],
    *,
    told: Callable[[State], str] | None = None,
    prompt: str | None = None,
) -> dict[State, float]:
    """P(hit) on hands, in the agent's own words and under its own prompt unless others are given."""
    agent = BlackjackAgent()
    told = told or agent.format_observation
    if prompt is None:
        prompt = agent.get_system_prompt()
    prompts = [policy.chat.opening(prompt, told(state)) for state in states]
    shares = probabilities_of_actions(policy, prompts, policy.trie)
    return {state: hit for state, (_, hit) in zip(states, shares, strict=True)}


def without_adapter(policy: Policy) -> None:
    """Let the policy play as the model did before any training."""
    assert policy.narrow is not None, "the defaults train the head alone"
    with torch.no_grad():
        policy.narrow.up.zero_()


def like(
    found: Mapping[State, float], book: Mapping[State, bool], states: Iterable[State]
) -> float:
    """Share of states in which the likelier action is the book's."""
    return fmean(float((found[state] > 0.5) == book[state]) for state in states)


def worth(found: Mapping[State, float]) -> str:
    """Exact returns of greedy and of sampled play."""
    best_guess = expected_return(lambda state: float(found[state] > 0.5))
    return f"greedy {best_guess:+.4f}, sampled {expected_return(found.__getitem__):+.4f}"


def way(found: Mapping[State, float]) -> float:
    """How far sampled play is on the way from random to best, in the games against `DEALERS`."""
    policies: list[HitProbability] = [
        lambda state: found.get(state, 0.0),
        lambda state: 0.5,
        greedy(optimal_policy()),
    ]
    played, chance, best = (expected_return(policy, DEALERS) for policy in policies)
    return (played - chance) / (best - chance)


def moved(before: Mapping[State, float], after: Mapping[State, float]) -> str:
    """In what share of states the rule moves P(hit) as it says: down where it has one stick, up below."""
    from_it = [after[state] < before[state] for state in after if state[0] >= RULE_FROM]
    below = [after[state] > before[state] for state in after if state[0] < RULE_FROM]
    return (
        f"P(hit) goes the right way in {fmean(from_it + below):.2f} of hands, down in {fmean(from_it):.2f} of those "
        f"from {RULE_FROM} on, up in {fmean(below):.2f} of those below"
    )


def reached(batches: Sequence[Mapping[str, Any]]) -> str:
    """After how many turns the sampled play of batches was first as wanted."""
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
