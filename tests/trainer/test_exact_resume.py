"""A run that is killed at a checkpoint and resumed becomes, bit for bit, what it would have become undisturbed."""

from __future__ import annotations

import queue
import random
from collections import Counter, deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, fields, is_dataclass
from pathlib import Path
from typing import Any

import gymnasium
import msgspec
import numpy as np
import pytest
import torch
from gymnasium import spaces
from msgspec.structs import replace
from safetensors.torch import load

from llamagym_tui.agent import ActionReading, Agent, read_action
from llamagym_tui.config import PPOConfig, RunConfig, turns_kept
from llamagym_tui.engine.policy.policy import Policy
from llamagym_tui.errors import ConfigError
from llamagym_tui.protocol.commands import AnyCommand, ChangeSettings, SaveCheckpoint, Stop
from llamagym_tui.protocol.events import (
    CheckpointSaved,
    EpisodeFinished,
    EpisodeStarted,
    Event,
    ObservationsDistinguished,
    RunStarted,
    SettingsMeasured,
    UpdateFinished,
    WarningRaised,
)
from llamagym_tui.run_store import RunStore, read_config, read_events
from llamagym_tui.setup.branch import begun, kept_updates
from llamagym_tui.trainer.builders import Builders
from llamagym_tui.trainer.rollout import opponents
from llamagym_tui.trainer.rollout.env_slot import EnvSlot
from llamagym_tui.trainer.session import Session
from tests.fake_parts import Loaded
from tests.tug_env import TugAgent

UPDATES = 3
PPO = PPOConfig(
    batch_size=16,
    mini_batch_size=16,
    epochs=1,
    critic_warmup_updates=0,
    kl_target=0.01,
    reward_scale=None,
    lr=3e-3,
)
CUTTING = replace(PPO, batch_size=32, whole_episodes=False)
"""Updates come while episodes are under way."""


GROUPED = replace(PPO, learner="grpo", group_size=3)
"""Episodes are compared with those of their seed, and there is no critic."""


class Walk(gymnasium.Env[int, int]):
    """A random walk from 2 to 0 or 4; it repeats itself from its seed, unless all of them share one source."""

    shared: np.random.Generator | None = None
    fails = 0.0
    """How often a reset or step raises, and a reward is no number."""

    def __init__(self) -> None:
        self.observation_space, self.action_space = spaces.Discrete(5), spaces.Discrete(2)
        self.place = 2

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[int, dict[str, Any]]:
        super().reset(seed=seed)
        self.place = 2
        self.fail()
        return self.place, {}

    def step(self, action: int) -> tuple[int, float, bool, bool, dict[str, Any]]:
        self.fail()
        if self.fails and self.np_random.random() < self.fails:
            return self.place, float("nan"), False, False, {}
        source = self.shared or self.np_random
        self.place += 1 if source.random() < 0.4 + 0.2 * action else -1
        return self.place, self.place / 4, self.place in (0, 4), False, {}

    def fail(self) -> None:
        if self.fails and self.np_random.random() < self.fails:
            raise ArithmeticError("the floor gives way")


if "LlamaWalk-v0" not in gymnasium.registry:
    gymnasium.register("LlamaWalk-v0", entry_point=Walk)


class WalkAgent(Agent):
    env_id = "LlamaWalk-v0"
    action_names = ("down", "up")

    def get_system_prompt(self) -> str:
        return "Walk."

    def format_observation(self, observation: Any) -> str:
        return f"At {observation}."

    def extract_action(self, response: str) -> ActionReading:
        return read_action(response, self.action_names)


class Killed(BaseException):
    """The process dies here."""


@dataclass(frozen=True)
class Played(Builders):
    """A tiny model; one checkpoint is requested in the middle of the second batch."""

    make_policy: Callable[..., Policy] = field(kw_only=True)
    commands: queue.SimpleQueue[AnyCommand] = field(kw_only=True)

    def agent(self) -> Agent:
        return TugAgent() if self.config.agent == "tug" else WalkAgent()

    def preflight(self, agent: Any, *, learns: bool = True) -> None:
        return None

    def model(self) -> Any:
        torch.manual_seed(self.config.seed)
        return Loaded()

    def policy(self, agent: Any, loaded: Any) -> Policy:
        lora = not self.config.full_finetuning
        policy = self.make_policy(lora=lora, **msgspec.structs.asdict(self.config.generation))
        policy.history = turns_kept(self.config.history, agent.history)
        return policy

    def rollout(self, agent: Any, policy: Any, *, seed: int, emit: Callable[[Event], None]) -> Any:
        rollout = super().rollout(agent, policy, seed=seed, emit=emit)
        step, steps = rollout.step, list[int]()

        def counted() -> Any:
            if policy.version == 1 and not self.config.resume:
                steps.append(0)
                if len(steps) == 4:
                    self.commands.put(SaveCheckpoint())
            return step()

        rollout.step = counted  # type: ignore[method-assign]
        return rollout


