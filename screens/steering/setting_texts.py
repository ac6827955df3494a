"""Settings that may change live, for people: what each does, what it takes, and reading what was typed.

What a setting takes is derived from its type in `config`, so that the two cannot differ; whether it may change is
`config`' matter.
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec
from msgspec import inspect

from llamagym_tui.config import RunConfig, Value, changed
from llamagym_tui.errors import ConfigError
from llamagym_tui.protocol.events import UpdateStats

NEW_BATCH = " Drops the batch under way."


class SettingText(NamedTuple):
    title: str
    meaning: str


SETTINGS: dict[str, SettingText] = {
    "ppo.lr": SettingText("learning rate", "Size of the policy's steps. Once changed, it stands still."),
    "ppo.kl_coef": SettingText(
        "KL coefficient", "How strongly the policy is held to the one it began as. Once changed, it stands still."
    ),
    "ppo.entropy_coef": SettingText(
        "entropy coefficient", "How strongly undecided actions are rewarded. Once changed, it stands still."
    ),
    "ppo.clip_range": SettingText("clip range", "How far an update may move a probability: ratio 1 ± this."),
    "generation.temperature": SettingText(
        "temperature", "Divides the logits: above 1 more random, below 1 surer." + NEW_BATCH
    ),
    "n_envs": SettingText("environments", "Environments stepped together." + NEW_BATCH),
    "generation.policy": SettingText(
        "generate or score",
        "generate: free text, token by token. score: one of the replies the agent knows." + NEW_BATCH,
    ),
    "generation.normalization": SettingText(
        "normalisation of scores",
        "What a reply's log-probability is divided by: nothing, its tokens or its words." + NEW_BATCH,
    ),
    "ppo.kl_target": SettingText("KL target", "Nats a token at which the KL to the reference is held."),
    "ppo.target_kl": SettingText("KL that ends an update", "Passes end early once the update moved the policy so far."),
    "ppo.value_lr": SettingText("critic's learning rate", "Size of the value head's steps."),
    "ppo.epochs": SettingText("epochs", "Passes over a batch."),
    "ppo.batch_size": SettingText("batch size", "Turns collected for an update, at least."),
    "ppo.mini_batch_size": SettingText("minibatch size", "Turns of one optimizer step, about."),
    "ppo.max_grad_norm": SettingText("largest gradient", "Gradients are scaled down to this norm."),
    "ppo.parse_penalty": SettingText("parse penalty", "Taken from the reward of a reply that names no action."),
    "ppo.lr_final": SettingText("last learning rate", "Where the learning rate's line ends."),
    "ppo.kl_coef_final": SettingText("last KL coefficient", "Where the KL coefficient's line ends."),
    "ppo.entropy_coef_final": SettingText("last entropy coefficient", "Where the entropy coefficient's line ends."),
    "generation.max_new_tokens": SettingText("longest reply", "Tokens of a reply at most." + NEW_BATCH),
    "on_collapse": SettingText("on collapse", "warn: only say so. rollback: go back to the last good checkpoint."),
}
"""By dotted name, the most used first."""
SCHEDULED = {"ppo.lr": "lr", "ppo.kl_coef": "kl_coef", "ppo.entropy_coef": "entropy_coef"}
"""Settings that move by themselves, and the figure that says where they are."""


def takes(name: str) -> str:
    """What a setting takes, in words."""
    return _takes(_type(name))


def read(config: RunConfig, name: str, text: str) -> Value:
    """The value that was typed, if the setting can be changed to it.

    Raises:
        ConfigError: it cannot; the message says what it takes.
    """
    word = "null" if text.strip().lower() == "none" else text.strip()
    title = SETTINGS[name].title
    try:
        value: Value = msgspec.convert(word, _python_type(name), strict=False)
    except ValueError as error:
        raise ConfigError(f"{title} takes {takes(name)}, not {text.strip()!r}.") from error
    if isinstance(value, float) and not abs(value) < float("inf"):
        raise ConfigError(f"{title} takes {takes(name)}, not {text.strip()!r}.")
    changed(config, {name: value})
    return value


def value_text(value: Value) -> str:
    """A value as it is typed."""
    return "none" if value is None else f"{value:g}" if isinstance(value, float) else str(value)


def on_its_way(name: str, stats: UpdateStats | None) -> float | None:
    """Current value of a scheduled setting; None if it has no schedule, or there was no update."""
    return float(getattr(stats, SCHEDULED[name])) if stats is not None and name in SCHEDULED else None


def _type(name: str) -> inspect.Type:
    kind: inspect.Type = inspect.type_info(RunConfig)
    for part in name.split("."):
        assert isinstance(kind, inspect.StructType)
        kind = next(field.type for field in kind.fields if field.name == part)
    return kind


def _python_type(name: str) -> object:
    kind: object = RunConfig
    for part in name.split("."):
        kind = next(field.type for field in msgspec.structs.fields(kind) if field.name == part)  # type: ignore[arg-type]
    return kind


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
            return f"a number{bound}" + (f" to {high:g}" if high is not None else "")
        case _:
            return "a word"
