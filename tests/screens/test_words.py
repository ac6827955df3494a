"""What the screens say, where an earlier wording was not understood by those who read it for the first time."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from llamagym_tui.config import LIVE
from llamagym_tui.protocol.commands import SetSystemPrompt
from llamagym_tui.protocol.events import (
    ActionAwaited,
    ActionsProbed,
    AnyEvent,
    EventsLeftOut,
    PhaseChanged,
    PolicyMapped,
    Progressed,
    PromptChanged,
    RolledBack,
    SettingsChanged,
    UpdateFinished,
)
from llamagym_tui.screens.play.wheel_screen import agent_text
from llamagym_tui.screens.playground.banner import sentences
from llamagym_tui.screens.playground.figures import FirstSight, why_no_figures
from llamagym_tui.screens.playground.playground import PlaygroundScreen
from llamagym_tui.screens.policy_map.changes import changes_text
from llamagym_tui.screens.policy_map.mapped_policy import MappedPolicy, policy_text
from llamagym_tui.screens.policy_map.screen import describe
from llamagym_tui.screens.steering.settings import SettingsDialog
from llamagym_tui.screens.widgets.chart_cells import nice_ticks
from llamagym_tui.state.reduce import reduce
from llamagym_tui.state.run import RunState, initial_state, requested
from tests import fakes
from tests.screens.conftest import MakeApp
from tests.screens.map_events import blackjack, hitting, lake
from tests.screens.steps import rolling_out, sees, shown

LEAST_LR = replace(fakes.STATS, lr=0.0)


def after(*events: AnyEvent, **changes: object) -> RunState:
    """A Blackjack run after events."""
    state = initial_state(fakes.config(Path("/runs/demo"), **changes))
    for event in (*fakes.opening_events(), *events):
        state = reduce(state, event)
    return state


def notes(state: RunState) -> list[str]:
    return [getattr(entry.fact, "text", "") for entry in state.transcript.entries]


def banner(state: RunState) -> list[str]:
    return [each.text for each in sentences(state, lambda: "", lambda id, usual: usual)]


@pytest.mark.parametrize(
    ("id", "words"),
    [
        ("evaluate", "Measure how well it plays now; training is not affected."),
        ("figures", "All figures next to the curve, or three; remembered for next time."),
        ("view", "Show the drawing of the watched state, or hide it."),
    ],
)
def test_a_key_says_what_it_is_good_for(id: str, words: str) -> None:
    assert words in {binding.tooltip for binding in PlaygroundScreen.BINDINGS if binding.id == id}


def test_a_prompt_says_from_when_on_it_applies() -> None:
    state = requested(
        after(*fakes.hand(0, [("17", "Hm.", "failed")], 0.0)), SetSystemPrompt(system_prompt="Hit.")
    )
    state = reduce(state, PromptChanged(prompt_version=2, system_prompt="Hit."))
    assert notes(state)[-1] == "prompt v2 “Hit.”: applies from the next episode on"
    assert "Prompt v2 applies from the next episode on." in banner(state)


@pytest.mark.parametrize(
    ("reason", "count", "words"),
    [
        ("long_run", 205, "205 lines were not recorded: the log of a long run keeps some of its episodes."),
        ("long_run", 1, "1 line was not recorded: the log of a long run keeps some of its episodes."),
        ("full_disk", 2, "2 lines were not recorded: the disk was full."),
        ("slow_screen", 3, "3 lines were not shown: the screen did not keep up, and the run did not wait."),
    ],
)  # fmt: skip
def test_what_is_missing_is_counted_in_lines(reason: str, count: int, words: str) -> None:
    assert notes(after(EventsLeftOut(count=count, reason=reason)))[-1] == words  # type: ignore[arg-type]


def test_the_first_figures_say_when_they_come() -> None:
    state = after(fakes.counted([1.0] * 800, 800), fakes.counted([1.0] * 14, 814))
    assert why_no_figures(state) == "first update after 1,024 turns (814 so far)"
    slow = reduce(state, Progressed(doing="collecting turns", done=900, total=1024))
    assert why_no_figures(slow).endswith("(900 so far)"), "turns of episodes under way count, too"
    smaller = reduce(state, SettingsChanged(changes={"ppo.batch_size": 512}))
    assert why_no_figures(smaller) == "first update after 512 turns (512 so far)"
    inference = reduce(state, fakes.ModeChanged(mode="inference"))
    assert why_no_figures(inference) == "no update: nothing is trained"
    counted = reduce(inference, fakes.counted([1.0] * 9, 823, mode="inference"))
    trains = reduce(counted, fakes.ModeChanged(mode="train"))
    assert why_no_figures(trains).endswith("(814 so far)"), "what is not trained on fills no batch"
    updating = reduce(state, PhaseChanged(phase="updating"))
    assert why_no_figures(updating) == "the first update is under way"
    updated = reduce(state, UpdateFinished(update=1, episodes=814, stats=fakes.STATS))
    assert updated.batch_progress == (0, 1024)
    back = reduce(updated, RolledBack(update=7, reason=""))
    assert why_no_figures(back) == "the figures of update 7 are not kept"


def told(state: RunState) -> str:
    return FirstSight(state, id="x").content_at(80).plain


def test_a_map_says_how_many_updates_ago_it_was_computed() -> None:
    state = after(*blackjack(16.5, update=12))
    later = reduce(state, UpdateFinished(update=13, episodes=9, stats=fakes.STATS))
    assert "ago" not in told(state)
    assert told(later).endswith("in 244 of 280 hands (1 update ago)")
    later = reduce(later, UpdateFinished(update=21, episodes=99, stats=fakes.STATS))
    assert told(later).endswith("in 244 of 280 hands (9 updates ago)")
    back = reduce(state, RolledBack(update=3, reason=""))
    assert told(back).endswith("in 244 of 280 hands (before the roll back)")


def test_what_changed_is_told_in_moves() -> None:
    state = after(*blackjack(16.5, update=12))
    state = reduce(state, hitting(18.5, update=13))
    lines = changes_text(state).plain.splitlines()
    assert lines[0].startswith("Update 13: the preferred move changed in ")
    assert lines[0].endswith(" of 280 hands.")
    assert " changed to the best move, " in lines[1]
    assert lines[1].endswith(" away from it.")


@pytest.mark.parametrize(
    ("names", "drawn"), [(["stick", "hit"], "hit (25%)"), (["left", "right"], "hit")]
)
def test_what_the_agent_drew_is_told_with_its_probability(names: list[str], drawn: str) -> None:
    probed = ActionsProbed(episode=7, turn=0, names=names, shares=[0.75, 0.25])
    awaited = ActionAwaited(episode=7, turn=0, reply="{}", action_name="hit")
    state = after(probed, awaited)
    assert agent_text(state).plain == f"The agent drew {drawn}; its reply: {{}}"
    other = replace(state, wheel=state.wheel.after(replace(awaited, turn=1)))
    assert agent_text(other).plain == "The agent drew hit; its reply: {}"


def test_a_reply_without_an_action_is_told_to_be_one() -> None:
    awaited = ActionAwaited(episode=7, turn=0, reply="Hm.", action_name="")
    assert agent_text(after(awaited)).plain == (
        "The agent drew no action: the environment would get the fallback; its reply: Hm."
    )


def test_settings_are_named_for_what_they_do() -> None:
    titles = {name: setting.title for name, setting in LIVE.items()}
    assert titles["history"] == "earlier turns in the prompt"
    assert titles["ppo.target_kl"] == "stop an update early at this KL"
    assert titles["ppo.max_grad_norm"] == "gradient clipping (largest norm)"
    assert max(map(len, titles.values())) <= 33, "the column has room for them"


async def test_a_setting_that_waits_or_falls_says_so(make_app: MakeApp) -> None:
    client = fakes.FakeClient(
        [*fakes.opening_events(), UpdateFinished(update=1, episodes=9, stats=LEAST_LR)]
    )
    async with rolling_out(make_app(client), (80, 40)) as pilot:
        await pilot.press("s")
        await sees(pilot, "0.0005 from update 2 on")
        assert "earlier turns in the prompt       the agent's default" in shown(pilot)
        client.emit(UpdateFinished(update=2, episodes=19, stats=fakes.STATS))
        await sees(pilot, "0.0004 now, 0.0005 at first")
        assert isinstance(pilot.app.screen, SettingsDialog)


@pytest.mark.parametrize(
    ("share", "texts"),
    [(0.04, [" 0 ", "  4 "]), (0.97, [" 9 ", " 97 "]), (1.0, ["10 ", "100 "])],
)
def test_a_certain_action_is_ten_tenths_and_not_nine(share: float, texts: list[str]) -> None:
    state = after(*blackjack())
    layout = state.map_layout
    assert layout is not None
    policy = MappedPolicy(
        layout, PolicyMapped(update=1, prompt_version=1, shares=[[1 - share, share]])
    )
    cell = next(iter(policy.cells.values()))
    agreeing = cell._replace(cell=replace(cell.cell, best=[cell.choice]))
    assert [policy_text(layout, agreeing, width) for width in (3, 4)] == texts


@pytest.mark.parametrize(
    ("share", "texts"),
    [(0.97, ["→9×", "→9×", "→ 97%×"]), (1.0, ["→ ×", "→10×", "→100%×"])],
)
def test_an_arrow_alone_is_a_certain_action(share: float, texts: list[str]) -> None:
    state = after(*lake())
    layout = state.map_layout
    assert layout is not None
    right = layout.signs.index("→")
    shares = [(1 - share) / 3] * 4
    shares[right] = share
    policy = MappedPolicy(layout, PolicyMapped(update=1, prompt_version=1, shares=[shares]))
    cell = next(iter(policy.cells.values()))
    differing = cell._replace(cell=replace(cell.cell, best=[(right + 1) % 4]))
    assert [policy_text(layout, differing, width) for width in (3, 4, 7)] == texts


def test_a_state_without_probabilities_says_why() -> None:
    layout = after(*blackjack()).map_layout
    assert layout is not None
    nothing = MappedPolicy(layout, None)
    broken = MappedPolicy(
        layout, PolicyMapped(update=1, prompt_version=1, shares=[[float("nan"), 0.0]])
    )
    first = next(iter(nothing.cells))
    assert describe(nothing, nothing.cells[first]).plain == (
        "what the policy does here is known once its map is computed"
    )
    assert describe(broken, broken.cells[first]).plain == (
        "the policy's probabilities here are no numbers"
    )


def test_no_label_of_an_axis_stands_between_two_episodes() -> None:
    assert nice_ticks(10, 11, 4) == [10, 10.5, 11] or nice_ticks(10, 11, 4)[1] < 11
    assert nice_ticks(10, 11, 4, whole=True) == [10, 11]
    assert nice_ticks(0, 6500, 4, whole=True) == nice_ticks(0, 6500, 4)
