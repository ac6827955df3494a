"""The report of a run: one file that stands by itself, in which foreign text stays text, and its figures."""

from __future__ import annotations

import csv
import re
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
from llamagym_tui.protocol.events import (
    AnyEvent,
    PromptChanged,
    WarmStartFinished,
)
from llamagym_tui.settings import WarmStartStats
from llamagym_tui.state.run import initial_state
from llamagym_tui.state.run_summary import RunSummary
from tests import fakes
from tests.recorded_run import record
from tests.screens.map_events import hitting, layout_of

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
    assert "After update 0, prompt v1 · plays like basic strategy in 110 of 280 hands" in text
    assert "After update 2, prompt v2 · plays like basic strategy in" in text
    best, worst = text.split("The best")[1].split("The worst")
    assert "episode: 1031" in best
    assert "reward    ▲ +1 · no action named" in best
    assert "return    ▲ +1" in best
    assert "episode: 1030" in worst
    assert "return    ▼ −1" in worst
    assert "The best that was recorded" in text


def test_the_chart_is_drawn_in_its_bounds(here: Path) -> None:
    reported(here)
    html = (here / "one.html").read_text()
    svg = ElementTree.fromstring(re.search("<svg.*?</svg>", html, re.DOTALL)[0])  # type: ignore[index]
    left, top, width, height = map(float, str(svg.get("viewBox")).split())
    lines = {
        line.get("class"): str(line.get("points")).split()
        for line in svg.iter()
        if line.get("points")
    }
    assert lines.keys() == {"band", "level", "mark", "curve"}
    curve = [tuple(map(float, place.split(","))) for place in lines["curve"]]
    assert len(curve) == 274  # each fourth episode from the 60th on, half a window of 115
    assert (curve[0][0], curve[-1]) == (left, (left + width, -1.0))
    assert all(top <= y <= top + height for _, y in curve)
    assert len(lines["band"]) == 548
    assert lines["mark"][0].startswith("1024,")
    labels = re.findall(r'<span style="[^"]*">(.*?)</span>', html)
    assert labels[:2] == ["best −0.047", "random −0.396"]
    assert labels[-1] == "1"


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


def test_a_card_says_that_replies_were_chosen_by_their_scores(here: Path) -> None:
    story = report.story_of(record(here / "one", a_run()))
    assert export.BY_SCORE in export.card(story, by_score=True)
    assert export.BY_SCORE not in export.card(story)


def test_a_run_without_episodes_has_a_report_that_says_so(here: Path) -> None:
    text = reported(here, "--film", "f.svg", events=fakes.opening_events()).text
    assert not (here / "f.svg").exists()
    assert "too few episodes for a curve" in text
    assert "No policy map was recorded" in text
    assert "No whole conversation was recorded" in text


def test_a_place_that_cannot_be_written_is_one_sentence(here: Path) -> None:
    record(here / "runs" / "one", fakes.opening_events())
    (here / "file").touch()
    refused = CliRunner().invoke(app, ["report", "one", "-o", str(here / "file" / "one.html")])
    assert refused.exit_code == 2
    assert refused.stderr.endswith("name another file with --output.\n")


@pytest.mark.parametrize(
    ("updates", "warm_starts", "methods"),
    [
        (2, [], "reinforcement learning"),
        (0, ["sft"], "demonstrations (SFT)"),
        (2, ["sft"], "demonstrations (SFT), then by reinforcement learning"),
    ],
)
def test_a_model_is_said_to_be_trained_by_what_its_run_did(
    tmp_path: Path, updates: int, warm_starts: list[Any], methods: str
) -> None:
    state = replace(initial_state(fakes.config(tmp_path)), updates=updates)
    stats = WarmStartStats(
        demonstrations=20, tokens=180, steps=2, first_loss=1.5, last_loss=0.5, elapsed_s=3.0, cancelled=False
    )  # fmt: skip
    done = [WarmStartFinished(method=each, stats=stats) for each in warm_starts]
    assert report.Story(state, RunSummary(), done).methods == methods
