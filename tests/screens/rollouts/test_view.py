"""`view`: the steps, the rollouts of one, a rollout, and what is found in all of them."""

from __future__ import annotations

import json
import math
import threading
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from textual.pilot import Pilot
from textual.widgets import Static

from llamagym_tui.app.app import ScreenApp
from llamagym_tui.rollouts.index import Rollouts
from llamagym_tui.screens.rollouts import screen as screen_module
from llamagym_tui.screens.rollouts.panes import ListPane
from llamagym_tui.screens.rollouts.rollout_view import RolloutView
from llamagym_tui.screens.rollouts.screen import RolloutsScreen
from llamagym_tui.screens.rollouts.side_by_side import SideBySideScreen
from llamagym_tui.screens.widgets.lines import Lines
from tests.protocol.test_literal import NASTY, harmful
from tests.screens.steps import notices, reaches, sees, shown, until, widget_text

WIDE = (120, 34)
FILE = Path("rollouts.jsonl")


@pytest.fixture(autouse=True)
def looks_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(screen_module, "LOOK_S", 0.1)
    monkeypatch.setattr(screen_module, "SHOWN_S", 0.05)


def record(said: str, *, asked: str = "3 + 4?", **fields: Any) -> dict[str, Any]:
    messages = [{"role": "user", "content": asked}, {"role": "assistant", "content": said}]
    return {"messages": messages, **fields}


def write(records: Iterable[Mapping[str, Any]]) -> None:
    with FILE.open("a", encoding="utf-8") as file:
        file.writelines(json.dumps(each) + "\n" for each in records)


def two_steps() -> list[dict[str, Any]]:
    """Two groups of two in each of two steps; in the second step the first group has learnt."""
    return [
        record("It is six, I think.", step=1, group="a", reward=0.0),
        record("It is seven.", step=1, group="a", reward=1.0),
        record("Ten, I think.", asked="5 + 6?", step=1, group="b", reward=0.0),
        record("Twelve.", asked="5 + 6?", step=1, group="b", reward=0.0),
        record("It is seven.", step=2, group="a", reward=1.0),
        record("Seven it is.", step=2, group="a", reward=1.0),
        record("Ten, I think.", asked="5 + 6?", step=2, group="b", reward=0.25),
        record("Eleven.", asked="5 + 6?", step=2, group="b", reward=1.0),
    ]


@asynccontextmanager
async def viewed(size: tuple[int, int] = WIDE) -> AsyncIterator[Pilot[None]]:
    """The app on a file, once all of it is read."""
    app = ScreenApp(partial(RolloutsScreen, Rollouts(str(FILE))))
    async with app.run_test(size=size, notifications=True) as pilot:
        await until(pilot, lambda: pilot.app.screen.query_one("#steps", Lines).count, "a list")
        yield pilot


def screen_of(pilot: Pilot[None]) -> RolloutsScreen:
    assert isinstance(pilot.app.screen, RolloutsScreen)
    return pilot.app.screen


def listed(pilot: Pilot[None]) -> list[str]:
    """The lines of the list of rollouts."""
    text = widget_text(screen_of(pilot).query_one("#rollouts"))
    return [line.removeprefix("▌").strip() for line in text.splitlines() if line.strip()]


def title(pilot: Pilot[None]) -> str:
    return str(screen_of(pilot).query_one(ListPane).border_title)


def read(pilot: Pilot[None]) -> str:
    """The rollout that is shown."""
    return widget_text(screen_of(pilot).query_one(RolloutView))


async def test_it_opens_on_the_newest_step_with_its_figures_and_its_first_rollout():
    write(two_steps())
    async with viewed() as pilot:
        text = shown(pilot)
        assert "VIEW  8 rollouts · rollouts.jsonl" in text
        # Step 1: rewards 0, 1, 0, 0; all alike in group b. Step 2: 1, 1, ¼, 1; all alike in group a.
        assert "1        4  0.250 ± 0.433    50%" in text
        assert "2        4  0.812 ± 0.325    50%" in text
        assert "step 2 · reward +1" in text
        assert [line.split()[0] for line in listed(pilot)] == ["1", "1", "2", "2"]
        assert "assistant It is seven." in read(pilot)
        await pilot.press("up")
        await sees(pilot, "step 1 · reward 0")
        assert "It is six, I think." in read(pilot)


