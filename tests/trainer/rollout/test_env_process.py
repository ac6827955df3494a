"""Environments in processes of their own: same trajectories, slow steps at the same time, deaths that stay alone."""

from __future__ import annotations

import inspect
import os
import random
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from functools import partial
from pathlib import Path

import msgspec
import pytest

from llamagym_tui.agents.cart_pole import CartPoleAgent
from llamagym_tui.engine import memory
from llamagym_tui.game.agent_base import AgentBase
from llamagym_tui.game.environment import EnvMaker, episode_seed, turn_limit
from llamagym_tui.protocol import events
from llamagym_tui.setup.catalog import find_agent
from llamagym_tui.trainer.rollout import env_process
from llamagym_tui.trainer.rollout.env_process import EnvProcess, ParallelMaker, agent_env_of
from llamagym_tui.trainer.rollout.rollout import Rollout
from tests.slow_env import (
    MeetingAgent,
    MortalAgent,
    MortalEnv,
    hundred,
    maker,
    pid_of,
    with_kwargs,
)
from tests.trainer.rollout.conftest import SEED

SETTINGS = {"n_envs": 3, "max_turns": 30, "batch_turns": 40, "seed": SEED}


def played(rollout: Rollout, batches: int = 1) -> list[bytes]:
    done: list[bytes] = []
    while len(done) < batches:
        rollout.step()
        if rollout.batch_ready:
            done.append(msgspec.msgpack.encode(rollout.take_batch()))
    return done


def in_processes(rollout: Rollout) -> set[bool]:
    return {isinstance(slot.env, EnvProcess) for slot in rollout.slots}


def exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return (
        Path(f"/proc/{pid}/stat").read_text().split()[2] != "Z" if Path("/proc").is_dir() else True
    )


def is_gone(pid: int) -> bool:
    until = time.monotonic() + 10
    while exists(pid) and time.monotonic() < until:
        time.sleep(0.01)
    return not exists(pid)


@pytest.fixture
def make(make_policy) -> Iterator:
    made: list[Rollout] = []

    def rollout(
        agent: AgentBase, when: str | None = "on", **changes
    ) -> tuple[Rollout, list[events.Event]]:
        emitted: list[events.Event] = []
        make_env = None if when is None else maker(agent, when)
        made.append(
            Rollout(
                agent, make_policy(), emit=emitted.append, make_env=make_env, **SETTINGS | changes
            )
        )
        return made[-1], emitted

    yield rollout
    for each in made:
        each.close()


def warnings(emitted: list[events.Event]) -> list[str]:
    return [event.message for event in emitted if isinstance(event, events.WarningRaised)]


def test_trajectories_and_events_are_the_same_in_a_row_and_at_the_same_time(make):
    (here, shown_here), (there, shown_there) = make(CartPoleAgent(), None), make(CartPoleAgent())
    assert (in_processes(here), in_processes(there)) == ({False}, {True})
    assert played(here, batches=2) == played(there, batches=2)
    assert shown_here == shown_there
    assert sum(isinstance(event, events.TurnFinished) for event in shown_here) > 20


def test_resets_and_steps_are_made_at_the_same_time(make, tmp_path):
    agent = with_kwargs(MeetingAgent, folder=str(tmp_path), n=3)
    rollout, emitted = make(agent, batch_turns=1, episode_limit=3)
    assert len(played(rollout)) == 1
    assert warnings(emitted) == []
    assert len({path.name.split("-")[1] for path in tmp_path.iterdir()}) == 3, "processes"


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ("dies", "the process of the environment ended with exit code 3"),
        ("raises", "RuntimeError: the door is stuck"),
    ],
)
def test_an_environment_that_fails_costs_its_episode_alone_and_is_made_again(make, fault, words):
    agent = with_kwargs(MortalAgent, seed=episode_seed(SEED, 1), fault=fault)
    rollout, emitted = make(agent, batch_turns=12)
    neighbours = rollout.slots[0].env, rollout.slots[2].env
    failed = rollout.slots[1].env
    played(rollout)
    assert rollout.failures.dropped == 1
    assert rollout.episodes >= 6
    assert (rollout.slots[0].env, rollout.slots[2].env) == neighbours
    assert rollout.slots[1].env is not failed
    (warning,) = warnings(emitted)
    assert "Environment 2, episode 1, step 1: " in warning
    assert words in warning
    lines, first = inspect.getsourcelines(MortalEnv)
    line = first + next(at for at, each in enumerate(lines) if "raise " in each)
    assert (f"({inspect.getfile(MortalEnv)}, line {line})" in warning) == (fault == "raises")


def test_an_episode_is_repeated_in_a_process_after_a_resume(make):
    (before, _), (after, _) = (
        make(CartPoleAgent(), None, batch_turns=60),
        make(CartPoleAgent(), batch_turns=60),
    )
    for _ in range(5):
        before.step()
    saved = msgspec.json.decode(msgspec.json.encode(before.state()))
    before.forget_caches()
    assert after.restore(saved) == 0
    after.set_counters(episodes=before.episodes, env_steps=before.env_steps)
    after._started = before._started
    after.policy.generator.set_state(before.policy.generator.get_state())
    assert played(before) == played(after)


