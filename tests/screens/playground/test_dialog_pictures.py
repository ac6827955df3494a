"""How the screens look that steer and measure a run; `pytest … --snapshot-update` takes new pictures: look at them."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from msgspec.structs import replace
from textual.pilot import Pilot

from llamagym_tui.app.app import LlamaGymApp
from llamagym_tui.protocol.commands import ChangeSettings
from llamagym_tui.protocol.events import (
    AnyEvent,
    ModeChanged,
    PromptChanged,
    SettingsChanged,
    UpdateFinished,
)
from llamagym_tui.screens.playground.metrics import FigureList
from llamagym_tui.screens.widgets.frame import CommandAsked
from tests import fakes
from tests.screens.conftest import MakeApp
from tests.screens.pictures import SMALL, WIDE
from tests.screens.steps import is_drawn, sees, stands_still, until

EVALUATED = fakes.evaluation(
    -0.081,
    episodes=1000,
    return_stderr=0.03,
    elapsed_s=4.2,
    update=1,
    prompt_version=1,
    system_prompt=fakes.PROMPT,
)


async def furnished(pilot: Pilot[None]) -> None:
    """Wait until all of the playground is there, its chart drawn."""
    app = pilot.app
    assert isinstance(app, LlamaGymApp)
    await sees(pilot, "episode ")
    if app.size.width >= WIDE[0] and app.run_state is not None and app.run_state.returns.groups:
        await until(pilot, lambda: is_drawn(app.screen, app.run_state))
    await stands_still(pilot)


def updates() -> Iterator[AnyEvent]:
    """A run whose figures move, with a change of mode and one of a setting."""
    yield from fakes.opening_events()
    for number in range(1, 41):
        wave = math.sin(number / 2)
        stats = replace(
            fakes.STATS,
            mean_return=-0.4 + 0.05 * number**0.5 + 0.01 * wave,
            approx_kl=0.006 + 0.004 * wave,
            kl_ref=0.006 * number,
            entropy=0.05 + 0.3 * 0.95**number,
            action_entropy=0.68 * 0.98**number,
            clip_fraction=0.26 if number == 40 else 0.08 + 0.06 * wave,
            explained_variance=0.005 * number - 0.03,
            grad_norm=0.8 + 0.2 * wave,
        )
        yield UpdateFinished(update=number, episodes=512 * number, stats=stats)
        if number == 12:
            yield ModeChanged(mode="inference")
            yield ModeChanged(mode="train")
        if number == 25:
            yield SettingsChanged(changes={"ppo.lr": 1e-4, "ppo.lr_final": 1e-4})


def test_metrics(snap_compare: Any, make_app: MakeApp):
    async def settled(pilot: Pilot[None]) -> None:
        await sees(pilot, "episode 20,480")
        await pilot.press("m")
        await sees(pilot, "clip frac")
        figures = pilot.app.screen.query_one(FigureList)
        figures.highlighted = figures.get_option_index("clip_fraction")
        await sees(pilot, "26.0%  above its")

    assert snap_compare(
        make_app(fakes.FakeClient(updates())), terminal_size=WIDE, run_before=settled
    )


def test_settings(snap_compare: Any, make_app: MakeApp):
    async def settled(pilot: Pilot[None]) -> None:
        await furnished(pilot)
        app.post_message(CommandAsked(ChangeSettings(changes={"ppo.clip_range": 0.1})))
        await pilot.press("s", "down", "enter", "x")
        await sees(pilot, "generation.temperature takes a number above 0")
        await sees(pilot, "→ 0.1,")

    app = make_app(fakes.FakeClient(confirms=False))
    assert snap_compare(app, terminal_size=SMALL, run_before=settled)


def test_evaluation(snap_compare: Any, make_app: MakeApp):
    async def settled(pilot: Pilot[None]) -> None:
        await furnished(pilot)
        await pilot.press("e")
        await sees(pilot, "95 % interval")

    client = fakes.FakeClient(
        [*fakes.opening_events(), EVALUATED, replace(EVALUATED, greedy=False)]
    )
    assert snap_compare(make_app(client), terminal_size=SMALL, run_before=settled)


def test_prompt_editor(snap_compare: Any, make_app: MakeApp):
    async def settled(pilot: Pilot[None]) -> None:
        await furnished(pilot)
        await pilot.press("p")
        await sees(pilot, "v2 active")
        await pilot.press(*" Stick.")
        await sees(pilot, "13. Stick.")

    new = PromptChanged(prompt_version=2, system_prompt="Hit below 13.")
    counts = [
        fakes.counted([1.0, -1.0] * 8, 16),
        new,
        fakes.counted([1.0, 0.0] * 8, 32, prompt_version=2),
    ]
    client = fakes.FakeClient([*fakes.opening_events(), *counts])
    assert snap_compare(make_app(client), terminal_size=WIDE, run_before=settled)
