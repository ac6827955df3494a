"""LlamaGym's loop on this engine: act / assign_reward / terminate_episode, for one environment or several.

Policy, episodes and PPO are those of the trainer; the user's loop sets the pace. Each environment has a slot. With
several, an update may come while other episodes are under way: they go on under the new weights, and every turn keeps
the log-probabilities under which it was sampled.
"""

import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import torch
from msgspec.structs import asdict, replace

from llamagym_tui.engine.learning.imitation import learn_from
from llamagym_tui.engine.learning.ppo import PPO, unused_settings
from llamagym_tui.engine.model.loading import resolve_device
from llamagym_tui.engine.model.value_head import (
    NO_CAUSAL_LM,
    AutoModelForCausalLMWithValueHead,
)
from llamagym_tui.engine.own_torch import own_torch
from llamagym_tui.engine.policy.episode import Episode
from llamagym_tui.engine.policy.policy import Policy
from llamagym_tui.engine.policy.sampler import Reply, Sampler
from llamagym_tui.engine.policy.trajectory import Trajectory
from llamagym_tui.engine.tokens.tokenization import Opening
from llamagym_tui.errors import ConfigError, PromptTooLongError, RunStoreError
from llamagym_tui.game.agent_base import AgentBase
from llamagym_tui.game.chat import Conversation, opening
from llamagym_tui.game.observed import (
    NO_INFO,
    Info,
    Observed,
    action_steps,
    is_refused,
    names_by_turn,
    observation_text,
    observed,
    reply_of,
)
from llamagym_tui.settings import (
    FIGURES_OF_A_RUN,
    SCHEDULED,
    GenerationConfig,
    LoraConfig,
    PPOConfig,
    SFTSettings,
    from_dict,
    turns_kept,
)

SEED_TARGET_KL = 0.02
LLAMAGYM_BATCH = 16
"""Turns of a batch where one of LlamaGym's dictionaries is given without a batch size, as there."""
_RENAMED_PPO = {
    "learning_rate": "lr",
    "ppo_epochs": "epochs",
    "init_kl_coef": "kl_coef",
    "cliprange": "clip_range",
    "vf_coef": "value_coef",
}


def generation_settings(values: Mapping[str, Any]) -> GenerationConfig:
    """Sampling settings, without top-p and top-k: PPO scores the whole distribution, so that is what is sampled.

    Raises:
        ConfigError: a name is unknown, a value is outside its range, or sampling is off.
    """
    named = _ungrouped(values)
    named.pop("pad_token_id", None)  # no reply is padded
    if not named.pop("do_sample", True):
        raise ConfigError(
            "do_sample=False leaves PPO nothing to learn from: play with agent.act(o, greedy=True)."
        )
    top_p = named.pop("top_p", None) or 1.0
    top_k = named.pop("top_k", None) or 0
    if top_p < 1.0 or top_k > 0:
        left_out = "top_p and top_k are left out: PPO scores the whole distribution, so that is what is sampled."
        warnings.warn(left_out, stacklevel=4)
    return from_dict(GenerationConfig, named)


def ppo_settings(
    values: Mapping[str, Any], *, use_target_kl: bool, batch_size: int | None = None
) -> PPOConfig:
    """PPO settings; a given batch size is the minibatch's too, and a given rate or weight is not scheduled.

    Args:
        values: by TRL's names or ours.
        batch_size: where the values have none. None: the default.
    Raises:
        ConfigError: a name is unknown, or a value outside its range.
    """
    named = _named_ppo(values)
    if use_target_kl:
        named.setdefault("target_kl", SEED_TARGET_KL)
    if batch_size is not None:
        named.setdefault("batch_size", batch_size)
    if "batch_size" in named:
        named.setdefault("mini_batch_size", named["batch_size"])
    for name in SCHEDULED:
        if name in named:
            named.setdefault(f"{name}_final", named[name])
    return from_dict(PPOConfig, named)


def _named_ppo(values: Mapping[str, Any]) -> dict[str, Any]:
    """Values by our names."""
    return {_RENAMED_PPO.get(name, name): value for name, value in _ungrouped(values).items()}


def _ungrouped(values: Mapping[str, Any]) -> dict[str, Any]:
    """Values without the groups of LlamaGym's names, as in ``generate/temperature``."""
    return {name.rsplit("/", 1)[-1]: value for name, value in values.items()}


@dataclass(slots=True)
class _EnvSlot:
    episode: Episode | None = None
    is_trained: bool = True
    """True if all turns so far were sampled in training."""
    rewards: list[float] = field(default_factory=list)
    """The rewards of its turns so far."""


