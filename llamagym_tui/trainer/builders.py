"""Builds the parts of a session: agent, model, policy, learner, environments, checkpoints.

Each method is the one place that calls that part of the engine, whose errors it raises; tests replace them by fakes.
"""

import gc
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any

import torch

from llamagym_tui.demos.training_data import TrainingData
from llamagym_tui.engine.learning import checkpoint
from llamagym_tui.engine.learning.imitation import learn_from
from llamagym_tui.engine.learning.ppo import PPO, unused_settings, what_is_trained
from llamagym_tui.engine.model.loading import LoadedModel, load_model_and_tokenizer, require_memory
from llamagym_tui.engine.model.sources import model_folder
from llamagym_tui.engine.own_torch import cores, set_threads
from llamagym_tui.engine.policy.policy import Policy
from llamagym_tui.engine.ranks import ALONE, Ranks
from llamagym_tui.errors import ConfigError
from llamagym_tui.game.agent_base import AgentBase
from llamagym_tui.game.endpoint import Endpoint
from llamagym_tui.game.environment import OPPONENT, SELF, opponent_of, with_kwargs
from llamagym_tui.game.observed import names_by_turn, reply_of
from llamagym_tui.protocol.events import EvaluationFinished, Event, WarningRaised
from llamagym_tui.runs import model_registry
from llamagym_tui.runs.model_registry import is_endpoint
from llamagym_tui.settings import RunConfig, WarmStartStats, turns_kept
from llamagym_tui.setup import catalog
from llamagym_tui.setup.play_config import evaluated_config
from llamagym_tui.setup.run_config import holds_adapter, with_own_settings
from llamagym_tui.trainer.rollout.endpoint_policy import EndpointPolicy
from llamagym_tui.trainer.rollout.episode_counts import EpisodeCounts
from llamagym_tui.trainer.rollout.evaluation import evaluate
from llamagym_tui.trainer.rollout.led_rollout import LedRollout
from llamagym_tui.trainer.rollout.opponents import (
    EarlierSelves,
    ModelOpponent,
    Opponent,
)
from llamagym_tui.trainer.rollout.rollout import Rollout

EVALUATION_SEED = 1_000_000
"""Distance of an evaluation's seed from the run's."""
SMALL_MODEL = 20_000_000
"""Weights up to which one thread computes."""


