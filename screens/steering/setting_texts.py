"""Texts of the settings that can change live: title, meaning, accepted values; and parsing of typed values.

What a setting takes is derived from its type in `config`, so the two cannot differ. Whether it can change is decided
by `config`.
"""

import math
from typing import NamedTuple

import msgspec
from msgspec import inspect

from llamagym_tui.config import LARGEST, RunConfig, Value, changed, setting_types
from llamagym_tui.errors import ConfigError
from llamagym_tui.protocol.events import UpdateStats

NEW_BATCH = " Drops the current batch."
ENDS_SCHEDULE = " A change ends its schedule."


class SettingText(NamedTuple):
    title: str
    meaning: str


SETTINGS: dict[str, SettingText] = {
    "ppo.lr": SettingText("learning rate", "Step size of the policy." + ENDS_SCHEDULE),
    "ppo.kl_coef": SettingText("KL coefficient",
        "Weight of the penalty for moving away from the reference policy." + ENDS_SCHEDULE),
    "ppo.entropy_coef": SettingText("entropy coefficient",
        "Weight of the bonus for the entropy of the actions." + ENDS_SCHEDULE),
    "ppo.clip_range": SettingText("clip range", "How far an update may move a probability: ratio 1 ± this."),
    "generation.temperature": SettingText("temperature",
        "Divides the logits: above 1 is more random, below 1 more certain." + NEW_BATCH),
    "n_envs": SettingText("environments", "Environments that are stepped together." + NEW_BATCH),
    "history": SettingText("earlier turns",
        "Turns before the present one in the prompts of new episodes. own: the agent's number. all: every one."),
    "generation.policy": SettingText("generate or score",
        "generate: free text, token by token. score: one of the agent's known replies." + NEW_BATCH),
    "generation.normalization": SettingText("normalisation of scores",
        "What a reply's log-probability is divided by: nothing, its tokens or its words." + NEW_BATCH),
    "ppo.kl_target": SettingText("KL target",
        "KL to the reference, in nats per token, that the KL coefficient is adapted to."),
    "ppo.entropy_target": SettingText("entropy target",
        "Action entropy, in nats, that the entropy coefficient is adapted to."),
    "ppo.target_kl": SettingText("KL that ends an update",
        "An update stops early once it has moved the policy this far, in nats per token."),
    "ppo.value_lr": SettingText("critic's learning rate", "Step size of the value head."),
    "ppo.value_clip": SettingText("value clip", "How far an update draws a value; none: any way."),
    "ppo.epochs": SettingText("epochs", "Passes over each batch."),
    "ppo.batch_size": SettingText("batch size", "Turns collected for an update, at least."),
    "ppo.mini_batch_size": SettingText("minibatch size", "Turns of one optimizer step, about."),
    "ppo.max_grad_norm": SettingText("largest gradient", "Gradients are scaled down to this norm."),
    "ppo.gamma": SettingText("discount", "Per step of the environment; 1: what comes late counts as much."),
    "ppo.lam": SettingText("lambda", "Of the advantages; 1: by returns alone, less: more by the critic's values."),
    "ppo.reward_scale": SettingText("reward scale", "Factor on rewards; none: by the spread of returns so far."),
    "ppo.parse_penalty": SettingText("parse penalty", "Taken from the reward of a reply that names no action."),
    "ppo.lr_final": SettingText("final learning rate", "Learning rate at the end of its schedule."),
    "ppo.kl_coef_final": SettingText("final KL coefficient", "KL coefficient at the end of its schedule."),
    "ppo.entropy_coef_final": SettingText("final entropy coefficient",
        "Entropy coefficient at the end of its schedule."),
    "generation.max_new_tokens": SettingText("longest reply", "Most tokens of a reply." + NEW_BATCH),
    "on_collapse": SettingText("on collapse",
        "warn: only show a warning. rollback: go back to the last good checkpoint."),
}  # fmt: skip
"""By dotted name, the most used first."""
SCHEDULED = {"ppo.lr": "lr", "ppo.kl_coef": "kl_coef", "ppo.entropy_coef": "entropy_coef"}
"""Settings with a schedule, and the figure that has their current value."""


def takes(name: str) -> str:
    """What a setting takes, in words."""
    return _takes(inspect.type_info(setting_types()[name]))


def read(config: RunConfig, name: str, text: str) -> Value:
    """The value that was typed, if the setting can be changed to it.

    Raises:
        ConfigError: it cannot; the message names what it takes.
    """
    text = text.strip()
    try:
        value: Value = msgspec.convert("null" if text.lower() == "none" else text, setting_types()[name], strict=False)
        if isinstance(value, float) and not math.isfinite(value):
            raise ValueError(text)
    except ValueError as error:
        raise ConfigError(f"{SETTINGS[name].title} takes {takes(name)}, not {text!r}.") from error
    changed(config, {name: value})
    return value


def value_text(value: Value) -> str:
    """A value as it is typed."""
    return "none" if value is None else f"{value:g}" if isinstance(value, float) else str(value)


def scheduled_value(name: str, stats: UpdateStats | None) -> float | None:
    """Current value of a scheduled setting; None if it has no schedule, or there was no update."""
    return float(getattr(stats, SCHEDULED[name])) if stats is not None and name in SCHEDULED else None


def _takes(kind: inspect.Type) -> str:
    match kind:
        case inspect.LiteralType(values=values):
            return " or ".join(map(str, values))
        case inspect.UnionType(types=types):
            return " or ".join(_takes(each) for each in types)
        case inspect.NoneType():
            return "none"
        case inspect.IntType(ge=low):
            return "a whole number" if low is None else f"a whole number from {low}"
        case inspect.FloatType(gt=above, ge=low, le=high):
            bound = f" above {above:g}" if above is not None else f" from {low:g}" if low is not None else ""
            return f"a number{bound}" + (f" to {high:g}" if high is not None and high < LARGEST else "")
        case _:
            return "text"