async def test_the_order_is_by_reward_and_by_what_changed_most():
    write(two_steps())
    async with viewed() as pilot:
        assert "It is seven." in listed(pilot)[0]
        await pilot.press("o", "o")
        assert "worst first" in title(pilot)
        assert "Ten, I think." in listed(pilot)[0]
        # Its group was written second, and keeps its number, in a search too.
        assert listed(pilot)[0].split()[0] == "2"
        await pilot.press("slash", *"eleven", "enter")
        await until(pilot, lambda: "1 · found" in title(pilot), "the find")
        assert listed(pilot)[0].split()[0] == "2"
        await pilot.press("escape")
        await pilot.press("o", "o")
        assert "changed most" in title(pilot)
        # The mean of group a went from ½ to 1, that of b from 0 to ⅝.
        assert "Ten, I think." in listed(pilot)[0]
        await pilot.press("o")
        assert "as written" in title(pilot)


async def test_thoughts_calls_and_tools_are_a_line_each_until_they_are_unfolded():
    messages = [
        {"role": "user", "content": "3 + 4?"},
        {
            "role": "assistant",
            "content": "<think>First\nI add.</think>I add them.",
            "tool_calls": [{"function": {"name": "add", "arguments": '{"a": 3}'}}],
        },
        {"role": "tool", "content": "seven\nexactly"},
    ]
    write([{"messages": messages, "reward": 1.0, "expected": "7"}])
    async with viewed() as pilot:
        await pilot.press("3")
        assert [line.strip("▌ ") for line in read(pilot).splitlines() if line.strip()][:6] == [
            "fact      ▸ expected: 7",
            "user      3 + 4?",
            "thought   ▸ First I add.",
            "assistant I add them.",
            'call      ▸ add({"a": 3})',
            "tool      ▸ seven exactly",
        ]
        await pilot.press("j", "j", "f")
        assert "thought   First" in read(pilot)
        assert "▌          I add." not in read(pilot)
        await pilot.press("j", "enter")
        assert "thought   ▸ First I add." in read(pilot)


async def test_a_search_lists_what_it_finds_and_esc_goes_back():
    write(two_steps())
    async with viewed() as pilot:
        await pilot.press("slash", *"i think", "enter")
        await until(pilot, lambda: "3 · found: i think" in title(pilot), "three finds")
        assert [line.split()[0] for line in listed(pilot)] == ["1", "1", "2"]
        assert "It is six" in read(pilot)
        await pilot.press("n")
        assert "Ten, I think." in read(pilot)
        await pilot.press("n", "N", "escape")
        await until(pilot, lambda: "as written" in title(pilot), "the list of the step")
        assert len(listed(pilot)) == 4


async def test_what_was_found_is_gone_to_in_a_thought_and_over_a_line_end():
    said = "<think>" + "word " * 400 + "needle</think>Seven, " + "x" * 40 + " haystack."
    write([record(said, reward=1.0)])
    async with viewed() as pilot:
        await pilot.press("slash", *"/word needle/", "enter")
        await until(pilot, lambda: "needle" in read(pilot), "the end of the thought")
        row = next(line for line in read(pilot).splitlines() if line.startswith("▌"))
        assert "word" in row
        await pilot.press("slash", *"nowhere", "enter")
        await until(pilot, lambda: "0 · found" in title(pilot), "no finds")


async def test_a_regular_expression_that_is_none_is_said_and_the_list_stays():
    write(two_steps())
    async with viewed() as pilot:
        await pilot.press("slash", *"/(/", "enter")
        await until(pilot, lambda: notices(pilot.app), "a sentence")
        assert any("no regular expression" in each for each in notices(pilot.app))
        assert "as written" in title(pilot)


