"""The estimators of advantages by the names of their learners: another one is a file beside these, and an entry here
and in `settings/ppo.py`."""

from collections.abc import Callable

from llamagym_tui.engine.learning.estimators.estimate import Estimate
from llamagym_tui.engine.learning.estimators.gae import generalised
from llamagym_tui.engine.learning.estimators.gigpo import group_in_group
from llamagym_tui.engine.learning.estimators.grpo import group_relative
from llamagym_tui.engine.learning.estimators.rebn import normalised_returns
from llamagym_tui.engine.learning.estimators.reinforce import returns_alone
from llamagym_tui.engine.learning.estimators.rloo import leave_one_out
from llamagym_tui.engine.learning.steps import Batch
from llamagym_tui.settings import LearnerName, PPOConfig

ESTIMATORS: dict[LearnerName, Callable[[Batch, PPOConfig], Estimate]] = {
    "ppo": generalised,
    "reinforce": returns_alone,
    "rebn": normalised_returns,
    "rloo": leave_one_out,
    "grpo": group_relative,
    "gigpo": group_in_group,
}