@dataclass
class Stage:
    """Runs of one kind."""

    make_policy: Callable[..., Policy]
    config: RunConfig

    def play(
        self,
        name: str,
        *,
        killed_at: int | None = None,
        resume: bool = False,
        first: AnyCommand | None = None,
    ) -> tuple[list[Event], Session]:
        """A run until `UPDATES` updates are made, or until so many checkpoints are; a command may come `first`."""
        config = replace(self.config, run_dir=f"{self.config.run_dir}/{name}", resume=resume)
        commands: queue.SimpleQueue[AnyCommand] = queue.SimpleQueue()
        if first is not None:
            commands.put(first)
        events: list[Event] = []

        def sink(event: Event) -> None:
            events.append(event)
            if isinstance(event, UpdateFinished) and event.update == UPDATES:
                commands.put(Stop())
            if sum(isinstance(event, CheckpointSaved) for event in events) == killed_at:
                raise Killed

        builders = Played(config, make_policy=self.make_policy, commands=commands)
        session = Session(
            config, RunStore.create(config), commands, sinks=[sink], builders=builders
        )
        try:
            assert session.run() == "stopped", session.error
        except Killed:
            assert killed_at is not None
        return events, session

    def learnt(self, name: str) -> dict[str, Any]:
        """What a run has become, times left out."""
        model = Path(self.config.run_dir, name, "model")
        found: dict[str, Any] = {
            file.name: file.read_bytes() for file in model.glob("*.safetensors")
        }
        state = msgspec.msgpack.decode((model / "learner.msgpack").read_bytes())
        return found | without_times(state)


def without_times(value: Any) -> Any:
    if isinstance(value, dict):
        return {
            key: without_times(each) for key, each in value.items() if not str(key).endswith("_s")
        }
    return [without_times(each) for each in value] if isinstance(value, list) else value


def require_equal_up_to_rounding(found: Any, expected: Any) -> None:
    """A resumed run reads the prompts that its memory has lost in other batches, so kernels may round otherwise."""
    if isinstance(expected, dict):
        assert found.keys() == expected.keys()
        for key, value in expected.items():
            if str(key).endswith(".safetensors"):
                require_equal_up_to_rounding(load(found[key]), load(value))
            else:
                require_equal_up_to_rounding(found[key], value)
    elif isinstance(expected, list):
        for one, other in zip(found, expected, strict=True):
            require_equal_up_to_rounding(one, other)
    elif isinstance(expected, torch.Tensor):
        torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-4)
    elif isinstance(expected, float):
        assert found == pytest.approx(expected, rel=1e-3, abs=1e-4, nan_ok=True)
    else:
        assert found == expected


@pytest.fixture(autouse=True)
def nothing_waits_for_the_disk(monkeypatch) -> None:
    """What is killed here is no machine: a run keeps its checkpoints in any case."""
    monkeypatch.setattr("os.fsync", lambda descriptor: None)


@pytest.fixture(scope="module")
def undisturbed(make_policy, tmp_path_factory) -> tuple[Stage, list[Event]]:
    """A run with the settings of most of these tests, which many compare theirs with, and what it reported."""
    stage = stage_in(tmp_path_factory.mktemp("undisturbed"), make_policy)
    events, _ = stage.play("straight")
    return stage, events


@pytest.fixture
def stage(make_policy, tmp_path, request) -> Stage:
    full, policy = getattr(request, "param", (True, "generate"))
    return stage_in(tmp_path, make_policy, full, policy)


def stage_in(
    folder: Path, make_policy: Callable[..., Policy], full: bool = True, policy: str = "generate"
) -> Stage:
    settings = {
        "generation": {"policy": policy, "max_new_tokens": 4},
        "full_finetuning": full,
        "ppo": PPO,
    }
    config = RunConfig(
        form="off", agent="walk", run_dir=str(folder), n_envs=6, threads=1, checkpoint_every_s=0
    )
    return Stage(
        make_policy,
        msgspec.convert(msgspec.to_builtins(config) | msgspec.to_builtins(settings), RunConfig),
    )


