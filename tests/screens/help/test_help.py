"""Help begins with the keys of this moment, and is searched by words."""

from __future__ import annotations

from textual.app import App

from llamagym_tui.protocol.events import (
    AnyEvent,
    ModeChanged,
    PhaseChanged,
    SessionFailed,
    UpdateFinished,
)
from llamagym_tui.screens.help.help import HelpDialog
from llamagym_tui.screens.help.help_text import HelpText
from tests import fakes
from tests.screens.conftest import MakeApp
from tests.screens.steps import rolling_out, sees, shown, until, widget_text

OPENING = list(fakes.opening_events())
UPDATED = UpdateFinished(update=1, episodes=9, stats=fakes.STATS)
MOMENTS: dict[str, tuple[list[AnyEvent], str]] = {
    "loading": (OPENING[:2], "table"),
    "playing": (OPENING, "pause"),
    "learning": ([*OPENING, UPDATED], "policy_map"),
    "paused": ([*OPENING, UPDATED, PhaseChanged(phase="paused")], "pause"),
    "inference": ([*OPENING, ModeChanged(mode="inference")], "mode"),
    "failed": ([*OPENING, SessionFailed(message="No.")], "restart"),
    "ended": (
        [*OPENING, fakes.RunFinished(episodes=1, env_steps=1, updates=0, elapsed_s=1.0)],
        "metrics",
    ),
}


def first_words(app: App[None]) -> list[str]:
    """The first word of each line of the help."""
    lines = widget_text(app.screen.query_one(HelpText)).splitlines()
    return [line.split()[0] if line.strip() else "" for line in lines]


async def test_help_begins_with_what_can_be_done_now(make_app: MakeApp) -> None:
    client = fakes.FakeClient([*OPENING, *fakes.hand(1, [("17", "Hit.", "keyword")], 0.0)])
    app = make_app(client)
    async with rolling_out(app, (100, 40)) as pilot:
        await pilot.press("question_mark")
        await sees(pilot, "Pause after the current step.")
        assert first_words(app)[:7] == ["Now", "space", "-", "h", "p", "g", ""]
        await pilot.press("escape", "k", "question_mark")
        await sees(pilot, "i               The reply you look at")
        assert first_words(app)[:3] == ["Now", "i", "K"]


async def test_help_is_searched_by_words_and_escape_shows_all_again(make_app: MakeApp) -> None:
    app = make_app()
    async with rolling_out(app, (100, 40)) as pilot:
        await pilot.press("question_mark", "slash", *"clipped")
        await until(pilot, lambda: "Pause after" not in shown(pilot), "only what has the word")
        await sees(pilot, "clip frac")
        assert "To move a key" not in shown(pilot)
        await pilot.press("enter", "q")
        await until(pilot, lambda: not isinstance(app.screen, HelpDialog), "enter leaves the field")
        await pilot.press("question_mark", "slash", *"q", "escape")
        await sees(pilot, "Pause after the current step.")
        await pilot.press("escape")
        await until(pilot, lambda: not isinstance(app.screen, HelpDialog), "back")
