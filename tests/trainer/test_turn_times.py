"""Whole conversations that become too long to play: a window is proposed, or taken where nobody is asked, and once."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from llamagym_tui.protocol.commands import ChangeSettings
from llamagym_tui.protocol.events import RunFinished, SettingsChanged, WarningRaised
from llamagym_tui.run_store import last_settings, read_config
from llamagym_tui.trainer import run
from llamagym_tui.trainer.turn_times import LOOK, TurnTimes
from tests.fake_parts import EPISODES_A_BATCH, Stage


@pytest.mark.parametrize(
    ("first_s", "now_s", "window"),
    [
        (0.05, 1.2, 8),
        (0.125, 1.2, 7),
        (0.3, 1.2, 2),
        (0.4, 1.3, 1),
        (0.6, 2.0, 0),
        (0.05, 0.9, None),
        (4.0, 11.0, None),
        (4.0, 13.0, 0),
    ],
)
def test_as_many_earlier_turns_as_are_played_in_a_second_where_a_turn_has_come_to_take_longer(
    first_s: float, now_s: float, window: int | None
) -> None:
    times = TurnTimes()
    times.add(100.0)  # which reads the system prompt, too
    for _ in range(LOOK):
        times.add(first_s)
    for _ in range(LOOK // 2):
        times.add(100.0)  # now and then something else takes time
        times.add(first_s)
        assert times.window is None
    for _ in range(LOOK):
        times.add(now_s)
    assert times.window == window


Outgrowing = Callable[..., Stage]


@pytest.fixture
def outgrowing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Outgrowing:
    def made(**options: Any) -> Stage:
        stage = outgrowing_stage(tmp_path, **options)
        monkeypatch.setattr(run, "process_time", stage.builders.clock)
        return stage

    return made


def outgrowing_stage(folder: Path, *, is_attended: bool, **settings: Any) -> Stage:
    """A run whose turns take ever longer, in whose first batch no episode ends."""
    stage = Stage(folder, **{"minutes": 10.0, **settings})
    stage.session._is_attended = is_attended

    def grow(rollout: Any) -> None:
        rollout._batch.clear()
        if stage.policy.history is None:
            stage.builders.clock.now += stage.steps / 40

    stage.also_before_step = grow
    return stage


def proposals(stage: Stage) -> list[str]:
    return [each.message for each in stage.of(WarningRaised) if "too long to play" in each.message]


def test_without_a_person_a_window_is_taken_and_kept(
    tmp_path: Path, outgrowing: Outgrowing
) -> None:
    stage = outgrowing(is_attended=False)
    stage.session.run()
    (said,) = proposals(stage)
    assert said.endswith(
        "Prompts have 3 earlier turns from now on; --history all leaves them whole."
    )
    (change,) = stage.of(SettingsChanged)
    assert change.changes == {"history": 3}
    assert (stage.policy.history, last_settings(tmp_path).history) == (3, 3)
    assert stage.rollout.restarts == 1  # conversations under way are long already
    assert stage.of(RunFinished)[0].env_steps > 1000


def test_to_a_person_it_is_proposed_and_what_they_choose_begins_at_once(
    outgrowing: Outgrowing,
) -> None:
    stage = outgrowing(is_attended=True)
    stage.script = {60: [ChangeSettings(changes={"history": 2})]}
    stage.session.run()
    (said,) = proposals(stage)
    assert said.endswith("Let prompts have 3 earlier turns: set the earlier turns to 3.")
    assert (stage.policy.history, stage.rollout.restarts) == (2, 1)


@pytest.mark.parametrize("given", [{"history": "all"}, {"history": 5}])
def test_what_was_given_stays(outgrowing: Outgrowing, given: dict[str, Any]) -> None:
    stage = outgrowing(is_attended=False, **given)
    stage.session.run()
    assert (proposals(stage), stage.of(SettingsChanged)) == ([], [])


def test_after_the_first_batch_nothing_is_proposed(outgrowing: Outgrowing) -> None:
    stage = outgrowing(is_attended=False)
    slower = stage.also_before_step

    def grow_later(rollout: Any) -> None:
        if stage.steps > EPISODES_A_BATCH:
            slower(rollout)

    stage.also_before_step = grow_later
    stage.session.run()
    assert stage.learner.updates > 0
    assert proposals(stage) == []
    assert read_config(stage.config.run_dir).history == "all"  # which a resumed run has, too


def test_a_run_that_goes_on_before_its_first_batch_as_after_sft_takes_a_window_too(
    tmp_path: Path, outgrowing: Outgrowing
) -> None:
    before = Stage(tmp_path, episodes=2)
    before.session.run()
    assert (before.learner.updates, read_config(tmp_path).history) == (0, "own")
    stage = outgrowing(is_attended=False, resume=True)
    stage.builders.saved.extend(before.builders.saved)
    stage.session.run()
    assert len(proposals(stage)) == 1
    assert stage.policy.history == 3
