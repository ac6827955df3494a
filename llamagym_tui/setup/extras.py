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
    "openai": Extra("openai", "endpoints as --model of eval and match, and as opponents"),
    "tensorboard": Extra("tensorboard", "--track tensorboard"),
    "wandb": Extra("wandb", "--track wandb"),
    "serve": Extra("textual_serve", "llamagym-tui serve"),
}
"""Each extra of pyproject.toml but those for developers, by its name, in the order in which `doctor` shows them."""


def install_command(extra: str) -> str:
    """The pip command for an extra of ours, or for the package that a user's agent names."""
    if extra not in EXTRAS:
        return f"pip install {extra}"
    return f"pip install 'llamagym-tui[{extra}]'"


def module_of(extra: str) -> str:
    """The module that an extra brings; one that is not known, of a user's own agent, is the module itself."""
    known = EXTRAS.get(extra)
    return known.module if known else extra
