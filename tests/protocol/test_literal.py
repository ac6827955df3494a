"""Foreign text is shown, and steers no terminal: the function, and the way of all prints."""

from __future__ import annotations

import io
import json
import math
import unicodedata
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llamagym_tui.protocol.events import Progressed
from llamagym_tui.protocol.literal import LONGEST_LINE, echo, echo_json, literal, one_line

JOINERS = "\u200c\u200d"
ARABIC_SIGNS = (
    "\u0600\u0601\u0602\u0603\u0604\u0605\u06dd\u070f\u0890\u0891\u08e2\U000110bd\U000110cd"
)
"""Format characters by category that are drawn all the same."""

NASTY = [
    "\x1b[2J\x1b[31mred",
    "\x1b]52;c;aGk=\x07",
    "\x9b31m",
    "\x7f\x00\x08",
    "a\u202eb\u2066c",
    "a\r\nb\rc",
    "[/",
    "[/x]",
    "[$a]",
    "[@click=app.quit]leave[/]",
    "Action: [hit]",
    "日本語 🃏🃏 e\u0301",
    "\ud800",
    "\u2028\u2029\x85",
]
"""Texts that would steer a terminal, be taken for markup, or upset a layout."""


def harmful(text: str, *, kept: str = "\n\t") -> list[str]:
    """What in a text a terminal could obey, or a reader could not see; by the categories of Unicode."""
    allowed = kept + JOINERS + ARABIC_SIGNS
    return [
        char
        for char in text
        if unicodedata.category(char) in ("Cc", "Cf", "Cs", "Zl", "Zp") and char not in allowed
    ]


def printed(text: str, encoding: str = "utf-8", **options: Any) -> str:
    raw = io.BytesIO()
    stream = io.TextIOWrapper(raw, encoding)
    echo(text, to=stream, **options)
    return raw.getvalue().decode(encoding)


def test_newlines_and_tabs_stay_and_escape_is_shown() -> None:
    assert literal("a\tb\nc\x1b[2J") == "a\tb\nc␛[2J"


def test_delete_c1_and_bidirectional_overrides_are_shown() -> None:
    assert literal("\x7f\x9b\u202e\u2069") == "␡���"


def test_what_cannot_be_seen_is_shown_but_joiners_of_scripts_stay() -> None:
    assert literal("pass\u200bword\ufeff\u200f\U000e0041") == "pass�word���"
    assert literal("👩\u200d💻 می\u200cخواهم") == "👩\u200d💻 می\u200cخواهم"


@given(st.text(st.characters(exclude_categories=())))
def test_random_texts_are_harmless_and_as_long(text: str) -> None:
    assert harmful(literal(text)) == []
    assert harmful(one_line(text), kept="") == []
    assert len(literal(text)) == len(text.replace("\r\n", "\n"))


def test_one_line_has_no_line_ends_and_is_no_longer_than_the_longest() -> None:
    assert one_line("a\n b\x1b\tc") == "a b␛ c"
    assert one_line("x" * LONGEST_LINE) == "x" * LONGEST_LINE
    assert (
        one_line("x" * 10**7)
        == one_line("x" * (LONGEST_LINE + 1))
        == "x" * (LONGEST_LINE - 1) + "…"
    )


def test_what_is_printed_is_literal_and_its_columns_stay() -> None:
    assert printed("a\x1b]52;c;aGk=\x07   b\nc\td") == "a␛]52;c;aGk=␇   b␤c␉d\n"


def test_json_is_ascii_without_controls_and_reads_back(capsys: pytest.CaptureFixture[str]) -> None:
    figures = {
        "run_dir": "".join(map(chr, [*range(0x100), 0x202E, 0xD800, 0x1F600]))
        + "x" * 2 * LONGEST_LINE
    }
    echo_json(figures)
    line = capsys.readouterr().out
    assert line.isascii()
    assert harmful(line, kept="") == ["\n"]
    assert json.loads(line) == figures


def test_events_are_printed_as_json_and_a_number_that_is_not_finite_is_null(
    capsys: pytest.CaptureFixture[str],
) -> None:
    echo_json({"figures": Progressed(doing="reading", done=1, total=2), "kl": math.nan})

    figures = json.loads(capsys.readouterr().out)
    assert figures["kl"] is None
    assert figures["figures"]["done"] == 1
