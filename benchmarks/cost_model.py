"""What reading a prompt costs, by a count of its products: a rate is measured once, and foretells other worlds.

    python -m benchmarks.cost_model
    python -m benchmarks.cost_model --model smollm2 --model FOLDER
    python -m benchmarks.cost_model --paper

With an adapter on the head alone a run's time is what its trunk reads, and some tenths of a millisecond a turn.
Reading N tokens takes 2 N W floating-point operations in W weights of the layers, attention left out, as contexts are
short, and S V numbers of a head of V tokens at S places. Both rates of the first model on Blackjack's prompts foretell
all others, in this process's own time, so other work on the machine changes little. Prompts are those of random play.
`--paper` puts the rate of GPUs in its place, which nobody here has measured.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from typing import Annotated, NamedTuple

import torch
import typer

from benchmarks.timing import machine
from llamagym_tui.engine.model.forward import Encoded
from llamagym_tui.engine.model.narrow import NarrowEncoded
from llamagym_tui.engine.policy.fixed_trunk import groups, states_of
from llamagym_tui.engine.policy.policy import Policy
from llamagym_tui.engine.threads import use_threads
from llamagym_tui.engine.tokens.tokenization import Opening
from llamagym_tui.game.agent_base import AgentBase
from llamagym_tui.game.environment import agent_env
from llamagym_tui.setup.run_config import run_config
from llamagym_tui.trainer.builders import Builders

WORLDS = ("blackjack", "taxi", "cart-pole", "kitchen")
COUNT = 48
"""Distinct prompts that are read of each, a `PARTS`th of them at once."""
PARTS = 3


SIZES = {
    "0.5 B": (0.36e9, 896, 151_936),
    "7 B": (6.5e9, 3_584, 152_064),
    "70 B": (68.5e9, 8_192, 128_256),
}
"""Weights of the layers, hidden size and vocabulary, as of Qwen2.5-0.5B, Qwen2.5-7B and Llama-3-70B."""
MACHINES = {"1 GPU": 1, "8 GPUs": 8, "8 nodes of 8 GPUs": 64}
GPU_FLOPS = 400e12
"""Of one GPU: two fifths of the 989e12 that an H100's data sheet has for bf16."""
GPU_BYTES = 80e9
TOKENS = 100
"""New tokens of a prompt, replies included."""
PLACES = 5
"""Of these, where logits are needed."""
BATCH = 1024
"""Turns."""
EPOCHS = 2


class Cost(NamedTuple):
    """Of reading; seconds are of this process."""

    tokens: int
    trunk_flops: float
    trunk_s: float
    logits: int
    """Numbers that the LM head gives, of which sums are kept."""
    head_s: float


def main(
    model: Annotated[
        list[str] | None, typer.Option(help="As of train; the first one sets the rate. (smollm2)")
    ] = None,
    world: Annotated[list[str] | None, typer.Option(help=f"Of {', '.join(WORLDS)}. (all)")] = None,
    paper: Annotated[bool, typer.Option("--paper", help="Foretell GPUs; run nothing.")] = False,
) -> None:
    if paper:
        on_paper()
        return
    print(machine(), flush=True)
    first: Cost | None = None
    print("model, world: new tokens of a prompt, foretold and measured prompts a second")
    for name in model or ["smollm2"]:
        for agent in world or WORLDS:
            cost = read(name, agent)
            first = first or cost
            foretold_s = cost.trunk_flops * first.trunk_s / first.trunk_flops
            foretold_s += cost.logits * first.head_s / first.logits
            measured_s = cost.trunk_s + cost.head_s
            print(
                f"{name}, {agent}: {cost.tokens / COUNT:.0f}, {COUNT / foretold_s:.2f}, "
                f"{COUNT / measured_s:.2f} ({measured_s / foretold_s:.2f} times)",
                flush=True,
            )
    assert first is not None
    rate = first.trunk_flops / first.trunk_s / 1e9
    print(
        f"{rate:.0f} GFLOP/s, {1e9 * first.head_s / first.logits:.1f} ns for each of the head's numbers"
    )


def read(model: str, world: str) -> Cost:
    """Read prompts of random play that are not known yet."""
    config = run_config(
        agent=world,
        run_dir=None,
        resume=False,
        model=model,
        form="score",
        assignments=["full_finetuning=false"],
    )
    builders = Builders(config)
    agent = builders.agent()
    policy = builders.policy(agent, builders.model())
    use_threads(policy, 1)
    seen = prompts(agent, policy)
    states_of(policy, seen[:2], policy.trie)  # what is made at the first forward does not count
    policy.memory.clear()
    assert policy.narrow is not None, "an adapter on the head alone"
    plain, head_s = policy.narrow.kept, 0.0

    def kept(encoded: Encoded) -> NarrowEncoded:
        nonlocal head_s
        began = time.process_time()
        found = plain(encoded)
        head_s += time.process_time() - began
        return found

    policy.narrow.kept = kept  # type: ignore[method-assign]
    tokens, places, seconds = 0, 0, 0.0
    size = COUNT // PARTS
    for first in range(0, COUNT, size):
        part = seen[first : first + size]
        for group in groups(part, range(len(part)), policy.trie):
            tokens += len(group.tree)
            places += sum(map(len, group.columns))
        began = time.process_time()
        states_of(policy, part, policy.trie)
        seconds += time.process_time() - began
    lm = policy.model.causal_lm
    weights = sum(each.numel() for each in lm.model.layers.parameters())
    logits = places * lm.config.vocab_size
    return Cost(tokens, 2.0 * tokens * weights, seconds - head_s, logits, head_s)


def on_paper() -> None:
    """What is read, and how long an update of an adapter in all layers takes, if nothing but products took time."""
    print("machine, model: GPUs for its bf16 weights, prompts read a second, seconds an update")
    for machine_name, gpus in MACHINES.items():
        for name, (weights, hidden, vocabulary) in SIZES.items():
            of_weights = 2 * (weights + 2 * hidden * vocabulary)
            needed = math.ceil(of_weights / (0.8 * GPU_BYTES))  # the rest is for activations
            if needed > gpus:
                print(f"{machine_name}, {name}: {needed}, does not fit")
                continue
            forward = 2.0 * TOKENS * weights + 2.0 * PLACES * hidden * vocabulary
            # Frozen weights pass gradients on and get none: backward costs as much as forward.
            update = 2 * forward * BATCH * EPOCHS
            rate = gpus * GPU_FLOPS
            print(f"{machine_name}, {name}: {needed}, {rate / forward:,.0f}, {update / rate:.2f}")


def prompts(agent: AgentBase, policy: Policy) -> Sequence[Opening]:
    """Distinct ones of random play, without earlier turns."""
    env = agent_env(agent)
    env.action_space.seed(0)
    found: dict[Opening, None] = {}
    observation, _ = env.reset(seed=0)
    while len(found) < COUNT:
        text = agent.format_observation(observation)
        prefix, rest = policy.chat.opening(agent.get_system_prompt(), text)
        found.setdefault(Opening(tuple(prefix), tuple(rest)))
        observation, _, terminated, truncated, _ = env.step(env.action_space.sample())
        if terminated or truncated:
            observation, _ = env.reset()
    return list(found)


if __name__ == "__main__":
    torch.manual_seed(0)
    typer.run(main)
