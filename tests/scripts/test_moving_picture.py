"""A moving picture shows each frame's pieces in that frame, and holds each piece once."""

from __future__ import annotations

import re

import pytest
from textual.app import App, ComposeResult
from textual.content import Content
from textual.widgets import Static

from scripts.moving_picture import Frame, Ground, Text, picture, pieces


class Shown(App[None]):
    CSS = "Screen { background: #101010 } Static { width: 12; height: 2 }"

    def compose(self) -> ComposeResult:
        yield Static(
            Content.assemble(("ab", "bold #ff0000 on #0000ff"), ("cd", "on #0000ff"), "\nsame")
        )


async def exported(second: str = "same") -> str:
    app = Shown()
    async with app.run_test(size=(12, 2)) as pilot:
        top = Content.assemble(("ab", "bold #ff0000 on #0000ff"), ("cd", "on #0000ff"))
        app.query_one(Static).update(Content("\n").join([top, Content(second)]))
        await pilot.pause()
        return app.export_screenshot()


async def test_neighbours_of_one_colour_are_one_ground_and_texts_keep_their_style() -> None:
    found = list(pieces(await exported()))
    blue = [piece for piece in found if isinstance(piece, Ground) and piece.fill == "#0000ff"]
    assert [(piece.x, piece.width) for piece in blue] == [(0, 48.8)]
    red = next(piece for piece in found if isinstance(piece, Text) and piece.text == "ab")
    assert red.style == "fill: #ff0000;font-weight: bold"
    assert red.width == 24.4


async def test_blocks_are_rectangles_that_fill_their_share_of_a_cell() -> None:
    found = list(pieces(await exported("██▂▌▌")))
    blocks = [piece for piece in found if isinstance(piece, Ground) and piece.is_block]
    top = 24.4 + 1.5  # of the second line
    full, low, *halves = [(block.x, block.y, block.width, block.height) for block in blocks]
    assert full == pytest.approx((0, top, 2 * 12.2, 24.4))
    assert low == pytest.approx((2 * 12.2, top + 24.4 * 3 / 4, 12.2, 24.4 / 4))
    assert halves == [
        pytest.approx((3 * 12.2, top, 6.1, 24.4)),
        pytest.approx((4 * 12.2, top, 6.1, 24.4)),
    ]


async def test_a_still_picture_does_not_move() -> None:
    svg = picture([Frame(await exported(), 1.0)], 12, 2)
    assert "animation" not in svg
    assert "http" not in svg.replace("http://www.w3.org/2000/svg", "")


async def test_what_all_frames_have_stands_still_and_what_one_has_is_shown_in_its_time() -> None:
    frames = [Frame(await exported("first"), 1.0), Frame(await exported("last"), 3.0)]
    svg = picture(frames, 12, 2)
    assert svg.count(">ab</text>") == 1
    assert not re.search(r"<g[^>]*>[^/]*>ab<", svg), "what all frames have is in no group"
    first, last = (
        re.search(rf'<g class="(\w+)">[^/]*>{word}<', svg)[1] for word in ("first", "last")
    )
    assert f"@keyframes {first}{{0%{{visibility:visible}}25%{{visibility:hidden}}}}" in svg
    assert f"@keyframes {last}{{0%{{visibility:hidden}}25%{{visibility:visible}}}}" in svg
    assert f".{first}{{visibility:hidden;animation:{first} 4s step-end infinite}}" in svg
    assert f".{last}{{animation:" in svg, "the last frame stands where nothing moves"
