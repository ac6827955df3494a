"""A person's own keys: ``keys.toml`` in the configuration folder, read and checked.

.. code-block:: toml

    [keys]
    pause = "f5"
    help = "f2,question_mark"

A name is the id of a binding, a value one key or several with commas between. What cannot be taken is left out and
told in a sentence each; the rest holds. Knows bindings only as it is told about them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

FILE = "keys.toml"


class Bound(NamedTuple):
    """A binding with an id, so that it can get other keys."""

    id: str
    keys: tuple[str, ...]
    """Its own."""
    place: str
    """Where it holds: within one place two ids cannot share a key."""


class Keymap(NamedTuple):
    """Keys by the ids of their bindings, and a sentence for each fault of the file."""

    keys: dict[str, str]
    faults: tuple[str, ...] = ()


def read_keys(folder: Path, bound: Sequence[Bound], known_keys: Iterable[str]) -> Keymap:
    """The keys in a folder's file, as far as they can be taken; none, and no fault, where there is no file.

    Args:
        folder: of the configuration.
        bound: every binding there is.
        known_keys: names of keys that are more than one character.
    """
    import tomllib

    path = folder / FILE
    try:
        asked = tomllib.loads(path.read_text(encoding="utf-8-sig")).get("keys", {})
    except FileNotFoundError:
        return Keymap({})
    except (OSError, ValueError) as error:
        return Keymap({}, (f"{path} cannot be read ({error}), so every key is as it was; mend the file.",))
    if not isinstance(asked, dict):
        return Keymap({}, (f"{path} has no table [keys], so every key is as it was.",))
    return checked(asked, bound, known_keys)


def checked(asked: Mapping[str, object], bound: Sequence[Bound], known_keys: Iterable[str]) -> Keymap:
    """Keys that can be used, and a sentence for each that cannot."""
    from difflib import get_close_matches

    known, ids, faults = set(known_keys), {each.id for each in bound}, []
    taken: dict[str, tuple[str, ...]] = {}
    for name, value in asked.items():
        keys = tuple(key.strip() for key in value.split(",")) if isinstance(value, str) else ()
        if name not in ids:
            near = get_close_matches(name, ids, n=1)
            faults.append(f"{FILE}: there is no key {name!r}" + (f"; near it is {near[0]!r}." if near else "."))
        elif not keys or not all(_is_key(key, known) for key in keys):
            faults.append(f'{FILE}: {name} = {value!r} names no key; write one as "f5", "x" or "ctrl+x".')
        else:
            taken[name] = keys
    while clash := _clash(taken, bound):
        mover, key, holder = clash
        del taken[mover]
        faults.append(f"{FILE}: {mover} cannot have {key!r}, which {holder} has; {mover} stays as it was.")
    return Keymap({name: ",".join(keys) for name, keys in _with_sharers(taken, bound).items()}, tuple(faults))


def _with_sharers(taken: Mapping[str, tuple[str, ...]], bound: Sequence[Bound]) -> dict[str, tuple[str, ...]]:
    """Add what shares a key with a moved one: Textual unbinds a moved key as a whole."""
    left = {(each.place, key) for each in bound if each.id in taken for key in each.keys}
    sharers = [each for each in bound if any((each.place, key) in left for key in each.keys)]
    return {**{each.id: each.keys for each in sharers}, **taken}


def _is_key(key: str, known: set[str]) -> bool:
    *modifiers, last = key.split("+") if len(key) > 1 else [key]
    return (len(last) == 1 or last in known) and set(modifiers) <= {"ctrl", "shift", "alt"}


def _clash(taken: Mapping[str, tuple[str, ...]], bound: Sequence[Bound]) -> tuple[str, str, str] | None:
    """The first moved id whose key another id has in the same place: (id, key, other id)."""
    holders: dict[tuple[str, str], str] = {}
    # Those that stay as they are have the older right; of two that move, the one that is named first.
    order = list(taken)
    for each in sorted(bound, key=lambda each: order.index(each.id) + 1 if each.id in taken else 0):
        for key in taken.get(each.id, each.keys):
            holder = holders.setdefault((each.place, key), each.id)
            if holder != each.id and each.id in taken:
                return each.id, key, holder
    return None
