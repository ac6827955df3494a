"""A run as text and as one picture: what stands in both, and the key that makes them."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

import pytest

from llamagym_tui.run_folder import CARD_FILE
from llamagym_tui.screens.metrics.metrics import MetricsScreen
from llamagym_tui.screens.playground.card_picture import card_svg, card_text
from llamagym_tui.screens.policy_map.film import LANDMARKS
from tests import fakes
from tests.screens.conftest import MakeApp
from tests.screens.map_events import blackjack, hitting, lake
from tests.screens.playground.test_run_card import folded
from tests.screens.steps import notices, reaches, rolling_out, until

SVG = "{http://www.w3.org/2000/svg}"
COMMAND = "llamagym-tui train blackjack --model bundled --set seed=1 --episodes 5120"
LEARNT = [*blackjack(9.5, 2), *fakes.learning(40), hitting(15.5, update=10)]


def texts(svg: str) -> list[str]:
    return ["".join(text.itertext()) for text in ElementTree.fromstring(svg).iter(f"{SVG}text")]


def test_a_card_has_sentence_curve_both_maps_prompt_and_command() -> None:
    state = folded(*LEARNT)
    svg = card_svg(state)
    found = texts(svg)
    said = "plays like the book in 234 of 280 hands ▲ 64"
    assert found[:2] == ["Blackjack · bundled", said]
    assert found[2].startswith("mean return −0.144 ± 0.060 over the last 1,000 of 5,120 episodes")
    assert {"after update 2 · 170 of 280", "after update 10 · 234 of 280"} < {*found}
    assert {"optimal −0.047", "random −0.396", "1,000", "−0.2", "hard", "soft"} < {*found}
    assert found[-3:] == ['{"action": 1} to hit.', "to do it again", COMMAND]
    drawn = ElementTree.fromstring(svg)
    assert [line.get("class") for line in drawn.iter(f"{SVG}polyline")].count("curve") == 1
    outlined = [each for each in drawn.iter(f"{SVG}rect") if each.get("stroke")]
    assert len(outlined) == (280 - 170) + (280 - 234)
    lines = card_text(state).splitlines()
    assert (lines[0], lines[1], lines[-1]) == ("Blackjack · bundled", said, COMMAND)
    assert lines[3] == f"prompt: {fakes.PROMPT}"


def test_everything_of_a_card_is_within_it() -> None:
    drawn = ElementTree.fromstring(card_svg(folded(*LEARNT)))
    wide = int(drawn.attrib["width"])
    for group in drawn.iter(f"{SVG}g"):
        place = group.attrib["transform"].partition("(")[2].split(",")[0]
        rects = [
            float(each.attrib["x"]) + float(each.attrib["width"])
            for each in group.iter(f"{SVG}rect")
        ]
        assert float(place) + max(rects, default=0) < wide


def test_fields_have_their_colours_and_too_few_episodes_no_curve() -> None:
    svg = card_svg(folded(*lake()))
    assert [svg.count(LANDMARKS[name].hex) for name in ("danger", "goal")] == [4, 1]
    assert "There were too few episodes for a curve." in texts(svg)


def test_a_card_loads_nothing_and_what_others_write_stays_text() -> None:
    hostile = "</text><script>alert(1)</script>\x1b[2J"
    events = [*fakes.opening_events(), fakes.PromptChanged(prompt_version=2, system_prompt=hostile)]
    svg = card_svg(folded(*events))
    kinds = {each.tag.removeprefix(SVG) for each in ElementTree.fromstring(svg).iter()}
    assert kinds <= {"svg", "style", "rect", "g", "text", "title", "polyline", "polygon"}
    assert "\x1b" not in svg
    assert "http" not in svg.replace(SVG.strip("{}"), "")
    assert "url(" not in svg


@pytest.mark.parametrize("screen", ["playground", "metrics", "card"])
async def test_y_copies_a_run_and_saves_its_card_from_any_screen(
    make_app: MakeApp, monkeypatch: pytest.MonkeyPatch, screen: str
) -> None:
    written: dict[Path, bytes] = {}
    monkeypatch.setattr("llamagym_tui.user_files.replace_file", written.__setitem__)
    app = make_app(fakes.FakeClient(LEARNT))
    async with rolling_out(app, (80, 24)) as pilot:
        if screen != "playground":
            await pilot.press({"metrics": "m", "card": "C"}[screen])
        if screen == "metrics":
            await reaches(pilot, MetricsScreen)
        await pilot.press("y")
        await until(pilot, lambda: any("its card is saved" in each for each in notices(app)))
        state = app.run_state
        assert app.clipboard == card_text(state)
        assert written == {Path(state.run_dir) / CARD_FILE: card_svg(state).encode()}


async def test_a_card_that_cannot_be_saved_is_a_sentence_and_the_text_is_copied(
    make_app: MakeApp, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError("no room")

    app = make_app()
    async with rolling_out(app, (80, 24)) as pilot:
        monkeypatch.setattr("llamagym_tui.user_files.replace_file", refuse)
        await pilot.press("y")
        told = "The run is copied as text; its card is not saved (no room)."
        await until(pilot, lambda: told in notices(app))
        assert app.clipboard == card_text(app.run_state)
