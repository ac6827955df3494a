"""Nothing of the package prints foreign text but through `llamagym_tui.protocol.literal`: looked for in the source."""

from __future__ import annotations

import ast
from collections.abc import Iterator

import pytest

from scripts.house import modules

LITERAL = ("literal", "one_line")
DRIVER = "llamagym_tui.app.terminal"
"""What Textual draws goes through it; its lines are looked at in `screens.widgets.fields`."""
NAMES = ("print", "input")
METHODS = ("print", "echo", "secho", "print_exc", "print_exception", "showwarning", "add_task")
STREAMS = ("stdout", "stderr", "__stdout__", "__stderr__")


def prints(source: str) -> Iterator[ast.Call]:
    """Calls that print something which is neither written in the source nor literal."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call) and _prints(node.func):
            texts = [
                *node.args,
                *(keyword.value for keyword in node.keywords if keyword.arg == "description"),
            ]
            if not texts or not all(
                isinstance(text, ast.Constant) or _is_literal(text) for text in texts
            ):
                yield node


def _prints(function: ast.expr) -> bool:
    match function:
        case ast.Name(id=name):
            return name in NAMES
        case ast.Attribute(attr="write" | "writelines", value=ast.Attribute(attr=stream)):
            return stream in STREAMS
        case ast.Attribute(attr="confirm" | "prompt", value=ast.Name(id=library)):
            return library in ("typer", "click")
        case ast.Attribute(attr=name):
            return name in METHODS
    return False


def _is_literal(text: ast.expr) -> bool:
    return (
        isinstance(text, ast.Call) and isinstance(text.func, ast.Name) and text.func.id in LITERAL
    )


@pytest.mark.parametrize(
    "line",
    [
        "print(error)",
        "print(f'{path}: {count}')",
        "typer.echo(path)",
        "typer.confirm(f'Run {path}?')",
        "sys.stderr.write(str(error))",
        "traceback.print_exc()",
        "bar.console.print(text, markup=False)",
        "input(question)",
    ],
)
def test_a_print_of_a_text_that_is_not_literal_is_found(line: str) -> None:
    assert len(list(prints(line))) == 1


def test_what_is_written_in_the_source_or_literal_may_be_printed() -> None:
    assert (
        list(
            prints(
                "print('Usage: a word')\nconsole.print(one_line(text))\necho(text)\nfile.write(text)"
            )
        )
        == []
    )


def test_everything_the_package_prints_is_literal() -> None:
    found = {
        f"{path}:{call.lineno}"
        for name, path in modules().items()
        if name.startswith("llamagym_tui.") and name != DRIVER
        for call in prints(path.read_text("utf-8"))
    }
    assert found == set()
