"""A deterministic terminal: no animation, no blinking, data in a folder of the test."""

from __future__ import annotations

import os
import random
from asyncio import sleep

# Textual reads it when it is imported.
os.environ["TEXTUAL_ANIMATIONS"] = "none"

from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from rich.segment import Segment
from textual._compositor import Compositor
from textual.color import Color
from textual.css.stylesheet import Stylesheet
from textual.pilot import Pilot
from textual.widgets import Input, TextArea

from llamagym_tui.app import app
from llamagym_tui.app.app import LlamaGymApp
from llamagym_tui.screens.widgets import chart
from llamagym_tui.screens.widgets.fields import LiteralLines
from tests import fakes
from tests.screens.pictures import comes_to_look_like, picture, what_differs
from tests.screens.steps import caught_up, comes_to_rest, stands_still

MakeApp = Callable[..., LlamaGymApp]
CHART_S = 0.2
PAINT_S = 0.03
"""Seconds between two drawings of a chart, and between events and what is painted of them, at least: a person has more
time for them than a test."""


@pytest.fixture(autouse=True)
def isolated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Paths are shown: how a line is broken must not hang on where the tests run.
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LLAMAGYM_TUI_DATA", "data")
    monkeypatch.setenv("LLAMAGYM_TUI_CONFIG", "config")
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLORTERM", "truecolor")
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setattr(chart, "CHART_S", CHART_S)
    monkeypatch.setattr(app, "PAINT_S", PAINT_S)
    for field in (Input, TextArea):
        monkeypatch.setattr(field, "cursor_blink", False, raising=False)


@pytest.fixture(autouse=True)
def keys_are_heard(monkeypatch: pytest.MonkeyPatch) -> None:
    """A key comes once the app has shown all events, and has been handled before the next one comes.

    Textual's pilot waits until the process seems idle: up to a second while a run emits events, and too short in a
    process that gets no processor. And it sends every widget a message to hear that it has handled the others, which
    was a third of what these tests took.
    """
    press, click = Pilot.press, Pilot.click

    async def pause(pilot: Pilot[None], delay: float | None = None) -> None:
        await sleep(delay or 0)
        await comes_to_rest(pilot)

    async def press_and_wait(pilot: Pilot[None], *keys: str) -> None:
        for key in keys:
            await caught_up(pilot)
            await press(pilot, key)

    async def wait_and_click(pilot: Pilot[None], *place: Any, **options: Any) -> bool:
        await caught_up(pilot)
        return await click(pilot, *place, **options)

    monkeypatch.setattr("textual.app.wait_for_idle", sleep)
    monkeypatch.setattr(Pilot, "_wait_for_screen", comes_to_rest)
    monkeypatch.setattr(Pilot, "pause", pause)
    monkeypatch.setattr(Pilot, "press", press_and_wait)
    monkeypatch.setattr(Pilot, "click", wait_and_click)


@pytest.fixture(scope="session")
def parsed_styles() -> dict[Any, Any]:
    """What each style sheet has come to, by all that it depends on."""
    return {}


@pytest.fixture(autouse=True)
def styles_are_parsed_once(monkeypatch: pytest.MonkeyPatch, parsed_styles: dict[Any, Any]) -> None:
    """Every app has the same style sheets, and reading them took an eighth of a test's time."""
    parse = Stylesheet._parse_rules

    def parsed_once(sheet: Stylesheet, css: str, *where: Any, **options: Any) -> Any:
        variables = tuple(sorted(sheet._variables.items()))
        depends_on = (css, where, tuple(sorted(options.items())), variables)
        if depends_on not in parsed_styles:
            parsed_styles[depends_on] = parse(sheet, css, *where, **options)
        return parsed_styles[depends_on]

    monkeypatch.setattr(Stylesheet, "_parse_rules", parsed_once)


@pytest.fixture(autouse=True)
def a_screen_is_painted_when_it_is_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    """No terminal shows what an app writes here, so it writes nothing; a test that looks paints what it looks at.

    With PAUSES in the environment every frame is painted, as on a terminal.
    """
    if "PAUSES" in os.environ:
        return
    render_update = Compositor.render_update

    def only_if_whole(compositor: Compositor, full: bool = False, **options: Any) -> Any:
        if full:
            return render_update(compositor, full, **options)
        compositor._dirty_regions.clear()
        return None

    monkeypatch.setattr(Compositor, "render_update", only_if_whole)


@pytest.fixture(autouse=True)
def everything_is_literal(monkeypatch: pytest.MonkeyPatch) -> None:
    """The last look at a line finds nothing: every text was made literal where it comes from."""
    apply = LiteralLines.apply

    def found_nothing(
        self: LiteralLines, segments: list[Segment], background: Color
    ) -> list[Segment]:
        assert apply(self, segments, background) == segments, f"not literal: {segments!r}"
        return segments

    monkeypatch.setattr(LiteralLines, "apply", found_nothing)


@pytest.fixture
def make_app() -> MakeApp:
    """Makes an app that watches a scripted trainer: one that begins to play, unless another is given."""

    def make(client: fakes.FakeClient | None = None, **changes: object) -> LlamaGymApp:
        client = client or fakes.FakeClient()
        seeds = count(1)
        return LlamaGymApp(
            fakes.config(Path("/runs/demo"), **changes),
            client_factory=lambda: client,
            clock=lambda: datetime(2026, 1, 2, 12, 0, tzinfo=UTC),
            next_seed=lambda: next(seeds),
        )

    return make


@pytest.fixture
def snap_compare(snap_compare: Any, request: pytest.FixtureRequest) -> Any:
    """Compares a picture with the one kept, once it stands still; reports what differs."""
    kept = request.path.parent / "__snapshots__" / request.path.stem / f"{request.node.name}.svg"
    is_new = request.config.getoption("update_snapshots") or not kept.exists()
    seen = ""

    def compare(
        app: LlamaGymApp, run_before: Callable[[Pilot[None]], Awaitable[None]], **options: Any
    ) -> bool:
        async def settled(pilot: Pilot[None]) -> None:
            nonlocal seen
            await run_before(pilot)
            await stands_still(pilot)
            if not is_new:
                await comes_to_look_like(pilot, kept)
            seen = picture(pilot)

        same = bool(snap_compare(app, run_before=settled, **options))
        assert same or is_new, what_differs(kept.read_text("utf-8"), seen)
        return same

    return compare


@pytest.fixture(autouse=True)
def pauses(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """With PAUSES=SEED in the environment the scripted trainer pauses before events that are drawn at random.

    What a screen comes to show must not depend on what it had painted before.
    """
    seed = os.environ.get("PAUSES")
    if seed is None:
        return
    draw = random.Random(seed + request.node.nodeid)

    def before(events: int) -> dict[int, float]:
        late = [max(events - 1 - draw.randrange(12), 0) for _ in range(3)]
        return dict.fromkeys([*late, draw.randrange(max(events, 1))], 5 * CHART_S)

    monkeypatch.setattr(fakes.FakeClient, "pauses", staticmethod(before))
