"""A session's parts without torch and gymnasium: scripted, counted, on a clock that moves only when they work."""

from __future__ import annotations

import queue
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
from msgspec.structs import fields, replace

from llamagym_tui.agent import Agent
from llamagym_tui.config import (
    GenerationConfig,
    MovedEpisode,
    PPOConfig,
    RunConfig,
    UpdateStats,
    WarmStartStats,
)
from llamagym_tui.engine.policy import policy
from llamagym_tui.errors import RunStoreError, UsageError
from llamagym_tui.game.choices import Choice
from llamagym_tui.protocol.commands import AnyCommand
from llamagym_tui.protocol.events import (
    ActionAwaited,
    EpisodeStarted,
    EvaluationFinished,
    Event,
    PhaseChanged,
    TurnFinished,
)
from llamagym_tui.run_store import RunStore
from llamagym_tui.trainer.builders import Builders
from llamagym_tui.trainer.rollout.episode_counts import EndedEpisode
from llamagym_tui.trainer.rollout.failures import Failures
from llamagym_tui.trainer.rollout.spectator import Spectator
from llamagym_tui.trainer.rollout.wheel import Wheel
from llamagym_tui.trainer.session import Session

STEP_S = 0.125
UPDATE_S = 1.0
MINIBATCHES = 4
EPISODES_A_BATCH = 8
TURN: dict[str, Any] = {
    "turn": 0,
    "reply": "1",
    "action": 1,
    "action_name": "tails",
    "how": "custom",
    "reward": 1.0,
}


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


class CoinAgent(Agent):
    """Calls heads or tails."""

    env_id = "Coin-v0"
    action_names = ("heads", "tails")

    def get_system_prompt(self) -> str:
        return "Call the coin."

    def format_observation(self, observation: Any) -> str:
        return str(observation)

    def extract_action(self, response: str) -> int:
        return int(response)


@dataclass(frozen=True)
class Ended:
    episode_return: float
    mode: str
    prompt_version: int
    policy_version: int
    length: int = 1
    parse_failures: int = 0
    actions: tuple[int, ...] = (0, 1)
    is_corrected: bool = False
    is_truncated: bool = False


def made_up_stats(**figures: Any) -> UpdateStats:
    """What the engine's update returns: nothing has moved."""
    none = {field.name: 0.0 for field in fields(UpdateStats) if field.required}
    counts = {
        "episodes": EPISODES_A_BATCH,
        "turns": EPISODES_A_BATCH,
        "shortened": 0,
        "tokens": 40,
        "skipped_steps": 0,
        "epochs": 1,
    }
    return UpdateStats(
        **none
        | counts
        | {"mean_return": 0.5, "return_std": 0.5, "reward_scale": 1.0, "update_s": UPDATE_S}
        | figures
    )


def evaluated(episodes: int) -> EvaluationFinished:
    figures = {
        "mean_return": -0.25,
        "return_stderr": 0.01,
        "parse_failure_rate": 0.0,
        "elapsed_s": 1.0,
    }
    return EvaluationFinished(episodes=episodes, greedy=True, **figures)


@dataclass(frozen=True)
class Loaded:
    name: str = "coin-model"
    device: str = "cpu"
    parameters: int = 10
    trainable: int = 5
    warning: str | None = None


@dataclass
class Chat:
    keeps_history: bool = True


@dataclass
class Policy:
    version: int = 0
    history: int | None = None
    generation: GenerationConfig = field(default_factory=GenerationConfig)
    chat: Chat = field(default_factory=Chat)
    trie: tuple[str, ...] = ("heads", "tails")
    can_choose: bool = True
    is_finite: bool = True
    require_playable = policy.Policy.require_playable


