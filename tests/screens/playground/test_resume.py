"""A run that goes on in the playground: what it has been stands there before its trainer is up, and is counted on."""

from __future__ import annotations

from pathlib import Path

from msgspec.structs import replace
from textual.widgets import TextArea

from llamagym_tui.app.app import LlamaGymApp
from llamagym_tui.protocol.events import AnyEvent, CheckpointSaved, PromptChanged, RunStarted
from llamagym_tui.user_files import runs_dir
from tests import fakes
from tests.recorded_run import record
from tests.screens.conftest import MakeApp
from tests.screens.steps import sees, shown

SIZE = (120, 34)
DEATH = "The trainer died (killed by SIGKILL)."


def run(*more: AnyEvent) -> Path:
    """A run of 1,024 episodes and 2 updates, and what else came of it."""
    events = [*fakes.opening_events(), *fakes.learning(8), *more]
    return record(runs_dir() / "late", events, checkpoint=True)


def taken_up(folder: Path, episodes: int, **changes: object) -> RunStarted:
    return replace(fakes.run_started(str(folder)), episodes=episodes, updates=2, **changes)


async def test_a_resumed_run_shows_what_it_has_been_before_its_trainer_is_up():
    later = [
        PromptChanged(prompt_version=2, system_prompt="Win."),
        fakes.counted([1.0] * 8, 1032, prompt_version=2),
    ]
    folder = run(*later)
    client = fakes.FakeClient([])
    app = LlamaGymApp(fakes.config(folder, resume=True), client_factory=lambda: client)
    async with app.run_test(size=(120, 34)) as pilot:
        await sees(pilot, "the curve")
        await pilot.press("p")
        await sees(pilot, "v1         “You are playing")
        assert "over 8" in shown(pilot)
        assert "active" not in shown(pilot)
        assert app.screen.query_one(TextArea).text == "Win."
        again = taken_up(folder, 1032, prompt_version=2, system_prompt="Win.")
        client.emit(again, fakes.counted([1.0] * 4, 1036, prompt_version=2))
        await sees(pilot, "v2 active  “Win.”")
        await sees(pilot, "over 12")
        await pilot.press("escape", "m")
        await sees(pilot, "1,024 prompt v2")


async def test_r_goes_on_from_the_checkpoint_of_a_dead_trainer_with_its_history(make_app: MakeApp):
    saved = [CheckpointSaved(update=2), *list(fakes.learning(12))[10:]]
    first = fakes.FakeClient(iter([*fakes.opening_events(), *fakes.learning(8), *saved]))
    again = fakes.FakeClient(iter([taken_up(Path("/runs/demo"), 1024)]))
    app = make_app(first)
    app._client_factory = iter([first, again]).__next__
    async with app.run_test(size=SIZE) as pilot:
        await sees(pilot, "episode 1,536")
        first.die(DEATH)
        await sees(pilot, "r Restart")
        await pilot.press("r")
        await sees(pilot, "episode 1,024")
        assert again.started is not None
        assert again.started.resume
        state = app.run_state
        assert state is not None
        assert (state.updates, state.returns.episodes, len(state.history.samples)) == (2, 1024, 2)


async def test_r_without_a_checkpoint_begins_another_run_without_the_first_ones_figures(
    make_app: MakeApp,
):
    clients = [fakes.FakeClient(fakes.demo_run()), fakes.FakeClient()]
    app = make_app(clients[0])
    app._client_factory = iter(clients).__next__
    async with app.run_test(size=SIZE) as pilot:
        await sees(pilot, "20,494 ")
        clients[0].die(DEATH)
        await sees(pilot, "r Restart")
        await pilot.press("r")
        await sees(pilot, "episode ")
        await pilot.press("p")
        await sees(pilot, "no episode yet")
