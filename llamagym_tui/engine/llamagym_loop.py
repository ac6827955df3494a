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

import msgspec
import torch
from msgspec.structs import asdict

from llamagym_tui.engine.learning.head_steps import HeadSteps
from llamagym_tui.engine.learning.imitation import train_head_on
from llamagym_tui.engine.learning.ppo import learner_for, unused_settings
from llamagym_tui.engine.learning.trl_training import train_on
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
from llamagym_tui.engine.ranks import ALONE
from llamagym_tui.engine.tokens.tokenization import ChatTokenizer, Opening
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
    replies_of,
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
ACCUMULATION = "gradient_accumulation_steps"
"""LlamaGym's name for the number of minibatches that make one step; here a minibatch is larger instead."""
_OF_TRANSFORMERS = {"do_sample", "top_p", "top_k", "pad_token_id", "eos_token_id"}
"""Settings of `generate` that are none of ours: what becomes of each is in `generation_settings`."""
_RENAMED_PPO = {
    "learning_rate": "lr",
    "ppo_epochs": "epochs",
    "init_kl_coef": "kl_coef",
    "cliprange": "clip_range",
    "vf_coef": "value_coef",
}


def generation_settings(values: Mapping[str, Any]) -> GenerationConfig:
    """Sampling settings, without top-p and top-k: PPO scores the whole distribution, so that is what is sampled.

    ``pad_token_id`` changes nothing here, where no reply is padded; ``eos_token_id`` is compared with the model's ends
    once it is known (`_require_ends`).

    Raises:
        ConfigError: a name is unknown, a value is outside its range, or sampling is off.
    """
    named = _ungrouped(values, "generate_config_dict")
    if not named.get("do_sample", True):
        raise ConfigError(
            "do_sample=False leaves PPO nothing to learn from: play with agent.act(o, greedy=True)."
        )
    if float(named.get("top_p") or 1.0) < 1.0 or int(named.get("top_k") or 0) > 0:
        left_out = "top_p and top_k are left out: PPO scores the whole distribution, so that is what is sampled."
        warnings.warn(left_out, stacklevel=4)
    return from_dict(
        GenerationConfig, {k: v for k, v in named.items() if k not in _OF_TRANSFORMERS}
    )


def ppo_settings(
    values: Mapping[str, Any], *, use_target_kl: bool, batch_size: int | None = None
) -> PPOConfig:
    """PPO settings; a given batch size is the minibatch's too, and a given rate or weight is not scheduled.

    Args:
        batch_size: where the values have none. None: the default.
    Raises:
        ConfigError: a name is unknown, or a value outside its range.
    """
    named = _named_ppo(values)
    accumulated = named.pop(ACCUMULATION, 1)
    if use_target_kl:
        named.setdefault("target_kl", SEED_TARGET_KL)
    if batch_size is not None:
        named.setdefault("batch_size", batch_size)
    if "batch_size" in named:
        named.setdefault("mini_batch_size", named["batch_size"])
    for name in SCHEDULED:
        if name in named:
            named.setdefault(f"{name}_final", named[name])
    known = {field.name for field in msgspec.structs.fields(PPOConfig)}
    unknown = sorted(set(named) - known)
    if unknown:
        names = ", ".join(sorted(known | {ACCUMULATION}))
        raise ConfigError(
            f"ppo_config_dict has unknown names: {', '.join(unknown)}; known: {names}."
        )
    if not isinstance(accumulated, int) or accumulated < 1:
        raise ConfigError(f"{ACCUMULATION} takes a whole number from 1, not {accumulated!r}.")
    settings = from_dict(PPOConfig, named)
    # A minibatch is computed in as many forwards as memory allows and makes one step: as if it were accumulated.
    return msgspec.structs.replace(settings, mini_batch_size=settings.mini_batch_size * accumulated)


def _named_ppo(values: Mapping[str, Any]) -> dict[str, Any]:
    """Values by our names. Raises ConfigError as `_ungrouped`."""
    ungrouped = _ungrouped(values, "ppo_config_dict")
    named = {_RENAMED_PPO.get(name, name): value for name, value in ungrouped.items()}
    if len(named) < len(ungrouped):
        both = [
            f"{old} and {new}" for old, new in _RENAMED_PPO.items() if {old, new} <= {*ungrouped}
        ]
        raise ConfigError(f"ppo_config_dict has one setting by two names: {', '.join(both)}.")
    return named


def _ungrouped(values: Mapping[str, Any], owner: str) -> dict[str, Any]:
    """Values without the groups of LlamaGym's names, as in ``generate/temperature``.

    Raises:
        ConfigError: these are no named values, or two of them have one name.
    """
    if not isinstance(values, Mapping):
        raise ConfigError(f"{owner} takes a dictionary, not {type(values).__name__}.")
    named: dict[str, Any] = {}
    for name, value in values.items():
        last = str(name).rsplit("/", 1)[-1]
        if last in named:
            raise ConfigError(f"{owner} has {last} twice, once as {name!r}: leave one of them out.")
        named[last] = value
    return named


