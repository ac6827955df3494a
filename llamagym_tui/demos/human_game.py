"""A person's episodes in an environment of their own, with the observations in the agent's words.

Each finished episode goes to the `DemoWriter` at once; one that is discarded leaves the file again.
"""

from collections.abc import Callable
from datetime import datetime
from typing import Any, NamedTuple

from llamagym_tui.demos.demonstration import Demonstration, Turn, conversation
from llamagym_tui.demos.writer import DemoWriter
from llamagym_tui.errors import EnvError, described
from llamagym_tui.game.agent_base import AgentBase
from llamagym_tui.game.chat import Conversation, user, with_actions
from llamagym_tui.game.choices import Choice, choices, worded
from llamagym_tui.game.drawing import drawn, revealed
from llamagym_tui.game.environment import Env, EnvMaker, MakeEnv, episode_seed, make_env
from llamagym_tui.game.observed import (
    NO_INFO,
    Info,
    Observed,
    expert_action,
    is_refused,
    names_by_turn,
    observed,
)
from llamagym_tui.protocol.events import (
    End,
    EpisodeFinished,
    EpisodeStarted,
    ObservationShown,
    TurnFinished,
)
from llamagym_tui.state.transcript import Transcript

MATCH = 20
"""Episodes of a match."""


class Match(NamedTuple):
    """Episodes that a person and the policy both play: the seed of its evaluation, and the person's returns so far."""

    seed: int
    returns: list[float]

    @property
    def is_over(self) -> bool:
        return len(self.returns) == MATCH


