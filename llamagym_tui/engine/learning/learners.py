"""The learners that there are, by their names: another estimator is a file beside `ppo`, and an entry here."""

from collections.abc import Callable, Sequence

from llamagym_tui.config import PPOConfig
from llamagym_tui.engine.learning.head_ppo import HeadPPO
from llamagym_tui.engine.learning.learner import Learner
from llamagym_tui.engine.learning.movement import require_trainable
from llamagym_tui.engine.learning.ppo import PPO
from llamagym_tui.engine.own_torch import own_torch
from llamagym_tui.engine.policy.policy import Policy
from llamagym_tui.engine.ranks import Ranks

LEARNERS: dict[str, Callable[[Policy, PPOConfig, int, Ranks], Learner]] = {
    "ppo": PPO,
    "head_ppo": HeadPPO,
}
"""Makers of a learner, from the policy, its settings, a seed, and the ranks that update together."""


def unused_settings(names: Sequence[str]) -> str:
    """That settings of PPO have no use where an adapter on the LM head alone is trained, in a sentence."""
    named = ", ".join(f"ppo.{name}" for name in names)
    return (
        f"An adapter on the LM head alone has no use for {named}, as its steps are on whole batches and follow the KL "
        "that they make: leave it out, or train all layers (--set lora.layers=all)."
    )


@own_torch()
def learner_for(policy: Policy, config: PPOConfig, seed: int, ranks: Ranks) -> Learner:
    """The learner that fits what of a policy is trained.

    Raises:
        ConfigError: nothing of it would be.
    """
    require_trainable(policy)
    # An adapter on the head alone is trained on what the trunk has said, without forwards of its own.
    name = "ppo" if policy.narrow is None else "head_ppo"
    return LEARNERS[name](policy, config, seed, ranks)
