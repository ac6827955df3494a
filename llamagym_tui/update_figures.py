"""The figures of a PPO update, from the engine that computes them to every screen that shows them.

`docs/METRICS.md` has formula and healthy range of each.
"""

from msgspec import Struct

OF_A_RUN = ("known_prompts", "tokens_per_s", "episodes_per_s", "rollout_s")
"""Those of the rollout before an update, which only a run knows."""


class UpdateStats(Struct, frozen=True, kw_only=True):
    """Figures of one PPO update; those with a default are not in every older log."""

    mean_return: float
    """Mean undiscounted return of the batch's episodes, without penalties. NaN: none was the policy's own."""
    return_std: float = 0.0
    """Standard deviation of the same returns."""
    policy_loss: float
    value_loss: float
    approx_kl: float
    """Nats per token between old and new policy (k3)."""
    kl_ref: float
    """Nats per token between policy and reference (k1), before the update."""
    entropy: float
    """Nats per token of the sampling distribution."""
    action_entropy: float
    """Nats per action where admissible replies part; 0 if no reply was of the canonical form."""
    clip_fraction: float
    explained_variance: float
    first_ratio: float
    """Largest |ratio - 1| in the first minibatch; 0 up to rounding, or something is broken."""
    grad_norm: float
    """Mean norm before clipping."""
    parse_failure_rate: float
    """Share of the batch's turns whose reply named no action."""
    episodes: int
    """Episodes in the batch."""
    turns: int
    """Turns in the batch."""
    shortened: int = 0
    """Turns in the batch whose prompt left out older ones, as the model reads no more."""
    known_prompts: float = 0.0
    """Share of the prompts that begin conversations, or follow known ones, that needed no forward of their own."""
    tokens: int
    """Sampled tokens in the batch."""
    tokens_per_s: float = 0.0
    """Sampled tokens over rollout time."""
    episodes_per_s: float = 0.0
    """Episodes over rollout and update time."""
    rollout_s: float = 0.0
    update_s: float
    epochs: float
    """Passes made, one that a stop ended by its share; fewer than configured if target KL stopped
    them."""
    lr: float
    kl_coef: float
    entropy_coef: float = 0.0
    reward_scale: float = 1.0
    """Factor on the environment's reward."""
    exploration_bonus: float = 0.0
    """Mean over the batch's turns of what is added to their reward for reaching observations that were seldom seen."""
    skipped_steps: int
    """Optimizer steps skipped because of a non-finite loss or gradient."""
    replay_loss: float = 0.0
    """Nats per turn: cross-entropy of the replies in the replay buffer; 0 where nothing was imitated."""
    replay_episodes: int = 0
    """Successful episodes in the replay buffer."""
