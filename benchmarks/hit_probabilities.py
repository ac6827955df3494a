"""The probability of hitting in every hand of Blackjack, under a policy."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from benchmarks.exact_blackjack import STATES, State
from llamagym_tui.agents.blackjack import BlackjackAgent
from llamagym_tui.engine.model.loading import load_model_and_tokenizer
from llamagym_tui.engine.policy.decisions import probabilities_of_actions
from llamagym_tui.engine.policy.policy import Policy
from llamagym_tui.settings import GenerationConfig
from llamagym_tui.settings.run import PolicyKind

AGENT = BlackjackAgent()
REPLIES = [AGENT.format_action(action) for action in range(2)]


def load_policy(path: Path) -> Policy:
    """The model in a folder, as PPO would begin with it."""
    loaded = load_model_and_tokenizer(str(path), "cpu")
    way: PolicyKind = "score" if loaded.model.has_narrow_head else "generate"
    return Policy(loaded.model, loaded.tokenizer, GenerationConfig(policy=way), REPLIES)


def hit_probabilities(
    policy: Policy,
    system_prompt: str,
    states: Sequence[State] = STATES,
    *,
    told: Callable[[State], str] = AGENT.format_observation,
) -> dict[State, float]:
    """P(hit) on the first turn in each state, over the two canonical replies."""
    prompts = [policy.chat.opening(system_prompt, told(state)) for state in states]
    shares = probabilities_of_actions(policy, prompts)
    return {state: hit / (stick + hit) for state, (stick, hit) in zip(states, shares, strict=True)}
