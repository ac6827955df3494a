"""LlamaGym's loop on this engine: act / assign_reward / terminate_episode, for one environment or several.

Policy, episodes and PPO are the trainer's own; only the pace is the user's. Each environment has a seat; with several,
an update may come while other seats' episodes are under way: they go on under the new weights, every turn with the
log-probabilities under which it was sampled.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from llamagym_tui.config import SFTSettings
from llamagym_tui.engine.learning.ppo import PPO
from llamagym_tui.engine.learning.sft import train_on
from llamagym_tui.engine.llamagym_settings import generation_settings, ppo_settings
from llamagym_tui.engine.model.loading import resolve_device
from llamagym_tui.engine.model.value_head import AutoModelForCausalLMWithValueHead
from llamagym_tui.engine.policy.episode import Episode
from llamagym_tui.engine.policy.policy import Policy
from llamagym_tui.engine.policy.sampler import Reply, Sampler
from llamagym_tui.engine.policy.trajectory import Trajectory
from llamagym_tui.errors import ConfigError
from llamagym_tui.game.chat import Conversation, opening

if TYPE_CHECKING:
    from llamagym_tui.game.agent_base import AgentBase


@dataclass(slots=True)
class _Seat:
    """One environment's place."""

    episode: Episode | None = None
    version: int = 0
    """Of the policy that computed what the seat's slot of the sampler holds."""
    took_turn: bool = False
    """Whether it had an observation in the last `act`."""
    is_trained: bool = True
    """Whether all turns so far were sampled in training."""
    rewards: list[float] = field(default_factory=list)
    """Assigned in this episode."""


