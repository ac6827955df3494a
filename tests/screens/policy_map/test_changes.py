"""What the last update did, by its key, live and in a replay, on maps and figures worked by hand."""

from __future__ import annotations

from pathlib import Path

from msgspec.structs import replace

from llamagym_tui.app.app import LlamaGymApp
from llamagym_tui.protocol.events import PolicyMapped, UpdateFinished
from tests import fakes, recorded_run
from tests.screens.conftest import MakeApp
from tests.screens.map_events import blackjack, hitting, lake
from tests.screens.steps import rolling_out, sees, shown, until

DONE = UpdateFinished(update=13, episodes=6_656, stats=fakes.STATS)


async def test_states_in_which_another_action_leads_are_named_with_their_probabilities(
    make_app: MakeApp,
):
    client = fakes.FakeClient(blackjack(14.5, update=12))
    async with rolling_out(make_app(client), (120, 34)) as pilot:
        client.emit(DONE)
        client.emit(hitting(15.6, update=13))
        await pilot.press("U")
        # Hits at 15 too: right hard against 7 to ace (5), wrong against 2 to 6 (5); soft right against all (10).
        await sees(pilot, "Update 13: the preferred move changed in 20 of 280 hands.")
        await sees(pilot, "15 changed to the best move, 5 away from it.")
        await sees(pilot, "hard 15, 7")  # in sight also where the words are cut
        assert shown(pilot).count("stick → hit") == 20
        assert shown(pilot).count("× stick → hit") == 5
        await sees(pilot, "p(hit)  44% →  56%")  # .99 of .5 + .11 x -.5 and + .11 x .6


async def test_where_no_other_action_leads_the_largest_shifts_are_shown(make_app: MakeApp):
    client = fakes.FakeClient(lake())
    async with rolling_out(make_app(client), (120, 34)) as pilot:
        before = next(event for event in lake() if isinstance(event, PolicyMapped))
        client.emit(
            replace(before, update=9, shares=[*before.shares[:-1], [0.01, 0.05, 0.9, 0.04]])
        )
        await pilot.press("U")
        await sees(pilot, "Updates 5 to 9: the preferred move changed in 0 of 11")
        await sees(pilot, "p(right)  70% →  90%")


async def test_in_a_replay_it_is_read_from_the_log(tmp_path: Path):
    events = [*blackjack(14.5, update=12), DONE, hitting(15.6, update=13)]
    app = LlamaGymApp(replay=recorded_run.record(tmp_path / "run", events))
    async with app.run_test(size=(120, 34)) as pilot:
        await sees(pilot, "REPLAY")
        await until(pilot, lambda: app.screen.player.recording.complete)  # type: ignore[attr-defined]
        await pilot.press("end", "U")
        await sees(pilot, "Update 13: the preferred move changed in 20 of 280 hands")
        await sees(pilot, "Update 13 moved episode 6,100 most")
