"""Measuring what the bundled model reads and follows in worlds that it was not trained in.

Worlds, states and wordings are new: seeds of the check, the wordings that lessons leave out, and, in every second
world, names of actions and numbers that no lesson has. Every figure is a share of greedy replies.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from benchmarks.exact_blackjack import STATES
from benchmarks.hit_probabilities import AGENT, hit_probabilities
from llamagym_tui.engine.policy.decisions import reply_logprobs
from llamagym_tui.engine.policy.policy import Policy, states_of
from llamagym_tui.engine.tokens.token_tree import NO_REPLIES, ActionTrie
from scripts.bundled_model import worlds
from scripts.bundled_model.agents import known, state_of
from scripts.bundled_model.blackjack_prompts import ASKED, HELD_OUT
from scripts.bundled_model.conditions import MAKERS, State
from scripts.bundled_model.instructions import Instruction, always, either, follow, report, stepwise
from scripts.bundled_model.lessons import Chance
from scripts.bundled_model.worlds import GENERIC, World

SEED = 20_000_003
NEW_ACTIONS = (
    "ahead",
    "astern",
    "invest",
    "save",
    "climb",
    "dive",
    "speak",
    "listen",
    "paint",
    "erase",
)
NEW_FEATURES = (
    "orbit",
    "drift",
    "altitude",
    "budget",
    "pulse",
    "current",
    "signal",
    "thirst",
    "shade",
    "volume",
)
KINDS = (
    *(kind for kind in MAKERS if kind != "word"),
    "word",
    "joined",
    "stepwise",
    "always",
    "follow",
)


def replies(
    policy: Policy, prompt: str, observations: Sequence[str], candidates: Sequence[str]
) -> list[int]:
    """Index of the most probable candidate after each observation."""
    openings = [policy.chat.opening(prompt, each) for each in observations]
    return (
        reply_logprobs(policy, openings, ActionTrie(map(policy.chat.reply_ids, candidates)))
        .argmax(-1)
        .tolist()
    )


def reading(
    policy: Policy, prompts: int = 40, states: int = 20, *, new: bool = True
) -> dict[str, float]:
    """Share of numbers that are named right, by how many the observation has; `new`: as of `following`."""
    found: dict[str, float] = {}
    every = [GENERIC.format_action(n) for n in range(100)]
    for count in (1, 4, 8):
        rng, right = Chance(SEED + count), 0
        for number in range(prompts):
            world = _world(
                rng, lambda each, count=count: len(each.ranges) == count and not each.unnamed
            )
            if new and number % 2:
                _rename(rng, world)
            told = report(rng, world.features, held_out=new)
            shown = [world.state(rng) for _ in range(states)]
            prompt = f"{worlds.prompt_of(rng, world.names)} {told.text}"
            chosen = replies(policy, prompt, [world.shown(state) for state in shown], every)
            right += sum(told.act(state) == n for state, n in zip(shown, chosen, strict=True))
        found[f"reads one of {count} numbers"] = right / (prompts * states)
    return found


def following(
    policy: Policy, prompts: int = 40, states: int = 20, *, new: bool = True
) -> dict[str, float]:
    """Share of states in which an instruction is followed, by its kind.

    `new`: in wordings that lessons leave out, half of the worlds with new names; else as lessons have them.
    """
    found: dict[str, float] = {}
    for kind in KINDS:
        rng, right = Chance(f"{SEED} {kind}"), 0
        for number in range(prompts):
            world = _world(rng, _needs(kind))
            if new and number % 2:
                _rename(rng, world)
            told = _told(rng, world, kind, new)
            shown = [worlds.drawn(rng, world, told) for _ in range(states)]
            prompt = f"{worlds.prompt_of(rng, world.names)} {told.text}"
            candidates = [GENERIC.format_action(n) for n in range(len(world.names))]
            chosen = replies(policy, prompt, [world.shown(state) for state in shown], candidates)
            right += sum(told.act(state) == n for state, n in zip(shown, chosen, strict=True))
        found[f"follows, {kind}"] = right / (prompts * states)
    return found


def _needs(kind: str) -> Callable[[World], bool]:
    match kind:
        case "larger" | "same" | "sum":
            return lambda world: len(world.ranges) > 1
        case "word":
            return lambda world: bool(world.words)
        case "follow":
            return lambda world: world.around
        case "stepwise":
            return lambda world: len(world.names) > 2
        case _:
            return lambda world: True


def _told(rng: Chance, world: World, kind: str, new: bool) -> Instruction:
    match kind:
        case "joined":
            while (told := either(rng, world.features, world.names, held_out=new)).kind not in (
                "and",
                "or",
                "not",
            ):
                pass
            return told
        case "stepwise":
            return stepwise(rng, world.features, world.names, held_out=new)
        case "always":
            return always(rng, world.names, held_out=new)
        case "follow":
            return follow(rng, world.words, world.names, held_out=new)
        case _:
            return either(rng, world.features, world.names, held_out=new, kind=kind)


def _rename(rng: Chance, world: World) -> None:
    """Give actions and numbers names that no lesson has."""
    if not world.around:
        world.names = rng.sample(NEW_ACTIONS, len(world.names))
    if not world.unnamed:
        world.ranges = dict(
            zip(rng.sample(NEW_FEATURES, len(world.ranges)), world.ranges.values(), strict=True)
        )
        world.features = world.features._replace(ranges=world.ranges)


def _world(rng: Chance, fits: Callable[[World], bool]) -> World:
    while not fits(world := World(rng)):
        pass
    return world


def blackjack_prompts(policy: Policy) -> dict[str, float]:
    """P(hit) where a sentence says hit, and where it says stick, each averaged over its states."""
    found: dict[str, float] = {}
    for text, hits in (ASKED | HELD_OUT).items():
        chances = hit_probabilities(policy, f"{AGENT.get_system_prompt()} {text}")
        for word, wanted in (("hit", True), ("stick", False)):
            states = [state for state in STATES if hits(state) == wanted]
            if states:
                found[f"{text} P(hit) in {word}"] = sum(chances[state] for state in states) / len(
                    states
                )
    return found


SWAPS: dict[str, Callable[[State], int]] = {
    "Always go left.": lambda state: 0,
    "Always go right.": lambda state: 1,
    "If the angle is above 50 go right, else left.": lambda state: int(int(state["angle"]) > 50),
    "If the angle is above 50 go left, else right.": lambda state: int(int(state["angle"]) <= 50),
}
"""Sentences behind Cart Pole's own prompt, and the action that each wants."""