@dataclass(slots=True)
class _EnvSlot:
    episode: Episode | None = None
    took_turn: bool = False
    """Whether it had an observation in the last `act`."""
    is_trained: bool = True
    """Whether all turns so far were sampled in training."""
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
        model = _with_value_head(model, tokenizer, seed)
        if device is not None:
            _move(model, resolve_device(str(device)))
        replies = [agent.replies(index) for index in range(len(agent.action_names))]
        self.agent = agent
        by_turn = names_by_turn(agent)
        unused = [name for name in ppo.unused_by_head() if name in _named_ppo(ppo_config or {})]
        if use_target_kl:
            unused.append("target_kl")
        writes_text = generation.policy == "generate" and _names_policy(generate_config or {})
        chooses = (replies or by_turn) and not (demonstrations or unused or writes_text)
        if model.has_default_adapter and chooses:
            # The loader did not know the agent. Where it lists its actions, an adapter on the head alone learns sooner.
            # It writes no text, imitates nothing, and has no use for some settings.
            with torch.random.fork_rng(devices=[]):
                torch.default_generator.manual_seed(seed)
                model.adapt(LoraConfig(layers="head", r=agent.directions))
        if model.has_narrow_head and not writes_text:
            generation = msgspec.structs.replace(generation, policy="score")
        self.policy = Policy(
            model,
            tokenizer,
            generation,
            replies,
            seed,
            replies_of=partial(replies_of, agent),
            names_by_turn=by_turn,
        )
        if self.policy.narrow is not None and unused:
            raise ConfigError(unused_settings(unused))
        if ppo.facts.groups == "seed":
            raise ConfigError(
                f"The learner {ppo.learner} compares episodes of one seed, and here your loop resets the environment: "
                "take gigpo, rebn, reinforce or ppo, or play by `llamagym-tui train`."
            )
        _require_ends(generate_config or {}, self.policy.chat)
        # A loop of one's own is a conversation, unless the agent says otherwise.
        self.policy.history = turns_kept("own", agent.history)
        if demonstrations and self.policy.narrow is None:
            train_on(self.policy, demonstrations, SFTSettings(), seed=seed)
        self.learner = learner_for(self.policy, ppo, seed, ALONE)
        if demonstrations and isinstance(self.learner.steps, HeadSteps):
            train_head_on(self.learner.steps, demonstrations, SFTSettings(), seed=seed)
        self.training = True
        self._many = False
        self.slots = [_EnvSlot()]
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
        for slot, seen in zip(self.slots, observations, strict=True):
            slot.took_turn = not many or seen is not None
        turns = [index for index, slot in enumerate(self.slots) if slot.took_turn]
        actions = [self.agent.fallback_action] * len(observations)
        if turns:
            states = [observed(self.agent, observations[index], infos[index]) for index in turns]
            prompts = self._prompts(turns, states)
            tries = [self.policy.trie_of(state.actions) for state in states]
            replies = self._sampler.reply(prompts, tries, greedy=greedy)
            for index, reply in zip(turns, replies, strict=True):
                actions[index] = self._action(self.slots[index], reply)
                self.slots[index].is_trained &= self.training and not greedy
        return actions if many else actions[0]

    def assign_reward(self, reward: Any, info: Any) -> None:
        acted = [slot for slot in self.slots if slot.took_turn]
        if not (acted or self._many) or any(slot.episode is None for slot in acted):
            raise ConfigError(
                "assign_reward was called before act, or after terminate_episode: a reward belongs to an action."
            )
        if self._many and (not hasattr(reward, "__len__") or len(reward) != len(self.slots)):
            raise ConfigError(
                f"act was given a list of {len(self.slots)} observations: assign as many rewards."
            )
        infos = _infos(info, len(self.slots), self._many)
        given = reward if self._many else [reward]
        earned_by = [
            _number(each, at) if self.slots[at].took_turn else 0.0 for at, each in enumerate(given)
        ]
        for index, (slot, earned) in enumerate(zip(self.slots, earned_by, strict=True)):
            if slot.took_turn and slot.episode is not None:
                info_of_step = _of_step(infos[index])
                slot.episode.reward(
                    earned, refused=is_refused(info_of_step), steps=action_steps(info_of_step)
                )
                slot.rewards.append(earned)
                if not math.isfinite(earned) and slot.is_trained:
                    slot.is_trained = False
                    turn = f"environment {index}, turn {slot.episode.turns}"
                    warnings.warn(
                        f"The reward of {turn} is {earned}: its episode is not trained on.",
                        stacklevel=3,
                    )

    def terminate_episode(
        self,
        train: bool,
        *,
        truncated: bool,
        final_observation: Any,
        final_info: Any,
        env: int | None,
    ) -> dict[str, float]:
        slot = self.slots[self._index(env)]
        if slot.episode is None:
            return {}
        is_trained = train and self.training and slot.is_trained
        if is_trained and truncated and final_observation is None:
            raise ConfigError(
                "A truncated episode is bootstrapped: terminate_episode needs its final_observation."
            )
        final = None
        if is_trained and truncated:
            info = _of_step(NO_INFO if final_info is None else final_info)
            final = observation_text(self.agent, final_observation, info)
        trajectory = slot.episode.finish("truncated" if truncated else "terminated", final)
        self.slots[self._index(env)] = _EnvSlot(took_turn=slot.took_turn)
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
        under_way = [self.slots[index].episode for index in indices]
        episodes = [
            each or Episode(self.policy, self.agent.get_system_prompt()) for each in under_way
        ]
        for index, episode, state in zip(indices, episodes, states, strict=True):
            if self.policy.generation.policy == "score" and not self.policy.trie_of(state.actions):
                raise ConfigError(
                    f"In environment {index}, the score policy has no actions to choose among."
                )
            try:
                episode.require_fit(*state)
            except PromptTooLongError as error:
                end = "end the episode: terminate_episode(truncated=True, final_observation=...)"
                advice = end if episode.turns else "shorten system prompt or observation"
                raise PromptTooLongError(f"In environment {index}, {error}; {advice}.") from error
        for index, episode in zip(indices, episodes, strict=True):
            self.slots[index].episode = episode
        return [episode.observe(*state) for episode, state in zip(episodes, states, strict=True)]

    def _action(self, slot: _EnvSlot, reply: Reply) -> Any:
        assert slot.episode is not None
        known = self.agent.reading_fault
        slot.episode.reply(reply)
        reading = self.agent.read(self.policy.chat.reply(reply.ids))
        if self.agent.reading_fault and not known:
            warnings.warn(self.agent.reading_fault, stacklevel=4)
        slot.episode.reward(0.0, parse_failed=reading.failed)
        return self.agent.fallback_action if reading.failed else reading.action

    def _index(self, env: int | None) -> int:
        if env is None and len(self.slots) > 1:
            raise ConfigError(
                f"{len(self.slots)} environments are played: name the one that ended, terminate_episode(env=0)."
            )
        if not 0 <= int(env or 0) < len(self.slots):
            raise ConfigError(
                f"There is no environment {env}: act was given {len(self.slots)}, counted from 0."
            )
        return int(env or 0)