class HumanGame:
    def __init__(
        self,
        agent: AgentBase,
        agent_name: str,
        writer: DemoWriter,
        *,
        system_prompt: Callable[[], str],
        next_seed: Callable[[], int],
        clock: Callable[[], datetime],
        make_env: MakeEnv = make_env,
    ) -> None:
        """`system_prompt` and `next_seed` are called at the start of each episode; `clock` is aware of its zone."""
        self._agent = agent
        self._agent_name = agent_name
        self.writer = writer
        self._system_prompt = system_prompt
        self.next_seed = next_seed
        self._clock = clock
        self._make_env = EnvMaker(agent, make_env)
        self._env: Env | None = None
        self._observation: Any = None
        self._info: Info = NO_INFO
        self.choices: tuple[Choice, ...] = ()
        self.reasoning = ""
        """A sentence that was begun for the next reply."""
        self.drawing = ""
        """The state as text for people; empty if neither agent nor environment draws it."""
        self.transcript = Transcript()
        self.returns: list[float] = []
        self._prompt = ""
        self._turns: list[Turn] = []
        self._now = Observed("", None)
        self._seed = 0
        self.over = True
        self.last: Demonstration | None = None
        """The episode that ended last, discarded or not, until the next one begins."""
        self.discarded = False
        self.match: Match | None = None

    @property
    def score(self) -> float:
        """Sum of rewards of the episode under way, or last."""
        return sum(turn.reward for turn in self._turns)

    @property
    def messages(self) -> Conversation:
        """The prompt, the observations with their admissible actions, and the person's replies so far."""
        admissible = [*(turn.admissible for turn in self._turns), self._now.actions]
        return with_actions(
            [*conversation(self._prompt, self._turns), user(self._now.text)], admissible
        )

    @property
    def place(self) -> tuple[int, int, int]:
        """Seed, episode and turn: another one for every decision."""
        return (self._seed, len(self.returns), len(self._turns))

    @property
    def has_expert(self) -> bool:
        return type(self._agent).expert is not AgentBase.expert

    def open(self) -> Env:
        """The environment, which is made and its actions found at first. Raises EnvError if no keys can play it."""
        if self._env is None:
            self._env = self._make_env()
            if not names_by_turn(self._agent):
                self.choices = choices(self._agent, self._env.action_space)
        return self._env

    def deal(self) -> None:
        """Begin an episode; raises EnvError if the environment refuses the reset."""
        env = self.open()
        match = None if self.match is None or self.match.is_over else self.match
        self._seed = (
            self.next_seed() if match is None else episode_seed(match.seed, len(match.returns))
        )
        self._prompt = prompt = self._system_prompt()
        try:
            observation, info = env.reset(seed=self._seed)
            now = observed(self._agent, observation, info)
        except Exception as error:
            raise EnvError(
                f"{self._agent.env_id} refused to begin an episode: {described(error)}."
            ) from error
        self._turns = []
        self._offer(now)
        self.over, self.last, self.discarded = False, None, False
        self._look(observation, info)
        started = EpisodeStarted(
            episode=len(self.returns), system_prompt=prompt, prompt_version=1, mode="inference"
        )
        self.transcript = self.transcript.after(started).after(self._shown())

    def act(self, action: int | str, reasoning: str = "") -> bool:
        """Take an action, after a sentence of reasoning if there is one; returns whether that ended the episode.

        Raises:
            ActionParseError: with this sentence the agent would not read the action in the reply.
            EnvError: the environment refused the step.
        """
        env = self.open()
        reply = worded(self._agent, action, reasoning)
        try:
            observation, reward, terminated, truncated, info = env.step(action)
            reward, refused = float(reward), is_refused(info)
            over = terminated or truncated
            now = Observed("", None) if over else observed(self._agent, observation, info)
        except Exception as error:
            self.over = True
            raise EnvError(
                f"{self._agent.env_id} refused the action: {described(error)}."
            ) from error
        turn = TurnFinished(
            episode=len(self.returns),
            turn=len(self._turns),
            reply=reply,
            action=action,
            action_name=self._agent.action_name(action),
            how="human",
            reward=reward,
            is_refused=refused,
        )
        self.transcript = self.transcript.after(turn)
        self._turns.append(Turn(*self._now, reply, action, reward))
        self._look(observation, info)
        if over:
            self._finish("terminated" if terminated else "truncated")
        else:
            self._offer(now)
            self.transcript = self.transcript.after(self._shown())
        return self.over

    def hint(self) -> str:
        """Name of the expert's action in this state; empty if it has none."""
        if self.over or not self.has_expert:
            return ""
        try:
            action = expert_action(self._agent, self._observation, self._info, self._env)
        except Exception:  # a user's own code
            return ""
        return "" if action is None else self._agent.action_name(action)

    def discard(self) -> None:
        """Discard the episode that ended last, or keep it after all; may block for a moment, in any thread.

        Raises as `DemoWriter.take_back`; the episode is then what it was.
        """
        if self.last is None:
            return
        if self.discarded:
            self.writer.add(self.last)
            self.writer.save()
        else:
            self.writer.take_back(self.last)
        self.discarded = not self.discarded

    def close(self) -> None:
        if self._env is not None:
            self._env.close()
            self._env = None

    def _offer(self, now: Observed) -> None:
        """Put what can be done now on keys; raises EnvError if it cannot be."""
        self._now = now
        self.choices = choices(self._agent, self.open().action_space, now.actions)

    def _look(self, observation: Any, info: Info) -> None:
        self._observation, self._info = observation, info
        self.drawing = drawn(self._agent, self._env, observation, info).bracketed()

    def _shown(self) -> ObservationShown:
        return ObservationShown(
            episode=len(self.returns), turn=len(self._turns), text=self._now.text
        )

    def _finish(self, end: End) -> None:
        demo = Demonstration.of(
            self._agent,
            self._agent_name,
            self._prompt,
            self._turns,
            end=end,
            source="human",
            recorded_at=self._clock(),
            seed=self._seed,
        )
        finished = EpisodeFinished(
            episode=len(self.returns), episode_return=self.score, length=len(self._turns), end=end
        )
        self.last, self.discarded = demo, False
        self.writer.add(self.last)
        if hidden := revealed(self._agent, self._env, self._observation, self._info):
            self.drawing = hidden
            self.transcript = self.transcript.note(hidden)
        self.transcript = self.transcript.after(finished)
        self.returns.append(self.score)
        if self.match is not None and not self.match.is_over:
            self.match.returns.append(self.score)
        self.over = True