@pytest.mark.parametrize(
    ("stage", "kills"),
    [
        ((True, "generate"), (2, 3)),
        pytest.param((True, "score"), (2,), marks=pytest.mark.slow),
        pytest.param((False, "generate"), (2,), marks=pytest.mark.slow),
    ],
    indirect=["stage"],
)
def test_killed_at_any_checkpoint_and_resumed_a_run_is_bit_for_bit_as_undisturbed(stage, kills):
    events, _ = stage.play("straight")
    updates = [event.update for event in events if isinstance(event, CheckpointSaved)]
    assert updates == [1, 1, 2, 3]  # the second one in the middle of a batch
    for killed_at in kills:
        name = f"killed {killed_at}"
        before, _ = stage.play(name, killed_at=killed_at)
        after, _ = stage.play(name, resume=True)
        assert stage.learnt(name) == stage.learnt("straight")
        assert not [
            event for event in after if isinstance(event, WarningRaised) and "anew" in event.message
        ]
        at_s = [event.at_s for event in read_events(Path(stage.config.run_dir, name))]
        assert at_s == sorted(at_s)
        assert at_s[-1] > before[-1].at_s


@pytest.mark.parametrize(
    ("history", "ppo"),
    [
        (0, CUTTING),
        pytest.param(1, PPO, marks=pytest.mark.slow),
        pytest.param(0, GROUPED, marks=pytest.mark.slow),
    ],
)
def test_a_run_whose_prompts_leave_out_earlier_turns_is_resumed_as_exactly(stage, history, ppo):
    stage.config = replace(stage.config, history=history, ppo=ppo)
    stage.play("straight")
    stage.play("killed", killed_at=2)
    _, session = stage.play("killed", resume=True)
    assert stage.learnt("killed") == stage.learnt("straight")
    (last, *_) = reversed(session.active_run.learner.used)
    sizes = Counter(each.group for each in last.trajectories)
    assert set(sizes.values()) == {3} if ppo is GROUPED else set(sizes) == {None}
    assert all(
        len(segment.turns) <= 1 + history
        for each in session.active_run.learner.used
        for segment in each.trajectories[0].segments
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    "ppo", [PPO, pytest.param(replace(CUTTING, batch_size=64), marks=pytest.mark.slow)]
)
def test_a_run_against_earlier_selves_is_resumed_as_exactly(stage, ppo, monkeypatch):
    monkeypatch.setattr(opponents, "EVERY", 1)
    stage.config = replace(stage.config, agent="tug", ppo=ppo)
    _, straight = stage.play("straight")
    stage.play("killed", killed_at=2)
    _, resumed = stage.play("killed", resume=True)
    assert stage.learnt("killed") == stage.learnt("straight")
    pools = [session.active_run.rollout.opponent for session in (straight, resumed)]
    assert [[earlier.version for earlier, _ in pool._selves] for pool in pools] == [
        [0, 1, 2, 3]
    ] * 2


def test_an_episode_under_way_goes_on_with_the_history_that_it_began_with(stage):
    _, before = stage.play("run", killed_at=2)
    histories = [slot.episode.history for slot in before.active_run.rollout.slots if slot.episode]
    assert set(histories) == {None}
    folder = Path(stage.config.run_dir, "run", "config.json")
    folder.write_bytes(
        msgspec.json.encode(
            replace(msgspec.json.decode(folder.read_bytes(), type=RunConfig), history=0)
        )
    )
    after, _ = stage.play("run", resume=True)
    assert not [
        event for event in after if isinstance(event, WarningRaised) and "anew" in event.message
    ]


@pytest.mark.parametrize("killed_at", [2, pytest.param(3, marks=pytest.mark.slow)])
def test_a_run_whose_environments_fail_is_resumed_as_exactly(stage, monkeypatch, killed_at):
    monkeypatch.setattr(Walk, "fails", 0.1)
    stage.play("straight")
    _, killed = stage.play("killed", killed_at=killed_at)
    assert killed.active_run.rollout.failures.dropped > 3
    stage.play("killed", resume=True)
    assert stage.learnt("killed") == stage.learnt("straight")


