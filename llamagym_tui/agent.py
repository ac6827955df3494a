"""`Agent`: the three methods a user writes, and LlamaGym's act / assign_reward / terminate_episode.

An agent without a model is its prompting alone (the UI process makes such ones); with a model it plays and learns by
the same policy, trajectories and PPO as the trainer. Importing this module imports no torch: the engine is imported
when a model is given.
"""

from __future__ import annotations

import json
import operator
from abc import ABC, abstractmethod
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from llamagym_tui.actions import FAILED, ActionReading, json_index, read_action
from llamagym_tui.errors import ActionParseError, ConfigError, NoModelError

if TYPE_CHECKING:
    from llamagym_tui.chat import Conversation
    from llamagym_tui.engine.seed_loop import SeedLoop
    from llamagym_tui.policy_map import Landmark, Panel, PolicyMap

__all__ = ["ActionReading", "Agent", "Landmark", "Panel", "PolicyMap", "read_action"]


class Agent(ABC):
    """A language model's way of playing one environment: what it is told, and how its replies are read."""

    env_id: ClassVar[str] = ""
    """Gymnasium id of the environment that it plays."""
    env_kwargs: ClassVar[Mapping[str, Any]] = {}
    """Keyword arguments of ``gymnasium.make``."""
    title: ClassVar[str] = ""
    """Name for people; empty: the class's name."""
    description: ClassVar[str] = ""
    """One line for people."""
    picture: ClassVar[str] = ""
    """A small picture in characters for the list of agents, at most 4 rows of 14 cells; empty: none."""
    action_names: ClassVar[tuple[str, ...]] = ()
    """Names of discrete actions, by index; empty: found from the environment's action space."""
    action_keys: ClassVar[Mapping[str, int]] = {}
    """Key on which a person takes an action; empty: the digit of its index."""
    baselines: ClassVar[Mapping[str, float]] = {}
    """Published mean returns by name."""
    fallback_action: ClassVar[Any] = 0
    """What the environment gets when a reply names no action."""

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
                `GenerationConfig`; ``top_p`` and ``top_k`` are left out, with a warning.
            ppo_config_dict: LlamaGym's names (``batch_size``, ``mini_batch_size``, ``learning_rate`` …) or fields of
                `PPOConfig`.
            sft_warm_start: train on `sft_data` before the first episode; TRL's `SFTTrainer` does it.
            use_target_kl: end an update's epochs early at a target KL (0.02 unless set).
            sft_data: demonstrations, JSON Lines; None: the file that ships for this agent.
            seed: of sampling and minibatches.
        Raises:
            ConfigError: a setting is unknown or outside its range, or the model is none.
            UsageError: there is no such file of demonstrations, or none ships for this agent.
            DemoFileError: the file has a fault; the message names its line.
            ModelLoadError: the device is not there.
        """
        self._loop: SeedLoop | None = None
        if sft_data is not None and not sft_warm_start:
            raise ConfigError("sft_data is what sft_warm_start trains on: say sft_warm_start=True too.")
        if model is not None:
            from llamagym_tui.engine.seed_loop import SeedLoop
            from llamagym_tui.training_data import training_data

            self._loop = SeedLoop(
                self,
                model,
                tokenizer,
                device=device,
                generate_config=generate_config_dict,
                ppo_config=ppo_config_dict,
                demonstrations=training_data(self, sft_data).conversations if sft_warm_start else (),
                use_target_kl=use_target_kl,
                seed=seed,
            )
        self.model = self._loop.policy.model if self._loop else None
        """The model with its value head; None in an agent without one."""
        self.tokenizer = tokenizer
        """The model's tokenizer; None in an agent without a model."""

    @abstractmethod
    def get_system_prompt(self) -> str:
        """The system message of every episode."""

    @abstractmethod
    def format_observation(self, observation: Any) -> str:
        """The user message that tells an observation."""

    @abstractmethod
    def extract_action(self, response: str) -> Any:
        """The action that a reply names.

        Returns an action, or an `ActionReading` (as `read_action` gives) to keep how it was read. None, or raising
        ``ActionParseError``, says that the reply names none.
        """

    def format_action(self, action: Any) -> str:
        """The canonical reply that names an action: what a person's choice is recorded as."""
        return json.dumps({"action": action})

    def expert(self, observation: Any) -> Any:
        """The action of a scripted expert on an observation; None (the default): there is no expert.

        What ``demos generate`` records.
        """
        return None

    def draw(self, observation: Any) -> str:
        """A drawing of an observation for people, some lines of plain text; empty (the default): there is none."""
        return ""

    def policy_map(self) -> PolicyMap | None:
        """States to ask the policy about, laid out for people; None (the default): there is no map.

        The screen of the map (``g``) shows what the policy does in each as the first turn of an episode, live, beside
        what is best. For an agent that plays Blackjack, hard hands only, with the probability of action 1::

            from llamagym_tui.agent import Agent, Panel, PolicyMap
            ...
            def policy_map(self):
                totals, dealer = range(21, 3, -1), [2, 3, 4, 5, 6, 7, 8, 9, 10, 1]
                states = [[(total, card, 0) for card in dealer] for total in totals]
                return PolicyMap([Panel("hard", [str(t) for t in totals], [str(c) for c in dealer], states)], action=1)

        Best is what `expert` says, or all that ``PolicyMap(best=…)`` names.
        """
        return None

    def read(self, reply: str) -> ActionReading:
        """`extract_action`, with the way it was read and failures as data.

        A model says anything, so what a user's own code raises over a reply (``int("hit")``) is a reply that names no
        action, and no reason to end a run. JSON counts first, for an agent that knows no JSON, too: one that, as
        LlamaGym's example, reads 1 from ``Action: 1`` but not from ``{"action": 1}`` is told the former.
        """
        reading = self._extracted(reply)
        index = json_index(reply) if reading.how != "json" else None
        if index is None or _is_index(reading.action, index) or self._reads(f'{{"action": {index}}}', index):
            return reading
        return ActionReading(index, "json") if self._reads(f"Action: {index}", index) else reading

    def _reads(self, reply: str, index: int) -> bool:
        return _is_index(self._extracted(reply).action, index)

    def _extracted(self, reply: str) -> ActionReading:
        try:
            action = self.extract_action(reply)
        except (ActionParseError, ValueError, LookupError, TypeError, AttributeError):
            return FAILED
        if isinstance(action, ActionReading):
            return action
        return FAILED if action is None else ActionReading(action, "custom")

    def action_name(self, action: Any) -> str:
        """The name of an action, or its text if it has none."""
        if isinstance(action, int) and 0 <= action < len(self.action_names):
            return self.action_names[action]
        return str(action)

    def act(self, observation: Any, *, greedy: bool = False) -> Any:
        """The action that the model chooses on an observation, or a list of actions on a list of observations.

        A list has one observation for each environment, in the same order each time, and None for an environment
        that takes no turn now; see `llamagym_tui.vector` for Gymnasium's vector environments. Where a reply names no
        action, or no turn is taken, the action is `fallback_action`.

        Args:
            observation: what the environment shows, or a list.
            greedy: take the most probable token instead of sampling; such an episode is not trained on.
        Raises:
            NoModelError: the agent was made without a model.
            ConfigError: the list has another length than before while episodes are under way.
        """
        return self._with_model().act(observation, greedy=greedy)

    def assign_reward(self, reward: Any) -> None:
        """Credit a reward to the last action; after a list of observations, a list or array of as many rewards.

        Rewards of environments that took no turn are left out; more than one for the same action add up.

        Raises:
            ConfigError: there is no action that it could belong to.
        """
        self._with_model().assign_reward(reward)

    def terminate_episode(
        self, train: bool = True, *, truncated: bool = False, final_observation: Any = None, env: int | None = None
    ) -> dict[str, float]:
        """End the episode; update the policy when a batch is full.

        Args:
            train: whether the episode enters the batch.
            truncated: whether a time limit ended it; its value is then bootstrapped from `final_observation`.
            final_observation: what the environment showed last; needed when truncated.
            env: index of the environment whose episode ended, where `act` takes a list.
        Returns:
            Figures of the update (those of `docs/METRICS.md`), or an empty dict while the batch is not full.
        Raises:
            ConfigError: a truncated episode has no final observation, or there is no such environment.
        """
        return self._with_model().terminate_episode(
            train, truncated=truncated, final_observation=final_observation, env=env
        )

    @property
    def current_episode_messages(self) -> Conversation:
        """The conversation so far, the system message first; of the first environment, where there are several."""
        return self._with_model().messages

    @property
    def current_episode_rewards(self) -> list[float]:
        """Rewards assigned since the episode began; of the first environment, where there are several."""
        return self._with_model().rewards

    def train(self) -> None:
        """Episodes enter the batch (the state at the start)."""
        self._with_model().training = True

    def eval(self) -> None:
        """Nothing is trained, and no episode with a turn from now on enters the batch, until `train`."""
        self._with_model().training = False

    def save(self, path: str | Path) -> None:
        """Write model, value head and tokenizer into a folder.

        transformers or PEFT load it, and ``load_model_and_tokenizer(path)`` does with the value head.
        """
        self._with_model().save(path)

    def _with_model(self) -> SeedLoop:
        if self._loop is None:
            raise NoModelError(
                f"{type(self).__name__} was made without a model, for its prompting alone; "
                "give it one: Agent(model, tokenizer, device)."
            )
        return self._loop


def _is_index(action: Any, index: int) -> bool:
    """Whether an action, of whatever kind, is that index."""
    try:
        return operator.index(action) == index
    except TypeError:
        return False


def __getattr__(name: str) -> Any:
    # Agents import what a map is made of from here, and no map is made before the first frame.
    if name in ("Landmark", "Panel", "PolicyMap"):
        return getattr(import_module("llamagym_tui.policy_map"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def prompt_sha256(system_prompt: str) -> str:
    """Hex digest that stands for a system prompt in demonstrations and runs."""
    import hashlib  # costs the first frame otherwise

    return hashlib.sha256(system_prompt.encode()).hexdigest()
