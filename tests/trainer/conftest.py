"""The engine's small real models, for rollouts and probes."""

from tests.engine.conftest import bundled, make_policy, tokenizer

__all__ = ["bundled", "make_policy", "tokenizer"]
