"""LlamaGym's loop on this engine: one environment, act / assign_reward / terminate_episode.

Policy, episodes and PPO are the trainer's own; only the pace is the user's.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from llamagym_tui.config import GenerationConfig, PPOConfig, from_dict
from llamagym_tui.engine.episode import Episode
from llamagym_tui.engine.policy import Policy
from llamagym_tui.engine.ppo import PPO
from llamagym_tui.engine.sampler import Sampler
from llamagym_tui.engine.trajectory import Trajectory
from llamagym_tui.engine.value_head import AutoModelForCausalLMWithValueHead
from llamagym_tui.errors import ConfigError

if TYPE_CHECKING:
    from llamagym_tui.agent import Agent

SEED_TARGET_KL = 0.02
_IGNORED_GENERATION = {"do_sample", "top_p", "top_k", "pad_token_id", "eos_token_id"}
"""LlamaGym's settings that would make the sampled distribution differ from the scored one, or that are ours."""
_RENAMED_PPO = {"learning_rate": "lr", "ppo_epochs": "epochs", "init_kl_coef": "kl_coef", "cliprange": "clip_range"}


class SeedLoop:
    """An agent's model, playing one environment at the user's pace."""

    def __init__(
        self,
        agent: Agent,
        model: Any,
        tokenizer: Any,
        *,
        device: str | None,
        generate_config: Mapping[str, Any] | None,
        ppo_config: Mapping[str, Any] | None,
        sft_data: str | None,
        sft_warm_start: bool,
        use_target_kl: bool,
        seed: int,
    ) -> None:
        if sft_warm_start:
            raise ConfigError("sft_warm_start needs the supervised trainer, which this version does not have yet.")
        if not isinstance(model, AutoModelForCausalLMWithValueHead):
            model = AutoModelForCausalLMWithValueHead(model)
        if device is not None:
            model.to(device)
        ppo = ppo_settings(ppo_config or {}, use_target_kl=use_target_kl)
        replies = [agent.format_action(index) for index in range(len(agent.action_names))]
        self.agent = agent
        self.policy = Policy(model, tokenizer, generation_settings(generate_config or {}), replies, seed)
        self.ppo = PPO(self.policy, ppo, seed)
        self.sampler = Sampler(self.policy, 1)
        self.training = True
        self._episode: Episode | None = None
        self._batch: list[Trajectory] = []

    def act(self, observation: Any) -> Any:
        """The action that the model chooses; the agent's fallback if its reply names none."""
        if self._episode is None:
            self._episode = Episode(self.policy, self.agent.get_system_prompt())
        prompt = self._episode.observe(self.agent.format_observation(observation))
        if prompt.restart is not None:
            self.sampler.restart(0, prompt.restart)
        reply = self._episode.reply(self.sampler.reply([0], [prompt.ids])[0])
        reading = self.agent.read(reply)
        self._episode.reward(0.0, parse_failed=reading.failed)
        return self.agent.fallback_action if reading.failed else reading.action

    def assign_reward(self, reward: float) -> None:
        """Credit a reward to the last action; more than one add up."""
        if self._episode is None or not self._episode.turns:
            raise ConfigError("assign_reward was called before act: a reward belongs to an action.")
        self._episode.reward(float(reward))

    def terminate_episode(self, train: bool, *, truncated: bool, final_observation: Any) -> dict[str, float]:
        """End the episode, and update once the batch has enough turns."""
        if self._episode is None:
            return {}
        if truncated and final_observation is None:
            raise ConfigError("A truncated episode is bootstrapped: terminate_episode needs its final_observation.")
        told = None if final_observation is None else self.agent.format_observation(final_observation)
        trajectory = self._episode.finish("truncated" if truncated else "terminated", told)
        self._episode = None
        if not (train and self.training):
            return {}
        self._batch.append(trajectory)
        if sum(len(trajectory.turns) for trajectory in self._batch) < self.ppo.config.batch_size:
            return {}
        batch, self._batch = self._batch, []
        return dataclasses.asdict(self.ppo.update(batch))


def generation_settings(values: Mapping[str, Any]) -> GenerationConfig:
    """Sampling settings from LlamaGym's names; truncation of the distribution is left out, as PPO needs all of it."""
    return from_dict(GenerationConfig, {k: v for k, v in values.items() if k not in _IGNORED_GENERATION})


def ppo_settings(values: Mapping[str, Any], *, use_target_kl: bool) -> PPOConfig:
    """PPO settings from LlamaGym's names or ours; a seed-sized batch keeps its own minibatch size."""
    named = {_RENAMED_PPO.get(name, name): value for name, value in values.items()}
    if use_target_kl:
        named.setdefault("target_kl", SEED_TARGET_KL)
    if "batch_size" in named:
        named.setdefault("mini_batch_size", named["batch_size"])
    known = {field.name for field in msgspec.structs.fields(PPOConfig)}
    unknown = sorted(set(named) - known)
    if unknown:
        raise ConfigError(
            f"ppo_config_dict has unknown names: {', '.join(unknown)}; known: {', '.join(sorted(known))}."
        )
    return from_dict(PPOConfig, named)
