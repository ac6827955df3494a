"""A session's parts without torch and gymnasium: scripted, counted, on a clock that moves only when they work."""

from __future__ import annotations

import queue
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from types import MappingProxyType, SimpleNamespace
from typing import Any, cast

import msgspec
from msgspec.structs import fields, replace

from llamagym_tui.agent import Agent
from llamagym_tui.demos.training_data import TrainingData
from llamagym_tui.engine.learning import checkpoint
from llamagym_tui.engine.learning.ppo import PPO
from llamagym_tui.engine.model.loading import LoadedModel
from llamagym_tui.engine.policy.policy import Policy as EnginePolicy
from llamagym_tui.engine.policy.trajectory import Trajectory
from llamagym_tui.errors import RunStoreError, UsageError
from llamagym_tui.game.agent_base import AgentBase
from llamagym_tui.game.choices import OfferedAction
from llamagym_tui.protocol.commands import AnyCommand
from llamagym_tui.protocol.events import (
    ActionAwaited,
    EpisodeStarted,
    EvaluationFinished,
    Event,
    PhaseChanged,
    TurnFinished,
)
from llamagym_tui.runs.run_folder import GOOD_MODEL_DIR, MODEL_DIR
from llamagym_tui.runs.run_store import RunStore
from llamagym_tui.settings import (
    GenerationConfig,
    Mode,
    PPOConfig,
    RunConfig,
    UpdateStats,
    WarmStartStats,
)
from llamagym_tui.trainer.builders import Builders
from llamagym_tui.trainer.checkpoints import Counters
from llamagym_tui.trainer.rollout.episode_counts import EpisodeCounts
from llamagym_tui.trainer.rollout.failures import Failures
from llamagym_tui.trainer.rollout.opponents import Opponent
from llamagym_tui.trainer.rollout.rollout import Rollout as EngineRollout
from llamagym_tui.trainer.rollout.spectator import Spectator, Wheel
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


@dataclass(slots=True)
class Ended(EpisodeCounts):
    """An episode of one turn, and a trajectory of it to the fake that learns."""

    length: int = 1
    policy_version: int = 0


def made_up_stats(**figures: Any) -> UpdateStats:
    """What the engine's update returns: nothing has moved."""
    found: dict[str, Any] = {field.name: 0 for field in fields(UpdateStats) if field.required}
    found |= {"episodes": EPISODES_A_BATCH, "turns": EPISODES_A_BATCH}
    found |= {"mean_return": 0.5, "return_std": 0.5, "update_s": UPDATE_S}
    return UpdateStats(**found | figures)


def evaluated(episodes: int) -> EvaluationFinished:
    return EvaluationFinished(
        episodes=episodes,
        greedy=True,
        mean_return=-0.25,
        return_stderr=0.01,
        parse_failure_rate=0.0,
        elapsed_s=1.0,
    )


@dataclass(frozen=True)
class Loaded(LoadedModel):
    model: Any = None
    tokenizer: Any = None
    name: str = "coin-model"
    device: str = "cpu"
    parameters: int = 10


USUAL_CHAT = {"keeps_history": True}


class Policy(EnginePolicy):
    """Without a model: what is asked for is set here."""

    def __init__(
        self, *, trie: Sequence[str] = ("heads", "tails"), chat: Mapping[str, Any] = USUAL_CHAT
    ) -> None:
        self.version = 0
        self.history = None
        self.narrow = None
        self.generation = GenerationConfig()
        self.chat: Any = SimpleNamespace(**{**USUAL_CHAT, **chat})
        self.trie: Any = trie
        self.can_choose = True
        self.has_finite_weights = True
        self.plays_at_random = False

    @property
    def is_finite(self) -> bool:
        return self.has_finite_weights


class Learner:
    has_adapters = False
    """Whether each prompt has an adapter of its own."""

    def __init__(self, clock: Clock, policy: Policy, config: PPOConfig) -> None:
        self.config = config
        self.reference: object | None = object()
        self.updates = 0
        self.figures: dict[str, Any] = {}
        """What the next updates measure."""
        self.before_minibatch: Callable[[int], None] = lambda number: None
        self.batches: list[Sequence[Trajectory]] = []
        self.minibatches = 0
        """That the last update made."""
        self.prompts: list[str] = []
        """Under which it was asked to go on, or to play."""
        self._clock = clock
        self._policy = policy

    def use_prompt(self, prompt: str) -> bool:
        before = self.prompts[-1:]
        self.prompts.append(prompt)
        return self.has_adapters and before != [prompt]

    @contextmanager
    def under_prompt(self, prompt: str) -> Iterator[None]:
        self.prompts.append(prompt)
        yield

    def update(
        self,
        batch: Sequence[Trajectory],
        *,
        should_stop: Callable[[], bool],
        progress: Callable[[int, int], None],
    ) -> UpdateStats:
        self.batches.append(batch)
        for number in range(MINIBATCHES):
            self.before_minibatch(number)
            if number and should_stop():
                break
            progress(number, MINIBATCHES)
            self._clock.now += UPDATE_S / MINIBATCHES
            self.minibatches = number + 1
        self.updates += 1
        self._policy.version += 1
        return made_up_stats(**self.figures)