class Learner:
    def __init__(self, clock: Clock, policy: Policy, config: PPOConfig) -> None:
        self.config = config
        self.reference: object | None = object()
        self.updates = 0
        self.figures: dict[str, Any] = {}
        """What the next updates measure."""
        self.moved: MovedEpisode | None = None
        self.before_minibatch: Callable[[int], None] = lambda number: None
        self.batches: list[list[Any]] = []
        self._clock = clock
        self._policy = policy

    def distinguished(self, batch: list[Any]) -> None:
        return None

    def update(
        self,
        batch: list[Any],
        *,
        should_stop: Callable[[], bool],
        progress: Callable[[int, int], None],
    ) -> UpdateStats:
        self.batches.append(batch)
        made = 0
        for number in range(MINIBATCHES):
            self.before_minibatch(number)
            if number and should_stop():
                break
            progress(1 + number // 2, 2)
            self._clock.now += UPDATE_S / MINIBATCHES
            made += 1
        self.updates += 1
        self._policy.version += 1
        return made_up_stats(**{"epochs": made / MINIBATCHES, **self.figures})


class Rollout:
    """Two environments whose episodes last one step; tails wins every second time."""

    def __init__(self, clock: Clock, policy: Policy, emit: Callable[[Event], None]) -> None:
        self.mode = "train"
        self.episodes = 0
        self.env_steps = 0
        self.system_prompt, self.prompt_version = "", -1
        self.is_closed = False
        self.draws = True
        self.drawing = False
        self.seed = 0
        self.before_step: Callable[[Rollout], None] = lambda rollout: None
        self._clock, self._policy, self._emit = clock, policy, emit
        self._batch: list[Ended] = []
        self.batch_turns = 0
        self.n_envs = 2
        self.restarts = 0
        self.corrections_emitted = 0
        self.last_reply = "1"
        self.failures = Failures(10, lambda sentence: None)
        self.spectator = Spectator(emit)
        self.spectator.reset(self.n_envs)
        self.wheel = Wheel(CoinAgent(), emit)
        self._stands = False

    def restart(self) -> None:
        self.restarts += 1
        self._batch = []

    def emit_corrections(self) -> None:
        self.corrections_emitted += 1

    def resize(self, n_envs: int) -> None:
        self.n_envs = n_envs

    def set_system_prompt(self, text: str, version: int) -> None:
        self.system_prompt, self.prompt_version = text, version

    def state(self) -> dict[str, int]:
        return {"batch": len(self._batch)}

    def restore(self, saved: dict[str, int]) -> int:
        self.restored = saved
        return 0

    def forget_caches(self) -> None:
        pass

    def set_drawing(self, on: bool) -> None:
        self.drawing = on

    def set_counters(self, *, episodes: int, env_steps: int, dropped: int) -> None:
        self.episodes, self.env_steps = episodes, env_steps

    @property
    def batch_ready(self) -> bool:
        return len(self._batch) >= EPISODES_A_BATCH

    def fill_batch(self) -> None:
        """As if train episodes had just ended."""
        self._batch += [Ended(0.0, "train", 0, 0)] * EPISODES_A_BATCH

    def take_known_prompts(self) -> float:
        return 0.75

    def take_batch(self) -> list[Ended]:
        batch, self._batch = self._batch, []
        return batch

    @property
    def awaits_person(self) -> bool:
        return self._stands and self.wheel.env is not None and self.wheel.reply is None

    def take_wheel(self) -> None:
        if self.spectator.env is None:
            raise UsageError("There is no play.")
        self.wheel.take(self.spectator.env, (Choice("0", 0, "heads"), Choice("1", 1, "tails")))

    def act(self, episode: int, turn: int, action: int, reasoning: str = "") -> None:
        self.wheel.choose(action, reasoning)

    def keep_wheel_in_view(self) -> None:
        if self.wheel.env is not None and self.wheel.env != self.spectator.env:
            self.wheel.let_go("another conversation is watched")

    def step(self) -> list[Ended]:
        if not self._stands:
            self.before_step(self)
            self._stands = True
            if self.wheel.env is not None:
                self._emit(
                    ActionAwaited(episode=self.episodes, turn=0, reply="0", action_name="heads")
                )
        if self.awaits_person:
            return []
        self._stands = False
        is_corrected = self.wheel.env is not None and bool(self.wheel.take_reply())
        self._clock.now += STEP_S
        text, version = self.system_prompt, self.prompt_version
        started = EpisodeStarted(
            episode=self.episodes, system_prompt=text, prompt_version=version, mode="train"
        )
        self.spectator.observe(0, started)
        self.spectator.observe(0, TurnFinished(**TURN, episode=self.episodes))
        ended = [
            Ended(
                float(won),
                self.mode,
                version,
                self._policy.version,
                is_corrected=is_corrected and not won,
            )
            for won in (0, 1)
        ]
        self.episodes += 2
        self.env_steps += 2
        if self.mode == "train":
            self._batch += ended
        return ended

    def begin_episodes(self) -> None:
        pass

    def pending_prompt(self) -> None:
        return None

    def close(self) -> None:
        self.is_closed = True


@dataclass(frozen=True)
class FakeBuilders(Builders):
    """Builders of the parts above; what they built stands in `made`."""

    clock: Clock = field(default_factory=Clock)
    made: dict[str, Any] = field(default_factory=dict)
    saved: list[dict[str, Any]] = field(default_factory=list)
    good: list[dict[str, Any]] = field(default_factory=list)
    faults: dict[str, Exception] = field(default_factory=dict)
    """Raised by the method of that name."""
    rewrites_history: bool = False
    before_step: Callable[[Rollout], None] = lambda rollout: None
    memory_warning: str | None = None
    note: str = ""
    """Which checkpoint was taken instead of the latest."""

    def _fail(self, name: str) -> None:
        if name in self.faults:
            raise self.faults[name]

    def _takes(self, **parts: Any) -> None:
        """Each part is given in its own place, and is the one that was built."""
        for name, part in parts.items():
            assert part is self.made[name], f"{part} was given as {name}"

    def agent(self) -> Agent:
        self._fail("agent")
        self.made["agent"] = CoinAgent()
        return self.made["agent"]

    def preflight(self, agent: Agent, *, learns: bool = True) -> str | None:
        self._fail("preflight")
        self._takes(agent=agent)
        return self.memory_warning

    def model(self) -> Any:
        self._fail("model")
        self.made["loaded"] = Loaded()
        return self.made["loaded"]

    def policy(self, agent: Agent, loaded: Any) -> Any:
        self._takes(agent=agent, loaded=loaded)
        self.made["policy"] = Policy(chat=Chat(keeps_history=not self.rewrites_history))
        return self.made["policy"]

    def learner(self, policy: Any) -> Any:
        self._takes(policy=policy)
        self.made["learner"] = Learner(self.clock, policy, self.config.ppo)
        return self.made["learner"]

    def rollout(
        self, agent: Agent, policy: Any, *, seed: int, emit: Callable[[Event], None]
    ) -> Any:
        self._takes(agent=agent, policy=policy)
        self.made["rollout"] = rollout = Rollout(self.clock, policy, emit)
        rollout.before_step = self.before_step
        rollout.seed = seed
        return rollout

    def threads(self, policy: Any, loaded: Any) -> int:
        self._takes(policy=policy, loaded=loaded)
        return 1

    def evaluate(self, agent: Agent, policy: Any, **arguments: Any) -> Any:
        self._fail("evaluate")
        self._takes(agent=agent, policy=policy)
        self.made["evaluated"] = arguments
        done = 0
        self.made.setdefault("evaluations", []).append(arguments)
        while done < arguments["episodes"] and not arguments["should_stop"]():
            # Tails wins every second time, and always where the prompt says so.
            if arguments.get("ended") is not None:
                won = float(done % 2 or arguments["system_prompt"] == "Call tails.")
                arguments["ended"].append(
                    EndedEpisode(won, 1, 0, "inference", 0, (0, 1), number=done)
                )
            self.clock.now += STEP_S
            done += 1
            arguments["progress"](done)
        found = replace(evaluated(done), greedy=arguments["greedy"])
        return found if done == arguments["episodes"] else None

    def warm_start(
        self, policy: Any, learner: Any, data: Any, *, progress: Any, should_stop: Any
    ) -> Any:
        self._fail("warm_start")
        self._takes(policy=policy, learner=learner)
        taught, steps = 0, 4
        while taught < steps and not should_stop():
            self.made.get("before_sft_step", lambda step: None)(taught)
            self.clock.now += STEP_S
            taught += 1
            progress(taught, steps, 1.0 / taught)
        policy.version += 1
        self.made["taught"], self.made["method"] = data.conversations, data.method
        return WarmStartStats(
            demonstrations=len(data.conversations),
            tokens=8,
            steps=taught,
            first_loss=1.0,
            last_loss=0.25,
            elapsed_s=2.0,
            cancelled=taught < steps,
        )

    def restore_start(self, run_dir: Path, policy: Any) -> None:
        self._takes(policy=policy)
        self.made["restored_start"] = True

    def checkpoint_files(self) -> Any:
        return SimpleNamespace(
            save_checkpoint=self.save,
            load_checkpoint=self.restore,
            keep_checkpoint=self.keep_good,
            roll_back=self.roll_back,
            keep_with_reference=self.keep_with_reference,
            load_start=self.restore_start,
        )

    def save(self, run_dir: Path, policy: Any, learner: Any, counters: Any) -> Path:
        self._fail("save")
        self._takes(policy=policy, learner=learner)
        self.saved.append({**msgspec.to_builtins(counters), "updates": learner.updates})
        (run_dir / "model").mkdir(exist_ok=True)
        return run_dir / "model"

    def restore(self, run_dir: Path, policy: Any, learner: Any, kind: Any) -> tuple[Any, str]:
        self._fail("restore")
        self._takes(policy=policy, learner=learner)
        counters = dict(self.saved[-1])
        learner.updates = policy.version = counters.pop("updates")
        return msgspec.convert(counters, kind), self.note

    def keep_good(self, run_dir: Path, name: str = "good") -> Path:
        self._fail("keep_good")
        if name != "good":
            (run_dir / name).mkdir(exist_ok=True)
            return run_dir / name
        self.good.append(self.saved[-1])
        return run_dir / "good"

    def keep_with_reference(self, run_dir: Path, policy: Any, learner: Any) -> None:
        self._fail("keep_with_reference")
        self._takes(policy=policy, learner=learner)
        self.good.append(self.saved[-1])

    def roll_back(self, run_dir: Path, policy: Any, learner: Any) -> Path:
        self._takes(policy=policy, learner=learner)
        if not self.good:
            raise RunStoreError("There is no good checkpoint.")
        learner.updates = self.good[-1]["updates"]
        policy.version += 1
        return run_dir / "good"


class Stage:
    """A session on fakes, with everything that it emitted."""

    def __init__(
        self,
        run_dir: Path,
        *,
        faults: dict[str, Exception] | None = None,
        rewrites_history: bool = False,
        evaluates_end: bool = False,
        note: str = "",
        **settings: Any,
    ) -> None:
        self.config = RunConfig(agent="coin", run_dir=str(run_dir), **settings)
        self.command_queue: queue.SimpleQueue[AnyCommand] = queue.SimpleQueue()
        self.events: list[Any] = []
        self.builders = FakeBuilders(
            self.config,
            faults=faults or {},
            rewrites_history=rewrites_history,
            before_step=self._before_step,
            note=note,
        )
        self.script: dict[int, list[AnyCommand]] = {}
        """Commands by the number of steps made before they are queued."""
        self.also_before_step: Callable[[Rollout], None] = lambda rollout: None
        self.steps = 0
        self.session = Session(
            self.config,
            RunStore.create(self.config),
            self.command_queue,
            sinks=[self.events.append],
            clock=self.builders.clock,
            builders=self.builders,
            evaluates_end=evaluates_end,
        )

    def _before_step(self, rollout: Rollout) -> None:
        self.steps += 1
        for command in self.script.get(self.steps, []):
            self.command_queue.put(command)
        self.also_before_step(rollout)

    def __getattr__(self, name: str) -> Any:
        return self.builders.made[name]

    def of(self, kind: type) -> list[Any]:
        """Events of a kind, in order."""
        return [event for event in self.events if isinstance(event, kind)]

    def phases(self) -> list[str]:
        """Phases that were emitted, repetitions left out."""
        return [phase for phase, _ in groupby(event.phase for event in self.of(PhaseChanged))]
