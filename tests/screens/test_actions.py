"""Actions are named by strings: each one that a key is bound to, or that a browser session is refused, exists."""

from __future__ import annotations

import pkgutil
from collections.abc import Iterator
from importlib import import_module
from inspect import signature

import pytest
from textual.actions import parse
from textual.binding import Binding
from textual.dom import DOMNode
from textual.screen import Screen

from llamagym_tui import app, screens
from llamagym_tui.app.app import LlamaGymApp
from llamagym_tui.screens.playground.playground import REQUESTS, PlaygroundScreen
from llamagym_tui.screens.playground.prompt_editor import VersionList


def own_classes() -> Iterator[type[DOMNode]]:
    """Every class of ours of which an action may be: screens, widgets, the app and its parts."""
    for package in (screens, app):
        for info in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            module = import_module(info.name)
            for kind in vars(module).values():
                is_node = isinstance(kind, type) and issubclass(kind, DOMNode)
                if is_node and kind.__module__ == info.name:
                    yield kind


OWN = list(own_classes())
KEYED = [kind for kind in OWN if vars(kind).get("BINDINGS")]


def owners(kind: type[DOMNode], action: str) -> list[type[DOMNode]]:
    """The classes of which one has to have the action that a class binds."""
    match parse(action)[0]:
        case "":
            return [kind]
        case "app":
            return [LlamaGymApp]
        case "screen":
            # Which screen a widget stands in is not known before it stands there.
            return (
                [kind]
                if issubclass(kind, Screen)
                else [own for own in OWN if issubclass(own, Screen)]
            )
        case other:
            raise AssertionError(f"{action} is of {other}, which is neither the screen nor the app")


def does(owner: type[DOMNode], action: str) -> bool:
    """Whether a class has an action, with the parameters of its string."""
    _, name, parameters = parse(action)
    method = getattr(owner, f"_action_{name}", None) or getattr(owner, f"action_{name}", None)
    if method is None:
        return False
    try:
        signature(method).bind(None, *parameters)
    except TypeError:
        return False
    return True


@pytest.mark.parametrize("kind", KEYED, ids=lambda kind: kind.__name__)
def test_every_action_of_a_key_exists_and_takes_its_parameters(kind: type[DOMNode]) -> None:
    bound = [binding.action for binding in Binding.make_bindings(vars(kind)["BINDINGS"])]
    assert bound
    missing = [
        action for action in bound if not any(does(owner, action) for owner in owners(kind, action))
    ]
    assert missing == []


@pytest.mark.parametrize(
    ("kind", "right", "wrong"),
    [
        (PlaygroundScreen, "roll_back", "rol_back"),
        (PlaygroundScreen, "app.help", "help"),
        (PlaygroundScreen, "turn(1)", "turn"),
        (PlaygroundScreen, "metrics", "metrics(1)"),
        (VersionList, "screen.compare", "screen.compares"),
    ],
)
def test_a_slip_in_the_name_of_an_action_is_seen(
    kind: type[DOMNode], right: str, wrong: str
) -> None:
    assert any(does(owner, right) for owner in owners(kind, right))
    assert not any(does(owner, wrong) for owner in owners(kind, wrong))


def test_each_request_to_the_trainer_has_a_key() -> None:
    bound = {binding.action for binding in Binding.make_bindings(PlaygroundScreen.BINDINGS)}
    assert {action for action in bound if "ask(" in action} == {
        f"ask('{name}')" for name in REQUESTS
    }


def refusing_classes() -> list[type[DOMNode]]:
    return [kind for kind in OWN if "REFUSED_IN_BROWSER" in vars(kind)]


@pytest.mark.parametrize("kind", refusing_classes(), ids=lambda kind: kind.__name__)
def test_every_action_that_is_refused_in_a_browser_is_one_of_its_class(
    kind: type[DOMNode],
) -> None:
    refused = vars(kind)["REFUSED_IN_BROWSER"]
    assert set(refused) <= {"play", "seat", "watch"}
    for actions in refused.values():
        assert actions
        for action in actions:
            _, name, parameters = parse(action)
            assert callable(getattr(kind, f"action_{name}", None)), action
            assert does(kind, action) or not parameters, action
            if parameters:
                keys = {binding.action for binding in Binding.make_bindings(vars(kind)["BINDINGS"])}
                assert action in keys, "written otherwise, it would refuse nothing"