def _number(reward: Any, env: int) -> float:
    try:
        return float(reward.item() if hasattr(reward, "item") else reward)
    except (TypeError, ValueError, RuntimeError, OverflowError) as error:
        raise ConfigError(
            f"The reward of environment {env} is {reward!r:.60}: assign a number."
        ) from error


def _infos(info: Any, count: int, many: bool) -> Sequence[Info]:
    """One for each environment, empty where none is given."""
    infos = (info or [None] * count) if many else [info]
    if not isinstance(infos, Sequence) or len(infos) != count:
        raise ConfigError(
            f"{count} environments need a list of as many infos: VectorEpisodes.infos makes one of Gymnasium's."
        )
    return [NO_INFO if each is None else each for each in infos]


def _of_step(info: Info) -> Info:
    """The info of a step, within that of a reset where Gymnasium resets in the same step."""
    return info.get("final_info", info)


def _names_policy(generate_config: Mapping[str, Any]) -> bool:
    """Whether settings of generation say how replies are made."""
    return "policy" in _ungrouped(generate_config, "generate_config_dict")


def _require_ends(generate_config: Mapping[str, Any], chat: ChatTokenizer) -> None:
    """Raises ConfigError: replies are to end at a token that does not end them."""
    given = _ungrouped(generate_config, "generate_config_dict").get("eos_token_id")
    ids = given if isinstance(given, list | tuple) else [given]
    others = [each for each in ids if each is not None and each not in chat.end_ids]
    if others:
        raise ConfigError(
            f"eos_token_id={given} is refused: replies of this model end at {list(chat.end_ids)}, by its chat template "
            "and tokenizer; leave it out, or set the tokenizer's."
        )


def _move(model: AutoModelForCausalLMWithValueHead, device: str) -> None:
    """Move a model. Raises ConfigError: its quantized weights stay where they were loaded, which is elsewhere."""
    if not getattr(model.causal_lm, "is_quantized", False):
        model.to(device)
    elif model.causal_lm.device.type != torch.device(device).type:
        raise ConfigError(
            f"Quantized weights stay where they were loaded, on {model.causal_lm.device}, and not on {device}: leave "
            "the device out, or load them there (device_map)."
        )


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