async def test_tokens_are_coloured_by_what_the_file_has_and_the_cursor_tells_their_figures():
    tokens = ["It", " is", " seven"]
    half, quarter = math.log(0.5), math.log(0.25)
    write(
        [
            record(
                "It is seven",
                tokens=tokens,
                logprobs=[0.0, half, quarter],
                ref_logprobs=[0.0, quarter, half],
                reward=1.0,
            )
        ]
    )
    async with viewed() as pilot:
        await pilot.press("t")
        token = screen_of(pilot).query_one("#token", Static)
        await pilot.press("right")
        assert "“·is” · log-probability −0.693" in str(token.content)
        assert "probability 0.500" in str(token.content)
        assert "ratio 2.00" in str(token.content)
        await pilot.press("l")
        assert "ratio 0.500" in str(token.content)
        await pilot.press("t")
        assert "log-ratio" in str(screen_of(pilot).query_one("#pane-3").border_subtitle)
        assert "“·seven”" in str(token.content), "the cursor stays on its token"
        await pilot.press("t")
        assert not screen_of(pilot).query_one("#pane-3").border_subtitle, "there are no advantages"
        assert not token.display


async def test_without_figures_of_tokens_a_sentence_says_so():
    write(two_steps())
    async with viewed() as pilot:
        await pilot.press("t")
        assert "Nothing is known of the tokens of this rollout." in notices(pilot.app)


async def test_a_group_stands_side_by_side_the_best_first_from_where_it_parts():
    write(two_steps())
    async with viewed() as pilot:
        await pilot.press("up", "s")
        await reaches(pilot, SideBySideScreen)
        await sees(pilot, "1 · reward 1.00")
        first, second = pilot.app.screen.query(RolloutView)
        # "3 + 4?", a line end, "It is ".
        assert "… 13 characters alike …" in widget_text(first)
        assert "assistant seven." in widget_text(first)
        assert "assistant six, I think." in widget_text(second)
        await pilot.press("right")
        assert second.has_focus
        await pilot.press("s")
        await reaches(pilot, RolloutsScreen)


async def test_what_repeats_is_listed_by_what_it_gained_since_the_first_step_and_searched():
    sorry = [record("I am sorry.", step=step, group="c", reward=0.0) for step in (1, 2, 2, 2, 2)]
    write([*two_steps(), *sorry])
    async with viewed() as pilot:
        await pilot.press("r")
        await sees(pilot, "I am sorry")
        first = widget_text(pilot.app.screen.query_one(Lines)).splitlines()[0]
        # In 4 of the 8 rollouts of step 2, and in 1 of the 5 of step 1.
        assert "50%   20%  I am sorry" in first
        assert "Ten , I" not in shown(pilot), "one rollout of step 2 says it"
        await pilot.press("enter")
        await until(pilot, lambda: "5 · found" in title(pilot), "the finds")


async def test_what_only_one_rollout_says_does_not_repeat_and_without_steps_nothing_is_compared():
    write([record("It is seven.", reward=1.0), record("So it was.", reward=0.0)])
    async with viewed() as pilot:
        await pilot.press("r")
        await sees(pilot, "Nothing repeats.")
        await pilot.press("escape")
        write([record("It is seven.", reward=1.0)])
        await until(pilot, lambda: len(listed(pilot)) == 3, "a third rollout")
        await pilot.press("r")
        await sees(pilot, "share of the rollouts")
        assert "step" not in str(pilot.app.screen.query_one(Static).content)
        # "It is seven", "is seven .": in two of three.
        assert "67%  It is seven" in widget_text(pilot.app.screen.query_one(Lines))


async def test_at_the_newest_step_it_follows_and_elsewhere_it_stays():
    write(two_steps())
    async with viewed() as pilot:
        write([record("Seven!", step=3, reward=1.0)])
        await sees(pilot, "step 3 · reward +1")
        await pilot.press("o", "3")
        write([record("Eight!", step=4, reward=0.0)])
        await sees(pilot, "4        1")
        assert "Seven!" in read(pilot)
        write([record("Nine!", step=3, reward=9.0)])
        await until(pilot, lambda: len(listed(pilot)) == 2, "a list that grew")
        assert "Nine!" in listed(pilot)[0]
        assert "Seven!" in read(pilot)


