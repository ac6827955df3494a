"""A person's episodes in an environment of their own, told as the agent would be told them.

Each finished episode becomes a demonstration and is appended to a file; what could not be written is kept and tried
again. Needs no model, no trainer and no screen; gymnasium is imported when the table is opened.
"""

from __future__ import annotations

import string
import threading
from collections.abc import Callable, Mapping
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from llamagym_tui import demos
from llamagym_tui.agent import Agent, prompt_sha256
from llamagym_tui.chat import Conversation, assistant, opening, user
from llamagym_tui.errors import DemoFileError, EnvError
from llamagym_tui.protocol.events import End, EpisodeFinished, EpisodeStarted, ObservationShown, TurnFinished
from llamagym_tui.transcript import Transcript

if TYPE_CHECKING:
    import gymnasium

MakeEnv = Callable[[str, Mapping[str, Any]], "gymnasium.Env[Any, Any]"]
SPARE_KEYS = string.digits + string.ascii_lowercase
"""Keys of actions to which the agent gives none, in order."""


class Choice(NamedTuple):
    """An action that a person can take."""

    key: str
    action: int
    name: str


class Saved(NamedTuple):
    """What became of the finished episodes."""

    episodes: int
    """On disk."""
    waiting: int
    """Not on disk yet."""
    fault: str
    """Why, for people; empty if nothing waits."""


class HumanGame:
    """One person at one table."""

    def __init__(
        self,
        agent: Agent,
        agent_name: str,
        path: Path,
        *,
        system_prompt: Callable[[], str],
        next_seed: Callable[[], int],
        clock: Callable[[], datetime],
        make_env: MakeEnv | None = None,
    ) -> None:
        """A table at which nobody sits yet.

        Args:
            agent: whose prompting is used.
            agent_name: its short name, for the record.
            path: file of demonstrations.
            system_prompt: the prompt of the next episode.
            next_seed: the seed of the next episode.
            clock: time of day, aware of its zone.
            make_env: makes the environment; None: ``gymnasium.make``.
        """
        self._agent = agent
        self._agent_name = agent_name
        self.path = path
        self._system_prompt = system_prompt
        self._next_seed = next_seed
        self._clock = clock
        self._make_env = make_env or _gymnasium_env
        self._env: gymnasium.Env[Any, Any] | None = None
        self._saved = 0
        self._unsaved: list[demos.Demonstration] = []
        self._fault = ""
        self._writing = threading.Lock()
        self.choices: tuple[Choice, ...] = ()
        self.transcript = Transcript()
        self.returns: list[float] = []
        """Returns of the finished episodes."""
        self._messages: Conversation = []
        self._actions: list[int] = []
        self._rewards: list[float] = []
        self._seed = 0
        self.over = True
        """Whether no episode is under way."""

    @property
    def score(self) -> float:
        """Sum of rewards of the episode under way, or last."""
        return sum(self._rewards)

    @property
    def saved(self) -> Saved:
        """What became of the finished episodes."""
        return Saved(self._saved, len(self._unsaved), self._fault)

    def open(self) -> None:
        """Make the environment and find the actions; again does nothing.

        Raises:
            EnvError: it cannot be made, or cannot be played by keys.
        """
        if self._env is not None:
            return
        env_id = self._agent.env_id
        try:
            env = self._make_env(env_id, self._agent.env_kwargs)
        except Exception as error:  # an environment may raise anything
            raise EnvError(f"The environment {env_id} cannot be made: {_reason(error)}.") from error
        self.choices = choices(self._agent, env.action_space)
        self._env = env

    def deal(self) -> None:
        """Begin an episode.

        Raises:
            EnvError: the environment refused the reset.
        """
        env = self._opened()
        self._seed = self._next_seed()
        prompt = self._system_prompt()
        try:
            observation, _ = env.reset(seed=self._seed)
            text = self._agent.format_observation(observation)
        except Exception as error:
            raise EnvError(f"{self._agent.env_id} refused to begin an episode: {_reason(error)}.") from error
        self._messages = [*opening(prompt), user(text)]
        self._actions, self._rewards = [], []
        self.over = False
        started = EpisodeStarted(episode=len(self.returns), system_prompt=prompt, prompt_version=1, mode="inference")
        self.transcript = self.transcript.tell(started).tell(self._shown(text))

    def act(self, action: int) -> bool:
        """Take an action in the episode under way; whether that ended it.

        Raises:
            EnvError: the environment refused the step.
        """
        env = self._opened()
        try:
            observation, reward, terminated, truncated, _ = env.step(action)
            reward = float(reward)
            text = "" if terminated or truncated else self._agent.format_observation(observation)
            reply = self._agent.format_action(action)
        except Exception as error:
            self.over = True
            raise EnvError(f"{self._agent.env_id} refused the action: {_reason(error)}.") from error
        self._tell_turn(action, reply, reward)
        if terminated or truncated:
            self._finish("terminated" if terminated else "truncated")
        else:
            self._messages.append(user(text))
            self.transcript = self.transcript.tell(self._shown(text))
        return self.over

    def save(self) -> None:
        """Write what waits to be written; may block for a moment, in any thread. `saved` tells how it went."""
        with self._writing:
            self._fault = ""
            while self._unsaved:
                try:
                    demos.append(self.path, self._unsaved[0])
                except DemoFileError as error:
                    self._fault = str(error)
                    return
                self._unsaved.pop(0)
                self._saved += 1

    def close(self) -> None:
        """Close the environment."""
        if self._env is not None:
            self._env.close()
            self._env = None

    def _opened(self) -> gymnasium.Env[Any, Any]:
        if self._env is None:
            raise EnvError("The table is not open.")
        return self._env

    def _shown(self, text: str) -> ObservationShown:
        return ObservationShown(episode=len(self.returns), turn=len(self._actions), text=text)

    def _tell_turn(self, action: int, reply: str, reward: float) -> None:
        told = TurnFinished(
            episode=len(self.returns),
            turn=len(self._actions),
            reply=reply,
            action=action,
            action_name=self._agent.action_name(action),
            how="human",
            reward=reward,
        )
        self._messages.append(assistant(reply))
        self._actions.append(action)
        self._rewards.append(reward)
        self.transcript = self.transcript.tell(told)

    def _finish(self, end: End) -> None:
        finished = EpisodeFinished(
            episode=len(self.returns), episode_return=self.score, length=len(self._actions), end=end
        )
        self._unsaved.append(self._demonstration(end))
        self.transcript = self.transcript.tell(finished)
        self.returns.append(self.score)
        self.over = True

    def _demonstration(self, end: End) -> demos.Demonstration:
        first = self._messages[0]
        return demos.Demonstration(
            messages=list(self._messages),
            agent=self._agent_name,
            env_id=self._agent.env_id,
            env_kwargs=dict(self._agent.env_kwargs),
            seed=self._seed,
            actions=list(self._actions),
            rewards=list(self._rewards),
            episode_return=self.score,
            length=len(self._actions),
            end=end,
            source="human",
            model=None,
            prompt_sha256=prompt_sha256(first["content"] if first["role"] == "system" else ""),
            recorded_at=demos.utc_timestamp(self._clock()),
        )