class Rollout:
    """Two environments whose episodes last one step; tails wins every second time."""

    def __init__(self, clock: Clock, policy: Policy, emit: Callable[[Event], None]) -> None:
        self.mode: Mode = "train"
        self.episodes = 0
        self.env_steps = 0
        self.system_prompt = ""
        self.prompt_version = -1
        self.started = 0
        self.batch_turns = 0
        self.max_turns = 1
        self.cuts_episodes = False
        self.group_size = 1
        self.n_envs = 2
        self.seed = 0
        self.draws = True
        self.is_drawing = False
        self.live = 0
        self.restarts = 0
        self.corrections_emitted = 0
        self.is_closed = False
        self.before_step: Callable[[Rollout], None] = lambda rollout: None
        self.failures = Failures(10, lambda sentence: None)
        self.spectator = Spectator(emit)
        self.spectator.reset(self.n_envs)
        self.wheel = Wheel(CoinAgent(), emit)
        self.opponent: Opponent | None = None
        self._clock = clock
        self._policy = policy
        self._emit = emit
        self._batch: list[EpisodeCounts] = []
        self._stands = False

    def restart(self) -> None:
        self.restarts += 1
        self._batch = []

    def emit_corrections(self) -> None:
        self.corrections_emitted += 1

    def resize(self, n_envs: int) -> None:
        self.n_envs = n_envs

    def set_system_prompt(self, text: str, version: int) -> None:
        self.system_prompt = text
        self.prompt_version = version

    def forget_caches(self) -> None:
        pass

    def set_drawing(self, on: bool) -> None:
        self.is_drawing = on

    def set_counters(
        self, *, episodes: int, env_steps: int, started: int = 0, dropped: int = 0
    ) -> None:
        self.episodes = episodes
        self.env_steps = env_steps

    @property
    def batch_ready(self) -> bool:
        return len(self._batch) >= EPISODES_A_BATCH

    @property
    def batch_progress(self) -> tuple[int, int]:
        return len(self._batch), EPISODES_A_BATCH

    def fill_batch(self) -> None:
        """As if train episodes had just ended."""
        self._batch += [Ended(0.0)] * EPISODES_A_BATCH

    def take_known_prompts(self) -> float:
        return 0.75

    def take_batch(self) -> list[Trajectory]:
        batch = self._batch
        self._batch = []
        return cast(list[Trajectory], batch)

    def recall(self, episode: int) -> None:
        return None

    @property
    def awaits_person(self) -> bool:
        return self._stands and self.wheel.env is not None and self.wheel.reply is None

    def take_wheel(self) -> None:
        if self.spectator.env is None:
            raise UsageError("There is no play.")
        offered = (OfferedAction("0", 0, "heads"), OfferedAction("1", 1, "tails"))
        self.wheel.take(self.spectator.env, offered)

    def act(self, episode: int, turn: int, action: int | str) -> None:
        self.wheel.choose(action)

    def watch(self, env: int) -> None:
        self.spectator.watch(env)
        if self.wheel.env is not None and self.wheel.env != self.spectator.env:
            self.wheel.let_go("another conversation is watched")

    def step(self) -> list[EpisodeCounts]:
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
        version = self.prompt_version
        started = EpisodeStarted(
            episode=self.episodes,
            system_prompt=self.system_prompt,
            prompt_version=version,
            mode="train",
        )
        self.spectator.observe(0, started)
        self.spectator.observe(0, TurnFinished(**TURN, episode=self.episodes))
        ended: list[EpisodeCounts] = [
            Ended(
                float(won),
                mode=self.mode,
                prompt_version=version,
                policy_version=self._policy.version,
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
    chat: Mapping[str, Any] = field(default_factory=dict)
    """What of the chat template is not as usual."""
    before_step: Callable[[Rollout], None] = lambda rollout: None
    note: str = ""
    """Which checkpoint was taken instead of the latest."""

    def _fail(self, name: str) -> None:
        if name in self.faults:
            raise self.faults[name]

    def _takes(self, **parts: object) -> None:
        """Each part is given in its own place, and is the one that was built."""
        for name, part in parts.items():
            assert part is self.made[name], f"{part} was given as {name}"

    def fetch_model(self, notify: Callable[[str], None]) -> None:
        self._fail("fetch_model")

    def agent(self) -> AgentBase:
        self._fail("agent")
        agent = CoinAgent()
        self.made["agent"] = agent
        return agent

    def require_memory(self, *, learns: bool = True) -> None:
        self._fail("require_memory")

    def model(self) -> LoadedModel:
        self._fail("model")
        loaded = Loaded()
        self.made["loaded"] = loaded
        return loaded

    def policy(self, agent: AgentBase, loaded: LoadedModel) -> EnginePolicy:
        self._takes(agent=agent, loaded=loaded)
        made = Policy(chat=self.chat)
        self.made["policy"] = made
        return made

    def trained(self, policy: EnginePolicy) -> str:
        self._takes(policy=policy)
        return ""

    def learner(self, policy: EnginePolicy) -> PPO:
        self._takes(policy=policy)
        made = Learner(self.clock, cast(Policy, policy), self.config.ppo)
        self.made["learner"] = made
        return cast(PPO, made)

    def rollout(
        self,
        agent: AgentBase,
        policy: EnginePolicy,
        *,
        seed: int,
        emit: Callable[[Event], None],
    ) -> EngineRollout:
        self._takes(agent=agent, policy=policy)
        rollout = Rollout(self.clock, cast(Policy, policy), emit)
        rollout.before_step = self.before_step
        rollout.seed = seed
        self.made["rollout"] = rollout
        return cast(EngineRollout, rollout)

    def threads(self, policy: EnginePolicy, loaded: LoadedModel) -> int:
        self._takes(policy=policy, loaded=loaded)
        return 1

    def evaluate(
        self,
        agent: AgentBase,
        policy: EnginePolicy,
        *,
        episodes: int,
        greedy: bool,
        seed: int | None = None,
        system_prompt: str | None = None,
        limit_s: float | None = None,
        should_stop: Callable[[], bool] = lambda: False,
        warn: Callable[[str], None] = lambda sentence: None,
        progress: Callable[[int], None] = lambda done: None,
        ended: list[EpisodeCounts] | None = None,
        held_out: bool = True,
        env: Mapping[str, Any] = MappingProxyType({}),
    ) -> EvaluationFinished | None:
        self._fail("evaluate")
        self._takes(agent=agent, policy=policy)
        arguments = {
            "episodes": episodes,
            "greedy": greedy,
            "seed": seed,
            "system_prompt": system_prompt,
            "limit_s": limit_s,
            "held_out": held_out,
        }
        self.made["evaluated"] = arguments
        self.made.setdefault("evaluations", []).append(arguments)
        done = 0
        while done < episodes and not should_stop():
            # Tails wins every second time, and always where the prompt says so.
            if ended is not None:
                won = float(done % 2 or system_prompt == "Call tails.")
                ended.append(Ended(won, mode="inference", number=done))
            self.clock.now += STEP_S
            done += 1
            progress(done)
        return replace(evaluated(done), greedy=greedy) if done == episodes else None

    def warm_start(
        self,
        policy: EnginePolicy,
        learner: PPO,
        data: TrainingData,
        *,
        progress: Callable[[int, int, float], None],
        should_stop: Callable[[], bool],
    ) -> WarmStartStats:
        self._fail("warm_start")
        self._takes(policy=policy, learner=learner)
        taught = 0
        steps = 4
        while taught < steps and not should_stop():
            self.made.get("before_sft_step", lambda step: None)(taught)
            self.clock.now += STEP_S
            taught += 1
            progress(taught, steps, 1.0 / taught)
        policy.version += 1
        self.made["taught"] = data.conversations
        self.made["method"] = data.method
        return WarmStartStats(
            demonstrations=len(data.conversations),
            tokens=8,
            steps=taught,
            first_loss=1.0,
            last_loss=0.25,
            elapsed_s=2.0,
            cancelled=taught < steps,
        )

    def checkpoint_files(self) -> FakeBuilders:
        return self

    def load_start(self, run_dir: Path, policy: EnginePolicy) -> None:
        self._takes(policy=policy)
        self.made["restored_start"] = True

    def save_checkpoint(
        self, run_dir: Path, policy: EnginePolicy, learner: PPO, counters: Counters
    ) -> None:
        self._fail("save")
        self._takes(policy=policy, learner=learner)
        self.saved.append({**msgspec.to_builtins(counters), "updates": learner.updates})
        (run_dir / MODEL_DIR).mkdir(exist_ok=True)

    def load_checkpoint(
        self, run_dir: Path, policy: EnginePolicy, learner: Any, kind: type[Counters]
    ) -> checkpoint.Loaded:
        self._fail("restore")
        self._takes(policy=policy, learner=learner)
        counters = dict(self.saved[-1])
        learner.updates = policy.version = counters.pop("updates")
        return checkpoint.Loaded(msgspec.convert(counters, kind), self.note)

    def keep_checkpoint(self, run_dir: Path, name: str = GOOD_MODEL_DIR) -> None:
        self._fail("keep_good")
        if name == GOOD_MODEL_DIR:
            self.good.append(self.saved[-1])
        else:
            (run_dir / name).mkdir(exist_ok=True)

    def keep_with_reference(self, run_dir: Path, policy: EnginePolicy, learner: PPO) -> None:
        self._fail("keep_with_reference")
        self._takes(policy=policy, learner=learner)
        self.good.append(self.saved[-1])

    def roll_back(self, run_dir: Path, policy: EnginePolicy, learner: Any) -> None:
        self._takes(policy=policy, learner=learner)
        if not self.good:
            raise RunStoreError("There is no good checkpoint.")
        learner.updates = self.good[-1]["updates"]
        policy.version += 1


class Stage:
    """A session on fakes, with everything that it emitted."""

    def __init__(
        self,
        run_dir: Path,
        *,
        faults: dict[str, Exception] | None = None,
        chat: Mapping[str, Any] = MappingProxyType({}),
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
            chat=chat,
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
