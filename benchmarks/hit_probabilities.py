"""How probable hitting is in every hand of Blackjack, under a policy."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path

import torch

from benchmarks.exact_blackjack import STATES, State
from llamagym_tui.agents.blackjack import BlackjackAgent
from llamagym_tui.config import GenerationConfig
from llamagym_tui.engine.learning.carrying import MOST, Seen, carried
from llamagym_tui.engine.learning.scoring import probabilities_of_actions
from llamagym_tui.engine.model.loading import load_model_and_tokenizer
from llamagym_tui.engine.policy.policy import Policy

AGENT = BlackjackAgent()
REPLIES = [AGENT.format_action(action) for action in range(2)]


def load_policy(path: Path) -> Policy:
    """The model in a folder, as PPO would begin with it."""
    loaded = load_model_and_tokenizer(str(path), "cpu")
    return Policy(loaded.model, loaded.tokenizer, GenerationConfig(), REPLIES)


def hit_probabilities(
    policy: Policy, system_prompt: str, states: Sequence[State] = STATES
) -> dict[State, float]:
    """P(hit) on the first turn in each state, over the two canonical replies."""
    prompts = [
        policy.chat.opening(system_prompt, AGENT.format_observation(state)) for state in states
    ]
    shares = probabilities_of_actions(policy, prompts)
    return {state: hit / (stick + hit) for state, (stick, hit) in zip(states, shares, strict=True)}


def carry(policy: Policy, prompt: str) -> None:
    """Have a policy that trained the head alone play as after an edit of its prompt, which carries what was learnt."""
    narrow = policy.narrow
    assert narrow is not None, "the head alone was trained"
    own = AGENT.get_system_prompt()
    words = map(AGENT.format_observation, random.Random(0).sample(STATES, MOST))
    seen: list[Seen] = [(None, tuple(policy.chat.opening(own, text).rest)) for text in words]
    new = carried(policy, policy.model.v_head, seen, (own, prompt))
    assert new is not None, "it was trained"
    with torch.no_grad():
        narrow.down.copy_(new.down)
        narrow.up.copy_(new.up)
