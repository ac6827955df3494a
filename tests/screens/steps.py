"""Small steps that tests of the screens share."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from textual._context import visible_screen_stack
from textual.app import App
from textual.message_pump import MessagePump
from textual.pilot import Pilot
from textual.screen import Screen
from textual.strip import Strip
from textual.widget import Widget
from textual.widgets._toast import Toast

from llamagym_tui.screens.widgets.chart import Plot
from llamagym_tui.screens.widgets.look import readable
from llamagym_tui.state.run import RunState
from tests.fakes import FakeClient

PATIENCE_S = 60.0
"""Far more than anything takes, on any machine: only a test that fails waits for so long."""
FRAMES = 6
"""How often something may ask to be painted because it was: the layout of a scroll bar, a row that wraps."""
STILL = 5
"""Looks at a picture that find it unchanged before it is taken."""


class BareApp(App[None]):
    """An app with our variables of the theme, and nothing else of ours."""

    def get_css_variables(self) -> dict[str, str]:
        return readable(super().get_css_variables())


async def comes_to_rest(pilot: Pilot[None]) -> None:
    """Wait until all messages have been handled, and those that came of them, and what waits for a frame has had one.

    Only threads, timers and sleeping tasks are left then. Fails after `PATIENCE_S`.
    """
    app = pilot.app
    loop = asyncio.get_running_loop()
    end = loop.time() + PATIENCE_S
    frames = 0
    while not app._exit and not app._exception_event.is_set():
        await asyncio.sleep(0)
        if loop.time() > end:
            raise AssertionError(f"never came to rest: {_handling(app)}")
        if loop._ready:
            continue
        if _handling(app):
            await asyncio.sleep(0.005)
        elif frames < FRAMES and _waits_for_a_frame(app.screen):
            app.screen._on_timer_update()
            frames += 1
        else:
            return


def _handling(app: App[None]) -> list[MessagePump]:
    """What handles a message, or has one to handle, of the app and the widgets on top."""
    pumps = [app, *app.screen.walk_children(with_self=True)]
    return [
        pump for pump in pumps if not pump._closing and not pump._message_queue.ready_event._waiters
    ]


def _waits_for_a_frame(screen: Screen[Any]) -> object:
    """Whether something is to be painted, or done once it is."""
    return not screen.app._batch_count and (
        screen._layout_required
        or screen._scroll_required
        or screen._repaint_required
        or screen._recompose_required
        or screen._dirty_widgets
        or screen._callbacks
    )


async def until(pilot: Pilot[None], condition: Callable[[], object], what: str = "") -> None:
    """Wait until something holds; fail after `PATIENCE_S`, or once the app has ended, with its error if it had one."""
    loop = asyncio.get_running_loop()
    end = loop.time() + PATIENCE_S
    while not condition():
        if error := pilot.app._exception:
            raise error
        if loop.time() > end or (pilot.app._exit and not pilot.app.is_running):
            raise AssertionError(f"never came: {what}\n{shown(pilot)}")
        await pilot.pause(0.02)


def strips(app: App[None]) -> list[Strip]:
    """The lines of the terminal."""
    # A dialog that is painted without what it lies over would keep an empty background for the picture.
    visible_screen_stack.set(app._background_screens)
    return app.screen._compositor.render_strips()


def shown(pilot: Pilot[None]) -> str:
    """What the terminal shows, as text."""
    return "\n".join(strip.text for strip in strips(pilot.app))


def notices(app: App[None]) -> list[str]:
    """The messages of the notifications."""
    return [notice.message for notice in app._notifications]


async def sees(pilot: Pilot[None], text: str) -> None:
    """Wait until a text is on the screen."""
    await until(pilot, lambda: text in shown(pilot), text)


async def reaches(pilot: Pilot[None], screen: type[Screen[Any]]) -> None:
    """Wait until a screen of a kind is on top."""
    await until(pilot, lambda: isinstance(pilot.app.screen, screen), screen.__name__)


def is_drawn(screen: Screen[object], state: RunState | None = None) -> bool:
    """Whether the chart of a screen, of a run's state if one is given, is drawn for its present size."""
    return any(
        plot.is_drawn((state.returns, state.marks) if state else plot._of)
        for plot in screen.query(Plot)
    )


@asynccontextmanager
async def rolling_out(app: App[None], size: tuple[int, int]) -> AsyncIterator[Pilot[None]]:
    """The app on a terminal of a size, once its run plays."""
    async with app.run_test(size=size) as pilot:
        await sees(pilot, "episode ")
        yield pilot


def widget_text(widget: Widget) -> str:
    """What a widget shows, as text."""
    return "\n".join(widget.render_line(y).text for y in range(widget.size.height))


async def caught_up(pilot: Pilot[None]) -> None:
    """Wait until the app has read and shown all events of its scripted trainer."""
    await until(
        pilot,
        lambda: not _unread_events(pilot) and not getattr(pilot.app, "_paint_timer", None),
        "an app that has shown all events",
    )


async def stands_still(pilot: Pilot[None]) -> None:
    """Wait until nothing is under way that changes the picture: events, threads, timers that fire once, and paints."""
    await until(pilot, lambda: not under_way(pilot), "an end of what is under way")
    looks, before = 0, ""
    while looks < STILL:
        await pilot.pause(0.04)
        now = shown(pilot)
        looks = looks + 1 if now == before and not under_way(pilot) else 0
        before = now


def under_way(pilot: Pilot[None]) -> list[object]:
    """Unread events, workers other than the one that reads from the trainer, and timers that will fire once."""
    app = pilot.app
    widgets = [app, *app.screen_stack, *app.screen.walk_children()]
    timers = [
        timer for widget in widgets if not isinstance(widget, Toast) for timer in widget._timers
    ]
    due = [
        timer
        for timer in timers
        if timer._repeat == 0 and timer._task is not None and not timer._task.done()
    ]
    workers = [worker for worker in app.workers if worker.is_running and worker.group != "trainer"]
    return [*_unread_events(pilot), *workers, *due]


def _unread_events(pilot: Pilot[None]) -> list[FakeClient]:
    """The scripted trainer, while it has events that the app has not read."""
    client = getattr(pilot.app, "_client", None)
    listens = any(worker.group == "trainer" and worker.is_running for worker in pilot.app.workers)
    return [client] if listens and isinstance(client, FakeClient) and not client.heard_out else []
