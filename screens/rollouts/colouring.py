"""What the colour of a token says: its log-probability, its ratio to the reference, or its advantage."""

import math

from textual.app import App
from textual.color import Color
from textual.style import Style

from llamagym_tui.rollouts.rollout import Rollout, Token
from llamagym_tui.screens.widgets.look import text_on

LEVELS = 4
"""Strengths of a colour."""
SHARE = 0.18
"""Share of a colour in a ground for each level."""
MOST_NATS = 700.0
"""Log-probabilities beyond which an exponential is no number."""
LOG_RATIO = "log-ratio"
COLOURED = {
    "log-probability": "amber, underlined: improbable",
    LOG_RATIO: "amber, underlined: below the reference",
    "advantage": "amber, underlined: below 0",
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


def token_style(app: App[object], figures: dict[str, float], name: str) -> Style | str:
    """The style of a token: amber below 0, blue above; underlined and bold where the colours are the terminal's own."""
    value = figures.get(name, 0.0)
    if math.isnan(value):
        return ""
    level = round(LEVELS * min(max(value / FULL[name], -1.0), 1.0))
    if not level:
        return ""
    color = "primary" if level > 0 else "warning"
    if app.native_ansi_color:
        return f"{'bold' if level > 0 else 'underline'} ${color}"
    ground = Color.parse(app.theme_variables["background"])
    ground = ground.blend(Color.parse(app.theme_variables[color]), SHARE * abs(level))
    return Style(ground, text_on(ground))