def choices(agent: Agent, space: Any) -> tuple[Choice, ...]:
    """The actions of a space with a key each: the agent's keys, then digits and letters that it leaves free.

    Raises:
        EnvError: the space is not discrete, or has more actions than there are keys.
    """
    from gymnasium.spaces import Discrete

    if not isinstance(space, Discrete):
        raise EnvError(
            f"{agent.env_id} takes actions from {space}; only discrete actions can be taken with keys, "
            "so there is no table for a person."
        )
    keys = {action: key for key, action in agent.action_keys.items()}
    free = [key for key in SPARE_KEYS if key not in agent.action_keys]
    actions = range(int(space.start), int(space.start) + int(space.n))
    given = []
    for action in actions:
        natural = str(action)
        key = keys.get(action) or (natural if natural in free else free[0] if free else "")
        if not key:
            raise EnvError(f"{agent.env_id} has {len(actions)} actions, more than there are keys for a person.")
        if key in free:
            free.remove(key)
        given.append(Choice(key, action, agent.action_name(action)))
    return tuple(given)


def _gymnasium_env(env_id: str, env_kwargs: Mapping[str, Any]) -> gymnasium.Env[Any, Any]:
    import gymnasium

    return gymnasium.make(env_id, **env_kwargs)


def _reason(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return (lines[0] if lines else type(error).__name__).rstrip(".")
