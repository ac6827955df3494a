"""The prompt editor: versions and their returns, differences, files, and a draft that survives a crash."""

from __future__ import annotations

from functools import reduce as fold
from importlib.resources import files
from pathlib import Path

import pytest
from msgspec.structs import replace
from textual.events import Paste
from textual.pilot import Pilot
from textual.widgets import OptionList, TextArea

from llamagym_tui.agents.blackjack import BlackjackAgent
from llamagym_tui.app.app import LlamaGymApp
from llamagym_tui.errors import UsageError
from llamagym_tui.protocol.commands import ComparePrompts, SetSystemPrompt
from llamagym_tui.protocol.events import PromptChanged
from llamagym_tui.screens.metrics.evaluation import EvaluationDialog
from llamagym_tui.screens.playground.actions import allowed
from llamagym_tui.screens.playground.playground import PlaygroundScreen
from llamagym_tui.screens.steering import prompt_editor
from llamagym_tui.screens.steering.prompt_editor import PromptEditor, draft_file, write_prompt
from llamagym_tui.screens.steering.sentences import followed
from llamagym_tui.screens.steering.version_list import word_diff
from llamagym_tui.setup.run_config import read_prompt
from llamagym_tui.state.reduce import reduce
from llamagym_tui.state.run import initial_state
from llamagym_tui.user_files import MOST_TEXT
from tests import fakes
from tests.screens.conftest import MakeApp
from tests.screens.map_events import hitting, layout_of
from tests.screens.steps import notices, reaches, sees, shown, stands_still, until
from tests.state.test_comparison import comparison

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
    await sees(pilot, "rolling out")
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


async def test_the_first_version_stands_below_the_present_one(make_app: MakeApp):
    changed = [
        PromptChanged(prompt_version=version, system_prompt=f"Hit below {version}.")
        for version in range(2, 9)
    ]
    app = make_app(fakes.FakeClient([*fakes.opening_events(), *changed]))
    async with app.run_test(size=SMALL) as pilot:
        await open_editor(pilot, app)
        await sees(pilot, "v8 active  “Hit below 8.”")
        await sees(pilot, "v1         “You are playing")
        assert [option.id for option in app.screen.query_one(OptionList).options] == list(
            "81765432"
        )


async def test_versions_are_filtered_by_their_words_and_escape_shows_all_again(make_app: MakeApp):
    app = make_app(fakes.FakeClient(EVENTS))
    async with app.run_test(size=SMALL) as pilot:
        await open_editor(pilot, app)
        versions = app.screen.query_one(OptionList)
        versions.focus()
        await pilot.press("slash", *"BELOW 13")
        await until(pilot, lambda: [option.id for option in versions.options] == ["2"])
        await pilot.press("enter")
        await until(pilot, lambda: app.focused is versions)
        assert versions.highlighted_option is not None
        await pilot.press("escape")
        await until(pilot, lambda: [option.id for option in versions.options] == ["2", "1"])
        await pilot.press("f3")
        assert not app.screen.query_one("#path").value  # type: ignore[attr-defined]


async def test_the_draft_is_drawn_as_it_is_wrapped_at_every_size(make_app: MakeApp):
    app = make_app()
    async with app.run_test(size=(100, 30)) as pilot:
        draft = await open_editor(pilot, app)
        await sees(pilot, "Reply with {")
        assert draft.wrapped_document.height == 2
        await pilot.resize_terminal(120, 34)
        # Two lines again, the second one shorter: the cursor's line alone is drawn anew by itself.
        await sees(pilot, "Reply with  ")
        await stands_still(pilot)
        assert draft.wrapped_document.height == 2
        assert shown(pilot).count("Reply with") == 1
        assert draft.render_line(1).text.strip() in shown(pilot)


