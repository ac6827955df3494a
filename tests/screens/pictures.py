"""Compares pictures of the terminal with those that are kept, and reports differences as lines of text."""

from __future__ import annotations

import asyncio
import difflib
import html
import re
from pathlib import Path

import pytest
from pytest_textual_snapshot import normalize_svg
from textual.pilot import Pilot


def at_sizes(
    *sizes: tuple[int, int], and_slowly: tuple[tuple[int, int], ...] = ()
) -> pytest.MarkDecorator:
    """A test for each size of the terminal.

    Those of `and_slowly` are slow: most breaks of a screen are seen at one size, and each picture takes a second.
    """
    marks = [()] * len(sizes) + [pytest.mark.slow] * len(and_slowly)
    return pytest.mark.parametrize(
        "size",
        [
            pytest.param((width, height), id=f"{width}x{height}", marks=mark)
            for (width, height), mark in zip((*sizes, *and_slowly), marks, strict=True)
        ],
    )


SMALL, WIDE = (80, 24), (120, 34)
"""The smallest terminal in which everything is shown, and a wide one."""
SMALL_AND_SLOWLY_WIDE = at_sizes(SMALL, and_slowly=(WIDE,))
"""For a screen that leaves out or moves something where there is little room."""
WIDE_AND_SLOWLY_SMALL = at_sizes(WIDE, and_slowly=(SMALL,))
"""For one that shows more where there is room."""
CELL = 12.2
"""Units of a picture that a cell is wide."""
PATIENCE_S = 10.0
"""How long a picture may differ, on a machine that is busy with something else, before it does."""
SPAN = re.compile(r'<text class="[^"]*?-r\d+" x="([\d.]+)" y="([\d.]+)"[^>]*>(.*?)</text>')


async def comes_to_look_like(pilot: Pilot[None], kept: Path) -> None:
    """Wait until the terminal looks like a kept picture, or long enough."""
    loop = asyncio.get_running_loop()
    end = loop.time() + PATIENCE_S
    while picture(pilot) != normalize_svg(kept.read_text("utf-8")) and loop.time() < end:
        await pilot.pause(0.25)


def picture(pilot: Pilot[None]) -> str:
    """The terminal as it looks, comparable."""
    return normalize_svg(pilot.app.export_screenshot(title=pilot.app.title, simplify=True))


def what_differs(kept: str, seen: str) -> str:
    """Lines of two pictures that differ; where the words are the same, colours do."""
    lines = list(difflib.unified_diff(words(kept), words(seen), "kept", "seen", lineterm="", n=0))
    return "\n".join(lines) or "The same words in other colours."


def words(svg: str) -> list[str]:
    """The lines of a picture."""
    rows: dict[float, list[tuple[float, str]]] = {}
    for x, y, text in SPAN.findall(svg):
        rows.setdefault(float(y), []).append((float(x), html.unescape(text).replace("\xa0", " ")))
    lines = []
    for _, spans in sorted(rows.items()):
        line = ""
        for x, text in sorted(spans):
            line = line.ljust(round(x / CELL)) + text
        lines.append(line.rstrip())
    return lines
