"""The prompt editor: versions and their returns, differences, files, and a draft that survives a crash."""

from __future__ import annotations

from functools import reduce as fold
from pathlib import Path

import pytest
from msgspec.structs import replace
from textual.pilot import Pilot
from textual.widgets import OptionList, Static, TextArea

from llamagym_tui.agents.blackjack import BlackjackAgent
from llamagym_tui.app.app import LlamaGymApp
from llamagym_tui.protocol.commands import ComparePrompts, SetSystemPrompt
from llamagym_tui.protocol.events import PromptChanged
from llamagym_tui.runs import model_registry
from llamagym_tui.screens.playground.evaluation import EvaluationDialog
from llamagym_tui.screens.playground.playground import allowed
from llamagym_tui.screens.playground.prompt_editor import (
    PromptEditor,
    draft_file,
    sentences_to_try,
)
from llamagym_tui.state.reduce import reduce
from llamagym_tui.state.run import initial_state
from tests import fakes
from tests.screens.conftest import MakeApp
from tests.screens.map_events import hitting, layout_of
from tests.screens.steps import reaches, sees, shown, until
from tests.state.test_texts import comparison

SMALL = (80, 24)
EVENTS = [
    *fakes.opening_events(),
    fakes.counted([1.0, -1.0, 1.0, -1.0], 4),
    PromptChanged(prompt_version=2, system_prompt="Hit below 13."),
    fakes.counted([1.0, 1.0], 6, prompt_version=2, mode="inference"),
]


def kept_draft() -> str | None:
    """The draft on disk; None: there is none."""
    file = draft_file("blackjack")
    return file.read_text().removesuffix("\n") if file.exists() else None


async def open_editor(pilot: Pilot[None], app: LlamaGymApp) -> TextArea:
    await sees(pilot, "episode ")
    await pilot.press("p")
    await reaches(pilot, PromptEditor)
    return app.screen.query_one(TextArea)


async def test_each_version_tells_its_words_and_the_mean_return_under_it(make_app: MakeApp):
    app = make_app(fakes.FakeClient(EVENTS))
    async with app.run_test(size=SMALL) as pilot:
        await open_editor(pilot, app)
        await sees(pilot, "v2 active  “Hit below 13.”  update 0")
        await sees(pilot, "inference +1 ± 0 over 2")
        await sees(pilot, "v1         “You are playing Blackjack. Get closer …”  update 0")
        # Standard error by hand: the root of 4/3 over 2.
        await sees(pilot, "train +0.0 ± 1.1 over 4")


async def test_an_older_version_can_be_taken(make_app: MakeApp):
    client = fakes.FakeClient(EVENTS)
    app = make_app(client)
    async with app.run_test(size=SMALL) as pilot:
        draft = await open_editor(pilot, app)
        app.screen.query_one(OptionList).focus()
        await pilot.press("down", "enter")
        await until(pilot, lambda: draft.text == fakes.PROMPT)
        await pilot.press("ctrl+s")
        await until(
            pilot, lambda: client.sent[-1:] == [SetSystemPrompt(system_prompt=fakes.PROMPT)]
        )


async def test_a_sentence_ends_the_draft_and_another_one_takes_its_place(make_app: MakeApp):
    app = make_app(fakes.FakeClient(EVENTS))
    async with app.run_test(size=SMALL) as pilot:
        draft = await open_editor(pilot, app)
        await sees(pilot, "try  Stick at 17 or more.")
        await pilot.press("tab", "home", "enter")
        await until(pilot, lambda: draft.text == "Hit below 13. Always hit.")
        await pilot.press("tab", "home", "down", "enter")
        await until(pilot, lambda: draft.text == "Hit below 13. Stick at 17 or more.")


def test_sentences_of_another_agent_are_made_of_its_actions():
    state = initial_state(fakes.config(Path("/runs/demo"), agent="frozen_lake"))
    assert sentences_to_try(state) == ()
    state = replace(state, map_layout=reduce(state, layout_of(BlackjackAgent())).map_layout)
    assert sentences_to_try(state) == ("Always choose stick.", "Always choose hit.")


