"""A person's episodes in an environment of their own, told as the agent would be told them.

An action is chosen, and taken back or taken. Each finished episode becomes a demonstration and goes to the
`DemoWriter` at once; one that is discarded leaves the file again. Needs no model, no trainer and no screen; gymnasium
is imported when the table is opened.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from llamagym_tui.demos import files as demo_files
from llamagym_tui.demos.writer import DemoWriter, Saved
from llamagym_tui.errors import EnvError
from llamagym_tui.game.agent_base import AgentBase, prompt_sha256
from llamagym_tui.game.chat import Conversation, assistant, opening, user
from llamagym_tui.game.choices import Choice, choices, worded
from llamagym_tui.game.drawing import drawn, draws, renders_text
from llamagym_tui.protocol.events import End, EpisodeFinished, EpisodeStarted, ObservationShown, TurnFinished
from llamagym_tui.state.transcript import Transcript

if TYPE_CHECKING:
    import gymnasium

MakeEnv = Callable[[str, Mapping[str, Any]], "gymnasium.Env[Any, Any]"]


class HumanGame:
    """One person at one table."""

    def __init__(
        self,
        agent: AgentBase,
        agent_name: str,
        writer: DemoWriter,
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
            writer: takes the finished episodes.
            system_prompt: the prompt of the next episode.
            next_seed: the seed of the next episode.
            clock: time of day, aware of its zone.
            make_env: makes the environment; None: ``gymnasium.make``.
        """
        self._agent = agent
        self._agent_name = agent_name
        self._writer = writer
        self._system_prompt = system_prompt
        self._next_seed = next_seed
        self._clock = clock
        self._make_env = make_env or _gymnasium_env
        self._env: gymnasium.Env[Any, Any] | None = None
        self._observation: Any = None
        self.choices: tuple[Choice, ...] = ()
        self.chosen: Choice | None = None
        """Chosen and not taken yet."""
        self.drawing = ""
        """The state, drawn for people; empty if nobody draws it."""
        self.transcript = Transcript()
        self.returns: list[float] = []
        """Returns of the finished episodes."""
        self._messages: Conversation = []
        self._actions: list[int] = []
        self._rewards: list[float] = []
        self._seed = 0
        self.over = True
        """Whether no episode is under way."""
        self.last: demo_files.Demonstration | None = None
        """The episode that ended last, discarded or not, until the next one begins."""
        self.discarded = False
        """Whether it was discarded."""

    @property
    def score(self) -> float:
        """Sum of rewards of the episode under way, or last."""
        return sum(self._rewards)

    @property
    def messages(self) -> Conversation:
        """What the agent would have been told so far, and what was said."""
        return list(self._messages)

    @property
    def place(self) -> tuple[int, int, int]:
        """Seed, episode and turn: another one wherever something else is to be chosen."""
        return (self._seed, len(self.returns), len(self._actions))

    @property
    def path(self) -> Path:
        """File of the finished episodes."""
        return self._writer.path

    @property
    def saved(self) -> Saved:
        """What became of the finished episodes."""
        return self._writer.saved

    @property
    def has_expert(self) -> bool:
        """Whether the agent can give a hint."""
        return type(self._agent).expert is not AgentBase.expert

    def open(self) -> None:
        """Make the environment and find the actions; again does nothing.

        Raises:
            EnvError: it cannot be made, or cannot be played by keys.
        """
        if self._env is not None:
            return
        self._env = self._made()
        self.choices = choices(self._agent, self._env.action_space)

    def _made(self) -> gymnasium.Env[Any, Any]:
        """The environment, one that renders text if it can and the agent draws nothing."""
        env_id, env_kwargs = self._agent.env_id, self._agent.env_kwargs
        try:
            env = self._make_env(env_id, env_kwargs)
            if not draws(self._agent) and renders_text(env, env_kwargs):
                env.close()
                env = self._make_env(env_id, {**env_kwargs, "render_mode": "ansi"})
        except Exception as error:  # an environment may raise anything
            raise EnvError(f"The environment {env_id} cannot be made: {_reason(error)}.") from error
        return env

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
        self.over, self.chosen, self.last, self.discarded = False, None, None, False
        self._look(observation)
        started = EpisodeStarted(episode=len(self.returns), system_prompt=prompt, prompt_version=1, mode="inference")
        self.transcript = self.transcript.after(started).after(self._shown(text))

    def choose(self, choice: Choice | None) -> None:
        """Choose an action, or none; nothing is taken yet."""
        self.chosen = None if self.over else choice

    def take(self, reasoning: str = "") -> bool:
        """Take the chosen action; whether that ended the episode.

        Args:
            reasoning: a sentence that the reply begins with.
        Raises:
            ActionParseError: with this sentence the reply would not be read as the action; it stays chosen.
            EnvError: the environment refused the step.
        """
        return self.over if self.chosen is None else self.act(self.chosen.action, reasoning)

    def act(self, action: int, reasoning: str = "") -> bool:
        """Take an action in the episode under way; whether that ended it. Errors are those of `take`."""
        env = self._opened()
        reply = worded(self._agent, action, reasoning)
        try:
            observation, reward, terminated, truncated, _ = env.step(action)
            reward = float(reward)
            text = "" if terminated or truncated else self._agent.format_observation(observation)
        except Exception as error:
            self.over, self.chosen = True, None
            raise EnvError(f"{self._agent.env_id} refused the action: {_reason(error)}.") from error
        self.chosen = None
        self._tell_turn(action, reply, reward)
        self._look(observation)
        if terminated or truncated:
            self._finish("terminated" if terminated else "truncated")
        else:
            self._messages.append(user(text))
            self.transcript = self.transcript.after(self._shown(text))
        return self.over

    def hint(self) -> str:
        """What the agent's expert would do now, by name; empty if it does not say."""
        if self.over or not self.has_expert:
            return ""
        try:
            action = self._agent.expert(self._observation)
        except Exception:  # a user's own code
            return ""
        return "" if action is None else self._agent.action_name(action)

    def save(self) -> None:
        """Write what waits to be written; may block for a moment, in any thread. `saved` tells how it went."""
        self._writer.save()

    def discard(self) -> None:
        """Discard the episode that ended last, or keep it after all; may block for a moment, in any thread.

        Raises:
            DemoFileError: its file cannot be changed; the episode is what it was.
        """
        if self.last is None:
            return
        if self.discarded:
            self._writer.add(self.last)
            self._writer.save()
        else:
            self._writer.take_back(self.last)
        self.discarded = not self.discarded

    def close(self) -> None:
        """Close the environment."""
        if self._env is not None:
            self._env.close()
            self._env = None

    def _opened(self) -> gymnasium.Env[Any, Any]:
        if self._env is None:
            raise EnvError("The table is not open.")
        return self._env

    def _look(self, observation: Any) -> None:
        self._observation = observation
        self.drawing = drawn(self._agent, self._env, observation).bracketed()

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
        self.transcript = self.transcript.after(told)

    def _finish(self, end: End) -> None:
        finished = EpisodeFinished(
            episode=len(self.returns), episode_return=self.score, length=len(self._actions), end=end
        )
        self.last, self.discarded = self._demonstration(end), False
        self._writer.add(self.last)
        self.transcript = self.transcript.after(finished)
        self.returns.append(self.score)
        self.over = True

    def _demonstration(self, end: End) -> demo_files.Demonstration:
        first = self._messages[0]
        return demo_files.Demonstration(
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
            recorded_at=demo_files.utc_timestamp(self._clock()),
        )


def _gymnasium_env(env_id: str, env_kwargs: Mapping[str, Any]) -> gymnasium.Env[Any, Any]:
    import gymnasium

    return gymnasium.make(env_id, **env_kwargs)


def _reason(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return (lines[0] if lines else type(error).__name__).rstrip(".")
