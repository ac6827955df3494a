"""`Agent`: what a user subclasses, with LlamaGym's act / assign_reward / terminate_episode.

Without a model an agent is its prompting alone (the UI process makes such agents); with a model it plays and learns by
the same policy, trajectories and PPO as the trainer. Importing this module imports no torch: the engine is imported
when a model is given.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from llamagym_tui.errors import NoModelError
from llamagym_tui.game.actions import FAILED, ActionReading, answer, read_action
from llamagym_tui.game.agent_base import AgentBase
from llamagym_tui.game.chat import Conversation
from llamagym_tui.game.observations import fields, in_words, named_levels
from llamagym_tui.game.pictures import (
    Dots,
    Drawing,
    Ground,
    Landmark,
    Move,
    Panel,
    Piece,
    PolicyMap,
)
from llamagym_tui.game.transitions import best_actions, exact_return

if TYPE_CHECKING:
    from llamagym_tui.engine.llamagym_loop import LlamaGymLoop

__all__ = [
    "FAILED", "ActionReading", "Agent", "Dots", "Drawing", "Ground", "Landmark", "Move", "Panel", "Piece", "PolicyMap",
    "answer", "best_actions", "exact_return", "fields", "in_words", "named_levels", "read_action",
]  # fmt: skip


class Agent(AgentBase):
    """A language model that plays one environment and learns from it."""

    def __init__(
        self,
        model: Any = None,
        tokenizer: Any = None,
        device: str | None = None,
        generate_config_dict: Mapping[str, Any] | None = None,
        ppo_config_dict: Mapping[str, Any] | None = None,
        *,
        sft_warm_start: bool = False,
        use_target_kl: bool = False,
        sft_data: str | None = None,
        seed: int = 0,
    ) -> None:
        """An agent, with a model to act and learn, or without one for its prompting alone.

        Args:
            model: a causal LM, an `AutoModelForCausalLMWithValueHead`, or None.
            tokenizer: its tokenizer.
            device: torch device, or ``auto``; None: where the model is.
            generate_config_dict: LlamaGym's names (``max_new_tokens``, ``temperature`` …) or fields of
                `GenerationConfig`; ``top_p`` and ``top_k`` are left out, with a warning. No other name is dropped: what
                is not obeyed is refused by name, as in `ppo_config_dict`.
            ppo_config_dict: LlamaGym's names (``batch_size``, ``mini_batch_size``, ``learning_rate`` …) or fields of
                `PPOConfig`. Where this dictionary or the one before is given without a batch size, it is LlamaGym's, 16
                turns.
            sft_warm_start: train on `sft_data` before the first episode; TRL's `SFTTrainer` does it.
            use_target_kl: end an update's epochs early at a target KL (0.02 unless set).
            sft_data: demonstrations, JSON Lines; None: the file that ships for this agent.
            seed: for sampling and minibatches, and for the value head if the model comes without one; a head that
                `load_model_and_tokenizer` has made follows ``torch.manual_seed``.
        Raises:
            ConfigError: a setting is unknown or outside its range, or `model` is no model.
            UsageError: there is no such file of demonstrations, or none ships for this agent.
            DemoFileError: the file has a fault; the message names its line.
            ModelLoadError: this machine has no such device.
        """
        self._loop: LlamaGymLoop | None = None
        if model is not None:
            from llamagym_tui.demos.training_data import training_data
            from llamagym_tui.engine.llamagym_loop import LlamaGymLoop

            demonstrations: Sequence[Conversation] = ()
            if sft_warm_start:
                demonstrations = training_data(self, sft_data).conversations
            self._loop = LlamaGymLoop(
                self,
                model,
                tokenizer,
                device=device,
                generate_config=generate_config_dict,
                ppo_config=ppo_config_dict,
                demonstrations=demonstrations,
                use_target_kl=use_target_kl,
                seed=seed,
            )
        self.model = self._loop.policy.model if self._loop else None
        """The model with its value head; None in an agent without one."""
        self.tokenizer = tokenizer
        """The model's tokenizer; None in an agent without a model."""

    def act(self, observation: Any, info: Any = None, *, greedy: bool = False) -> Any:
        """The action that the model chooses on an observation, or a list of actions for a list of observations.

        A list has one observation for each environment, in the same order each time, and None for an environment
        that takes no turn now. Where a reply names no action, or no turn is taken, the action is `fallback_action`.

        Args:
            observation: what the environment shows, or a list.
            info: what the environment adds, or a list; ``format_observation`` gets it if it takes one. None: nothing.
            greedy: take the most probable token instead of sampling; such an episode is not trained on.
        Raises:
            NoModelError: the agent was made without a model.
            ConfigError: the list has another length than before while episodes are under way, or than that of infos.
        """
        return self._with_model().act(observation, info, greedy=greedy)

    def assign_reward(self, reward: Any, info: Any = None) -> None:
        """Credit a reward to the last action; where `act` took a list, give a list or array of as many rewards.

        Rewards of environments that took no turn are ignored. If an action gets several rewards, they add up. `info` is
        what the step returned, or a list: if its ``invalid_action`` is true, the environment has refused the action,
        which has a figure of its own and costs the penalty of a reply that names none.

        Raises:
            ConfigError: there is no action that the reward could belong to, or the reward is no number.
        """
        self._with_model().assign_reward(reward, info)

    def terminate_episode(
        self,
        train: bool = True,
        *,
        truncated: bool = False,
        final_observation: Any = None,
        final_info: Any = None,
        env: int | None = None,
    ) -> dict[str, float]:
        """End the episode; update the policy when a batch is full.

        Args:
            train: whether the episode enters the batch.
            truncated: whether a time limit ended it; the value of `final_observation` then stands for what would have
                followed.
            final_observation: what the environment showed last; needed when truncated.
            final_info: what it added to that.
            env: index of the environment whose episode ended, where `act` takes a list.
        Returns:
            Figures of the update (those of `docs/METRICS.md`), or an empty dict while the batch is not full.
        Raises:
            ConfigError: a truncated episode has no final observation, or there is no such environment.
            StoodStill: the update has left every weight where it was; the message has the cause.
        """
        return self._with_model().terminate_episode(
            train,
            truncated=truncated,
            final_observation=final_observation,
            final_info=final_info,
            env=env,
        )

    @property
    def current_episode_messages(self) -> Conversation:
        """The conversation so far, the system message first; of the first environment, where there are several."""
        return self._with_model().messages

    @property
    def current_episode_rewards(self) -> list[float]:
        """Rewards assigned since the episode began; of the first environment, where there are several."""
        return list(self._with_model().slots[0].rewards)

    def train(self) -> None:
        """Let episodes enter the batch from now on, as they do at the start."""
        self._with_model().training = True

    def eval(self) -> None:
        """Train on nothing until `train` is called: no episode with a turn from now on enters the batch."""
        self._with_model().training = False

    def save(self, path: str | Path) -> None:
        """Write model, value head and tokenizer into a folder.

        transformers or PEFT can load it; ``load_model_and_tokenizer(path)`` loads the value head, too.

        Raises:
            RunStoreError: it cannot be written.
        """
        self._with_model().save(path)

    def _with_model(self) -> LlamaGymLoop:
        if self._loop is None:
            raise NoModelError(
                f"{type(self).__name__} was made without a model, for its prompting alone; "
                "give it one: Agent(model, tokenizer, device)."
            )
        return self._loop
