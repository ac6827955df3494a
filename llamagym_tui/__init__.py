"""llamagym-tui: a terminal playground in which a language model learns, live, to play a Gymnasium environment.

The public names are loaded on first use, so that importing the package imports no torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from llamagym_tui.agent import Agent
    from llamagym_tui.engine.model.loading import load_model_and_tokenizer
    from llamagym_tui.engine.model.value_head import AutoModelForCausalLMWithValueHead
    from llamagym_tui.rollouts.watch import LlamaGymWatch

__version__ = "0.1.0"
__all__ = [
    "Agent",
    "AutoModelForCausalLMWithValueHead",
    "LlamaGymWatch",
    "load_model_and_tokenizer",
]

_HOMES = {
    "Agent": "llamagym_tui.agent",
    "AutoModelForCausalLMWithValueHead": "llamagym_tui.engine.model.value_head",
    "LlamaGymWatch": "llamagym_tui.rollouts.watch",
    "load_model_and_tokenizer": "llamagym_tui.engine.model.loading",
}


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
