"""Small steps that tests of the screens share."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from textual.pilot import Pilot
from textual.widget import Widget

PATIENCE_S = 8.0


async def until(pilot: Pilot[None], condition: Callable[[], object], what: str = "") -> None:
    """Wait until something holds; fail after `PATIENCE_S`."""
    loop = asyncio.get_running_loop()
    end = loop.time() + PATIENCE_S
    while not condition():
        if loop.time() > end:
            raise AssertionError(f"never came: {what}\n{shown(pilot)}")
        await pilot.pause(0.02)


def shown(pilot: Pilot[None]) -> str:
    """What the terminal shows, as text."""
    strips = pilot.app.screen._compositor.render_strips()
    return "\n".join(strip.text for strip in strips)


async def sees(pilot: Pilot[None], text: str) -> None:
    """Wait until a text is on the screen."""
    await until(pilot, lambda: text in shown(pilot), text)


def widget_text(widget: Widget) -> str:
    """What a widget shows, as text."""
    return "\n".join(widget.render_line(y).text for y in range(widget.size.height))
