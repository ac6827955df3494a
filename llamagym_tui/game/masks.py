"""Reads the ``action_mask`` in an environment's info, in each of the forms in use.

One number for each action, which is a combination of decisions where there are several; for several decisions also a
tuple with an array for each, as Gymnasium's MultiDiscrete takes it, and these arrays end to end, as MaskablePPO does.
A mask that could be read in two ways, or in none, is an EnvError.
"""

import itertools
import math
from collections.abc import Sequence
from typing import Any

from llamagym_tui.errors import EnvError
from llamagym_tui.game.agent_base import AgentBase

TUPLE = "give a tuple with one array for each decision"


def unmasked(agent: AgentBase, mask: Any) -> tuple[str, ...] | None:
    """The names of an agent's actions that a mask leaves; None: all of them.

    Raises:
        EnvError: the mask has a form that is not known, or forbids every action.
    """
    names = agent.action_names
    if not names:  # the agent's own code knows its actions
        return None
    allowed = _allowed(agent, mask)
    # Where there are fewer names than actions, they are those of the first ones.
    left = tuple(name for name, is_allowed in zip(names, allowed, strict=False) if is_allowed)
    if not left:
        raise _fault(agent, f"forbids each of the {len(names)} actions")
    return left if len(left) < len(names) else None


def _allowed(agent: AgentBase, mask: Any) -> list[bool]:
    """Whether each action is allowed."""
    rows = _rows(agent, mask)
    numbers = list(itertools.chain.from_iterable(rows))
    lengths = [len(row) for row in rows]
    sizes = _sizes(agent, lengths)
    actions = math.prod(sizes)
    is_of_bits = agent.decides_bits and len(numbers) == len(sizes)
    most = 2 if is_of_bits else 1
    if strange := [number for number in numbers if number not in range(most + 1)]:
        raise _fault(agent, f"has the number {strange[0]}, and takes 0 and 1")
    readings: list[list[bool]] = []
    if lengths == sizes:
        readings.append(_combined(rows))
    if len(sizes) > 1 and len(rows) == 1 and len(numbers) == sum(sizes):
        ends = [0, *itertools.accumulate(sizes)]
        readings.append(_combined([numbers[a:b] for a, b in itertools.pairwise(ends)]))
    if is_of_bits:  # as Gymnasium's MultiBinary takes it: 2 is either
        readings.append(_combined([[bit != 1, bit != 0] for bit in numbers]))
    is_by_decision = isinstance(mask, tuple) and lengths == sizes
    if len(sizes) > 1 and len(numbers) == actions and not is_by_decision:
        readings.append([bool(number) for number in numbers])
    if len(readings) > 1:
        raise _fault(agent, f"may be of the decisions or of their combinations: {TUPLE}")
    if not readings:
        raise _fault(agent, _mismatch(lengths, sizes))
    return readings[0]


def _rows(agent: AgentBase, mask: Any) -> list[list[float]]:
    """The numbers of a mask, by the innermost arrays that it has."""
    value = mask.tolist() if hasattr(mask, "tolist") else mask
    if not isinstance(value, list | tuple):
        raise _fault(agent, f"is of type {type(mask).__name__}, and has to be an array")
    parts = [part.tolist() if hasattr(part, "tolist") else part for part in value]
    if not any(isinstance(part, list | tuple) for part in parts):
        for part in parts:
            if not isinstance(part, int | float):
                raise _fault(agent, f"has {part!r:.40} in it, and takes 0 and 1")
        return [parts]
    return [row for part in parts for row in _rows(agent, part)]


def _sizes(agent: AgentBase, lengths: Sequence[int]) -> list[int]:
    """How many values each decision has."""
    if agent.decision_sizes is not None:
        return list(agent.decision_sizes)
    # As in a loop of one's own, where the environment is not known.
    names = len(agent.action_names)
    return list(lengths) if len(lengths) > 1 and math.prod(lengths) == names else [names]


def _combined(rows: Sequence[Sequence[Any]]) -> list[bool]:
    """Whether each combination is allowed, by the allowed values of each decision; the last one counts fastest."""
    return [all(values) for values in itertools.product(*rows)]


def _mismatch(lengths: Sequence[int], sizes: Sequence[int]) -> str:
    given = " + ".join(map(str, lengths))
    if len(sizes) == 1:
        return f"has {given} numbers for {sizes[0]} actions"
    return (
        f"has {given} numbers for {math.prod(sizes)} combinations of {len(sizes)} decisions "
        f"with {', '.join(map(str, sizes))} values: {TUPLE}"
    )


def _fault(agent: AgentBase, what: str) -> EnvError:
    return EnvError(f"The action_mask of {agent.env_id or 'the environment'} {what}.")
