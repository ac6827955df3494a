"""The filmstrip of a policy map as an animated SVG, read back."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

import pytest
from msgspec.structs import replace

from llamagym_tui.app.app import LlamaGymApp
from llamagym_tui.errors import UsageError
from llamagym_tui.protocol.events import PolicyMapLaidOut
from llamagym_tui.protocol.map_layout import MapCell, MapPanel
from llamagym_tui.screens.policy_map.film import (
    FRAME_S,
    HELD,
    run_film,
)
from llamagym_tui.state.reduce import reduce
from llamagym_tui.state.run import RunState, initial_state
from tests import fakes
from tests.recorded_run import record
from tests.screens.map_events import blackjack, hitting
from tests.screens.steps import sees, until

SVG = "{http://www.w3.org/2000/svg}"


def after(*events) -> RunState:
    state = initial_state(fakes.config(Path("/runs/demo")))
    for event in events:
        state = reduce(state, event)
    return state


def frames(svg: str) -> list[ElementTree.Element]:
    return ElementTree.fromstring(svg).findall(f"{SVG}g")


def texts(of: ElementTree.Element) -> list[str]:
    return [(text.text or "").strip() for text in of.iter(f"{SVG}text")]


def test_each_map_has_its_turn_and_the_last_one_is_held() -> None:
    later = [hitting(14.5, update=13), hitting(16.5, update=14)]
    found = frames(run_film(after(*blackjack(3.0, update=12), *later)))
    turns = [frame.find(f"{SVG}animate").attrib for frame in found]  # type: ignore[union-attr]
    assert [turn["values"] for turn in turns] == [
        ";".join(values) for values in ("10" + "0" * HELD, "01" + "0" * HELD, "00" + "1" * HELD)
    ]
    assert {(turn["dur"], turn["repeatCount"]) for turn in turns} == {
        (f"{FRAME_S * (2 + HELD):g}s", "indefinite")
    }
    assert [frame.get("opacity") for frame in found] == ["0", "0", "1"], (
        "where nothing moves the last one is seen"
    )
    assert [len(frame.findall(f"{SVG}rect")) for frame in found] == [280] * 3
    words = [next(text for text in texts(frame) if "update" in text) for frame in found]
    assert words == [f"update {at} · plays like basic strategy in {n} of 280 hands" for at, n in
                     ((12, 110), (13, 224), (14, 244))]  # fmt: skip
    assert [sum("◦" in text for text in texts(frame)) for frame in found] == [170, 56, 36]


def test_a_run_without_a_map_has_no_film() -> None:
    with pytest.raises(UsageError, match="no map of its policy was recorded"):
        run_film(after(*fakes.opening_events()))


def test_what_agents_write_is_text_of_the_picture_and_nothing_outside_it_is_named() -> None:
    hostile = "</text><script>alert(1)</script>\x1b[2J"
    panel = MapPanel(title=hostile, row_name=hostile, column_name="", rows=["0"], columns=["0"],
                     cells=[[MapCell(words=hostile)]])  # fmt: skip
    layout = PolicyMapLaidOut(
        panels=[panel], action_names=[hostile, "b"], signs=["<", "&"], noun=hostile
    )
    mapped = replace(hitting(3.0, update=1), shares=[[0.9, 0.1]])
    svg = run_film(after(*fakes.opening_events(), layout, mapped))
    assert {each.tag for each in ElementTree.fromstring(svg).iter()} <= {
        SVG + tag for tag in ("svg", "style", "rect", "g", "text", "title", "animate")
    }
    assert "\x1b" not in svg
    assert "http" not in svg.replace(SVG.strip("{}"), "")


async def test_a_replay_steps_through_its_maps_and_saves_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)
    app = LlamaGymApp(replay=record(tmp_path / "run", [*blackjack(3.0), hitting(16.5, update=13)]))
    async with app.run_test(size=(80, 24)) as pilot:
        await sees(pilot, "REPLAY")
        await until(pilot, lambda: app.screen.player.recording.complete)  # type: ignore[attr-defined]
        await pilot.press("end", "g", "left_square_bracket")
        await sees(pilot, "in 110 of 280")
        await pilot.press("Y")
        await until(pilot, lambda: [*tmp_path.glob("run/*.svg")] != [])
        assert len(frames(next(tmp_path.glob("run/*.svg")).read_text(encoding="utf-8"))) == 2
