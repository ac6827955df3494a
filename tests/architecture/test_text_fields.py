"""No screen makes a text field or a palette of Textual's: only ours take keys in order. Looked for in the source."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from scripts.rooms import modules

RAW = {"Input", "MaskedInput", "TextArea", "CommandInput", "CommandPalette"}
PALETTE = "class Palette(CommandPalette)"


def raw_fields(source: str) -> Iterator[str]:
    """Calls of a class of Textual's fields, and classes on top of one that lack `KeysInOrder`."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call) and ast.unparse(node.func).split(".")[-1] in RAW:
            yield ast.unparse(node)
        elif isinstance(node, ast.ClassDef):
            bases = {ast.unparse(base).split(".")[-1] for base in node.bases}
            if bases & RAW and "KeysInOrder" not in bases:
                yield f"class {node.name}({', '.join(sorted(bases))})"


def test_every_text_field_takes_keys_in_order():
    screens = [path for name, path in modules().items() if ".screens" in name or ".app" in name]
    found = [field for path in screens for field in raw_fields(path.read_text("utf-8"))]
    assert found == [PALETTE]


def test_a_raw_field_is_found():
    assert list(raw_fields("yield Input(id='a')\nclass Area(widgets.TextArea): ...")) == [
        "class Area(TextArea)",
        "Input(id='a')",
    ]
