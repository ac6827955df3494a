"""What may change while a run is under way.

A person may change the settings whose fields have a `Live`; a run's first batch decides those of `MEASURED` that were
not given.
"""

from collections.abc import Mapping

import msgspec
from msgspec import Struct

from llamagym_tui.config.fields import Live, Value
from llamagym_tui.config.ppo import SCHEDULED
from llamagym_tui.config.run import RunConfig, from_dict, in_sections, setting_types, value_of
from llamagym_tui.errors import ConfigError

MEASURED = (
    "ppo.gamma",
    "ppo.lam",
    "ppo.reward_scale",
    "ppo.batch_size",
    "ppo.whole_episodes",
    "n_envs",
)
"""Settings that a run's first batch decides, unless they are given."""


def _live_settings() -> dict[str, Live]:
    marked = {
        name: mark
        for name, kind in setting_types().items()
        for mark in getattr(kind, "__metadata__", ())
        if isinstance(mark, Live)
    }
    return dict(sorted(marked.items(), key=lambda setting: setting[1].place))


LIVE = _live_settings()
"""Settings that a person may change live, the most used first; all others stay for the whole run."""

FINAL = {f"ppo.{name}": f"ppo.{name}_final" for name in SCHEDULED}
"""Where a setting that moves along a line ends."""


class Change(Struct, frozen=True):
    """A setting that was changed live."""

    before: Value
    """As the run began with it."""
    after: Value
    """As it is now."""


def with_final_values(changes: Mapping[str, Value]) -> dict[str, Value]:
    """Changes, with the final values that follow from them."""
    finals = {FINAL[name]: value for name, value in changes.items() if name in FINAL}
    return {**finals, **changes}


def changed(config: RunConfig, changes: Mapping[str, Value]) -> RunConfig:
    """The settings after changes, all of them or none.

    Raises:
        ConfigError: a setting cannot change live, or its value is outside its range; the message names it.
    """
    for name in changes:
        if name not in LIVE:
            raise ConfigError(
                f"{name} cannot be changed while the run is under way; these can: {', '.join(LIVE)}."
            )
    now = from_dict(RunConfig, in_sections(changes, msgspec.to_builtins(config)))
    if "ppo.kl_coef" in changes and now.ppo.kl_target is not None:
        raise ConfigError(
            "ppo.kl_coef is adapted by itself while there is a ppo.kl_target; change that, or set it to None."
        )
    return now


def changes_since(began: RunConfig, now: RunConfig) -> dict[str, Change]:
    """What differs between the settings at a run's beginning and those of now."""
    pairs = {name: Change(value_of(began, name), value_of(now, name)) for name in LIVE}
    return {name: change for name, change in pairs.items() if change.before != change.after}


def changes_to_restore(config: RunConfig, earlier: Mapping[str, Change]) -> dict[str, Value]:
    """Changes that a resumed run has to make again: those of settings that were not given again meanwhile."""
    known = {name: change for name, change in earlier.items() if name in LIVE}
    return {
        name: change.after
        for name, change in known.items()
        if value_of(config, name) == change.before
    }


def with_measured(
    config: RunConfig, values: Mapping[str, Value], reasons: Mapping[str, str]
) -> RunConfig:
    """The settings with the values that were measured, and the reasons for all that ever were.

    No other ones are to be measured any more, but for the number of earlier turns.
    """
    known = in_sections(values, msgspec.to_builtins(config))
    measured = {name: why for name, why in config.measured.items() if why or name == "history"}
    return from_dict(RunConfig, known | {"measured": {**measured, **reasons}})
