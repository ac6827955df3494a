"""A person's keys: what can be taken is taken, what cannot is told, and nothing crashes."""

from __future__ import annotations

from pathlib import Path

import pytest

from llamagym_tui import user_files
from llamagym_tui.screens.help.keys_toml import Bound, Keymap, checked, read_keys
from llamagym_tui.user_files import Preferences

BOUND = [
    Bound("pause", ("space",), "Playground"),
    Bound("mode", ("t",), "Playground"),
    Bound("quit", ("q",), "Playground"),
    Bound("back", ("escape", "m"), "Metrics"),
]
KNOWN = ("space", "f5", "escape")


def test_keys_are_read_from_the_file(tmp_path: Path):
    (tmp_path / "keys.toml").write_text('[keys]\npause = "f5"\nback = "x, ctrl+b"\n')
    assert read_keys(tmp_path, BOUND, KNOWN) == Keymap({"pause": "f5", "back": "x,ctrl+b"})


def test_no_file_changes_nothing(tmp_path: Path):
    assert read_keys(tmp_path, BOUND, KNOWN) == Keymap({})


@pytest.mark.parametrize("text", ["[keys", "keys = 3", "\x00", "[keys]\npause = 'x'\npause = 'y'"])
def test_a_broken_file_is_told_in_one_sentence(tmp_path: Path, text: str):
    (tmp_path / "keys.toml").write_text(text)
    keys, faults = read_keys(tmp_path, BOUND, KNOWN)
    assert keys == {}
    assert len(faults) == 1
    assert "keys.toml" in faults[0]


def test_an_unknown_name_is_told_with_the_one_near_it():
    keys, faults = checked({"puase": "f5", "mode": "x"}, BOUND, KNOWN)
    assert keys == {"mode": "x"}
    assert faults == ("keys.toml: there is no key named 'puase'; did you mean 'pause'?",)


@pytest.mark.parametrize("value", ["", "f99", "hyper+x", 5, ["x"], "x,,y"])
def test_what_is_no_key_is_told(value: object):
    keys, faults = checked({"pause": value}, BOUND, KNOWN)
    assert keys == {}
    assert "is not a key" in faults[0]


def test_a_key_that_another_has_is_not_taken():
    keys, faults = checked({"pause": "t"}, BOUND, KNOWN)
    assert keys == {}
    assert faults == ("keys.toml: pause cannot have 't', which mode has; pause keeps its key.",)


def test_two_may_change_places_and_a_key_may_mean_another_thing_elsewhere():
    assert checked({"pause": "t", "mode": "space"}, BOUND, KNOWN) == Keymap(
        {"pause": "t", "mode": "space"}
    )
    assert checked({"back": "t"}, BOUND, KNOWN) == Keymap({"back": "t"})


def test_of_two_that_want_one_key_the_first_has_it():
    keys, faults = checked({"mode": "x", "pause": "x"}, BOUND, KNOWN)
    assert keys == {"mode": "x"}
    assert faults == ("keys.toml: pause cannot have 'x', which mode has; pause keeps its key.",)


def test_a_refused_key_gives_its_old_one_back():
    # mode wants pause's key, pause wants quit's: pause stays, so mode cannot move either.
    keys, faults = checked({"mode": "space", "pause": "q"}, BOUND, KNOWN)
    assert keys == {}
    assert len(faults) == 2


def test_what_shared_the_key_of_a_moved_one_keeps_it():
    shared = [*BOUND, Bound("resume", ("space",), "Playground")]
    assert checked({"pause": "f5"}, shared, KNOWN).keys == {"pause": "f5", "resume": "space"}


def test_the_theme_is_kept(tmp_path: Path):
    user_files.keep_preferences(tmp_path / "new", theme="nord")
    assert user_files.load_preferences(tmp_path / "new") == Preferences(theme="nord")


@pytest.mark.parametrize("content", [b"", b"[]", b'{"theme": 3}', b"\xff"])
def test_broken_preferences_are_the_defaults(tmp_path: Path, content: bytes):
    (tmp_path / "preferences.json").write_bytes(content)
    assert user_files.load_preferences(tmp_path) == Preferences()
