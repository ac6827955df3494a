"""What the colour of a token says: its log-probability, its ratio to the reference, or its advantage."""

import math

from textual.app import App
from textual.style import Style

from llamagym_tui.rollouts.rollout import Rollout, Token
from llamagym_tui.screens.policy_map.screen import scale_style

LEAST = 0.1
"""Share of the values of `FULL` below which a token has no colour."""
MOST_NATS = 700.0
"""Log-probabilities beyond which an exponential is no number."""
LOG_RATIO = "log-ratio"
COLOURED = {
    "log-probability": "amber or underlined: improbable",
    LOG_RATIO: "amber or underlined: below the reference",
    "advantage": "amber or underlined: below 0",
}
"""The figures of a token by which it can be coloured, and what the colours mean."""
FULL = {"log-probability": 4.0, LOG_RATIO: 1.0, "advantage": 2.0}
"""The values from which on a colour is the strongest."""


def figures_of(rollout: Rollout, token: Token) -> dict[str, float]:
    """All that a file says of a token, by name; log-probabilities are in nats."""
    logprob, reference = token.logprob, token.reference
    found: dict[str, float | None] = {"log-probability": logprob, "reference": reference}
    if logprob is not None:
        found["probability"] = math.exp(min(logprob, 0.0))
        if reference is not None:
            found[LOG_RATIO] = logprob - reference
            found["ratio"] = math.exp(min(logprob - reference, MOST_NATS))
    found["advantage"] = rollout.advantage if token.advantage is None else token.advantage
    return {name: value for name, value in found.items() if value is not None}


def colourings(rollout: Rollout) -> list[str]:
    """The figures of `COLOURED` that the tokens of a rollout have."""
    tokens = [token for said in rollout.messages for token in said.tokens]
    known = {name for token in tokens for name in figures_of(rollout, token)}
    return [name for name in COLOURED if name in known]


def token_style(app: App[object], figures: dict[str, float], name: str) -> Style:
    """The style of a token on the scale of the policy map: warm below 0, cold above, none near it.

    Without colours it is underlined below 0, and bold above.
    """
    value = figures.get(name, 0.0) / FULL[name]
    if math.isnan(value) or abs(value) < LEAST:
        return Style()
    if app.no_color:
        return Style(underline=value < 0, bold=value > 0)
    return scale_style(app, 0.5 - min(max(value, -1.0), 1.0) / 2)
