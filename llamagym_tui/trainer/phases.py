"""The lifecycle of a session: one enum, one table of transitions.

A session is in one phase at a time and changes it through `entered`; what the table does not list is a fault of the
session and raises. The values are the words of ``PhaseChanged``.
"""

from collections.abc import Mapping
from enum import StrEnum

from llamagym_tui.errors import LlamaGymError


class Phase(StrEnum):
    LOADING = "loading"
    """Reading the model and making the environments."""
    WARM_STARTING = "warm_starting"
    """Training on demonstrations."""
    ROLLING_OUT = "rolling_out"
    """Stepping the environments."""
    UPDATING = "updating"
    """Changing the policy on a full batch."""
    PAUSED = "paused"
    """Waiting for a command."""
    EVALUATING = "evaluating"
    """Playing episodes that count in nothing."""
    STOPPED = "stopped"
    """Ended by a command or a limit."""
    FAILED = "failed"
    """Ended by an error."""


_AFTER: Mapping[Phase, frozenset[Phase]] = {
    Phase.LOADING: frozenset({Phase.ROLLING_OUT, Phase.STOPPED, Phase.FAILED}),
    Phase.WARM_STARTING: frozenset({Phase.ROLLING_OUT, Phase.PAUSED, Phase.FAILED}),
    Phase.ROLLING_OUT: frozenset(
        {Phase.UPDATING, Phase.PAUSED, Phase.EVALUATING, Phase.WARM_STARTING, Phase.STOPPED, Phase.FAILED}
    ),
    Phase.UPDATING: frozenset({Phase.ROLLING_OUT, Phase.FAILED}),
    Phase.PAUSED: frozenset({Phase.ROLLING_OUT, Phase.EVALUATING, Phase.WARM_STARTING, Phase.STOPPED, Phase.FAILED}),
    Phase.EVALUATING: frozenset({Phase.ROLLING_OUT, Phase.PAUSED, Phase.FAILED}),
    Phase.STOPPED: frozenset(),
    Phase.FAILED: frozenset(),
}


class IllegalTransition(LlamaGymError):
    """The session tried to enter a phase that cannot follow the present one."""


def entered(now: Phase, then: Phase) -> Phase:
    """The phase `then`, if it may follow `now`.

    Raises:
        IllegalTransition: it may not.
    """
    if then not in _AFTER[now]:
        raise IllegalTransition(f"A session cannot go from {now} to {then}; this is a fault of the program: report it.")
    return then


def is_over(phase: Phase) -> bool:
    """Whether nothing can follow a phase."""
    return not _AFTER[phase]