@dataclass(frozen=True)
class Builders:
    config: RunConfig
    ranks: Ranks = ALONE
    _loaded: dict[str, ModelOpponent] = field(default_factory=dict)
    """Opponents, which are loaded once, by their names."""

    def agent(self) -> AgentBase:
        """The agent, without a model; its actions have names."""
        return catalog.player(catalog.agent_of(self.config))

    def require_memory(self, *, learns: bool = True) -> None:
        """Raises UsageError if the model does not fit into memory; `learns` says that the policy is updated too."""
        require_memory(self.config, learns=learns)

    def fetch_model(self, notify: Callable[[str], None]) -> None:
        """Download or convert the model if its name stands for what is not here yet; `notify` gets the progress."""
        name = self.config.model
        download = model_registry.download_of(name)
        if download is not None:
            notify(f"downloading {name}, {download}")
        model_folder(name, notify)

    def model(self) -> LoadedModel:
        """The model with its value head, and its tokenizer."""
        config = self.config
        set_threads(1)
        torch.manual_seed(config.seed)  # a new value head and a new adapter begin at random
        loaded = load_model_and_tokenizer(
            config.model,
            config.device,
            full_finetuning=config.full_finetuning,
            lora=None if holds_adapter(config.model) else config.lora,
            dtype=config.dtype,
        )
        # Libraries and model stay; turns and trees come in thousands and are freed by counting references.
        gc.freeze()
        gc.set_threshold(20_000, 20, 50)
        return loaded

    def policy(self, agent: AgentBase, loaded: LoadedModel) -> Policy:
        """The policy, which knows the canonical reply of each action and how much of a conversation it sees."""
        replies = [agent.format_action(index) for index in range(len(agent.action_names))]
        policy = Policy(
            loaded.model,
            loaded.tokenizer,
            self.config.generation,
            replies,
            self.config.seed,
            replies_of=partial(reply_of, agent),
            names_by_turn=names_by_turn(agent),
        )
        policy.history = turns_kept(self.config.history, agent.history)
        depth = self.config.read_depth
        if isinstance(depth, int) and depth != loaded.model.read_depth:
            policy.read_from(depth)
        if self.config.reading == "bfloat16":
            policy.read_rounded()
        return policy

    def endpoint_policy(self, agent: AgentBase) -> Policy:
        """The model behind the endpoint that stands in a model's place."""
        history = turns_kept(self.config.history, agent.history)
        return EndpointPolicy(Endpoint(self.config.model), self.config.generation, history)

    def trained(self, policy: Policy) -> str:
        """The number and place of the trained weights, in words."""
        return what_is_trained(policy)

    def learner(self, policy: Policy) -> PPO:
        """The learner; its reference is the policy as it is now.

        Raises:
            ConfigError: it would train nothing, has no use for a setting that is not as usual, or is to learn from
                episodes that are cut off, without a critic.
        """
        if policy.narrow is not None and (unused := self.config.ppo.unused_by_head()):
            raise ConfigError(unused_settings(unused))
        ppo = self.config.ppo
        is_given = "ppo.whole_episodes" not in self.config.measured
        if not (ppo.has_critic or ppo.whole_episodes) and is_given:
            raise ConfigError(
                f"The learner {ppo.learner} has no critic to foresee how an episode that is cut off would go on: leave "
                "ppo.whole_episodes=false out, or take --learner ppo."
            )
        learner = PPO(policy, self.config.ppo, self.config.seed, self.ranks)
        if self.ranks.size > 1:
            self.ranks.share = learner.share
        return learner

    def rollout(
        self, agent: AgentBase, policy: Policy, *, seed: int, emit: Callable[[Event], None]
    ) -> Rollout:
        """The environments of this rank, not reset yet."""
        config = self.config
        kind = Rollout if self.ranks.size == 1 else LedRollout
        rollout = kind(
            agent,
            policy,
            n_envs=config.n_envs,
            max_turns=config.max_turns,
            batch_turns=config.ppo.batch_size,
            cuts_episodes=config.cuts_episodes,
            group_size=config.ppo.episodes_of_a_seed,
            seed=seed,
            emit=emit,
            episode_limit=config.episodes,
            max_failures=config.max_failures,
            ranks=self.ranks,
            opponent=self.opponent(agent, policy),
        )
        rollout.wording = None if config.wordings else 0
        return rollout

    def opponent(self, agent: AgentBase, policy: Policy) -> Opponent | None:
        """The other player of a game for two, if that is a policy: earlier selves of this one, or what was loaded once.

        Raises:
            LlamaGymError: it cannot be loaded, or has no place beside several ranks.
        """
        name = opponent_of(agent)
        if not name:
            return None
        if self.ranks.size > 1:
            raise ConfigError(
                "A policy as an opponent plays in one process: leave out --ranks, or take one of "
                f"{', '.join(agent.opponents)}."
            )
        if name == SELF:
            return EarlierSelves(policy)
        if name not in self._loaded:
            self._loaded[name] = self._loaded_opponent(name)
        return self._loaded[name]

    def _loaded_opponent(self, name: str) -> ModelOpponent:
        """Another model or an endpoint, which plays as it would by itself: by settings and words of its own."""
        spec = self.config.agent
        agent_class = catalog.find_agent(spec, self.config.env, self.config.observation_ranges)
        shared = ("env", "n_envs", "seed", "device", "threads")
        given = {each: getattr(self.config, each) for each in shared}
        config = evaluated_config(spec, name, given, own=with_own_settings(agent_class, {}))
        builders = Builders(config)
        agent = builders.agent()
        if is_endpoint(name):
            other = builders.endpoint_policy(agent)
        else:
            threads = torch.get_num_threads()
            loaded = builders.model()
            set_threads(threads)  # loading takes one, and those of the player were set before
            other = builders.policy(agent, loaded)
        prompt = agent.get_system_prompt() if config.system_prompt is None else config.system_prompt
        return ModelOpponent(other, prompt)

    def threads(self, policy: Policy, loaded: LoadedModel) -> int:
        """Let torch compute on the threads that are asked for, or that suit the model; their number."""
        count = self.config.threads
        if count is None:
            weights = sum(weight.numel() for weight in policy.model.causal_lm.parameters())
            # Products of a small model are too short to be divided, and an accelerator needs no threads.
            is_divided = loaded.device == "cpu" and weights > SMALL_MODEL
            count = max(1, cores() // self.ranks.size) if is_divided else 1
        set_threads(count)
        return count

    def evaluate(
        self,
        agent: AgentBase,
        policy: Policy,
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
        """Play episodes apart from any run, in environments of their own, on seeds that training does not see.

        Args:
            seed: of environments and sampling; what is compared has the same. None: the same distance from the run's
                for each evaluation of the run.
            system_prompt: None: the agent's own.
            warn: receives sentences for people.
            held_out: take the agent's `evaluation_kwargs`, as of maps that training does not meet, and the wording that
                a run with wordings keeps for evaluations.
            env: further keyword arguments of the environment.
            ended: receives the episodes; the other arguments, the result and the errors are those of `evaluate`.
        """

        def emit(event: Event) -> None:
            if isinstance(event, WarningRaised):
                warn(event.message)

        more = dict(agent.evaluation_kwargs if held_out else {})
        more |= env
        if opponent_of(agent) == SELF:
            # Against itself every policy is as good as its opponent.
            more[OPPONENT] = agent.opponents[0]
        agent = with_kwargs(agent, more)
        rollout = Rollout(
            agent,
            policy,
            n_envs=min(self.config.n_envs, episodes),
            max_turns=self.config.max_turns,
            batch_turns=1,
            seed=EVALUATION_SEED + self.config.seed if seed is None else seed,
            emit=emit,
            greedy=greedy,
            max_failures=self.config.max_failures,
            opponent=self.opponent(agent, policy),
        )
        if self.config.wordings and held_out:
            rollout.wording = len(agent.wordings)
        if system_prompt is not None:
            rollout.set_system_prompt(system_prompt, 0)
        return evaluate(
            rollout,
            episodes,
            limit_s=limit_s,
            should_stop=should_stop,
            progress=progress,
            ended=[] if ended is None else ended,
        )

    def warm_start(
        self,
        policy: Policy,
        learner: PPO,
        data: TrainingData,
        *,
        progress: Callable[[int, int, float], None],
        should_stop: Callable[[], bool],
    ) -> WarmStartStats:
        """Train the policy on conversations (sft) or preferences (dpo), and keep what comes out in the run folder."""
        is_dpo = data.method == "dpo"
        stats = learn_from(
            learner,
            data.preferences if is_dpo else data.conversations,
            self.config.dpo if is_dpo else self.config.sft,
            seed=self.config.seed,
            progress=progress,
            should_stop=should_stop,
        )
        checkpoint.save_start(Path(self.config.run_dir), policy)
        return stats

    def checkpoint_files(self) -> Any:
        """The module that reads and writes checkpoints."""
        return checkpoint