class LlamaGymLoop:
    @own_torch()
    def __init__(
        self,
        agent: AgentBase,
        model: Any,
        tokenizer: Any,
        *,
        device: str | None,
        generate_config: Mapping[str, Any] | None,
        ppo_config: Mapping[str, Any] | None,
        demonstrations: Sequence[Conversation],
        use_target_kl: bool,
        seed: int,
    ) -> None:
        generation = generation_settings(generate_config or {})
        is_llamagyms = ppo_config is not None or generate_config is not None
        ppo = ppo_settings(
            ppo_config or {},
            use_target_kl=use_target_kl,
            batch_size=LLAMAGYM_BATCH if is_llamagyms else None,
        )
        if ppo.facts.groups == "seed":
            raise ConfigError(
                f"The learner {ppo.learner} compares episodes of one seed, and here your loop resets the environment: "
                "take gigpo, rebn, reinforce or ppo, or play by `llamagym-tui train`."
            )
        model = _with_value_head(model, tokenizer, seed)
        if device is not None:
            model.to(resolve_device(str(device)))
        replies = [agent.format_action(index) for index in range(len(agent.action_names))]
        self.agent = agent
        by_turn = names_by_turn(agent)
        unused = [name for name in ppo.unused_by_head() if name in _named_ppo(ppo_config or {})]
        if use_target_kl:
            unused.append("target_kl")
        is_named = "policy" in _ungrouped(generate_config or {})
        writes_text = is_named and generation.policy == "generate"
        chooses = (replies or by_turn) and not (demonstrations or unused or writes_text)
        if model.has_default_adapter and chooses:
            # The loader did not know the agent. Where it lists its actions, an adapter on the head alone learns sooner.
            # It writes no text, imitates nothing, and has no use for some settings.
            with torch.random.fork_rng(devices=[]):
                torch.default_generator.manual_seed(seed)
                model.adapt(LoraConfig(layers="head"))
        if model.has_narrow_head and not writes_text:
            generation = replace(generation, policy="score")
        self.policy = Policy(
            model,
            tokenizer,
            generation,
            replies,
            seed,
            replies_of=partial(reply_of, agent),
            names_by_turn=by_turn,
        )
        if self.policy.narrow is not None and unused:
            raise ConfigError(unused_settings(unused))
        # A loop of one's own is a conversation, unless the agent says otherwise.
        self.policy.history = turns_kept("own", agent.history)
        self.learner = PPO(self.policy, ppo, seed)
        if demonstrations:
            learn_from(self.learner, demonstrations, SFTSettings(), seed=seed)
        self.training = True
        self._many = False
        self.slots = [_EnvSlot()]
        self._acted: list[int] = []
        """Environments that had an observation in the last `act`."""
        self._sampler = Sampler(self.policy)
        self.batch: list[Trajectory] = []

    @property
    def messages(self) -> Conversation:
        episode = self.slots[0].episode
        return list(episode.conversation) if episode else opening(self.agent.get_system_prompt())

    def act(self, observation: Any, info: Any, *, greedy: bool) -> Any:
        many = isinstance(observation, list)
        observations = observation if many else [observation]
        infos = _infos(info, len(observations), many)
        self._set_slots(len(observations), many)
        self._acted = [
            index for index, seen in enumerate(observations) if not many or seen is not None
        ]
        states = [observed(self.agent, observations[index], infos[index]) for index in self._acted]
        prompts = self._prompts(self._acted, states)
        tries = [self.policy.trie_of(state.actions) for state in states]
        replies = self._sampler.reply(prompts, tries, greedy=greedy)
        actions = [self.agent.fallback_action] * len(observations)
        for index, reply in zip(self._acted, replies, strict=True):
            actions[index] = self._action(self.slots[index], reply)
            self.slots[index].is_trained &= self.training and not greedy
        return actions if many else actions[0]

    def assign_reward(self, reward: Any, info: Any) -> None:
        infos = _infos(info, len(self.slots), self._many)
        given = list(reward) if self._many else [reward]
        if len(given) != len(self.slots):
            raise ConfigError(
                f"act was given a list of {len(self.slots)} observations: assign as many rewards."
            )
        if not (self._acted or self._many) or any(
            self.slots[index].episode is None for index in self._acted
        ):
            raise ConfigError(
                "assign_reward was called before act, or after terminate_episode: a reward belongs to an action."
            )
        earned_by = {index: float(given[index]) for index in self._acted}
        for index, earned in earned_by.items():
            slot = self.slots[index]
            assert slot.episode is not None, "looked at above"
            info_of_step = infos[index]
            slot.episode.reward(
                earned, refused=is_refused(info_of_step), steps=action_steps(info_of_step)
            )
            slot.rewards.append(earned)
            if not math.isfinite(earned) and slot.is_trained:
                slot.is_trained = False
                said = (
                    f"The reward of environment {index} is {earned}: its episode is not trained on."
                )
                warnings.warn(said, stacklevel=3)

    def terminate_episode(
        self,
        train: bool,
        *,
        truncated: bool,
        final_observation: Any,
        final_info: Any,
        env: int | None,
    ) -> dict[str, float]:
        if env is None and len(self.slots) > 1:
            raise ConfigError(
                f"{len(self.slots)} environments are played: name the one that ended, terminate_episode(env=0)."
            )
        index = env or 0
        slot = self.slots[index]
        if slot.episode is None:
            return {}
        is_trained = train and self.training and slot.is_trained
        final = None
        if is_trained and truncated:
            if final_observation is None:
                raise ConfigError(
                    "A truncated episode is bootstrapped: terminate_episode needs its final_observation."
                )
            final = observation_text(self.agent, final_observation, final_info or NO_INFO)
        trajectory = slot.episode.finish("truncated" if truncated else "terminated", final)
        self.slots[index] = _EnvSlot()
        return self._collect(trajectory) if is_trained else {}

    @own_torch()
    def save(self, path: str | Path) -> None:
        try:
            self.policy.save_pretrained(Path(path))
        except OSError as error:
            raise RunStoreError(
                f"{path} cannot be written ({error.strerror or error}); name another folder."
            ) from error

    def _collect(self, trajectory: Trajectory) -> dict[str, float]:
        """Add an episode to the batch; the figures of an update, if the batch is full."""
        self.batch.append(trajectory)
        if sum(len(trajectory.turns) for trajectory in self.batch) < self.learner.config.batch_size:
            return {}
        batch = self.batch
        self.batch = []
        figures = asdict(self.learner.update(batch))
        return {name: value for name, value in figures.items() if name not in FIGURES_OF_A_RUN}

    def _set_slots(self, count: int, many: bool) -> None:
        """A slot for each observation; the number changes between episodes only."""
        if count != len(self.slots):
            if any(slot.episode is not None for slot in self.slots):
                raise ConfigError(
                    f"act was given {count} observations after {len(self.slots)}, with episodes under way: "
                    "keep a place for every environment (None where it takes no turn)."
                )
            self.slots = [_EnvSlot() for _ in range(count)]
        self._many = many

    def _prompts(self, indices: Sequence[int], states: Sequence[Observed]) -> list[Opening]:
        """The next prompt of some environments, episodes begun where none is under way.

        Raises:
            PromptTooLongError: one is too long, and nothing was added; the episode can be ended as truncated.
            ConfigError: one must be chosen among no actions, and nothing was added.
        """
        system_prompt = self.agent.get_system_prompt()
        episodes = [
            self.slots[index].episode or Episode(self.policy, system_prompt) for index in indices
        ]
        for index, episode, state in zip(indices, episodes, states, strict=True):
            if self.policy.generation.policy == "score" and not self.policy.trie_of(state.actions):
                raise ConfigError(
                    f"In environment {index}, the score policy has no actions to choose among."
                )
            try:
                episode.require_fit(*state)
            except PromptTooLongError as error:
                raise PromptTooLongError(
                    f"In environment {index}, {error}; end the episode by "
                    "terminate_episode(truncated=True, final_observation=...), or shorten the prompt."
                ) from error
        for index, episode in zip(indices, episodes, strict=True):
            self.slots[index].episode = episode
        return [episode.observe(*state) for episode, state in zip(episodes, states, strict=True)]

    def _action(self, slot: _EnvSlot, reply: Reply) -> Any:
        """Keep a reply; the action that it names."""
        assert slot.episode is not None
        known = self.agent.reading_fault
        reading = self.agent.read(slot.episode.reply(reply))
        if self.agent.reading_fault and not known:
            warnings.warn(self.agent.reading_fault, stacklevel=4)
        slot.episode.reward(0.0, parse_failed=reading.failed)
        return self.agent.fallback_action if reading.failed else reading.action


def _infos(info: Any, count: int, many: bool) -> Sequence[Info]:
    """One for each environment, empty where none is given."""
    infos = (info or [None] * count) if many else [info]
    if not isinstance(infos, Sequence) or len(infos) != count:
        raise ConfigError(f"{count} environments need a list of {count} infos, one for each.")
    return [NO_INFO if each is None else each for each in infos]


def _with_value_head(model: Any, tokenizer: Any, seed: int) -> AutoModelForCausalLMWithValueHead:
    if tokenizer is None:
        raise ConfigError(
            "An agent with a model needs its tokenizer: Agent(model, tokenizer, device)."
        )
    if isinstance(model, AutoModelForCausalLMWithValueHead):
        return model
    if not hasattr(model, "get_output_embeddings"):
        raise ConfigError(NO_CAUSAL_LM.format(type(model).__name__))
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        return AutoModelForCausalLMWithValueHead(model)
