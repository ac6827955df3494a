"""What each figure of a PPO update means and when it is healthy: one line each, and a verdict.

The ranges are those of `docs/METRICS.md`, which has the formulas; a test holds the two together. Figures without a
fixed range are judged against the run's own past where that is meaningful, and left to the reader where it does not.
"""

from collections.abc import Sequence
from statistics import median
from typing import NamedTuple

from llamagym_tui.config import RunConfig
from llamagym_tui.protocol.events import UpdateStats

LARGEST_PEAK = 10.0
"""Times its median over the run that a gradient norm may be."""
LARGEST_RISE = 0.5
"""Nats a token that entropy may rise above its start."""


class FigureText(NamedTuple):
    title: str
    short: str
    """At most eleven characters."""
    meaning: str
    healthy: str
    low: float | None = None
    """Least healthy value. None: no bound."""
    high: float | None = None
    """Largest healthy value. None: no bound."""


class Health(NamedTuple):
    ok: bool | None
    """None: there is nothing to judge by."""
    words: str


FIGURES: dict[str, FigureText] = {
    "mean_return": FigureText("mean return", "return", "Mean return of the batch's episodes, without penalties.",
        "rises; read it with its 95 % interval"),
    "approx_kl": FigureText("KL of the update", "KL", "How far one update moved the policy, in nats per token.",
        "0.0001 to 0.02; above 0.05 steps are too large", 0.0001, 0.02),
    "kl_ref": FigureText("KL to the reference", "KL ref",
        "Nats a token between the policy and the model that it began as.", "0 to 0.3, slowly rising", -0.02, 0.3),
    "entropy": FigureText("entropy", "entropy", "Nats a token: how undecided the next token is.",
        "above 0, falls slowly; a rise past its start means that the reply format is being lost", 0.001),
    "action_entropy": FigureText("action entropy", "act. entr.",
        "Nats an action: how undecided the choice is; ln(number of actions) is indifference.",
        "above 0.1 until returns have risen", 0.1),
    "clip_fraction": FigureText("clip fraction", "clip frac", "Share of tokens whose ratio PPO clipped.", "0 to 0.2",
        0.0, 0.2),
    "explained_variance": FigureText("explained variance", "expl. var",
        "Share of the returns' variance that the critic foresees.",
        "above 0 and rising; below 0 is worse than a constant", 0.0),
    "parse_failure_rate": FigureText("parse failures", "parse fail", "Share of turns whose reply named no action.",
        "near 0, here below 0.05; a rise means that the reply format is being lost", 0.0, 0.05),
    "grad_norm": FigureText("gradient norm", "grad norm", "Mean norm of the gradient before it is clipped.",
        "steady; a fall to 0 or a sudden peak comes before a collapse", 1e-6),
    "return_std": FigureText("spread of returns", "return std", "Standard deviation of the batch's returns.",
        "not near 0 while returns are poor: then nothing is left to compare", 0.01),
    "first_ratio": FigureText("error of the first ratio", "ratio error",
        "How far ratios that should be 1 are from 1; 0: sampling and scoring agree.", "0 up to rounding, below 0.001",
        0.0, 0.001),
    "value_loss": FigureText("value loss", "value loss", "Half the critic's mean squared error.", "falls"),
    "policy_loss": FigureText("policy loss", "policy loss", "PPO's clipped surrogate.",
        "around 0; its size means little"),
    "skipped_steps": FigureText("skipped steps", "skipped", "Optimizer steps left out: the gradient was not finite.",
        "0", 0.0, 0.0),
    "lr": FigureText("learning rate", "lr", "The policy's; 0 while the critic alone is trained.", "on its schedule"),
    "kl_coef": FigureText("KL coefficient", "KL coef", "Weight of the KL to the reference.", "on its schedule"),
    "entropy_coef": FigureText("entropy coefficient", "entr. coef", "Weight of the action entropy in the loss.",
        "on its schedule"),
    "reward_scale": FigureText("reward scale", "reward sc.", "Factor on the environment's reward.",
        "steady after some updates"),
    "episodes": FigureText("episodes", "episodes", "Episodes in the batch.", "enough for a mean"),
    "turns": FigureText("turns", "turns", "Turns in the batch.", "at least the batch size"),
    "shortened": FigureText("shortened", "shortened", "Turns whose prompt left out older ones.", "0"),
    "known_prompts": FigureText("known prompts", "known", "Prompts that needed no forward of their own.",
        "near 1 where states are few"),
    "tokens": FigureText("tokens", "tokens", "Sampled tokens in the batch.", "turns × length of a reply"),
    "epochs": FigureText("epochs", "epochs", "Passes over the batch.", "as set, fewer if target KL stopped them"),
    "tokens_per_s": FigureText("tokens a second", "tokens/s", "Sampled tokens over rollout time.", "steady"),
    "episodes_per_s": FigureText("episodes a second", "episodes/s", "Over rollout and update time.", "steady"),
    "rollout_s": FigureText("rollout time", "rollout s", "Seconds in which the batch was collected.", "steady"),
    "update_s": FigureText("update time", "update s", "Seconds of the update.", "of the order of the rollout"),
    "exploration_bonus": FigureText("exploration bonus", "expl. bonus",
        "Mean bonus of a turn for reaching what was seldom seen.", "falls towards 0"),
    "replay_loss": FigureText("replay loss", "replay loss", "Nats a turn: how improbable kept successful replies are.",
        "falls"),
    "replay_episodes": FigureText("replay buffer", "replay eps", "Different successful episodes that updates imitate.",
        "up to the size set"),
}  # fmt: skip
"""By field of `UpdateStats`, the most telling first."""
OF_ENDED = ("mean_return", "return_std")
"""Figures of the episodes that ended in a batch, which may be none where it cuts them off."""
NEEDS = {
    "exploration_bonus": "exploration_coef",
    "replay_loss": "replay_episodes",
    "replay_episodes": "replay_episodes",
}
"""Figures that mean something only with a setting of PPO, and that."""

CHARTED = tuple(FIGURES)[:12]
"""Figures that a large screen charts all at once."""
STILL = ("approx_kl", "clip_fraction", "grad_norm")
"""Figures that are 0 for a good reason while the critic alone is trained."""


def shown_figures(config: RunConfig) -> tuple[str, ...]:
    """Figures that mean something under a run's settings."""
    return tuple(field for field in FIGURES if field not in NEEDS or getattr(config.ppo, NEEDS[field]))


def health(field: str, stats: UpdateStats, past: Sequence[float] = ()) -> Health:
    """Whether a figure is in its healthy range; `past` has it over the run so far, this update included."""
    value, text = float(getattr(stats, field)), FIGURES[field]
    if stats.lr == 0 and field in STILL:
        return Health(None, "the critic alone is trained")
    if field in OF_ENDED and not stats.episodes:
        return Health(None, "no episode ended in this batch")
    high = _bound_by_past(field, text.high, past)
    if value != value:
        return Health(False, "not a number")
    if text.low is None and high is None:
        return Health(None, "no healthy range defined")
    if text.low is not None and value < text.low:
        return Health(False, "below its healthy range")
    if high is not None and value > high:
        return Health(False, "above its healthy range")
    return Health(True, "in its healthy range")


def _bound_by_past(field: str, high: float | None, past: Sequence[float]) -> float | None:
    """The upper bound, of figures that are judged against the run itself."""
    if field == "entropy" and past:
        return past[0] + LARGEST_RISE
    if field == "grad_norm" and (moved := [value for value in past if value > 0]):
        return LARGEST_PEAK * median(moved)
    return high
