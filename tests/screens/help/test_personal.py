"""The app as its user likes it: own keys, theme, palette, help on the focused widget."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

import pytest
from textual.widgets import OptionList

from llamagym_tui import user_files
from llamagym_tui.app import personal
from llamagym_tui.app.app import LlamaGymApp
from llamagym_tui.protocol.commands import Pause, Resume, SaveCheckpoint
from llamagym_tui.protocol.events import CheckpointSaved, PhaseChanged
from llamagym_tui.screens.help.all_bindings import bindings_of, key_names, keyed_classes, movable
from llamagym_tui.screens.help.help import FocusHelp, HelpDialog
from llamagym_tui.screens.help.help_text import HelpText
from llamagym_tui.screens.help.palette import SYNONYMS, score
from llamagym_tui.screens.playground.playground import PlaygroundScreen
from llamagym_tui.screens.steering.settings import SettingsDialog
from llamagym_tui.screens.widgets.dialogs import QuitDialog
from llamagym_tui.screens.widgets.key_bar import KeyBar
from llamagym_tui.screens.widgets.palette import Palette
from tests import fakes
from tests.screens.conftest import MakeApp
from tests.screens.map_events import blackjack
from tests.screens.steps import (
    PATIENCE_S,
    is_drawn,
    notices,
    reaches,
    rolling_out,
    sees,
    shown,
    strips,
    until,
    widget_text,
)

SMALL, LARGE = (80, 24), (160, 45)


@pytest.fixture
def config_dir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "config"
    folder.mkdir(exist_ok=True)
    monkeypatch.setenv("LLAMAGYM_TUI_CONFIG", str(folder))
    return folder


def write_keys(folder: Path, text: str) -> None:
    (folder / "keys.toml").write_text(text, encoding="utf-8")


async def test_a_moved_key_does_what_the_old_one_did_and_is_shown(
    make_app: MakeApp, config_dir: Path
):
    write_keys(config_dir, '[keys]\npause = "f5"\ncheckpoint = "f6"\n')
    client = fakes.FakeClient()
    async with make_app(client).run_test(size=SMALL) as pilot:
        await sees(pilot, "f5 Pause")
        await sees(pilot, "rolling out · episode")
        await pilot.press("space", "c")
        assert client.sent == []
        await pilot.press("f5")
        await sees(pilot, "f5 Resume")
        await pilot.press("f5", "f6")
        await until(pilot, lambda: client.sent == [Pause(), Resume(), SaveCheckpoint()])


async def test_a_moved_key_keeps_its_place_in_the_row_and_help_its_own(
    make_app: MakeApp, config_dir: Path
):
    write_keys(config_dir, '[keys]\ntable = "f8"\npause = "f5"\n')
    async with make_app().run_test(size=LARGE) as pilot:
        await sees(
            pilot,
            "f5 Pause  +/- Speed │ p Prompt  s Settings  t Inference │ m Metrics  g Map │ f8 Play",
        )
        await sees(pilot, "? All keys  q Quit")


async def test_sentences_on_other_screens_name_a_moved_key(make_app: MakeApp, config_dir: Path):
    write_keys(config_dir, '[keys]\nkeep = "f7"\ntable = "f8"\n')
    app = make_app()
    async with app.run_test(size=SMALL) as pilot:
        await sees(pilot, "rolling out · episode")
        await pilot.press("d")
        await sees(pilot, "There is none yet: f8 plays, f7 keeps the model's.")


async def test_sentences_of_map_evaluation_and_leaving_name_a_moved_key(
    make_app: MakeApp, config_dir: Path
):
    write_keys(
        config_dir,
        '[keys]\n"map.optimal" = "f7"\n"evaluation.cancel" = "f8"\n"runs.resume" = "f9"\n',
    )
    client = fakes.FakeClient([*blackjack(), CheckpointSaved(update=1)])
    async with make_app(client).run_test(size=SMALL) as pilot:
        await sees(pilot, "rolling out · episode")
        await pilot.press("g", "f7")
        await sees(pilot, "the optimal strategy; f7 shows the policy again")
        await pilot.press("escape")
        await sees(pilot, "space Pause")
        await pilot.press("q")
        await sees(pilot, "f9")
        await pilot.press("n", "e")
        client.emit(PhaseChanged(phase="evaluating", detail="1 of 2 episodes"))
        await sees(pilot, "playing: 1 of 2 episodes · f8 cancels")


@pytest.mark.parametrize(("width", "lines"), [(60, 2), (120, 1)])
async def test_in_help_a_meaning_goes_on_under_itself(
    make_app: MakeApp, config_dir: Path, width: int, lines: int
):
    async with make_app().run_test(size=(width, 34)) as pilot:
        await sees(pilot, "rolling out · episode")
        await pilot.press("question_mark")
        await sees(pilot, "Pause after")
        text = widget_text(pilot.app.screen.query_one(HelpText)).split("\n")
        start = next(at for at, line in enumerate(text) if line.startswith("g    "))
        told = [line.rstrip() for line in text[start : start + lines]]
        assert [line[:16].strip() for line in told] == ["g", ""][:lines]
        assert (
            " ".join(line[16:] for line in told)
            == "What the policy does in each state, and what is best."
        )


async def test_a_key_that_cannot_be_taken_is_told_in_a_sentence_and_the_rest_holds(
    make_app: MakeApp, config_dir: Path
):
    write_keys(config_dir, '[keys]\npause = "t"\npuase = "x"\nmetrics = "f5"\n')
    app = make_app()
    async with app.run_test(size=LARGE) as pilot:
        await sees(pilot, "f5 Metrics")
        assert "space Pause" in shown(pilot)
        assert sorted(notices(app)) == [
            "keys.toml: pause cannot have 't', which mode has; pause keeps its key.",
            "keys.toml: there is no key named 'puase'; did you mean 'pause'?",
        ]


async def test_a_broken_file_of_keys_does_not_keep_the_app_from_starting(
    make_app: MakeApp, config_dir: Path
):
    write_keys(config_dir, "[keys\n")
    app = make_app()
    async with app.run_test(size=LARGE) as pilot:
        await sees(pilot, "space Pause")
        assert len(notices(app)) == 1


@pytest.mark.parametrize("key", ["ctrl+p", pytest.param("colon", marks=pytest.mark.slow)])
async def test_the_palette_lists_what_can_be_done_now_and_does_it(
    make_app: MakeApp, config_dir: Path, key: str
):
    client = fakes.FakeClient()
    app = make_app(client)
    async with rolling_out(app, SMALL) as pilot:
        await pilot.press(key)
        await reaches(pilot, Palette)
        await sees(pilot, "Checkpoint")
        await pilot.press(*"checkp")
        await until(pilot, lambda: found(app)[:1] == ["Checkpoint"])
        await pilot.press("enter")
        await until(pilot, lambda: client.sent == [SaveCheckpoint()])


def found(app: LlamaGymApp) -> list[str]:
    """The titles that the palette shows, the first one first."""
    return [
        str(option.prompt).partition("\n")[0] for option in app.screen.query_one(OptionList).options
    ]


FOUND = {
    "learning": "Metrics",
    "learning rate": "Settings",
    "chart": "Metrics",
    "compare": "Past runs",
    "book": "Map",
    "sft": "Warm start",
    "speed": "Slower",
    "exit": "Quit",
    "stop": "Pause",
    "undo": "Roll back",
    "screenshot": "Save the screen",
    "colors": "Theme",
    "logprobs": "Inspect tokens",
    "roll": "Roll back",
    "tempera": "Settings",
}


async def test_the_palette_finds_by_meaning_and_the_best_comes_first(make_app: MakeApp):
    app = make_app(fakes.FakeClient(fakes.demo_run(batches=4)))
    async with rolling_out(app, SMALL) as pilot:
        await sees(pilot, "episode 512")
        commands = list(app.commands(app.screen))
        best = {}
        for query in FOUND:
            known = {"Roll back": 0.0} | {each.title: score(each, query) for each in commands}
            best[query] = max(known, key=lambda title: known[title])
        assert best == FOUND


def test_each_synonym_is_one_of_a_key_that_there_is() -> None:
    ids = {binding.id for kind in keyed_classes() for binding in bindings_of(kind)}
    ids |= {binding.id for binding in bindings_of(LlamaGymApp)}
    assert SYNONYMS.keys() <= ids | {"theme"}
    assert {binding.id for binding in bindings_of(PlaygroundScreen)} - SYNONYMS.keys() == {
        "turn.unmark"
    }


@pytest.mark.parametrize(
    "words", ["", pytest.param("screenshot", marks=pytest.mark.slow), "export"]
)
async def test_the_screen_is_saved_by_key_or_from_the_palette(
    make_app: MakeApp, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: str
):
    monkeypatch.chdir(tmp_path)
    app = make_app()
    async with rolling_out(app, SMALL) as pilot:
        if words:
            await pilot.press("ctrl+p", *words)
            await until(pilot, lambda: found(app)[:1] == ["Save the screen"])
            await pilot.press("enter")
        else:
            await pilot.press("Y")
        await until(pilot, lambda: notices(app), "a notice")
    assert not [*tmp_path.glob("*.svg")], "where one stands is not ours to write in"
    [path] = Path(app.config.run_dir).glob("screen-*.svg")
    assert notices(app) == [f"The screen is saved: {path}"]
    picture = path.read_text(encoding="utf-8")
    assert "rolling&#160;out" in picture
    assert picture.startswith('<svg xml:space="preserve" ')
    assert "Search" not in picture, "the palette is gone"
    assert "http" not in picture.replace("http://www.w3.org", "")


async def test_a_screen_that_cannot_be_saved_is_a_sentence(
    make_app: MakeApp, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    app = make_app()
    async with rolling_out(app, SMALL) as pilot:
        monkeypatch.setattr("llamagym_tui.user_files.os.replace", refuse)
        await pilot.press("Y")
        await until(pilot, lambda: notices(app), "a notice")
    assert notices(app) == [f"The screen is not saved in {app.config.run_dir} (no room)."]


def refuse(*_: object) -> None:
    raise OSError("no room")


SLOW_OPENERS = [
    pytest.param(key, marks=pytest.mark.slow)
    for key in ("s", "e", "f", "R", "m", "d", "h", "o", "?")
]


@pytest.mark.parametrize("opener", ["", "p", *SLOW_OPENERS])
async def test_keys_of_the_whole_app_can_be_pressed_in_any_order_over_any_screen(
    make_app: MakeApp, opener: str
):
    app = make_app(fakes.FakeClient(fakes.demo_run(batches=4)))
    async with rolling_out(app, SMALL) as pilot:
        await pilot.press(
            *opener, "ctrl+p", "f1", "ctrl+p", "ctrl+p", "f1", "f1", "ctrl+q", "f1", "ctrl+p", "f1"
        )
        kinds = [type(screen) for screen in app.screen_stack]
        assert len(kinds) == len(set(kinds)), "nothing is opened over itself"
        assert Palette in kinds
        assert QuitDialog in kinds


async def test_the_palette_leaves_out_what_cannot_be_done(make_app: MakeApp, config_dir: Path):
    app = make_app(fakes.FakeClient(list(fakes.opening_events())[:2]))
    async with app.run_test(size=SMALL) as pilot:
        await sees(pilot, "loading the model")
        titles = {command.title for command in app.commands(app.screen)}
        assert {"Metrics", "Prompt", "Theme", "Quit"} <= titles
        assert not titles & {"Pause", "Checkpoint", "Roll back", "Settings", "Restart"}


async def test_f1_in_the_palette_shows_its_keys(make_app: MakeApp, config_dir: Path):
    app = make_app()
    async with app.run_test(size=SMALL) as pilot:
        await pilot.press("ctrl+p", "f1")
        await sees(pilot, "Move cursor left")


async def test_f1_says_what_the_focused_widget_is_for(make_app: MakeApp, config_dir: Path):
    app = make_app(fakes.FakeClient(fakes.demo_run()))
    async with app.run_test(size=SMALL) as pilot:
        await sees(pilot, "20,494 ")
        await pilot.press("m", "f1")
        await reaches(pilot, FocusHelp)
        await sees(pilot, "whether it is healthy.")
        await sees(pilot, "Back to the run; from a search")
        await pilot.press("f1")
        await until(pilot, lambda: not isinstance(app.screen, HelpDialog))


async def test_f1_is_heard_in_a_dialog_too(make_app: MakeApp, config_dir: Path):
    app = make_app()
    async with rolling_out(app, SMALL) as pilot:
        await pilot.press("s", "f1")
        await sees(pilot, "Settings that can change while the run is under way.")
        await pilot.press("f1")
        await reaches(pilot, SettingsDialog)


async def test_help_tells_keys_as_they_are_bound_now(make_app: MakeApp, config_dir: Path):
    write_keys(config_dir, '[keys]\npause = "f5"\n')
    async with rolling_out(make_app(), SMALL) as pilot:
        await pilot.press("question_mark")
        await sees(pilot, "f5              Pause after the current step.")


async def test_help_says_what_a_plus_minus_is(make_app: MakeApp, config_dir: Path):
    width, height = LARGE
    async with rolling_out(make_app(), (width, height + 2)) as pilot:
        await pilot.press("question_mark", "end")
        await sees(
            pilot,
            "±               Half the width of a mean return's 95 % confidence interval: 1.96",
        )


async def test_help_tells_keys_of_the_conversation_only_where_there_is_one(
    make_app: MakeApp, config_dir: Path
):
    app = make_app()
    async with rolling_out(app, LARGE) as pilot:
        await pilot.press("question_mark", "end")
        await sees(pilot, "Search the conversation")
        await pilot.press("escape", "m", "question_mark")
        await reaches(pilot, HelpDialog)
        await sees(pilot, "Back to the run; from a search")
        assert "Search the conversation" not in shown(pilot)


def test_every_key_of_the_playground_stands_in_one_group_of_help():
    grouped = [id for ids in PlaygroundScreen.HELP_GROUPS.values() for id in ids]
    assert sorted(grouped) == sorted({binding.id for binding in bindings_of(PlaygroundScreen)})


async def test_help_has_the_keys_of_the_playground_in_groups(make_app: MakeApp, config_dir: Path):
    async with rolling_out(make_app(), LARGE) as pilot:
        await pilot.press("question_mark")
        await sees(pilot, "Pause after")
        told = [
            line.strip() for line in widget_text(pilot.app.screen.query_one(HelpText)).split("\n")
        ]
        groups = {group.split()[0]: group for group in "\n".join(told).split("\n\n")}
        assert "Change learning rate" in groups["Change"]
        assert "Watch the next environment." in groups["Watch"]
        assert "nats" in groups["Figures"]


async def test_the_theme_that_was_chosen_is_there_the_next_time(
    make_app: MakeApp, config_dir: Path
):
    app = make_app()
    async with rolling_out(app, SMALL) as pilot:
        app.theme = "nord"
        await until(pilot, lambda: user_files.load_preferences(config_dir).theme == "nord")
    assert make_app(fakes.FakeClient([])).theme == "nord"


def test_a_theme_that_is_gone_is_the_apps_own(make_app: MakeApp, config_dir: Path):
    user_files.keep_preferences(config_dir, theme="no-such-theme")
    assert make_app(fakes.FakeClient([])).theme == "llamagym"


@pytest.mark.parametrize(
    "theme",
    [
        "ansi-dark",
        *(pytest.param(each, marks=pytest.mark.slow) for each in ("ansi-light", "textual-light")),
    ],
)
async def test_every_part_is_drawn_in_the_terminals_own_colours(
    make_app: MakeApp, config_dir: Path, theme: str
):
    user_files.keep_preferences(config_dir, theme=theme)
    app = make_app(fakes.FakeClient(fakes.demo_run()))
    async with app.run_test(size=LARGE) as pilot:
        await until(pilot, lambda: is_drawn(app.screen), "the chart")
        await pilot.press("m")
        await sees(pilot, "grad norm  0.871")
        if theme.startswith("ansi"):
            assert colour_types(app) <= {"DEFAULT", "STANDARD"}


@pytest.mark.parametrize(("name", "value"), [("NO_COLOR", "1"), ("TERM", "dumb")])
async def test_no_color_and_a_dumb_terminal_leave_no_colour(
    make_app: MakeApp, config_dir: Path, monkeypatch: pytest.MonkeyPatch, name: str, value: str
):
    monkeypatch.setenv(name, value)
    app = make_app(fakes.FakeClient(fakes.demo_run()))
    async with app.run_test(size=LARGE) as pilot:
        await until(pilot, lambda: is_drawn(app.screen), "the chart")
        await pilot.pause(0.3)
        assert colour_types(app) == {"DEFAULT"}
        await pilot.press("m")
        await sees(pilot, "grad norm  0.871")
        assert colour_types(app) == {"DEFAULT"}
        chosen = app.screen.query_one(OptionList).get_visual_style(
            "option-list--option-highlighted"
        )
        assert chosen.underline, "the cursor is seen without colour, too"


async def test_without_colour_a_scroll_bar_is_seen(
    make_app: MakeApp, config_dir: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("NO_COLOR", "1")
    app = make_app(fakes.FakeClient(fakes.demo_run()))
    async with app.run_test(size=SMALL) as pilot:
        await sees(pilot, "20,494 ")
        await pilot.press("question_mark")
        await sees(pilot, "Pause after the current step.")
        reverse = [
            text for strip in strips(app) for text, style, _ in strip if style and style.reverse
        ]
        assert "  " in reverse, "the cells of the bar, in reverse video"


def colour_types(app: LlamaGymApp) -> set[str]:
    """Kinds of the colours that go to the terminal."""
    styles = [segment.style for strip in strips(app) for segment in strip]
    found = [colour for style in styles if style for colour in (style.color, style.bgcolor)]
    return {colour.type.name for colour in found if colour is not None}


def test_every_key_of_ours_has_a_tooltip_and_an_id_where_it_can_be_moved():
    for kind in keyed_classes():
        for binding in bindings_of(kind):
            if binding.id:
                assert binding.tooltip, f"{kind.__name__}: {binding.key}"
                assert binding.description


def test_an_id_means_the_same_keys_everywhere():
    keys = defaultdict(set)
    for bound in movable([*keyed_classes(), PlaygroundScreen]):
        keys[bound.id].add(bound.keys)
    assert not {id: each for id, each in keys.items() if len(each) > 1}


def test_the_own_keys_are_keys_by_name():
    known = set(key_names())
    for bound in movable(keyed_classes()):
        for key in bound.keys:
            last = key.split("+")[-1]
            assert len(last) == 1 or last in known, f"{bound.place}: {key}"


async def test_where_room_is_short_help_and_quit_stay_in_the_key_bar(
    make_app: MakeApp, config_dir: Path
):
    app = make_app()
    async with rolling_out(app, (60, 20)) as pilot:
        bar = app.screen.query_one(KeyBar).render().plain
        assert bar.endswith("… │ ? All keys  q Quit")
        assert len(bar) <= 58
        await pilot.click(KeyBar, offset=(1 + bar.index("…"), 0))
        await reaches(pilot, Palette)
        await pilot.press("escape")
        await pilot.resize_terminal(*LARGE)
        await sees(pilot, "^r Roll back")
        assert "… │ ?" not in shown(pilot)


async def test_sentences_tell_keys_as_they_are_bound_now(make_app: MakeApp, config_dir: Path):
    moved = {
        "pause": "f5",
        "mode": "f2",
        "advance.turn": "1",
        "advance.update": "2",
        "table": "f3",
        "prompt.apply": "f9",
    }
    write_keys(
        config_dir, "[keys]\n" + "".join(f'"{name}" = "{key}"\n' for name, key in moved.items())
    )
    client = fakes.FakeClient(list(fakes.opening_events())[:2])
    app = make_app(client)
    async with app.run_test(size=(120, 34)) as pilot:
        await sees(pilot, "f3 opens a table for you meanwhile")
        client.emit(*list(fakes.opening_events())[2:])
        await sees(pilot, "rolling out")
        await pilot.press("f5", "f2")
        await sees(pilot, "no episode enters a batch. f2 trains again.")
        await sees(pilot, "Paused. f5 resumes. 1 makes one turn, 2 one update.")
        await pilot.press("p")
        await sees(pilot, "f9 applies the draft from the next episode on.")
        await pilot.press("escape")
        client.die("The trainer died.")
        await sees(pilot, "f3 still opens the table.")


async def test_a_moved_key_is_named_at_the_table_in_help_and_in_the_tour(
    make_app: MakeApp, config_dir: Path
):
    write_keys(config_dir, '[keys]\n"table.reason" = "f5"\nsearch = "f6"\npause = "f7"\n')
    app = make_app()
    async with rolling_out(app, LARGE) as pilot:
        await pilot.press("h")
        await sees(pilot, "f5 says why first")
        await pilot.press("escape", "question_mark", "end")
        await sees(pilot, "f6              Search the conversation.")
        await sees(pilot, "n ↑             Go to the match above.")
        await pilot.press("escape")
        app.show_tour()
        await sees(pilot, "1 of 5")
        await pilot.press("enter", "enter")
        await sees(pilot, "slower. f7")


async def test_what_is_copied_is_told(
    make_app: MakeApp, config_dir: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(personal, "COPIED_S", PATIENCE_S)
    app = make_app(fakes.FakeClient(fakes.demo_run()))
    async with app.run_test(size=SMALL, notifications=True) as pilot:
        await sees(pilot, "20,494 ")
        app.copy_to_clipboard("a\nb\nc")
        await sees(pilot, "copied 3 lines")
        app.copy_to_clipboard("hit")
        await sees(pilot, "copied 3 characters")
    assert app.clipboard == "hit"


async def test_ctrl_c_where_nothing_is_selected_names_the_key_that_leaves(
    make_app: MakeApp, config_dir: Path
):
    write_keys(config_dir, '[keys]\n"app.quit" = "f10"\n')
    app = make_app()
    async with rolling_out(app, SMALL) as pilot:
        await pilot.press("ctrl+c")
        await until(pilot, lambda: notices(app), "a notice")
        assert notices(app) == ["f10 leaves; ctrl+c copies what is selected."]
