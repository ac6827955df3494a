"""The type in which a fixed trunk reads prompts: bfloat16 where that is faster here and as exact as learning needs.

Both are measured on prompts of the run itself, once, before the first batch: the error in the directions that an
adapter on the head would see, and the processor time. Notation: P prompts, D hidden size, K directions.
"""

import time
from collections.abc import Sequence
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from llamagym_tui.engine.learning.directions import whitening
from llamagym_tui.engine.policy.policy import (
    REMEMBERED_OF_FIXED_TRUNK,
    Policy,
    PromptMemory,
    states_of,
)
from llamagym_tui.engine.tokens.tokenization import Opening
from llamagym_tui.errors import ConfigError

MOST_PROMPTS = 40
"""Prompts that are read both ways, at most."""
FEWEST_PROMPTS = 8
"""Distinct prompts below which nothing is measured: too few to tell a spread."""
LARGEST_ERROR = 0.15
"""Share of the spread between states that counts as exact enough."""
FASTER = 1.2
"""Times as fast as float32 from which on bfloat16 is taken."""


class Reading(NamedTuple):
    kind: Literal["float32", "bfloat16"]
    reason: str
    """For people."""


@torch.no_grad()
def fastest_reading(policy: Policy, prompts: Sequence[Opening]) -> Reading | None:
    """Measure on distinct prompts, and let the trunk read that way; None: there was nothing to compare.

    The policy remembers what was read of these prompts in the way that is chosen.
    """
    few = prompts[:MOST_PROMPTS]
    partings = policy.trie.partings
    if not partings or len(few) < FEWEST_PROMPTS:
        return None
    try:
        policy.read_rounded()
    except ConfigError:  # another device
        return None
    column = min(partings) + 1

    def states(memory: PromptMemory) -> tuple[Tensor, float]:
        began = time.process_time()
        encoded = states_of(policy, few, policy.trie, memory)
        return encoded.hidden[:, column], time.process_time() - began

    of_exact = PromptMemory(REMEMBERED_OF_FIXED_TRUNK)
    of_rounded = PromptMemory(REMEMBERED_OF_FIXED_TRUNK)
    exact, exact_s = states(of_exact)  # the first reading is in float32, and finds the centres
    rounded, rounded_s = states(of_rounded)
    error = error_in_directions(exact, rounded)
    found = chosen(error, exact_s / max(rounded_s, 1e-9))
    if found.kind == "float32":
        policy.model.backbone.rounded = None
        policy.memory.take_over(of_exact)
    else:
        policy.memory.take_over(of_rounded)
    return found


def error_in_directions(exact: Tensor, rounded: Tensor) -> float:
    """The error of (P, D) states as a share of their spread in whitened directions: root of the mean square."""
    directions = whitening(exact, exact.mean(0, keepdim=True), len(exact))
    error = (rounded - exact) @ directions.T  # (P, K)
    return float(error.square().mean().sqrt())


def chosen(error: float, times: float) -> Reading:
    """The type to read in, from the error in bfloat16 and the speed over that of float32."""
    kind: Literal["float32", "bfloat16"] = "float32"
    if error <= LARGEST_ERROR and times >= FASTER:
        kind = "bfloat16"
    reason = (
        f"prompts are read in {kind} (bfloat16: {times:.1f} times the speed of float32, an error of {error:.2f} of "
        "the states' spread)"
    )
    return Reading(kind, reason)