def test_an_episode_under_way_is_shown_from_its_beginning_when_it_goes_on(stage):
    stage.play("run", killed_at=2)
    after, _ = stage.play("run", resume=True)
    started = next(event for event in after if isinstance(event, EpisodeStarted))
    finished = next(event for event in after if isinstance(event, EpisodeFinished))
    assert finished.episode == started.episode


def test_an_environment_that_does_not_repeat_itself_begins_anew_and_the_run_says_so_once(
    stage, monkeypatch
):
    monkeypatch.setattr(Walk, "shared", np.random.default_rng(0))
    stage.play("run", killed_at=2)
    after, session = stage.play("run", resume=True)
    warnings = [event.message for event in after if isinstance(event, WarningRaised)]
    (warning,) = [each for each in warnings if "under way cannot go on and will begin anew" in each]
    assert "LlamaWalk-v0" in warning
    assert session.active_run.learner.updates == UPDATES


def test_generators_that_users_may_draw_from_go_on(stage, monkeypatch):
    drawn: list[tuple[float, ...]] = []

    def drawing(env: Walk, action: int) -> Any:
        drawn.append((random.random(), float(np.random.rand()), float(torch.rand(()))))
        return step(env, action)

    step = Walk.step
    monkeypatch.setattr(Walk, "step", drawing)
    stage.config = replace(
        stage.config, parallel_envs="off"
    )  # or a step is measured, which is drawn, too
    for name, killed_at in (("straight", None), ("killed", 3)):
        random.seed(1), np.random.seed(1)
        stage.play(name, killed_at=killed_at)
    straight = drawn[: len(drawn) - drawn[::-1].index(drawn[0]) - 1]
    del drawn[:]
    random.seed(2), np.random.seed(2)  # as in another process
    stage.play("killed", resume=True)
    assert drawn == straight[-len(drawn) :]


UNSAVED = {
    # Of the process, of what is shown, and figures of speed.
    "_emitter", "_emit", "_clock", "_checkpoints", "spectator", "stopwatch", "_marks", "make_env", "env", "_warn",
    "_reported_at", "_began_at", "_drawing", "action_probes", "policy_map", "wheel", "elapsed_s", "_since",
    # What the last updates used, for the inspector; whole words of the tokenizer, which are equal for equal texts; the
    # line of the last returns.
    "used", "moved", "inspector", "untrained", "chat", "_verdict", "last_reply", "_described", "_words",
    # What each session judges, and reports, once.
    "_read", "_unread", "_example", "_cuts", "_warned_of_unread", "_warned_of_left_out", "_known_fault",
    "_turn_times", "_takes_window",
    # Empty after a checkpoint: caches, gradients.
    "_slots", "_sampler", "model", "backbone", "_trunk", "_head", "optimizer", "reference", "param_groups",
}  # fmt: skip
"""Attributes of which nothing must be in a checkpoint, or whose tensors are compared as files."""


def differences(one: Any, other: Any, path: str, seen: set[int]) -> Iterator[str]:
    """Paths of attributes in which two graphs of objects differ."""
    if isinstance(one, int | float | str | bytes | None):
        yield from [path] if one != other and not path.endswith("_s") else ()
        return
    if id(one) in seen or (callable(one) and not hasattr(one, "__dict__")):
        return
    seen.add(id(one))
    if isinstance(one, torch.Tensor | torch.Generator):
        states = [
            each.get_state() if isinstance(each, torch.Generator) else each for each in (one, other)
        ]
        if not torch.equal(*states):
            yield path
    elif isinstance(one, dict):
        yield from [path] if one.keys() != other.keys() else ()
        for key in one.keys() & other.keys():
            yield from differences(one[key], other[key], f"{path}[{key}]", seen)
    elif isinstance(one, list | tuple | deque):
        yield from [path] if len(one) != len(other) else ()
        for at, (each, its) in enumerate(zip(one, other, strict=False)):
            yield from differences(each, its, f"{path}[{at}]", seen)
    elif isinstance(one, EnvSlot) and one.episode is None:
        yield from [path] if other.episode is not None else ()
    elif attributes := attributes_of(one):
        for name in attributes:
            if name not in UNSAVED:
                yield from differences(
                    getattr(one, name), getattr(other, name), f"{path}.{name}", seen
                )
    elif hasattr(one, "getstate"):
        yield from [path] if one.getstate() != other.getstate() else ()


