"""The figures of an update, which the engine computes and every screen shows, and what each of them means.

The healthy ranges are those of `docs/METRICS.md`, which has the formulas; a test holds the two together.
"""

import math
from typing import Literal, get_args

from msgspec import Struct


class UpdateStats(Struct, frozen=True, kw_only=True):
    """Figures of one PPO update; `docs/METRICS.md` has formula and healthy range of each.

    Those that the run adds to what the learner has found are `FIGURES_OF_A_RUN`.
    """

    mean_return: float
    """Mean undiscounted return of the batch's episodes, without penalties. NaN: none was the policy's own."""
    return_std: float
    """Standard deviation of the same returns."""
    design_effect: float = 1.0
    """Variance of `mean_return` relative to episodes of which no two share a seed."""
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
    flat_groups: float = 0.0
    """Share of the groups whose outcomes do not differ."""
    clip_fraction: float
    explained_variance: float
    first_ratio: float
    """Largest |ratio - 1| in the first minibatch; 0 up to rounding, or something is broken."""
    grad_norm: float
    """Mean norm before clipping."""
    parse_failure_rate: float
    """Share of the batch's turns whose reply named no action."""
    refusal_rate: float = 0.0
    """Share of the batch's turns whose reply named an action that the environment refused."""
    episodes: int
    """Episodes in the batch."""
    turns: int
    """Turns in the batch."""
    rollout_s: float = 0.0
    update_s: float
    lr: float
    skipped_steps: int
    """Optimizer steps skipped because of a non-finite loss or gradient."""

    @property
    def return_stderr(self) -> float:
        """Standard error of `mean_return`; 0 of a single episode."""
        if self.episodes <= 1:
            return 0.0
        return self.return_std * math.sqrt(self.design_effect / (self.episodes - 1))


class WarmStartStats(Struct, frozen=True, kw_only=True):
    """Figures of one training on demonstrations or preferences; see `docs/METRICS.md`."""

    demonstrations: int
    """Conversations, or preference pairs."""
    tokens: int
    """Tokens of the demonstrated or preferred replies, ends included."""
    steps: int
    """Optimizer steps made."""
    first_loss: float
    last_loss: float
    elapsed_s: float
    """TRL's import included."""
    cancelled: bool
    """True if it was cancelled; what was learnt until then stays."""


FIGURES_OF_A_RUN = ("rollout_s",)
"""Figures of the rollout before an update, which only a run knows."""


FigureGroup = Literal["learning", "policy", "critic", "speed"]
"""The subject of a figure: improvement, the policy and its moves, the critic, or cost."""


class FigureText(Struct, frozen=True, kw_only=True):
    """Name, meaning and place of a figure."""

    title: str
    group: FigureGroup
    short: str
    """Its name where there is little room, at most eleven characters."""
    meaning: str
    """One plain sentence."""
    healthy: str
    """The healthy range in words."""
    low: float | None = None
    """Least healthy value; None for no bound."""
    high: float | None = None
    """Largest healthy value; None for no bound."""


FIGURES = {
    "mean_return": FigureText(
        group="learning",
        title="mean return",
        short="return",
        meaning="What an episode earns on average; penalties are not counted.",
        healthy="rises; read it with its 95 % interval",
    ),
    "approx_kl": FigureText(
        group="policy",
        title="KL of the update",
        short="KL",
        meaning="How far the last update moved the policy, in nats per token.",
        healthy="0.0001 to 0.02; above 0.05 steps are too large",
        low=0.0001,
        high=0.02,
    ),
    "kl_ref": FigureText(
        group="policy",
        title="KL to the reference",
        short="KL ref",
        meaning="How far the policy has come from the model that it began as, in nats a token.",
        healthy="0 to 0.3, slowly rising",
        low=-0.02,
        high=0.3,
    ),
    "entropy": FigureText(
        group="policy",
        title="entropy",
        short="entropy",
        meaning="How undecided the policy is about the next token, in nats.",
        healthy="above 0, falls slowly; a rise past its start means that the reply format is being lost",
        low=0.001,
    ),
    "action_entropy": FigureText(
        group="policy",
        title="action entropy",
        short="act. entr.",
        meaning="How undecided the policy is about its action, in nats; at ln(number of actions) it does not care.",
        healthy="above 0.1 until returns have risen",
        low=0.1,
    ),
    "clip_fraction": FigureText(
        group="policy",
        title="clip fraction",
        short="clip frac",
        meaning="Share of tokens that would have changed more than PPO lets them, so that it clipped them.",
        healthy="0 to 0.2",
        low=0.0,
        high=0.2,
    ),
    "explained_variance": FigureText(
        group="critic",
        title="explained variance",
        short="expl. var",
        meaning="How much of what sets returns apart the critic foresees; 1: all of it.",
        healthy="above 0 and rising; below 0 is worse than a constant",
        low=0.0,
    ),
    "parse_failure_rate": FigureText(
        group="learning",
        title="replies without an action",
        short="no action",
        meaning="Share of turns whose reply named no action.",
        healthy="near 0, here below 0.05; a rise means that the reply format is being lost",
        low=0.0,
        high=0.05,
    ),
    "refusal_rate": FigureText(
        group="learning",
        title="refused actions",
        short="refused",
        meaning="Share of turns whose reply named an action that the environment refused.",
        healthy="0, or falling as the rules are learnt",
    ),
    "grad_norm": FigureText(
        group="policy",
        title="gradient norm",
        short="grad norm",
        meaning="How hard a batch pulls at the weights: the gradient's mean norm before it is clipped.",
        healthy="steady; a fall to 0 or a sudden peak comes before a collapse",
        low=1e-06,
    ),
    "flat_groups": FigureText(
        group="learning",
        title="groups without a spread",
        short="flat groups",
        meaning="Share of the groups whose outcomes are all the same, which teach nothing.",
        healthy="below 0.9; near 1 nothing is learnt: too easy, too hard, or too small",
        high=0.9,
    ),
    "first_ratio": FigureText(
        group="policy",
        title="error of the first ratio",
        short="ratio error",
        meaning="How far sampling and training are apart about the same tokens; 0: they agree.",
        healthy="0 up to rounding, below 0.001",
        low=0.0,
        high=0.001,
    ),
    "value_loss": FigureText(
        group="critic",
        title="value loss",
        short="value loss",
        meaning="How wrong the critic is: half its mean squared error.",
        healthy="falls",
    ),
    "policy_loss": FigureText(
        group="policy",
        title="policy loss",
        short="policy loss",
        meaning="What an update makes smaller: PPO's clipped surrogate.",
        healthy="around 0; its size means little",
    ),
    "lr": FigureText(
        group="policy",
        title="learning rate",
        short="lr",
        meaning="How large the policy's steps are; 0 while the critic alone is trained.",
        healthy="on its schedule",
    ),
    "episodes": FigureText(
        group="speed",
        title="episodes",
        short="episodes",
        meaning="How many episodes ended in the batch.",
        healthy="enough for a mean",
    ),
    "turns": FigureText(
        group="speed",
        title="turns",
        short="turns",
        meaning="How many turns the batch has.",
        healthy="at least the batch size",
    ),
    "rollout_s": FigureText(
        group="speed",
        title="playing time",
        short="playing s",
        meaning="Seconds in which the batch was played.",
        healthy="steady",
    ),
    "update_s": FigureText(
        group="speed",
        title="update time",
        short="update s",
        meaning="Seconds in which the update learnt from it.",
        healthy="of the order of the playing time",
    ),
}
"""By field of `UpdateStats`, the most telling first."""

GROUPS: tuple[FigureGroup, ...] = get_args(FigureGroup)