def swaps(policy: Policy, count: int = 400) -> dict[str, float]:
    """Share of Cart Pole's states in which the greedy action is the sentence's."""
    agent, states = known("cart_pole").world
    shown = [agent.format_observation(each) for each in Chance(SEED).sample(states, count)]
    actions = [agent.format_action(n) for n in range(len(agent.action_names))]
    found = {}
    for text, wanted in SWAPS.items():
        chosen = replies(policy, f"{agent.get_system_prompt()} {text}", shown, actions)
        right = [
            wanted(state_of(agent.action_names, each)) == n
            for each, n in zip(shown, chosen, strict=True)
        ]
        found[f"follows in cart_pole, {text}"] = sum(right) / count
    return found


@torch.no_grad()
def effective_rank(policy: Policy, name: str, count: int = 200) -> float:
    """Exponential of the entropy of the spectrum of the last prompt token's hidden states, centred."""
    agent, states = known(name).world
    texts = list(
        dict.fromkeys(
            agent.format_observation(each)
            for each in Chance(SEED).sample(states, min(len(states), 2 * count))
        )
    )[:count]
    prompts = [policy.chat.opening(agent.get_system_prompt(), text) for text in texts]
    encoded = states_of(policy, prompts, NO_REPLIES)
    hidden = encoded.hidden[:, 0]
    spectrum = torch.linalg.svdvals(hidden - hidden.mean(0)) ** 2
    shares = spectrum / spectrum.sum()
    return float((-(shares * shares.clamp_min(1e-12).log()).sum()).exp())


def report_worlds(policy: Policy) -> dict[str, float]:
    ranks = {
        f"effective rank, {name}": effective_rank(policy, name)
        for name in ("cart_pole", "cliff_walking", "taxi")
    }
    return reading(policy) | following(policy) | blackjack_prompts(policy) | swaps(policy) | ranks


def report_worlds_seen(policy: Policy) -> dict[str, float]:
    return reading(policy, new=False) | following(policy, new=False)
