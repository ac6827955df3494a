"""Reads and checks ``keys.toml`` in the configuration folder: the keys that a person has moved.

.. code-block:: toml

    [keys]
    pause = "f5"
    help = "f2,question_mark"

A name is the id of a binding, a value one key or several with commas between. An entry that cannot be used is left
out, with a sentence that explains why; the others apply. The bindings are passed in, by `all_bindings`.
"""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from llamagym_tui.user_files import file_text

FILE = "keys.toml"


class Bound(NamedTuple):
    """A binding with an id, so that it can get other keys."""

    id: str
    keys: tuple[str, ...]
    """The default ones."""
    place: str
    """Class that has the binding: in one class two ids cannot share a key."""


class Keymap(NamedTuple):
    """Keys by the ids of their bindings, and a sentence for each fault of the file."""

    keys: dict[str, str]
    faults: tuple[str, ...] = ()


def read_keys(folder: Path, bound: Sequence[Bound], known_keys: Iterable[str]) -> Keymap:
    """The keys in a folder's file that can be used; without a file, no keys and no faults.

    `known_keys` are names of keys that are longer than one character.
    """
    import tomllib

    path = folder / FILE
    try:
        wanted = tomllib.loads(file_text(path)).get("keys", {})
    except FileNotFoundError:
        return Keymap({})
    except (OSError, ValueError, RecursionError) as error:
        return Keymap(
            {},
            (f"{path} cannot be read ({error}), so all keys stay as they were; correct the file.",),
        )
    if not isinstance(wanted, dict):
        return Keymap({}, (f"{path} has no table [keys], so all keys stay as they were.",))
    return checked(wanted, bound, known_keys)


def checked(
    wanted: Mapping[str, object], bound: Sequence[Bound], known_keys: Iterable[str]
) -> Keymap:
    """Keys that can be used, and a sentence for each that cannot."""
    from difflib import get_close_matches

    known, ids, faults = set(known_keys), {each.id for each in bound}, []
    taken: dict[str, tuple[str, ...]] = {}
    for name, value in wanted.items():
        keys = tuple(key.strip() for key in value.split(",")) if isinstance(value, str) else ()
        if name not in ids:
            near = get_close_matches(name, ids, n=1)
            faults.append(
                f"{FILE}: there is no key named {name!r}"
                + (f"; did you mean {near[0]!r}?" if near else ".")
            )
        elif not keys or not all(_is_key(key, known) for key in keys):
            faults.append(
                f'{FILE}: {name} = {value!r} is not a key; write for example "f5", "x" or "ctrl+x".'
            )
        else:
            taken[name] = keys
    while clash := _clash(taken, bound):
        mover, key, holder = clash
        del taken[mover]
        faults.append(
            f"{FILE}: {mover} cannot have {key!r}, which {holder} has; {mover} keeps its key."
        )
    return Keymap(
        {name: ",".join(keys) for name, keys in _with_sharers(taken, bound).items()}, tuple(faults)
    )


def _with_sharers(
    taken: Mapping[str, tuple[str, ...]], bound: Sequence[Bound]
) -> dict[str, tuple[str, ...]]:
    """Add what shares a key with a moved one: Textual unbinds a moved key as a whole."""
    left = {(each.place, key) for each in bound if each.id in taken for key in each.keys}
    sharers = [each for each in bound if any((each.place, key) in left for key in each.keys)]
    return {**{each.id: each.keys for each in sharers}, **taken}


def _is_key(key: str, known: set[str]) -> bool:
    *modifiers, last = key.split("+") if len(key) > 1 else [key]
    return (len(last) == 1 or last in known) and set(modifiers) <= {"ctrl", "shift", "alt"}


def _clash(
    taken: Mapping[str, tuple[str, ...]], bound: Sequence[Bound]
) -> tuple[str, str, str] | None:
    """The first moved id whose key another id has in the same place: (id, key, other id)."""
    holders: dict[tuple[str, str], str] = {}
    # A binding that is not moved keeps its key; of two that are moved to one key, the first in the file gets it.
    order = list(taken)
    for each in sorted(bound, key=lambda each: order.index(each.id) + 1 if each.id in taken else 0):
        for key in taken.get(each.id, each.keys):
            holder = holders.setdefault((each.place, key), each.id)
            if holder != each.id and each.id in taken:
                return each.id, key, holder
    return None
