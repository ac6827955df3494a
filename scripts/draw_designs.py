"""Draws the three designs of the playground of `docs/adr/0021-the-playground.md` from the app's own widgets.

``python -m scripts.draw_designs --live 90`` trains for that many seconds and writes one picture of each design, of the
same state of the run, at 120x34.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from textual.app import ComposeResult
from textual.containers import Horizontal, Vertical
from textual.screen import Screen
from textual.widget import Widget

from llamagym_tui.app.app import LlamaGymApp
from llamagym_tui.cli.options import RunOptions
from llamagym_tui.screens.conversation.pane import ConversationPane
from llamagym_tui.screens.conversation.view import ConversationView
from llamagym_tui.screens.playground.figures import FigureCurves, FirstSight
from llamagym_tui.screens.playground.last_update import LastUpdate
from llamagym_tui.screens.playground.map_pane import MapPane
from llamagym_tui.screens.playground.playground import PlaygroundScreen
from llamagym_tui.screens.playground.progress_line import ProgressLine
from llamagym_tui.screens.playground.return_chart import ReturnChart
from llamagym_tui.screens.playground.state_drawing import StateDrawing
from llamagym_tui.screens.widgets.key_bar import KeyBar
from llamagym_tui.screens.widgets.run_header import RunHeader
from llamagym_tui.state.run import RunState
from scripts.take_pictures import FOLDER, SETTLED_S, START_S, until

SIZE = (120, 34)


class Parts:
    """The widgets of a design, of one state of a run."""

    def __init__(self, state: RunState) -> None:
        self.hand = StateDrawing(state, id="hand")
        self.view = ConversationView(id="lines")
        self.lines = ConversationPane(self.view)
        self.curve = ReturnChart()
        self.map = MapPane(id="map")
        self.figures = FigureCurves(state, id="figures")
        self.changed = LastUpdate(state, id="changed")


def map_in_the_middle(parts: Parts) -> list[Widget]:
    return [parts.map, Horizontal(parts.curve, parts.hand, classes="middle"), parts.lines]


def two_columns(parts: Parts) -> list[Widget]:
    left = Vertical(parts.hand, parts.lines)
    return [Horizontal(left, Vertical(parts.curve, parts.map, classes="right"))]


def wall_of_panes(parts: Parts) -> list[Widget]:
    left = Vertical(parts.hand, parts.map, parts.lines)
    return [Horizontal(left, Vertical(parts.curve, parts.figures, parts.changed, classes="right"))]


class Layout(NamedTuple):
    make: Callable[[Parts], list[Widget]]
    map_room: tuple[int, int]
    """Of its map, in cells."""


DESIGNS = {
    "a": Layout(map_in_the_middle, (118, 20)),
    "b": Layout(two_columns, (58, 20)),
    "c": Layout(wall_of_panes, (58, 20)),
}


class Design(Screen[None]):
    DEFAULT_CSS = """
    Design {
        layout: vertical;
        #first-sight { padding: 0 1; }
        #hand { display: block; height: 6; }
        ConversationPane { height: 4; }
        ReturnChart { width: 1fr; height: 1fr; }
        MapPane { padding: 0 1; }
        Horizontal { height: 1fr; }
        .right { border-left: solid $panel; padding: 0 1; }
        &.-a #hand { width: 50; }
        &.-b ConversationPane { height: 1fr; }
        &.-c .right > * { height: 1fr; }
    }
    """

    BINDINGS = PlaygroundScreen.BINDINGS

    def __init__(self, state: RunState, name: str) -> None:
        super().__init__(classes=f"-{name}")
        self._of = state
        self._design = DESIGNS[name]
        self._parts = Parts(state)

    def compose(self) -> ComposeResult:
        yield RunHeader(self._of, id="run-header", has_progress=False)
        yield ProgressLine(self._of, id="progress-line")
        yield FirstSight(self._of, id="first-sight")
        yield from self._design.make(self._parts)
        yield KeyBar()

    def on_mount(self) -> None:
        parts, state = self._parts, self._of
        parts.map.fit(state.map_layout, *self._design.map_room, is_alone=True)
        parts.view.fold(True)
        parts.view.show(state.transcript.entries)
        parts.curve.show(state)
        self.call_after_refresh(parts.map.show, state)
        self.query_one(FirstSight).show(state)


async def draw(live_s: float) -> None:
    app = LlamaGymApp(
        RunOptions(run_dir=Path("run"), model="bundled", seed=1).settings_for("blackjack")
    )
    async with app.run_test(size=SIZE) as pilot:
        await until(pilot, lambda: app.run_state is not None and app.run_state.updates > 0, START_S)
        await pilot.pause(live_s)
        state = app.run_state
        assert state is not None
        for name in DESIGNS:
            await app.push_screen(Design(state, name))
            await pilot.pause(SETTLED_S)
            picture = FOLDER / f"design-{name}.svg"
            # librsvg would drop spaces at the ends of a text.
            drawn = app.export_screenshot(title=f"design {name}")
            spaced = drawn.replace("<svg ", '<svg xml:space="preserve" ', 1)
            picture.write_text(spaced, encoding="utf-8")
            app.pop_screen()
        await pilot.press("q", "y")
        await pilot.pause(SETTLED_S)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--live", type=float, default=90.0, help="seconds of training before")
    live_s = parser.parse_args().live
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        colours = {"TERM": "xterm-256color", "COLORTERM": "truecolor"}
        os.environ |= {"LLAMAGYM_TUI_DATA": "data", "LLAMAGYM_TUI_CONFIG": "config", **colours}
        asyncio.run(draw(live_s))


if __name__ == "__main__":
    main()
