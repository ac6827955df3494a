"""What TRL and Trackio write of a real run of GRPO, and what a run of ours logs."""

import math
import shutil
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from llamagym_tui.protocol.events import (
    EpisodeFinished,
    EpisodeStarted,
    ObservationShown,
    TurnFinished,
    TurnInspected,
    UpdateFinished,
)
from llamagym_tui.protocol.inspected import Decision, InspectedToken
from llamagym_tui.rollouts.index import Rollouts
from llamagym_tui.rollouts.rollout import Rollout, Said, Token
from tests import fakes
from tests.recorded_run import record

TRAINING = Path(__file__).parent / "files" / "train_by_trl.py"


def only_turn(episode, reply, **told):
    """The one turn of an episode, in which the reply is its action's name."""
    known = {"turn": 0, "action": 0, "action_name": reply, "how": "keyword", "reward": 0.0}
    return TurnFinished(episode=episode, reply=reply, **{**known, **told})


def read(path):
    found = Rollouts(str(path))
    while found.read_on():
        pass
    return found


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("grpo")
    command = [sys.executable, str(TRAINING), str(folder)]
    subprocess.run(command, check=True, capture_output=True, timeout=120)
    return folder


@pytest.mark.parametrize("path", ["completions", "completions/*.parquet", "trackio/demo.db"])
def test_what_trl_and_trackio_write(trained, path):
    found = read(trained / path)
    assert list(found.steps) == [1, 2]
    # Trackio gets the last step twice, as TRL logs once more at the end.
    assert [len(each) for each in found.steps.values()] == [8, 8]
    for entries in found.steps.values():
        assert len({each.group for each in entries}) == 2
    for entry in found.entries:
        rollout = found.rollout(entry)
        prompt, completion = rollout.messages
        assert (prompt.role, prompt.text) in (("user", "Say a."), ("user", "Say b."))
        facts = dict(rollout.facts)
        assert facts["letters"] == str(len(completion.text))
        # Every other one is not rewarded by `half`.
        reward = len(completion.text) + float(facts.get("half", 0.0))
        assert rollout.reward == entry.reward == reward
        assert rollout.advantage is not None
    assert found.notes == [
        "These files have no log-probabilities, no reference log-probabilities.",
        "The reward is the plain sum of letters, half: the files have no weights.",
    ]


def test_a_trace_of_trackio(trained):
    found = read(trained / "trackio" / "traces.db")
    (entry,) = found.entries
    rollout = found.rollout(entry)
    assert rollout.messages == (Said("user", "Say c."), Said("assistant", "c"))
    assert (rollout.step, rollout.reward) == (3, 0.5)
    assert dict(rollout.facts)["right"] == "1"


def test_a_run_of_ours(tmp_path):
    decision = Decision(old=-0.5, new=-0.4, advantage=1.5)
    token = InspectedToken(token=3, text="stick", decision=decision, alternatives=[])
    turn = only_turn(4, "stick", reward=1.0, probability=0.25)
    started = EpisodeStarted(episode=4, system_prompt="Play.", prompt_version=1, mode="train")
    finished = EpisodeFinished(episode=4, episode_return=1.0, length=1, end="terminated")
    events = [
        fakes.run_started(),
        started,
        ObservationShown(episode=4, turn=0, text="16 against 9"),
        turn,
        finished,
        TurnInspected(episode=4, turn=0, tokens=[token]),
        UpdateFinished(update=1, episodes=5, stats=fakes.STATS),
    ]
    more = [
        EpisodeStarted(episode=5, system_prompt="Play.", prompt_version=1, mode="train"),
        ObservationShown(episode=5, turn=0, text="12 against 2"),
    ]
    found = read(record(tmp_path / "run", [*events, *more]))
    assert list(found.steps) == [1]
    # All episodes of the update count, of which the log has one.
    told = fakes.STATS
    figures = found.figures(1)
    assert figures[1:4] == (told.episodes, told.mean_return, told.return_std)
    assert figures.length == 1
    (entry,) = found.entries
    assert entry.length == 1  # a token: the turn was inspected after its episode
    assert found.notes == ["These files have no reference log-probabilities."]
    assert found.rollout(entry) == Rollout(
        (
            Said("system", "Play."),
            Said("user", "16 against 9"),
            Said(
                "assistant",
                "stick",
                reward=1.0,
                tokens=(Token("stick", -0.5, None, 1.5),),
                note="stick 25%",
            ),
        ),
        step=1,
        reward=1.0,
        facts=(("episode", "4"), ("end", "terminated")),
    )


def test_an_episode_belongs_to_the_update_after_its_end(tmp_path):
    events = [
        EpisodeStarted(episode=1, system_prompt="Play.", prompt_version=1, mode="train"),
        UpdateFinished(update=4, episodes=1, stats=fakes.STATS),
        only_turn(1, "hit", reward=2.0),
        EpisodeFinished(episode=1, episode_return=2.0, length=1, end="terminated"),
        UpdateFinished(update=5, episodes=2, stats=fakes.STATS),
    ]
    found = read(record(tmp_path / "run", events))
    (entry,) = found.entries
    assert entry.step == 5
    assert found.rollout(entry).said == "hit"


def test_a_turn_in_which_a_person_acted(tmp_path):
    turn = only_turn(0, "hit", how="human", replaced="stick")
    events = [
        EpisodeStarted(episode=0, system_prompt="", prompt_version=1, mode="train"),
        turn,
        EpisodeFinished(episode=0, episode_return=0.0, length=1, end="truncated"),
    ]
    found = read(record(tmp_path / "run", events))
    (said,) = found.rollout(found.entries[0]).messages
    assert said.note == "hit, chosen by a person"


def test_an_episode_that_nobody_rewarded(tmp_path):
    turn = only_turn(0, "x", action=None, how="custom")
    events = [
        EpisodeStarted(episode=0, system_prompt="", prompt_version=1, mode="train"),
        turn,
        EpisodeFinished(episode=0, episode_return=math.nan, length=1, end="terminated"),
        fakes.counted([1.0, 1.0], episodes=40),
    ]
    found = read(record(tmp_path / "run", events))
    (entry,) = found.entries
    assert entry.reward is found.rollout(entry).messages[0].reward is None
    assert "The log of this run keeps 1 of its 40 episodes." in found.notes


def test_a_row_of_trackios_that_is_broken_costs_itself(trained, tmp_path):
    path = tmp_path / "demo.db"
    shutil.copy(trained / "trackio" / "demo.db", path)
    with closing(sqlite3.connect(path)) as db:
        whole = db.execute(
            "SELECT * FROM metrics WHERE CAST(metrics AS TEXT) LIKE '%trackio.table%'"
        ).fetchone()
        for text in ("not json", whole[5].decode().replace('"step":1', '"step":9')):
            columns = "run_id, timestamp, run_name, step, metrics"
            query = f"INSERT INTO metrics ({columns}) VALUES (?, ?, ?, ?, ?)"
            db.execute(query, (*whole[1:5], text))
        db.commit()
    found = read(path)
    assert [each.name for each in tmp_path.iterdir()] == ["demo.db"], "nothing is written"
    assert list(found.steps) == [1, 2, 9]
    assert "Left out of demo.db: rows that are no JSON (1)." in found.notes


def test_each_episode_of_a_run_is_found_again(tmp_path):
    found = read(record(tmp_path / "run", fakes.demo_run(batches=40)))
    whole = [found.rollout(each) for each in found.entries]
    assert len(whole) == 3
    assert all(each.messages[-1].role == "assistant" for each in whole)
    assert [each.reward for each in whole] == [each.reward for each in found.entries]