async def test_an_older_version_can_be_taken_and_compared(make_app: MakeApp):
    client = fakes.FakeClient(EVENTS)
    app = make_app(client)
    async with app.run_test(size=SMALL) as pilot:
        draft = await open_editor(pilot, app)
        app.screen.query_one(OptionList).focus()
        await pilot.press("down", "enter")
        await until(pilot, lambda: draft.text == fakes.PROMPT)
        app.screen.query_one(OptionList).focus()
        await pilot.press("up", "f2")
        await sees(pilot, "Compared with v2: [-removed-] {+added+}.")
        await sees(pilot, "[-Hit-]{+You+}")
        await pilot.press("down", "f2", "f2")
        await sees(pilot, "Compared with v1: the draft is the same.")
        await pilot.press("escape", "ctrl+s")
        await until(
            pilot, lambda: client.sent[-1:] == [SetSystemPrompt(system_prompt=fakes.PROMPT)]
        )


async def test_a_draft_survives_a_crash_and_can_be_reverted(
    make_app: MakeApp, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(prompt_editor, "KEEP_S", 0.01)
    app = make_app()
    async with app.run_test(size=SMALL) as pilot:
        draft = await open_editor(pilot, app)
        draft.text = "Half a thought"
        await until(pilot, lambda: kept_draft() == "Half a thought")
    app = make_app()
    async with app.run_test(size=SMALL) as pilot:
        draft = await open_editor(pilot, app)
        assert draft.text == "Half a thought"
        await sees(pilot, "earlier draft was restored; ctrl+r discards it")
        await pilot.press("ctrl+r")
        await until(pilot, lambda: draft.text == fakes.PROMPT)
        await until(pilot, lambda: kept_draft() is None)
        await pilot.press("ctrl+z")
        await until(pilot, lambda: draft.text == "Half a thought")


async def test_escape_keeps_what_was_pasted_a_moment_ago_and_says_so(make_app: MakeApp):
    app, long = make_app(), "Think first. " * 400
    async with app.run_test(size=SMALL) as pilot:
        draft = await open_editor(pilot, app)
        draft.post_message(Paste(long))
        await until(pilot, lambda: draft.text == fakes.PROMPT + long)
        await pilot.press("escape")
        await reaches(pilot, PlaygroundScreen)
        assert notices(app) == ["Your draft of the prompt is kept; p shows it again."]
        assert (await open_editor(pilot, app)).text == fakes.PROMPT + long


async def test_escape_does_not_throw_away_a_draft_that_cannot_be_saved(make_app: MakeApp):
    app = make_app()
    async with app.run_test(size=SMALL) as pilot:
        draft = await open_editor(pilot, app)
        Path("data").write_text("no folder")
        await pilot.press("x", "escape")
        await sees(pilot, "The draft was not saved")
        assert draft.text == f"{fakes.PROMPT}x"


async def test_an_unchanged_prompt_leaves_no_draft(make_app: MakeApp):
    app = make_app()
    async with app.run_test(size=SMALL) as pilot:
        await open_editor(pilot, app)
        await pilot.press("x", "backspace", "escape")
        await reaches(pilot, PlaygroundScreen)
        assert (notices(app), kept_draft()) == ([], None)


async def test_an_applied_draft_is_no_draft_any_more(
    make_app: MakeApp, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(prompt_editor, "KEEP_S", 0.01)
    client = fakes.FakeClient()
    app = make_app(client)
    async with app.run_test(size=SMALL) as pilot:
        draft = await open_editor(pilot, app)
        draft.text = "Stick."
        await until(pilot, lambda: kept_draft() == "Stick.")
        await pilot.press("ctrl+s")
        await until(pilot, lambda: client.sent[-1:] == [SetSystemPrompt(system_prompt="Stick.")])
        assert kept_draft() is None


async def test_a_draft_is_saved_to_a_file_and_loaded_from_one(make_app: MakeApp, tmp_path: Path):
    app = make_app()
    async with app.run_test(size=SMALL) as pilot:
        draft = await open_editor(pilot, app)
        await pilot.press("f4")
        await sees(pilot, "Save the draft to which file?")
        app.screen.query_one("#path").value = str(tmp_path / "new" / "a.txt")  # type: ignore[attr-defined]
        await pilot.press("enter")
        await until(pilot, lambda: (tmp_path / "new" / "a.txt").exists())
        assert read_prompt(tmp_path / "new" / "a.txt") == fakes.PROMPT
        (tmp_path / "b.txt").write_text("\ufeffHit.\x1b[2J\n", encoding="utf-8")
        await pilot.press("f3")
        await sees(
            pilot, "Load the draft from which file?"
        )  # the field has the name that was saved to
        app.screen.query_one("#path").value = str(tmp_path / "b.txt")  # type: ignore[attr-defined]
        await pilot.press("enter")
        await until(pilot, lambda: draft.text == "Hit.␛[2J")
        await sees(pilot, "b.txt is in the draft.")


async def test_a_file_that_is_not_there_is_told(make_app: MakeApp):
    app = make_app()
    async with app.run_test(size=SMALL) as pilot:
        await open_editor(pilot, app)
        await pilot.press("f3", *"none.txt", "enter")
        await sees(pilot, "none.txt cannot be read: No such file or directory.")
        await pilot.press("escape")
        assert isinstance(app.screen, PromptEditor), "escape leaves the file's name first"


async def test_no_editor_is_told(make_app: MakeApp, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("VISUAL", raising=False)
    monkeypatch.delenv("EDITOR", raising=False)
    app = make_app()
    async with app.run_test(size=SMALL) as pilot:
        await open_editor(pilot, app)
        await pilot.press("f5")
        await sees(pilot, "$EDITOR is not set")


def test_words_that_differ_are_told_without_colour():
    assert (
        word_diff("Hit below 13.", "Hit below 17, always.").plain
        == "Hit below [-13.-]{+17, always.+}"
    )
    assert word_diff("same", "same").plain == "same"
    assert "\x1b" not in word_diff("\x1b[2J", "[/red] \x1b").plain


def test_long_prompts_are_compared_line_by_line():
    old = "word " * 3000 + "\nold\n"
    new = "word " * 3000 + "\nnew\n"
    assert word_diff(old, new).plain.endswith("[-old\n-]{+new\n+}")


def test_a_file_that_is_no_prompt_is_refused(tmp_path: Path):
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(UsageError, match="UTF-8"):
        read_prompt(tmp_path / "binary")
    (tmp_path / "large").write_bytes(b"x" * (MOST_TEXT + 1))
    with pytest.raises(UsageError, match="1,000,000"):
        read_prompt(tmp_path / "large")
    with pytest.raises(UsageError, match="cannot be written"):
        write_prompt(tmp_path / "binary" / "under a file", "text")


def test_drafts_of_agents_with_odd_names_have_files_of_their_own():
    assert draft_file("./my cliff.py:Cliff").name == "my-cliff.py-Cliff.txt"
    assert draft_file("blackjack") != draft_file("frozen_lake")


async def test_what_is_said_of_a_difference_goes_with_it(make_app: MakeApp):
    app = make_app(fakes.FakeClient(EVENTS))
    async with app.run_test(size=SMALL) as pilot:
        await open_editor(pilot, app)
        for leave in ("escape", "f3"):
            await pilot.press("f2")
            await sees(pilot, "the draft is the same")
            await pilot.press(leave)
            await until(pilot, lambda: "the draft is the same" not in shown(pilot))


async def test_two_versions_are_compared_and_the_result_has_their_maps_side_by_side(
    make_app: MakeApp,
):
    three = PromptChanged(prompt_version=3, system_prompt="Never hit.")
    client = fakes.FakeClient([*EVENTS, layout_of(BlackjackAgent()), three])
    app = make_app(client)
    async with app.run_test(size=SMALL) as pilot:
        await open_editor(pilot, app)
        await pilot.press("tab", "c")
        await sees(pilot, "Two versions are compared")
        await pilot.press("down", "space")
        await sees(pilot, "v1 marked")
        await pilot.press("down", "c")
        await reaches(pilot, EvaluationDialog)
        texts = (fakes.PROMPT, "Hit below 13.")
        await until(
            pilot, lambda: client.sent == [ComparePrompts(system_prompts=texts, versions=(1, 2))]
        )
        await sees(pilot, "requested; it starts")
        maps = [hitting(11.5, update=1), hitting(12.5, update=1)]
        client.emit(comparison(maps=maps))
        await sees(pilot, "v2 “Hit below 13.” takes hit 75% less often than v1")
        await sees(pilot, "two prompts, the same seeds")
        await pilot.press("end")
        await sees(pilot, "where B differs")
        await pilot.press("n")
        again = ComparePrompts(system_prompts=texts, versions=(1, 2), half_width=0.025)
        await until(pilot, lambda: client.sent[-1] == again)
        await pilot.press("c")
        await sees(pilot, "episodes   1000")


async def test_without_a_mark_a_version_is_compared_with_the_active_one(make_app: MakeApp):
    client = fakes.FakeClient(EVENTS)
    app = make_app(client)
    async with app.run_test(size=SMALL) as pilot:
        await open_editor(pilot, app)
        await pilot.press("tab", "down", "c")
        texts = ("Hit below 13.", fakes.PROMPT)
        await until(
            pilot, lambda: client.sent == [ComparePrompts(system_prompts=texts, versions=(2, 1))]
        )


def test_a_replay_that_has_no_evaluation_shows_its_comparison():
    state = replace(
        fold(reduce, [fakes.run_started()], initial_state(fakes.config(Path("/runs/demo")))),
        recorded=True,
    )
    assert allowed("evaluate", state) is None
    assert allowed("evaluate", reduce(state, comparison())) is True


async def test_sentences_that_the_bundled_model_follows_are_offered_and_put_at_the_end_of_the_draft(
    make_app: MakeApp,
):
    app = make_app(fakes.FakeClient(EVENTS))
    async with app.run_test(size=SMALL) as pilot:
        draft = await open_editor(pilot, app)
        await pilot.press("f6")
        await sees(pilot, "by a number: ")
        await pilot.press(*"only below 14")
        await sees(pilot, "by a number: Only hit below 14.")
        await pilot.press("enter")
        await until(pilot, lambda: draft.text == "Hit below 13. Only hit below 14.")
        await pilot.press("ctrl+z")
        await until(pilot, lambda: draft.text == "Hit below 13.")


async def test_of_another_model_no_sentences_are_offered(make_app: MakeApp):
    folder = "/models/other"  # of a hub's model it would be asked whether to download it
    app = make_app(fakes.FakeClient(EVENTS), model=folder)
    async with app.run_test(size=SMALL) as pilot:
        await open_editor(pilot, app)
        await pilot.press("f6")
        await sees(pilot, "No sentences are measured for this model and this agent.")


def test_every_sentence_on_offer_is_followed_by_the_cards_own_figures():
    card = Path(str(files("llamagym_tui.bundled_model"))) / "README.md"
    rows = [
        line.strip("| ").rsplit(" | ", 1)
        for line in card.read_text("utf-8").splitlines()
        if line.startswith("|")
    ]
    figures = dict(row for row in rows if len(row) == 2)
    offered = followed("blackjack")
    assert offered == sorted(offered)
    for _, text in offered:
        assert float(figures[f"{text} P(hit) in hit"]) >= 0.9
        assert float(figures[f"{text} P(hit) in stick"]) < 0.1
    both = [
        text.removesuffix(" P(hit) in hit") for text in figures if text.endswith(" P(hit) in hit")
    ]
    good = [t for t in both if float(figures[f"{t} P(hit) in hit"]) >= 0.9]
    good = [t for t in good if float(figures.get(f"{t} P(hit) in stick", 1)) < 0.1]
    assert sorted(text for _, text in offered) == sorted(good)
    assert {kind for kind, _ in offered} == {"by a number", "by the dealer's card"}
    assert [kind for kind, _ in followed("cart_pole")].count("always the same") == 2
    assert followed("taxi") == []
