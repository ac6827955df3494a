"""The ways to learn from a batch, by their names: how each estimates the advantages that PPO's clipped objective has.

What each computes, and from which paper, stands in its file in `engine/learning/estimators`.
"""

from typing import Literal

from msgspec import Struct

LearnerName = Literal["ppo", "reinforce", "rebn", "rloo", "grpo", "gigpo"]
"""How advantages are estimated."""
Grouping = Literal["seed", "observation"]
"""What episodes or turns that are compared with one another have in common."""


class LearnerFacts(Struct, frozen=True, kw_only=True):
    """What settings, rollout and screens have to know of a way to learn."""

    title: str
    """For people."""
    has_critic: bool = False
    """Whether returns are foreseen by a value head; without one, a return is known at an episode's end alone."""
    groups: Grouping | None = None
    """By what episodes or turns are compared with one another. None: they are not."""
    formula: str = ""
    """How a comparison becomes an advantage, for people, with the settings' defaults; empty: nothing is compared."""


LEARNERS: dict[LearnerName, LearnerFacts] = {
    "ppo": LearnerFacts(title="PPO", has_critic=True),
    "reinforce": LearnerFacts(title="REINFORCE"),
    "rebn": LearnerFacts(title="ReBN", formula="(return − mean) ÷ spread"),
    "rloo": LearnerFacts(
        title="RLOO",
        groups="seed",
        formula="return − mean, times members ÷ (members − 1), less its KL",
    ),
    "grpo": LearnerFacts(
        title="GRPO",
        groups="seed",
        formula="(return − mean) ÷ spread, less its KL, times mean turns of an episode ÷ turns of this one",
    ),
    "gigpo": LearnerFacts(
        title="GiGPO",
        groups="observation",
        formula="sum of (return − mean) ÷ spread, less its KL",
    ),
}
"""By name, in the order of their papers' ideas: each needs what the one before does not."""
