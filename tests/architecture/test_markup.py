"""No widget reads markup in a text that is not written in the source: looked for in the source.

Textual parses square brackets unless a widget is made with ``markup=False``, and in border titles and tooltips always,
unless they are `Content`.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

import pytest

from scripts.house import modules

SOURCES = [
    ast.parse(path.read_text("utf-8"))
    for name, path in modules().items()
    if name.startswith(("llamagym_tui.screens", "llamagym_tui.app"))
]
PARSERS = ("Static", "Label", "OptionList")
TITLES = {"border_title", "border_subtitle", "tooltip"}


def parsing_classes(trees: list[ast.Module]) -> dict[str, ast.ClassDef | None]:
    """Widgets that would parse their texts: Textual's, and ours that are one of them and do not switch that off."""
    classes = [node for tree in trees for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]
    found: dict[str, ast.ClassDef | None] = dict.fromkeys(PARSERS)
    while new := [
        each
        for each in classes
        if each.name not in found
        and found.keys() & map(_name, each.bases)
        and not any(map(_is_off, _super_inits(each)))
    ]:
        found |= {each.name: each for each in new}
    return found


def parsed(trees: list[ast.Module]) -> Iterator[ast.AST]:
    """Places where a text that is not written there is parsed."""
    classes = parsing_classes(trees)
    initialised = {
        name for name, node in classes.items() if node is not None and _super_inits(node)
    }
    for node in (each for name in initialised for each in _super_inits(classes[name])):
        if not _is_off(node):
            yield node
    for node in (each for tree in trees for each in ast.walk(tree)):
        if isinstance(node, ast.Call):
            name = _name(node.func)
            if name == "from_markup" or (
                name in classes and name not in initialised and not _is_off(node)
            ):
                yield node
        elif (
            isinstance(node, ast.Assign)
            and TITLES & set(map(_name, node.targets))
            and not _is_plain(node.value)
        ):
            yield node


def _is_plain(value: ast.expr) -> bool:
    """Whether it is `Content`, or written in the source."""
    return isinstance(value, ast.Constant) or ast.unparse(value).startswith("Content")


def _super_inits(node: ast.AST | None) -> list[ast.Call]:
    calls = [each for each in ast.walk(node) if isinstance(each, ast.Call)] if node else []
    return [each for each in calls if ast.unparse(each.func) == "super().__init__"]


def _is_off(call: ast.Call) -> bool:
    return any(
        each.arg == "markup" and ast.unparse(each.value) == "False" for each in call.keywords
    )


def _name(node: ast.expr) -> str:
    return (
        node.attr
        if isinstance(node, ast.Attribute)
        else node.id
        if isinstance(node, ast.Name)
        else ""
    )


@pytest.mark.parametrize(
    "source",
    [
        "Static(text)",
        "class Row(Static):\n    def __init__(self, text): super().__init__(text)",
        "class Row(Static):\n    pass\nclass Line(Row):\n    pass\nLine(text)",
        "class Files(OptionList): pass\nFiles(*options)",
        "frame.border_title = name",
        "self.tooltip = f'{name}: {value}'",
        "Text.from_markup(name)",
    ],
)
def test_a_text_that_is_parsed_is_found(source: str) -> None:
    assert len(list(parsed([ast.parse(source)]))) == 1


def test_what_is_content_or_written_in_the_source_may_stand_anywhere() -> None:
    source = (
        "class Row(Static):\n    def __init__(self, text): super().__init__(text, markup=False)\n"
        "class Line(Row): pass\nRow(text)\nLine(text)\nStatic(text, markup=False)\n"
        "frame.border_title = 'files'\nframe.border_title = Content(name)"
    )
    assert list(parsed([ast.parse(source)])) == []


def test_no_widget_parses_a_text() -> None:
    found = [ast.unparse(node) for node in parsed(SOURCES)]
    assert found == []
