"""The report of a run: one file that stands by itself, in which foreign text stays text, and its figures."""

from __future__ import annotations

import csv
import re
import shlex
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from msgspec.structs import replace
from typer.testing import CliRunner

from llamagym_tui.agents.blackjack import BlackjackAgent
from llamagym_tui.cli import export, report
from llamagym_tui.cli.main import app
from llamagym_tui.cli.reproduction import command
from llamagym_tui.config import SFTSettings
from llamagym_tui.config.typed import assigned
from llamagym_tui.demos import training_data
from llamagym_tui.protocol.events import (
    AnyEvent,
    MatchPlayed,
    PromptChanged,
    RunStarted,
    UpdateFinished,
    WarmStartFinished,
)
from llamagym_tui.run_store import read_config
from llamagym_tui.screens.widgets.chart import nice_ticks
from llamagym_tui.setup.run_config import run_config
from tests import fakes
from tests.recorded_run import record
from tests.screens.map_events import hitting, layout_of
from tests.state.test_warm_start import FINISHED

HOSTILE = "<script>alert(1)</script>\x1b[2J</pre>\"'&amp;"


class Page(HTMLParser):
    """The tags of a page, their attributes, and its text."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.text = ""
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs

    def handle_data(self, data: str) -> None:
        self.text += data


def a_run(prompt: str = "Hit below 13.", says: str = "Your total: 12.") -> Iterator[AnyEvent]:
    """A run whose prompt is changed in the middle; its last hand is won, and the one before lost."""
    yield from fakes.opening_events()
    yield layout_of(BlackjackAgent())
    yield hitting(0, update=0)  # never
    yield from fakes.learning(8)
    yield PromptChanged(prompt_version=2, system_prompt=prompt)
    yield from fakes.hand(1030, [(says, '{"action": 1}', "json")], -1.0)
    yield from fakes.hand(1031, [("Your total: 20.", says, "failed")], 1.0)
    yield from fakes.hand(1032, [("Your total: 15.", "Action: 0", "pattern")], 0.0)
    yield fakes.counted([1.0] * 128, 1152, prompt_version=2)
    yield hitting(14.5, update=2, prompt_version=2)


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("LLAMAGYM_TUI_DATA", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def reported(
    here: Path, *words: str, events: Iterator[AnyEvent] | None = None, **settings: object
) -> Page:
    record(here / "runs" / "one", a_run() if events is None else events, **settings)
    done = CliRunner().invoke(app, ["report", "one", *words])
    assert done.exit_code == 0, done.output
    assert done.stdout.splitlines()[0] == "one.html"
    return Page((here / "one.html").read_text(encoding="utf-8"))


def test_a_report_shows_curve_marks_prompts_maps_and_episodes(here: Path) -> None:
    text = reported(here).text
    assert "1,152 episodes, 2 updates" in text
    assert "at episode 1,024, update 2: prompt v2 “Hit below 13.”" in text
    assert fakes.PROMPT in text
    assert "train +1 ± 0 over 128" in text
    assert "After update 0, prompt v1 · plays like the book in 110 of 280 hands" in text
    assert "After update 2, prompt v2 · plays like the book in" in text
    best, worst = text.split("The best")[1].split("The worst")
    assert "episode 1,031" in best
    assert "return  ▲ +1 · 1 turn" in best
    assert "episode 1,030" in worst
    assert "The best that was recorded" in text


def test_on_paper_all_text_of_a_map_is_dark_but_that_on_the_colour_of_a_state(here: Path) -> None:
    """The page's own ground is not printed, so that light text beside the states would not be seen."""
    reported(here)
    html = (here / "one.html").read_text(encoding="utf-8")
    printed = html.partition("@media print {")[2].partition("</style>")[0]
    dark = re.search(r"\.film \.p \{ fill: none \} (.*?) \{ fill: #000 \}", printed)
    assert dark is not None
    kinds = {name.rpartition(".")[2] for name in dark[1].split(", ")}
    films = re.findall('<svg class="film".*?</svg>', html, re.DOTALL)
    assert len(films) == 2
    for film in films:
        drawn = ElementTree.fromstring(film)
        cells = [
            [float(cell.attrib[name]) for name in ("x", "y", "width", "height")]
            for cell in drawn.iter("rect")
            if cell.get("class") is None
        ]
        for text in drawn.iter("text"):
            x, y = float(text.attrib["x"]), float(text.attrib["y"])
            is_on_a_state = any(
                left <= x <= left + width and top <= y <= top + height
                for left, top, width, height in cells
            )
            assert is_on_a_state != (text.get("class") in kinds), text.text