def test_what_an_environment_renders_as_text_comes_from_its_process(make_policy):
    agent = find_agent("FrozenLake-v1")()
    drawn: list[list[events.Event]] = []
    for when in ("off", "on"):
        shown: list[events.Event] = []
        make_env = ParallelMaker(
            EnvMaker(agent), partial(agent_env_of, "FrozenLake-v1", {}, None), when, count=3
        )
        with closing(
            Rollout(agent, make_policy(), emit=shown.append, make_env=make_env, **SETTINGS)
        ) as rollout:
            assert (rollout.draws, in_processes(rollout)) == (True, {when == "on"})
            rollout.set_drawing(True)
            for _ in range(3):
                rollout.step()
        drawn.append([event for event in shown if isinstance(event, events.StateDrawn)])
    assert drawn[0] == drawn[1]
    assert len(drawn[0]) >= 3
    assert "SFFF" in drawn[0][0].text


def test_only_an_environment_that_is_slow_gets_a_process_and_that_is_said_once(make):
    before = random.getstate()
    fast, said = make(with_kwargs(MortalAgent), "auto")
    assert (in_processes(fast), said) == ({False}, [])
    slow, said = make(with_kwargs(MortalAgent, step_s=0.012), "auto")
    assert in_processes(slow) == {True}
    (sentence,) = warnings(said)
    found = re.fullmatch(
        r"LlamaMortal-v0 takes (\d+) ms a step: 3 environments step at the same time\.", sentence
    )
    assert found is not None
    assert int(found[1]) >= 12, "more on a busy machine"
    assert random.getstate() == before, "the measurement has drawn from it"
    assert turn_limit(slow.slots[0].env) == turn_limit(fast.slots[0].env) == 7
    slow.resize(4)
    assert in_processes(slow) == {True}


@pytest.mark.parametrize(("free", "is_apart"), [(500, False), (700, True)])
def test_processes_that_would_take_more_than_half_of_the_free_memory_are_not_made_unasked(
    make, monkeypatch, free, is_apart
):
    monkeypatch.setattr(memory, "host_free", lambda: free)
    monkeypatch.setattr(env_process, "_own_memory", hundred)  # three processes
    slow, said = make(with_kwargs(MortalAgent, step_s=0.012), "auto")
    assert in_processes(slow) == {is_apart}
    (sentence,) = warnings(said)
    assert ("step one after another" in sentence) == (not is_apart)
    slow.step()
    asked, said = make(with_kwargs(MortalAgent, step_s=0.012), "on")
    assert (in_processes(asked), said) == ({True}, [])


def test_a_process_tells_the_memory_that_it_shares_with_no_other(make):
    rollout, _ = make(with_kwargs(MortalAgent), "on")
    assert 2**20 < rollout.slots[0].env.call(env_process._own_memory) < 2**29


@pytest.mark.parametrize(
    ("when", "kwargs"),
    [
        ("off", {"step_s": 0.012}),
        ("auto", {"step_s": 0.012, "shows": 1}),
        ("auto", {"seed": 0, "fault": "raises"}),
    ],
    ids=["off", "an info that cannot be sent", "a step that fails"],
)
def test_an_environment_stays_in_the_trainer_if_it_should_or_cannot_leave(make, when, kwargs):
    rollout, emitted = make(with_kwargs(MortalAgent, **kwargs), when)
    assert (in_processes(rollout), emitted) == ({False}, [])


def test_what_cannot_be_sent_is_reported(make):
    rollout, emitted = make(with_kwargs(MortalAgent, shows=1), max_failures=1000)
    rollout.step()
    assert (
        "its observation or info cannot be sent to another process (--set parallel_envs=off"
        in warnings(emitted)[0]
    )


@pytest.mark.parametrize("when", ["on", "auto"])
def test_what_cannot_be_read_from_a_process_ends_no_run(make, when):
    agent = with_kwargs(MortalAgent, step_s=0.012, shows="unreadable")
    rollout, emitted = make(agent, when, max_failures=1000)
    rollout.step()
    assert in_processes(rollout) == {when == "on"}
    assert (
        "its observation or info cannot be read here (--set parallel_envs=off" in str(emitted)
    ) == (when == "on")


def test_processes_may_be_more_than_files_can_be_open_by_default(make):
    resource = pytest.importorskip("resource")
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    os.close(free := os.dup(1))
    resource.setrlimit(resource.RLIMIT_NOFILE, (free + 8, hard))
    try:
        rollout, _ = make(with_kwargs(MortalAgent), n_envs=6)
        assert in_processes(rollout) == {True}
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_a_process_ends_with_its_rollout_and_not_before(make):
    rollout, _ = make(with_kwargs(MortalAgent), episode_limit=3)
    rollout.step()
    pids = [slot.env.call(pid_of) for slot in rollout.slots]
    assert len(set(pids)) == 3
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        os.kill(pids[0], number)
    assert rollout.slots[0].env.call(pid_of) == pids[0], "these are for the trainer"
    rollout.close()
    assert all(is_gone(pid) for pid in pids)


def test_a_process_ends_with_a_trainer_that_is_killed_in_the_middle_of_a_step():
    script = (
        "import sys; from operator import methodcaller; from tests.slow_env import *\n"
        "if __name__ == '__main__':\n"
        "    env = maker(with_kwargs(MortalAgent, step_s=600.0))()\n"
        "    pid = env.call(pid_of)\n"
        "    env.call(methodcaller('reset'))\n"
        "    env.send(methodcaller('step', 1))\n"
        "    print(pid, flush=True)\n"
        "    sys.stdin.read()\n"
    )
    command = [sys.executable, "-c", script]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as trainer:
        assert trainer.stdout is not None
        pid = int(trainer.stdout.readline())
        assert exists(pid)
        trainer.send_signal(signal.SIGKILL)
    assert is_gone(pid)
