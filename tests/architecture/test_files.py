"""Files are opened in one place: `llamagym_tui.user_files` waits for nothing and reads nothing without a bound."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from scripts.rooms import modules

ELSEWHERE = {
    "llamagym_tui.user_files",  # the place
    "llamagym_tui.engine.memory",  # /proc and /sys
    "llamagym_tui.trainer.descriptors",  # /dev/null
}


def opens(source: str) -> Iterator[str]:
    """Calls that open a file for reading, or could."""
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.Call):
            continue
        call = ast.unparse(node.func)
        mode = node.args[0].value if node.args and isinstance(node.args[0], ast.Constant) else None
        if (
            call
            in (
                "open",
                "io.open",
                "os.open",
                "os.fdopen",
                "tomllib.load",
                "json.load",
                "shutil.copyfileobj",
            )
            or (
                call.endswith((".read_text", ".read_bytes")) and not call.startswith("files(")
            )  # our own package's
            or (call.endswith(".open") and isinstance(mode, str) and set(mode) <= set("rwabx+t"))
        ):
            yield ast.unparse(node)


@pytest.mark.parametrize(
    "call",
    [
        "open(path)",
        "path.open('rb')",
        "os.open(p, 0)",
        "a.b.read_bytes()",
        "Path(p).read_text(encoding='x')",
    ],
)
def test_a_call_that_opens_a_file_is_found(call: str) -> None:
    assert len(list(opens(f"def f():\n    return {call}\n"))) == 1


def test_files_are_opened_by_user_files_only() -> None:
    found = {
        name: list(opens(path.read_text("utf-8")))
        for name, path in modules().items()
        if name not in ELSEWHERE and name.startswith("llamagym_tui")
    }
    assert {name: calls for name, calls in found.items() if calls} == {}


def test_the_modules_of_links_are_looked_at_too() -> None:
    assert "llamagym_tui.screens.help.keys_toml" in modules()
    assert all(isinstance(path, Path) for path in modules().values())