def attributes_of(value: Any) -> list[str]:
    if not type(value).__module__.startswith(("llamagym_tui", "tests")):
        return []
    if isinstance(value, msgspec.Struct):
        return list(value.__struct_fields__)
    return [each.name for each in fields(value)] if is_dataclass(value) else list(vars(value))


def as_resumed(stage: Any, monkeypatch: pytest.MonkeyPatch, name: str) -> Any:
    """A run as it is resumed, before it does anything."""
    resumed: list[Any] = []

    def stopped(session: Session, run: Any) -> None:
        resumed.append(run)
        raise Killed

    monkeypatch.setattr(Session, "_advance", stopped)
    with pytest.raises(AssertionError):  # it did not end well
        stage.play(name, resume=True)
    return resumed[0]


def test_nothing_that_a_run_holds_is_forgotten_by_a_checkpoint(stage, monkeypatch):
    """Whoever gives a part of the run a state of its own saves it, or names it in `UNSAVED`."""
    _, before = stage.play("run", killed_at=2)
    resumed = as_resumed(stage, monkeypatch, "run")
    found = sorted(set(differences(before.active_run, resumed, "run", set())))
    assert found == ["run.config.resume", "run.given.resume"]


def test_what_the_first_batch_decides_is_kept_and_resumed(stage, monkeypatch):
    monkeypatch.setattr("llamagym_tui.engine.learning.measured_settings.SHORT", 1)
    names = ["ppo.gamma", "ppo.lam", "ppo.whole_episodes"]
    ppo = replace(PPO, batch_size=32)
    stage.config = replace(stage.config, history=0, ppo=ppo, measured=dict.fromkeys(names, ""))
    events, session = stage.play("straight")
    (measured,) = [event for event in events if isinstance(event, SettingsMeasured)]
    assert measured.values == {"ppo.gamma": 0.98, "ppo.lam": 0.95, "ppo.whole_episodes": False}
    (first,) = [
        event for event in events if isinstance(event, UpdateFinished) and event.update == 1
    ]
    assert events.index(measured) < events.index(first)
    assert session.active_run.learner.config == replace(
        ppo, gamma=0.98, lam=0.95, whole_episodes=False
    )
    begun = stage.config
    for killed_at in (1, 2, 3):
        stage.config, name = begun, f"killed {killed_at}"
        stage.play(name, killed_at=killed_at)
        written = read_config(Path(stage.config.run_dir, name))
        assert (written.ppo, written.measured) == (
            session.active_run.learner.config,
            measured.reasons,
        )
        stage.config = replace(begun, ppo=written.ppo, measured=written.measured)
        again, _ = stage.play(name, resume=True)
        assert not [event for event in again if isinstance(event, SettingsMeasured)]
        require_equal_up_to_rounding(stage.learnt(name), stage.learnt("straight"))


@pytest.mark.slow
def test_a_look_at_what_the_model_distinguishes_changes_nothing_and_is_not_repeated(
    stage, undisturbed, monkeypatch
):
    not_looked, events = undisturbed
    assert not [event for event in events if isinstance(event, ObservationsDistinguished)], (
        "they are too few"
    )
    monkeypatch.setattr("llamagym_tui.engine.learning.distinguished.FEWEST", 2)
    stage.play("looked", killed_at=2)
    before = list(read_events(Path(stage.config.run_dir, "looked")))
    after, _ = stage.play("looked", resume=True)
    looked = [event for event in (*before, *after) if isinstance(event, ObservationsDistinguished)]
    assert [(event.observations, event.distinguished) for event in looked] == [(3, 3)]
    assert stage.learnt("looked") == not_looked.learnt("straight")


def test_what_was_changed_live_before_the_first_update_is_not_measured(stage, monkeypatch):
    monkeypatch.setattr("llamagym_tui.engine.learning.measured_settings.SHORT", 1)
    stage.config = replace(stage.config, measured=dict.fromkeys(("ppo.gamma", "ppo.lam"), ""))
    at_first = ChangeSettings(changes={"ppo.gamma": 0.5})
    events, session = stage.play("changed", first=at_first)
    (measured,) = [event for event in events if isinstance(event, SettingsMeasured)]
    assert measured.values == {"ppo.lam": 0.95}
    assert session.active_run.config.measured == measured.reasons
    assert session.active_run.learner.config.gamma == 0.5