def test_the_chart_is_drawn_in_its_bounds(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    most: list[int] = []
    monkeypatch.setattr(
        report, "nice_ticks", lambda *ends: most.append(ends[-1]) or nice_ticks(*ends)
    )
    reported(here)
    assert most == [5, 6]  # returns, and episodes
    svg = ElementTree.fromstring(
        re.search("<svg.*?</svg>", (here / "one.html").read_text(), re.DOTALL)[0]
    )  # type: ignore[index]
    lines = {line.get("class"): line.get("points") for line in svg.iter() if line.get("points")}
    assert lines.keys() == {"band", "axis", "level", "mark", "curve"}
    curve = [tuple(map(float, place.split(","))) for place in lines["curve"].split()]
    assert len(curve) == 274  # each fourth episode from the 60th on, half a window of 115
    assert (curve[0], curve[-1]) == ((64.0, 248.8), (924.0, 41.1))
    assert all(24 <= y <= 324 for _, y in curve)
    band = lines["band"].split()
    assert (len(band), band[0], band[-1]) == (548, "64.0,206.3", "64.0,291.3")
    assert lines["mark"].split() == ["823.2,324.0", "823.2,24.0"]
    labels = [
        (each.text, float(each.get("x", 0)), float(each.get("y", 0))) for each in svg.iter("text")
    ]
    assert labels == [
        *(("−0.5", 64.0, 302.5), ("0.0", 64.0, 215.4), ("0.5", 64.0, 128.2), ("1.0", 64.0, 41.1)),
        *(("optimal −0.047", 924.0, 223.5), ("random −0.396", 924.0, 284.4)),
        *(("200", 174.3, 324.0), ("400", 331.8, 324.0), ("600", 489.3, 324.0)),
        *(("800", 646.8, 324.0), ("1,000", 804.3, 324.0), ("1", 823.2, 24.0)),
    ]


def test_nothing_of_a_prompt_an_observation_or_a_reply_is_part_of_the_page(here: Path) -> None:
    page = reported(here, events=a_run(HOSTILE, HOSTILE), model="<b>m", system_prompt="<img src=x>")
    assert page.text.count("<script>alert(1)</script>␛[2J</pre>\"'&amp;") == 3, "shown as it is"
    assert not {"script", "img", "link", "iframe", "a"} & set(page.tags)
    assert not any(name.startswith("on") or name in ("src", "href") for name, _ in page.attributes)
    assert "\x1b" not in page.text


def test_a_report_needs_no_network_and_forbids_it(here: Path) -> None:
    page = reported(here)
    html = (here / "one.html").read_text(encoding="utf-8")
    assert "http:" not in html
    assert "https:" not in html
    assert "url(" not in html
    assert ("content", "default-src 'none'; style-src 'unsafe-inline'") in page.attributes


def test_the_figures_of_every_update_are_written_as_csv(here: Path) -> None:
    reported(here, "--csv", "--film", "f.svg")
    assert (here / "f.svg").read_text().startswith("<svg")
    rows = list(csv.DictReader((here / "one.csv").open()))
    assert [row["update"] for row in rows] == ["1", "2"]
    assert [row["episodes_so_far"] for row in rows] == ["512", "1024"]
    assert float(rows[1]["approx_kl"]) == 0.0041
    assert float(rows[1]["lr"]) == 0.0004


def test_updates_that_a_resumed_run_made_again_stand_once(tmp_path: Path) -> None:
    started, stats = fakes.run_started(), fakes.STATS
    before = [
        UpdateFinished(update=update, episodes=10 * update, stats=stats) for update in (1, 2, 3)
    ]
    resumed = replace(started, updates=1, episodes=10)
    again = UpdateFinished(update=2, episodes=21, stats=stats)
    story = report.story_of(record(tmp_path / "run", [started, *before, resumed, again]))
    assert [(each.update, each.episodes) for each in story.updates] == [(1, 10), (2, 21)]
    assert isinstance(started, RunStarted)


def test_the_command_begins_a_run_with_the_same_settings(here: Path) -> None:
    reported(
        here,
        mode="inference",
        n_envs=7,
        env={"sab": True},
        minutes=None,
        full_finetuning=True,
    )
    text = Page((here / "one.html").read_text()).text
    words = shlex.split(text.split("To reproduce\n")[1].split("\n")[0].split("Played")[0])
    assert words[:5] == ["llamagym-tui", "train", "blackjack", "--model", "bundled"]
    assert words[-2:] == ["--episodes", "1152"]
    given = [words[at + 1] for at, word in enumerate(words) if word == "--set"]
    made = run_config("blackjack", {"env": {"sab": True}, **assigned(given)})
    assert replace(made, run_dir="", measured={}) == replace(
        read_config(here / "runs" / "one"), run_dir="", measured={}
    )


def taught(method: str) -> WarmStartFinished:
    return replace(FINISHED, method=method)


def command_of(folder: Path) -> list[str]:
    story = report.story_of(folder)
    return shlex.split(command(story.state, story.warm_starts))


@pytest.mark.parametrize(
    ("settings", "method", "updates", "expected"),
    [
        (
            {"sft_warm_start": True, "sft_data": "/mine.jsonl", "sft": SFTSettings(epochs=5)},
            "sft",
            2,
            "train blackjack --model bundled --set sft.epochs=5 --sft-warm-start "
            "--sft-data /mine.jsonl --episodes 1024",
        ),
        (
            {"sft_warm_start": True, "sft_data": None},
            "sft",
            2,
            "train blackjack --model bundled --sft-warm-start --episodes 1024",
        ),
        (
            {"sft_data": "/mine.jsonl", "form": "off"},
            "sft",
            0,
            "sft blackjack --model bundled --sft-data /mine.jsonl --episodes 400",
        ),
        (
            {"sft_data": "/mine.jsonl", "seed": 3},
            "dpo",
            0,
            "dpo blackjack --model bundled --set seed=3 --sft-data /mine.jsonl --episodes 400",
        ),
        (
            {"sft_data": "/mine.jsonl", "minutes": 5.0},
            "dpo",
            2,
            "dpo blackjack --model bundled --sft-data /mine.jsonl --episodes 400 --run-dir one && "
            "llamagym-tui train --resume --run-dir one --minutes 5",
        ),
        (
            {"sft_data": "/mine.jsonl", "episodes": 9_000},
            "sft",
            2,
            "sft blackjack --model bundled --sft-data /mine.jsonl --episodes 400 --run-dir one && "
            "llamagym-tui train --resume --run-dir one --episodes 9000",
        ),
        (
            {"minutes": 2.5, "seed": 4, "env": {"sab": True}, "system_prompt": "Play."},
            "",
            2,
            "train blackjack --model bundled --env sab=True --set seed=4 --prompt-file prompt.txt --set minutes=2.5",
        ),
        (
            {"model": "someone/large"},
            "",
            2,
            "train blackjack --model someone/large --set lora.layers=all --episodes 1024",
        ),
        (
            {"parent": "/runs/other@7"},
            "",
            2,
            "train blackjack --model bundled --from /runs/other@7 --episodes 1024",
        ),
    ],
)
def test_the_command_repeats_what_was_done(
    here: Path, settings: dict[str, Any], method: str, updates: int, expected: str
) -> None:
    events = [*fakes.opening_events(), fakes.evaluation(-0.3, episodes=400)]
    events += [taught(method)] if method else []
    settings = {"seed": 0, "minutes": None, **settings}
    folder = record(here / "one", [*events, *(fakes.learning(8) if updates else [])], **settings)
    assert command_of(folder) == shlex.split(f"llamagym-tui {expected}")
    story = report.story_of(folder)
    card = export.card(story)
    ppo = "reinforcement learning (PPO)"
    before = {"sft": "supervised training on", "dpo": "preferences from a person's"}.get(method, "")
    assert f"\n\nBy {before or ppo}" in card
    assert (ppo in card) == bool(updates)
    assert f"    {command(story.state, story.warm_starts)}\n" in card


def test_a_card_says_that_replies_were_chosen_by_their_scores(here: Path) -> None:
    story = report.story_of(record(here / "one", a_run()))
    assert export.BY_SCORE in export.card(story, by_score=True)
    assert export.BY_SCORE not in export.card(story)


def test_each_line_of_a_prompt_is_set_apart_in_a_card(here: Path) -> None:
    story = report.story_of(record(here / "one", a_run()))
    lines = replace(story.state, system_prompt="Play.\nWin.")
    card = export.card(story._replace(state=lines))
    assert "Its system prompt:\n\n    Play.\n    Win.\n\nMade by:" in card


def test_demonstrations_that_ship_are_not_named_by_their_place(here: Path) -> None:
    shipped = training_data.shipped(BlackjackAgent())
    settings = {"sft_warm_start": True, "sft_data": str(shipped)}
    words = command_of(record(here / "one", [*fakes.opening_events(), taught("sft")], **settings))
    assert "--sft-warm-start" in words
    assert "--sft-data" not in words


def test_a_warm_start_amid_a_run_is_told_and_not_part_of_the_command(here: Path) -> None:
    text = reported(here, events=iter([*a_run(), taught("sft")])).text
    assert "; made while the run was under way, so the command does not repeat it" in text
    words = shlex.split(text.split("To reproduce\n")[1].split("\n")[0].split("Played")[0])
    assert not {"--sft-warm-start", "sft"} & {*words}


def test_a_match_against_a_person_is_no_evaluation_in_a_report(here: Path) -> None:
    found = fakes.evaluation(0.9, episodes=20)
    match = MatchPlayed(seed=5, returns=[0.9] * 20, played=found)
    text = reported(here, events=iter([*a_run(), match])).text
    assert "evaluated" not in text
    assert "Match" not in text.split("To reproduce")[0].split("Prompts")[0]


def test_a_run_without_episodes_has_a_report_that_says_so(here: Path) -> None:
    text = reported(here, events=fakes.opening_events()).text
    assert "too few episodes for a curve" in text
    assert "No policy map was recorded" in text
    assert "No whole conversation was recorded" in text


def test_a_place_that_cannot_be_written_is_one_sentence(here: Path) -> None:
    record(here / "runs" / "one", fakes.opening_events())
    (here / "file").touch()
    refused = CliRunner().invoke(app, ["report", "one", "-o", str(here / "file" / "one.html")])
    assert refused.exit_code == 2
    assert refused.stderr.endswith("name another file with --output.\n")
