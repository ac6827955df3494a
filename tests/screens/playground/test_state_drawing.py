"""The drawing of the watched state on the playground, against a scripted trainer."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

from msgspec.structs import replace
from textual.pilot import Pilot

from llamagym_tui.app.app import LlamaGymApp
from llamagym_tui.protocol.commands import DrawStates
from llamagym_tui.protocol.events import (
    AnyEvent,
    RunStarted,
    StateDrawn,
)
from llamagym_tui.screens.playground.panes import StateDrawing
from tests import fakes
from tests.protocol.test_literal import NASTY, harmful
from tests.recorded_run import record
from tests.screens.conftest import MakeApp
from tests.screens.pictures import SMALL, WIDE, at_sizes
from tests.screens.steps import rolling_out, sees, shown, until

TABLE = "┌────┐ ┌────┐     ┌────┐\n│ 10 │ │ ░░ │     │ {} │\n└────┘ └────┘     └────┘\ndealer            you"


def opening(*, draws: bool = True) -> Iterator[AnyEvent]:
    """A trainer whose agent draws."""
    for event in fakes.opening_events():
        yield replace(event, draws=draws) if isinstance(event, RunStarted) else event


def drawn(episode: int, turn: int, text: str, **marks: object) -> StateDrawn:
    return StateDrawn(episode=episode, turn=turn, text=text, **marks)  # type: ignore[arg-type]


def told_with_drawings(episode: int = 7, reward: float = 1.0) -> Iterator[AnyEvent]:
    """A hand of one turn: the drawing before the observation, and one of the last state."""
    start, observation, *said, end = fakes.hand(
        episode, [("Your total: 12.", '{"action": 1}', "json")], reward
    )
    yield from (start, drawn(episode, 0, TABLE.format(12)), observation, *said)
    yield from (drawn(episode, 1, TABLE.format(22)), end)


def places(pilot: Pilot[None]) -> list[str]:
    """Ids of the drawings that are on the screen."""
    return [str(place.id) for place in pilot.app.screen.query(StateDrawing) if place.region.area]


async def test_a_wide_terminal_draws_the_state_of_the_step_on_show(make_app: MakeApp):
    client = fakes.FakeClient(opening())
    async with make_app(client).run_test(size=WIDE) as pilot:
        await sees(pilot, "The next state is drawn here.")
        await until(pilot, lambda: client.sent == [DrawStates(on=True)])
        first = list(told_with_drawings())
        client.emit(*first[:3])
        await sees(pilot, "episode 7, turn 1")
        await sees(pilot, "│ 10 │ │ ░░ │     │ 12 │")
        assert places(pilot) == ["drawing"]
        client.emit(*first[3:])
        await sees(pilot, "episode 7  ▲ +1")
        assert "│ 22 │" in shown(pilot)
        client.emit(*fakes.hand(8, [("Your total: 9.", '{"action": 1}', "json")], 1.0))
        await sees(pilot, "Your total: 9.")
        await until(pilot, lambda: "│ 22 │" not in shown(pilot))


async def test_v_takes_the_table_away_and_brings_it_back(make_app: MakeApp):
    client = fakes.FakeClient(opening())
    async with rolling_out(make_app(client), SMALL) as pilot:
        await until(pilot, lambda: client.sent == [DrawStates(on=True)])
        client.emit(*told_with_drawings())
        await sees(pilot, "episode 7  ▲ +1")
        assert places(pilot) == ["drawing"]
        await pilot.press("v")
        await until(pilot, lambda: client.sent == [DrawStates(on=True), DrawStates(on=False)])
        await until(pilot, lambda: places(pilot) == [])
        await pilot.press("v")
        await until(pilot, lambda: places(pilot) == ["drawing"])


async def test_a_replay_shows_what_was_drawn_and_v_hides_it(tmp_path: Path):
    run_dir = record(tmp_path / "run", [*opening(), *told_with_drawings()])
    async with LlamaGymApp(replay=run_dir).run_test(size=WIDE) as pilot:
        await sees(pilot, "episode 7  ▲ +1")
        await pilot.press("v")
        await until(pilot, lambda: places(pilot) == [])


@at_sizes(SMALL, and_slowly=(WIDE,))
async def test_a_hostile_drawing_steers_no_terminal_and_stays_in_its_place(
    make_app: MakeApp, size: tuple[int, int]
):
    rng = random.Random(5)
    hostile = ["x" * 1_000_000, "y\n" * 500_000, "\x1b[2J\x1b]52;c;aGk=\x07" * 500, *NASTY]
    hostile += [
        "".join(rng.choice(NASTY) + chr(rng.randrange(0x11000)) for _ in range(40))
        for _ in range(4)
    ]
    client = fakes.FakeClient(opening())
    app = make_app(client)
    async with rolling_out(app, size) as pilot:
        for turn, text in enumerate(hostile):
            client.emit(
                drawn(3, turn, text, grounds=[(0, 3, "ice"), (-4, 10**9, "ice"), (2, 1, "?")])
            )
            await sees(pilot, f"episode 3, turn {turn + 1:,}")
            (place,) = [each for each in app.screen.query(StateDrawing) if each.region.area]
            assert place.region.height <= size[1] * 2 // 3
            for y in range(place.size.height):
                strip = place.render_line(y)
                assert strip.cell_length <= place.size.width
                assert harmful("".join(segment.text for segment in strip)) == []