def test_a_run_goes_over_to_a_learner_without_a_critic_and_a_branch_goes_back(stage):
    _, session = stage.play("run", first=ChangeSettings(changes={"ppo.learner": "grpo"}))
    used = session.active_run.learner.used[-1]
    assert set(Counter(each.group for each in used.trajectories).values()) == {8}
    assert {turn.value for each in used.trajectories for turn in each.turns} == {0.0}
    # a branch from the middle of a batch, whose episodes have no values, drops it
    stage.play("killed", killed_at=2, first=ChangeSettings(changes={"ppo.learner": "grpo"}))
    stage.config = replace(stage.config, ppo=replace(PPO, learner="reinforce"))
    _, resumed = stage.play("killed", resume=True)
    batches = [each.trajectories for each in resumed.active_run.learner.used]
    assert {each.group for batch in batches for each in batch} == {None}


def test_episodes_that_are_cut_off_are_refused_where_nothing_foresees_their_end(stage):
    ppo = replace(PPO, learner="rloo", whole_episodes=False)
    with pytest.raises(ConfigError, match=r"rloo has no critic .* leave ppo.whole_episodes=false"):
        Builders(replace(stage.config, ppo=ppo)).learner(stage.make_policy())


@pytest.mark.slow
def test_short_episodes_are_trained_bit_for_bit_as_by_fixed_defaults(
    stage, undisturbed, monkeypatch
):
    monkeypatch.setattr(
        "llamagym_tui.engine.learning.measured_settings.SHORT", 100
    )  # the longest one is not
    names = ("ppo.gamma", "ppo.lam", "ppo.whole_episodes")
    stage.config = replace(stage.config, measured=dict.fromkeys(names, ""))
    stage.play("measured")
    assert stage.learnt("measured") == undisturbed[0].learnt("straight")


def test_the_first_batch_is_measured_whole_although_later_ones_shall_cut_episodes(stage):
    ppo = replace(PPO, batch_size=32, whole_episodes=False)
    stage.config = replace(stage.config, history=0, ppo=ppo, measured={"ppo.gamma": ""})
    whole = [True]

    def noted(session: Session, run: Any) -> None:
        whole[:] = (
            [whole[0] and not run.rollout.cuts_episodes] if not run.learner.updates else whole
        )
        advance(session, run)

    advance = Session._advance
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Session, "_advance", noted)
        _, session = stage.play("run")
    assert whole == [True]
    assert session.active_run.rollout.cuts_episodes
    assert all(session.active_run.config.measured.values())


def test_settings_that_were_all_changed_live_are_not_waited_for(stage):
    stage.config = replace(stage.config, measured={"ppo.gamma": ""})
    events, session = stage.play("changed", first=ChangeSettings(changes={"ppo.gamma": 0.5}))
    assert not [event for event in events if isinstance(event, SettingsMeasured)]
    assert session.active_run.config.measured == {}


def test_a_branch_without_changes_becomes_bit_for_bit_its_parent_and_one_with_another_seed_does_not(
    stage, undisturbed
):
    original = undisturbed[0]
    parent = Path(original.config.run_dir, "straight")
    assert kept_updates(parent) == [1, 2, 3]
    learnt = original.learnt("straight")
    for name in ("same", "other"):
        begun(replace(stage.config, run_dir=f"{stage.config.run_dir}/{name}", parent=f"{parent}@1"))
    began, _ = stage.play("same", resume=True)
    started = next(event for event in began if isinstance(event, RunStarted))
    assert started.updates == 1
    assert started.episodes > 0
    assert stage.learnt("same") == learnt
    stage.config = replace(stage.config, seed=1)
    _, other = stage.play("other", resume=True)
    assert other.active_run.learner.updates == UPDATES
    assert stage.learnt("other")["model.safetensors"] != learnt["model.safetensors"]
    assert original.learnt("straight") == learnt


def test_a_branch_with_another_seed_draws_other_numbers_and_plays_other_episodes_from_its_beginning(
    stage, undisturbed, monkeypatch
):
    parent = f"{undisturbed[0].config.run_dir}/straight@1"
    begun(replace(stage.config, run_dir=f"{stage.config.run_dir}/other", parent=parent))
    stage.config = replace(stage.config, seed=1)
    found = as_resumed(stage, monkeypatch, "other")
    assert torch.equal(
        found.policy.generator.get_state(), torch.Generator().manual_seed(1).get_state()
    )
    assert found.learner.state.random == random.Random(1).getstate()
    assert not any(slot.episode for slot in found.rollout.slots)
