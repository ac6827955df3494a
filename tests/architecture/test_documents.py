"""The generated tables of the documents are those of the code."""

from __future__ import annotations

import pytest

from scripts.documents import PARTS, ROOT, with_part


@pytest.mark.parametrize("name", PARTS)
def test_a_generated_table_is_that_of_the_code(name: str) -> None:
    path, make = PARTS[name]
    text = (ROOT / path).read_text(encoding="utf-8")
    assert text == with_part(text, name, make()), "run: python -m scripts.documents"
