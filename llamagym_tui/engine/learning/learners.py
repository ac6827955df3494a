"""The learners that there are, by their names: another estimator is a file beside `ppo`, and an entry here."""

from collections.abc import Callable

from llamagym_tui.config import PPOConfig
from llamagym_tui.engine.learning.learner import Learner
from llamagym_tui.engine.learning.ppo import PPO
from llamagym_tui.engine.policy.policy import Policy
from llamagym_tui.engine.ranks import Ranks

LEARNERS: dict[str, Callable[[Policy, PPOConfig, int, Ranks], Learner]] = {"ppo": PPO}
"""Makers of a learner, from the policy, its settings, a seed, and the ranks that update together."""
