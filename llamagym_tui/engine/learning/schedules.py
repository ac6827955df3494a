"""Scheduled settings, as pure functions of how far a run has come.

Lines over updates, and the controller that holds the KL to the reference at a target.
"""

import math

from llamagym_tui.config import PPOConfig

KL_GAIN = 0.1
"""Share of the KL's error by which an update adapts the weight; K_beta in arXiv:1909.08593."""
KL_ERROR_BOUND = 0.2
"""Larger errors, as a share of the target, count as this one: one odd batch moves the weight only a little."""


def along_line(start: float, final: float, done: float) -> float:
    """From `start` to `final`, and constant afterwards; `done` is the share of the way, 1 at its end."""
    return start + (final - start) * min(1.0, done)


def learning_rate(config: PPOConfig, updates: int) -> float:
    """The policy's learning rate after so many updates; 0 while the critic alone is trained."""
    if config.trains_critic_alone(updates):
        return 0.0
    return along_line(config.lr, config.lr_final, updates / config.decay_updates)


def adapted_kl_coef(coef: float, kl: float, *, target: float) -> float:
    """The weight of the KL after an update: larger if the KL was above its target, smaller if below.

    Args:
        coef: its weight in the update.
        kl: to the reference, before the update; one that is not finite changes nothing.
        target: in the same unit.
    Source: arXiv:1909.08593, section 2.2.
    """
    if not math.isfinite(kl):
        return coef
    error = min(max(kl / target - 1, -KL_ERROR_BOUND), KL_ERROR_BOUND)
    return coef * (1 + KL_GAIN * error)
