"""The lifecycle of a session: one table of transitions between its phases; what it does not list raises."""

from collections.abc import Mapping

from llamagym_tui.errors import LlamaGymError
from llamagym_tui.protocol.events import Phase

_AFTER: Mapping[Phase, set[Phase]] = {
    "loading": {"rolling_out", "stopped", "failed"},
    "warm_starting": {"rolling_out", "paused", "failed"},
    "rolling_out": {"updating", "paused", "evaluating", "warm_starting", "stopped", "failed"},
    "updating": {"rolling_out", "failed"},
    "paused": {"rolling_out", "evaluating", "warm_starting", "stopped", "failed"},
    "evaluating": {"rolling_out", "paused", "failed"},
    "stopped": set(),  # by a command or a limit
    "failed": set(),  # by an error
}


def entered(now: Phase, then: Phase) -> Phase:
    """The phase `then`, if it may follow `now`. Raises LlamaGymError: it may not, and the session tried to."""
    if then not in _AFTER[now]:
        raise LlamaGymError(
            f"A session cannot go from {now} to {then}; this is a fault of the program: report it."
        )
    return then


def is_over(phase: Phase) -> bool:
    """Whether nothing can follow a phase."""
    return not _AFTER[phase]
