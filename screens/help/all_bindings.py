"""All key bindings of all screens, to check `keys.toml` against.

Collects them; a key is bound in `BINDINGS` of the screen or widget whose action it is.
"""

import pkgutil
from collections.abc import Iterable, Iterator
from importlib import import_module

from textual.binding import Binding
from textual.dom import DOMNode
from textual.keys import Keys, _character_to_key

from llamagym_tui import screens
from llamagym_tui.screens.help.keys_toml import Bound


def keyed_classes() -> Iterator[type[DOMNode]]:
    """Screens and widgets with `BINDINGS` of their own. Imports every screen."""
    for info in pkgutil.walk_packages(screens.__path__, f"{screens.__name__}."):
        if info.name == __name__:
            continue
        module = import_module(info.name)
        for kind in vars(module).values():
            own = (
                isinstance(kind, type)
                and issubclass(kind, DOMNode)
                and kind.__module__ == info.name
            )
            if own and "BINDINGS" in vars(kind):
                yield kind


def bindings_of(kind: type[DOMNode]) -> list[Binding]:
    """The bindings that a class adds, one for each key; inherited ones are left out."""
    return list(Binding.make_bindings(vars(kind).get("BINDINGS", [])))


def movable(kinds: Iterable[type[DOMNode]]) -> list[Bound]:
    """Bindings with an id: only these can get other keys."""
    found: dict[tuple[str, str], list[str]] = {}
    for kind in kinds:
        for binding in bindings_of(kind):
            if binding.id:
                found.setdefault((kind.__name__, binding.id), []).append(binding.key)
    return [Bound(id, tuple(dict.fromkeys(keys)), place) for (place, id), keys in found.items()]


def key_names() -> list[str]:
    """Names of keys that are more than one character."""
    punctuation = [_character_to_key(chr(code)) for code in range(33, 127)]
    return (
        [key.value for key in Keys if "+" not in key.value and not key.value.startswith("<")]
        + punctuation
        + ["space"]
    )
