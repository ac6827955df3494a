"""The extras of this program for its users: what pip calls each, the module that it brings, and what it is for."""

from typing import NamedTuple


class Extra(NamedTuple):
    """A group of packages that ``pip install 'llamagym-tui[NAME]'`` brings."""

    module: str
    """It is there if this can be imported."""
    purpose: str


EXTRAS = {
    "minigrid": Extra("minigrid", "the agent babyai, and all of BabyAI and MiniGrid"),
    "textworld": Extra("textworld", "the agent textworld, and text games from files (Linux)"),
    "openenv": Extra("openenv", "docs/examples/openenv_agent.py, for a server of OpenEnv's"),
    "gem": Extra("reasoning_gym", "docs/examples/gem_agent.py, with pip install --no-deps gem-llm"),
    "textarena": Extra("textarena", "docs/examples/textarena_agent.py, Connect Four"),
    "tensorboard": Extra("tensorboard", "--track tensorboard, track --to tensorboard"),
    "trackio": Extra("trackio", "--track trackio, track --to trackio"),
    "wandb": Extra("wandb", "--track wandb, track --to wandb"),
    "minari": Extra("minari", "demos export --to minari, demos import minari"),
    "sweep": Extra("optuna", "llamagym-tui sweep"),
    "serve": Extra("textual_serve", "llamagym-tui serve"),
}
"""Each extra of pyproject.toml but those for developers, by its name, in the order in which `doctor` shows them."""


def install_command(extra: str) -> str:
    """How pip installs an extra."""
    return f"pip install 'llamagym-tui[{extra}]'"


def module_of(extra: str) -> str:
    """The module that an extra brings; one that is not known, of a user's own agent, is the module itself."""
    known = EXTRAS.get(extra)
    return known.module if known else extra