class LlamaGymLoop:
    """An agent's model, playing at the user's pace."""

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
        ppo = ppo_settings(ppo_config or {}, use_target_kl=use_target_kl)
        model = _with_value_head(model, tokenizer)
        if device is not None and not getattr(model.causal_lm, "is_quantized", False):
            model.to(resolve_device(str(device)))
        replies = [agent.format_action(index) for index in range(len(agent.action_names))]
        self.agent = agent
        self.policy = Policy(model, tokenizer, generation, replies, seed)
        if demonstrations:
            train_on(self.policy, demonstrations, SFTSettings(), seed=seed)
        self.ppo = PPO(self.policy, ppo, seed)
        self.training = True
        self._many = False
        self._seats = [_Seat()]
        self._sampler = Sampler(self.policy, 1)
        self._batch: list[Trajectory] = []

    @property
    def messages(self) -> Conversation:
        """The conversation of the first seat's episode so far."""
        episode = self._seats[0].episode
        return list(episode.conversation) if episode else opening(self.agent.get_system_prompt())

    @property
    def rewards(self) -> list[float]:
        """What was assigned in the first seat's episode so far."""
        return list(self._seats[0].rewards)

    def act(self, observation: Any, *, greedy: bool) -> Any:
        """The action that the model chooses, or a list of them; the agent's fallback if a reply names none."""
        many = isinstance(observation, list)
        observations = observation if many else [observation]
        self._take_seats(len(observations), many)
        for seat, seen in zip(self._seats, observations, strict=True):
            seat.took_turn = not many or seen is not None
        turns = [index for index, seat in enumerate(self._seats) if seat.took_turn]
        actions = [self.agent.fallback_action] * len(observations)
        if turns:
            prompts = [self._prompt(index, observations[index]) for index in turns]
            replies = self._sampler.reply(turns, prompts, greedy=greedy)
            for index, reply in zip(turns, replies, strict=True):
                actions[index] = self._action(self._seats[index], reply)
                self._seats[index].is_trained &= self.training and not greedy
        return actions if many else actions[0]

    def assign_reward(self, reward: Any) -> None:
        """Credit a reward to the last action, or each of a list to its seat's; more than one add up."""
        acted = [seat for seat in self._seats if seat.took_turn]
        if not (acted or self._many) or any(seat.episode is None for seat in acted):
            raise ConfigError(
                "assign_reward was called before act, or after terminate_episode: a reward belongs to an action."
            )
        if self._many and (not hasattr(reward, "__len__") or len(reward) != len(self._seats)):
            raise ConfigError(f"act was given a list of {len(self._seats)} observations: assign as many rewards.")
        for seat, earned in zip(self._seats, reward if self._many else [reward], strict=True):
            if seat.took_turn and seat.episode is not None:
                seat.episode.reward(float(earned))
                seat.rewards.append(float(earned))

    def terminate_episode(
        self, train: bool, *, truncated: bool, final_observation: Any, env: int | None
    ) -> dict[str, float]:
        """End a seat's episode, and update once the batch has enough turns."""
        seat = self._seats[self._index(env)]
        if seat.episode is None:
            return {}
        is_trained = train and self.training and seat.is_trained
        if is_trained and truncated and final_observation is None:
            raise ConfigError("A truncated episode is bootstrapped: terminate_episode needs its final_observation.")
        told = self.agent.format_observation(final_observation) if is_trained and truncated else None
        trajectory = seat.episode.finish("truncated" if truncated else "terminated", told)
        self._seats[self._index(env)] = _Seat(took_turn=seat.took_turn)
        return self._collect(trajectory) if is_trained else {}

    def save(self, path: str | Path) -> None:
        """Write model, value head and tokenizer as a folder that loads by its path."""
        self.policy.model.save_pretrained(path)
        self.policy.chat.tokenizer.save_pretrained(path)

    def _collect(self, trajectory: Trajectory) -> dict[str, float]:
        self._batch.append(trajectory)
        if sum(len(trajectory.turns) for trajectory in self._batch) < self.ppo.config.batch_size:
            return {}
        batch, self._batch = self._batch, []
        return dataclasses.asdict(self.ppo.update(batch))

    def _take_seats(self, count: int, many: bool) -> None:
        """As many seats as there are observations; their number changes between episodes only."""
        if count != len(self._seats):
            if any(seat.episode is not None for seat in self._seats):
                raise ConfigError(
                    f"act was given {count} observations after {len(self._seats)}, with episodes under way: "
                    "keep a place for every environment (None where it takes no turn)."
                )
            self._seats = [_Seat() for _ in range(count)]
            self._sampler = Sampler(self.policy, count)
        self._many = many

    def _prompt(self, index: int, observation: Any) -> list[int]:
        """Ids that a seat's slot has not seen: what is new, or all of a conversation that older weights computed."""
        seat = self._seats[index]
        if seat.episode is None:
            seat.episode = Episode(self.policy, self.agent.get_system_prompt())
        prompt = seat.episode.observe(self.agent.format_observation(observation))
        if prompt.restart is None and seat.version != self.policy.version:
            prompt = seat.episode.whole_prompt()
        if prompt.restart is not None:
            self._sampler.restart(index, prompt.restart)
            seat.version = self.policy.version
        return prompt.ids

    def _action(self, seat: _Seat, reply: Reply) -> Any:
        assert seat.episode is not None
        reading = self.agent.read(seat.episode.reply(reply))
        seat.episode.reward(0.0, parse_failed=reading.failed)
        return self.agent.fallback_action if reading.failed else reading.action

    def _index(self, env: int | None) -> int:
        if env is None and len(self._seats) > 1:
            raise ConfigError(
                f"{len(self._seats)} environments are played: say whose episode ended, terminate_episode(env=0)."
            )
        if not 0 <= int(env or 0) < len(self._seats):
            raise ConfigError(f"There is no environment {env}: act was given {len(self._seats)}, counted from 0.")
        return int(env or 0)


def _with_value_head(model: Any, tokenizer: Any) -> AutoModelForCausalLMWithValueHead:
    if tokenizer is None:
        raise ConfigError("An agent with a model needs its tokenizer: Agent(model, tokenizer, device).")
    if isinstance(model, AutoModelForCausalLMWithValueHead):
        return model
    if not hasattr(model, "get_output_embeddings"):
        raise ConfigError(
            f"An agent takes a loaded causal LM, not {type(model).__name__}: "
            "loaded = load_model_and_tokenizer(name); Agent(loaded.model, loaded.tokenizer)."
        )
    return AutoModelForCausalLMWithValueHead(model)