@pytest.mark.parametrize(("model", "noted"), [("bundled", False), ("maker/Other", True)])
async def test_a_model_that_has_not_learnt_to_follow_prompts_is_named_beforehand(
    make_app: MakeApp, monkeypatch: pytest.MonkeyPatch, model: str, noted: bool
):
    monkeypatch.setattr(model_registry, "download_of", lambda name: None)
    app = make_app(fakes.FakeClient(EVENTS), model=model)
    async with app.run_test(size=(160, 45)) as pilot:
        await open_editor(pilot, app)
        await sees(pilot, "v2 is active")
        assert ("Only the bundled model has learnt" in shown(pilot)) == noted


async def test_the_editor_leaves_the_map_in_sight(make_app: MakeApp):
    app = make_app(fakes.FakeClient(EVENTS))
    async with app.run_test(size=(120, 34)) as pilot:
        await open_editor(pilot, app)
        frame = app.screen.query_one(".dialog").region
        assert frame.right == 48
        assert frame.y > 10
        assert frame.bottom == 33, "above the row of keys"


async def test_a_draft_survives_a_crash_and_can_be_reverted(make_app: MakeApp):
    app = make_app()
    async with app.run_test(size=SMALL) as pilot:
        draft = await open_editor(pilot, app)
        draft.text = "Half a thought"
        await until(pilot, lambda: kept_draft() == "Half a thought")
    app = make_app()
    async with app.run_test(size=SMALL) as pilot:
        draft = await open_editor(pilot, app)
        assert draft.text == "Half a thought"
        await sees(pilot, "Your earlier draft is back.")
        await pilot.press("ctrl+r")
        await until(pilot, lambda: draft.text == fakes.PROMPT)
        await until(pilot, lambda: kept_draft() is None)
        await pilot.press("ctrl+z")
        await until(pilot, lambda: draft.text == "Half a thought")


async def test_escape_does_not_throw_away_a_draft_that_cannot_be_saved(make_app: MakeApp):
    app = make_app()
    async with app.run_test(size=SMALL) as pilot:
        draft = await open_editor(pilot, app)
        Path("data").write_text("no folder")
        await pilot.press("x", "escape")
        await sees(pilot, "The draft was not saved")
        assert draft.text == f"{fakes.PROMPT}x"


async def test_an_applied_draft_is_no_draft_any_more(make_app: MakeApp):
    client = fakes.FakeClient()
    app = make_app(client)
    async with app.run_test(size=SMALL) as pilot:
        draft = await open_editor(pilot, app)
        draft.text = "Stick."
        await until(pilot, lambda: kept_draft() == "Stick.")
        await pilot.press("ctrl+s")
        await until(pilot, lambda: client.sent[-1:] == [SetSystemPrompt(system_prompt="Stick.")])
        assert kept_draft() is None


async def test_two_versions_are_compared_and_the_result_has_their_maps(
    make_app: MakeApp,
):
    three = PromptChanged(prompt_version=3, system_prompt="Never hit.")
    client = fakes.FakeClient([*EVENTS, layout_of(BlackjackAgent()), three])
    app = make_app(client)
    async with app.run_test(size=SMALL) as pilot:
        await open_editor(pilot, app)
        await pilot.press("tab", "c")
        await sees(pilot, "Choose another version")
        await pilot.press("down", "c")
        await reaches(pilot, EvaluationDialog)
        texts = ("Never hit.", "Hit below 13.")
        await until(
            pilot, lambda: client.sent == [ComparePrompts(system_prompts=texts, versions=(3, 2))]
        )
        await sees(pilot, "requested; it starts")
        maps = [hitting(11.5, update=1), hitting(12.5, update=1)]
        client.emit(comparison(maps=maps))
        # 12 is hit only by B: hard and soft, against ten cards each.
        results = app.screen.query_one("#evaluation-results", Static)
        sentence = "From A to B 20 of 280 hands change; hit 29% → 36%."
        await until(pilot, lambda: sentence in str(results.content), sentence)
        assert "where B differs" in str(results.content)


def test_a_replay_that_has_no_evaluation_shows_its_comparison():
    state = replace(
        fold(reduce, [fakes.run_started()], initial_state(fakes.config(Path("/runs/demo")))),
        recorded=True,
    )
    assert allowed("evaluate", state) is None
    assert allowed("evaluate", reduce(state, comparison())) is True