async def test_notes_are_said_once_and_can_be_read_again():
    write([record("Seven.", reward=1.0)])
    FILE.write_text(FILE.read_text("utf-8") + "no json\n", "utf-8")
    async with viewed() as pilot:
        await until(pilot, lambda: len(notices(pilot.app)) >= 2, "two notes")
        FILE.write_text(FILE.read_text("utf-8") + "nor this\n", "utf-8")
        await until(pilot, lambda: "(2)" in screen_of(pilot).HELP, "a second line that is no JSON")
        assert len(notices(pilot.app)) == 2
        assert any("These files have no steps" in each for each in notices(pilot.app))
        await pilot.press("question_mark")
        await sees(pilot, "Left out of rollouts.jsonl")


async def test_at_most_three_notes_are_said_at_once_and_the_help_has_all():
    write([{"nothing": "said"}, record("Seven.", step="x", reward="y")])
    FILE.write_text(FILE.read_text("utf-8") + "no json\n", "utf-8")
    async with viewed() as pilot:
        await until(pilot, lambda: len(screen_of(pilot).HELP.splitlines()) == 5, "five notes")
        await until(pilot, lambda: notices(pilot.app), "notes")
        assert notices(pilot.app) == screen_of(pilot).HELP.splitlines()[:3]


async def test_the_help_has_no_words_of_a_run_of_ours():
    write(two_steps())
    async with viewed() as pilot:
        await pilot.press("question_mark")
        await sees(pilot, "Show more of what is here.")
        help_on_keys = shown(pilot)
        await pilot.press("end")
        help_on_keys += shown(pilot)
        assert not any(
            each in help_on_keys for each in ("pane's screen", "is not paused", "run's folder")
        )


async def test_panes_are_painted_before_the_first_line_is_read(monkeypatch: pytest.MonkeyPatch):
    heights: list[int] = []
    goes_on = threading.Event()
    read_on = Rollouts.read_on

    def reading(rollouts: Rollouts) -> bool:
        heights.append(app.screen.query_one("#pane-3").size.height)
        goes_on.wait(5)
        return read_on(rollouts)

    monkeypatch.setattr(Rollouts, "read_on", reading)
    write(two_steps())
    app = ScreenApp(partial(RolloutsScreen, Rollouts(str(FILE))))
    async with app.run_test(size=WIDE) as pilot:
        await until(pilot, lambda: heights, "a first line that is read")
        assert heights[0] > 0
        assert "VIEW  reading …" in shown(pilot)
        assert "³ rollout" in shown(pilot)
        goes_on.set()
        await sees(pilot, "VIEW  8 rollouts")


async def test_hostile_text_is_literal_wherever_it_is_shown():
    write(
        record(
            nasty,
            asked=nasty,
            reward=1.0,
            group="a",
            expected=nasty,
            tokens=[nasty, "x"],
            logprobs=[-1.0, -2.0],
        )
        for nasty in NASTY
    )
    async with viewed() as pilot:
        for keys in (("2", *"j" * 6), ("t", "right"), ("s",), ("escape", "slash", *"x", "enter")):
            await pilot.press(*keys)
            assert harmful(shown(pilot)) == []


@pytest.mark.parametrize("size", [(60, 16), (80, 24)])
async def test_in_a_small_terminal_the_rollout_has_all_room_while_it_is_read(size: tuple[int, int]):
    write(two_steps())
    async with viewed(size) as pilot:
        assert "rollouts" in shown(pilot)
        await pilot.press("enter", "enter")
        assert screen_of(pilot).query_one(RolloutView).size.height >= size[1] - 5
        await pilot.press("escape")
        assert screen_of(pilot).query_one("#rollouts").has_focus
