"""`lessons`: the list, the text of one, and `--check` with its exit code."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from llamagym_tui.cli import lessons as command
from llamagym_tui.config import RunConfig
from llamagym_tui.protocol import events
from llamagym_tui.run_store import RunStore
from llamagym_tui.screens.playground.named_keys import with_keys
from llamagym_tui.setup.lessons import Check, lessons
from tests import fakes
from tests.cli.test_main import data, run  # noqa: F401

NAMES = list(lessons())


def test_lessons_are_listed_with_number_name_and_minutes() -> None:
    listed = run("lessons")
    assert listed.exit_code == 0
    assert [line.split()[1] for line in listed.stdout.splitlines()] == NAMES
    first = lessons()["learning-rate"]
    assert listed.stdout.splitlines()[0] == (
        f" 1  learning-rate        {first.minutes:g} min  {first.title}"
    )


def test_without_a_terminal_a_lessons_text_is_all() -> None:
    by_name, by_number = run("lessons", "learning-rate"), run("lessons", "1")
    assert by_name.exit_code == 0
    assert by_name.stdout == by_number.stdout
    lesson = lessons()["learning-rate"]
    assert by_name.stdout == f"{lesson.title}\n\n{with_keys(lesson.text())}\n"
    assert "1. u goes on to the next update" in by_name.stdout
    assert lesson.answer not in by_name.stdout


def test_a_step_is_done_once_its_keys_were_used_and_one_without_keys_with_the_step_after_it() -> (
    None
):
    lesson = replace(lessons()["learning-rate"], steps=["{pause}, {prompt}", "Read.", "{metrics}"])
    steps = lesson.steps

    def done(*used: str) -> list[bool]:
        return [is_done for _, is_done in lesson.progress(used)]

    assert [done(), done("pause"), done("pause", "prompt")] == [
        [False, False, False], [False, False, False], [True, False, False],
    ]  # fmt: skip
    assert done("metrics") == [False, True, True]
    assert lesson.next_step(["pause", "prompt"]) == f"step 2 of 3: {steps[1]}"
    assert lesson.next_step(["pause", "prompt", "metrics"]) == ""
    assert f"1. ✓ {steps[0]}\n2. {steps[1]}\n" in lesson.text(["pause", "prompt"])


@pytest.mark.parametrize("name", NAMES)
def test_a_lesson_is_guessed_at_among_answers_of_which_one_was_measured(name: str) -> None:
    lesson = lessons()[name]
    right = lesson.guesses[lesson.measured - 1]
    assert f"Measured: {right}. That is as you guessed." in lesson.told(lesson.measured)
    other = next(at for at in (1, 2) if at != lesson.measured)
    assert f"You guessed: {lesson.guesses[other - 1]}. Measured: {right}. That is not" in (
        lesson.told(other)
    )
    assert lesson.told(0).startswith(f"{lesson.guess}\nMeasured: {right}.\n\n{lesson.answer}")
    assert len(lesson.guesses) == 3


def test_another_name_is_refused_with_those_that_there_are() -> None:
    refused = run("lessons", "15")
    assert refused.exit_code == 2
    assert (
        refused.stderr == f"llamagym-tui: There is no lesson '15'; there are {', '.join(NAMES)}.\n"
    )


def test_check_trains_both_runs_and_prints_what_was_measured(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    trained: list[RunConfig] = []

    def train(config: RunConfig, **options: object) -> int:
        trained.append(config)
        earned = 0.75 if len(trained) == 1 else 0.25
        store = RunStore.create(config)
        store.append(
            events.UpdateFinished(
                update=1, episodes=5, stats=replace(fakes.STATS, mean_return=earned)
            )
        )
        store.close()
        return 0

    monkeypatch.setattr(command.headless, "train", train)
    lesson = replace(
        lessons()["learning-rate"],
        checks=[
            Check(figure="mean_return", less_control=True, holds="above", bound=0.4),
            Check(figure="mean_return", last=1, holds="below", bound=0.4),
        ],
    )
    code = command.check("learning-rate", lesson)
    assert code == 1, "one of the two does not hold"
    assert [config.ppo.lr for config in trained] == [5e-3, 5e-4]
    assert {config.episodes for config in trained} == {lesson.episodes}


def test_check_ends_with_0_where_all_holds_and_runs_no_control_that_nothing_compares_with(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    trained: list[RunConfig] = []

    def train(config: RunConfig, **options: object) -> int:
        trained.append(config)
        store = RunStore.create(config)
        store.append(
            events.UpdateFinished(update=1, episodes=5, stats=replace(fakes.STATS, entropy=0.125))
        )
        store.close()
        return 0

    monkeypatch.setattr(command.headless, "train", train)
    check = Check(figure="entropy", last=1, holds="below", bound=0.2)
    assert command.check("learning-rate", replace(lessons()["learning-rate"], checks=[check])) == 0
    assert len(trained) == 1
    assert capsys.readouterr().out == "holds: entropy (last update) is below 0.2: 0.125\n"


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", NAMES)
def test_what_a_lesson_claims_is_measured(name: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert command.check(name, lessons()[name]) == 0, capfd.readouterr().out
