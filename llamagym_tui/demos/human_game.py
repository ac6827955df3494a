"""A person's own game: episodes in an environment of their own, with the observations in the agent's words.

The person takes actions by their keys, or writes replies as a model does. The transcript has what a model is told, and
between the turns what the environment returned.

Each finished episode goes to the `DemoWriter` at once.
"""

import contextlib
from collections.abc import Callable
from datetime import datetime
from typing import NamedTuple

from llamagym_tui.demos.demonstration import Demonstration, PlayedTurn, conversation
from llamagym_tui.demos.files import DemoWriter
from llamagym_tui.errors import RAISED, ActionParseError, EnvError
from llamagym_tui.game.actions import ActionReading
from llamagym_tui.game.agent_base import AgentBase
from llamagym_tui.game.chat import Conversation, user, with_actions
from llamagym_tui.game.choices import OfferedAction, choices, worded
from llamagym_tui.game.drawing import StateDrawing, drawn
from llamagym_tui.game.environment import (
    OPPONENT,
    POLICY,
    EnvMaker,
    episode_seed,
    opponent_of,
    with_kwargs,
)
from llamagym_tui.game.game import Game, Outcome
from llamagym_tui.game.observed import Observed, action_named
from llamagym_tui.protocol.events import (
    End,
    EpisodeFinished,
    EpisodeStarted,
    ObservationShown,
    TurnFinished,
)
from llamagym_tui.state.returns import real_minus
from llamagym_tui.state.transcript import Transcript

MATCH = 20
"""The number of episodes in a match."""
LONGEST_INFO = 80
"""Characters of an entry of an info that is shown."""


class MatchAgainstModel(NamedTuple):
    """A match against the model: episodes that a person plays on the same seeds as the policy."""

    seed: int
    """Seed of the policy's evaluation."""
    returns: list[float]
    """The person's returns so far."""

    @property
    def next_seed(self) -> int:
        """To which the environment of the next episode is reset."""
        return episode_seed(self.seed, len(self.returns))

    @property
    def is_over(self) -> bool:
        return len(self.returns) == MATCH


class HumanGame:
    """A table at which a person plays one episode after the other."""

    def __init__(
        self,
        agent: AgentBase,
        agent_name: str,
        writer: DemoWriter,
        *,
        system_prompt: Callable[[], str],
        next_seed: Callable[[], int],
        clock: Callable[[], datetime],
        against_model: bool = False,
    ) -> None:
        """A table at which nothing has been dealt.

        Args:
            system_prompt: called at the start of each episode for its prompt.
            next_seed: called at the start of each episode for its seed, except in a match.
            clock: the present moment, which knows its time zone.
            against_model: let the model be the other player of a game for two, by `let_model_act`.
        """
        self.against_model = against_model and bool(agent.opponents)
        """True if the model is the other player."""
        if self.against_model:
            agent = with_kwargs(agent, {OPPONENT: POLICY})
        elif opponent_of(agent):
            agent = with_kwargs(agent, {OPPONENT: agent.opponents[0]})
        self._agent = agent
        self._agent_name = agent_name
        self.writer = writer
        self._system_prompt = system_prompt
        self.next_seed = next_seed
        self._clock = clock
        self._make_env = EnvMaker(agent)
        self._game: Game | None = None
        self.choices: tuple[OfferedAction, ...] = ()
        """The actions that the person can take now by a key; empty: only `say` takes one."""
        self.drawing = StateDrawing("")
        """The state as text for people; empty if neither agent nor environment draws it."""
        self.transcript = Transcript()
        self.returns: list[float] = []
        """Returns of all episodes that have ended, in order."""
        self._prompt = ""
        self._turns: list[PlayedTurn] = []
        """The turns of the episode under way, or of the last one."""
        self._models: list[PlayedTurn] = []
        """The model's turns of it, where that is the other player."""
        self._now = Observed("", None)
        """The state before the next action."""
        self._seed = 0
        self.over = True
        """True if no episode is under way."""
        self.match: MatchAgainstModel | None = None
        """The match against the model, if there is one."""

    @property
    def score(self) -> float:
        """Sum of rewards of the episode under way, or of the last one."""
        return sum(turn.reward for turn in self._turns)

    @property
    def is_won_or_lost(self) -> bool:
        """True if a return above 0 is a win, one below 0 a loss, and 0 a draw."""
        return self._agent.is_won_or_lost

    @property
    def seen(self) -> str:
        """The state in the agent's words."""
        return self._now.text

    @property
    def awaits_model(self) -> bool:
        """True if it is the model's move, as the other player."""
        return not self.over and self.open().awaits_other

    @property
    def messages(self) -> Conversation:
        """The prompt, and what whoever is to move has seen and replied so far, with the actions that are admissible."""
        turns = self._models if self.awaits_model else self._turns
        messages = conversation(self._prompt, turns)
        messages.append(user(self._now.text))
        return with_actions(messages, [*(turn.admissible for turn in turns), self._now.actions])

    @property
    def place(self) -> tuple[int, int, int, int]:
        """Seed, episode and turns of both, which are never the same for two decisions."""
        return (self._seed, len(self.returns), len(self._turns), len(self._models))

    def open(self) -> Game:
        """The game; the first call makes its environment. Raises EnvError if it cannot be made."""
        if self._game is None:
            self._game = Game(self._agent, self._make_env)
        return self._game

    def repeat_run(self, seed: int) -> None:
        """Deal the episodes that a run with that seed plays."""
        self.next_seed = lambda: episode_seed(seed, len(self.returns))

    def deal(self) -> None:
        """Begin an episode; raises EnvError if the environment refuses the reset."""
        game = self.open()
        if self.match is not None and not self.match.is_over:
            self._seed = self.match.next_seed
        else:
            self._seed = self.next_seed()
        self._prompt = self._system_prompt()
        game.reset(self._seed)
        self._now = game.look()
        self._turns = []
        self._models = []
        self.over = False
        self.drawing = StateDrawing("")
        self._draw()
        started = EpisodeStarted(
            episode=len(self.returns),
            system_prompt=self._prompt,
            prompt_version=1,
            mode="inference",
        )
        self._tell(game.outcome)
        self.transcript = self.transcript.after(started)
        self._offer()

    def act(self, action: int | str) -> bool:
        """Take an action; returns True if that ended the episode.

        Raises:
            ActionParseError: the agent cannot word the action.
            EnvError: the environment refused the step.
        """
        return self._take(worded(self._agent, action), ActionReading(action, "human"))

    def say(self, reply: str) -> bool:
        """Take the action that a reply names, as if a model had written it; returns True if that ended the episode.

        Raises:
            ActionParseError: it names none.
            EnvError: the environment refused the step.
        """
        agent = self._agent
        agent.reading_fault = ""
        reading = agent.read(reply)
        if reading.failed:
            why = agent.reading_fault or "The reply names no action."
            instead = agent.action_name(agent.fallback_action)
            raise ActionParseError(
                f"{why} Nothing was done. If a model wrote this, the environment would get {instead}."
            )
        return self._take(reply, reading)

    def _take(self, reply: str, reading: ActionReading) -> bool:
        action = reading.action
        shown = self._now
        outcome = self._step(action)
        self._turns.append(PlayedTurn(shown.text, shown.actions, reply, action, outcome.reward))
        turn = TurnFinished(
            episode=len(self.returns),
            turn=len(self._turns) - 1,
            reply=reply,
            action=action,
            action_name=self._agent.action_name(action),
            how=reading.how,
            reward=outcome.reward,
            is_refused=outcome.is_refused,
        )
        self.transcript = self.transcript.after(turn)
        return self._goes_on(outcome)

    def let_model_act(self, name: str) -> bool:
        """Take the action of a name for the model, whose turn it is; returns True if that ended the episode.

        Raises:
            EnvError: the environment refused the step.
        """
        shown = self._now
        action = action_named(self._agent, name)
        reply = worded(self._agent, action)
        outcome = self._step(action)
        self._models.append(PlayedTurn(shown.text, shown.actions, reply, action, 0.0))
        if self._turns:  # what it leads to belongs to the person's turn before it
            last = self._turns[-1]
            self._turns[-1] = last._replace(reward=last.reward + outcome.reward)
        return self._goes_on(outcome)

    def _step(self, action: int | str) -> Outcome:
        game = self.open()
        self.over = True  # where the environment fails
        outcome = game.step(action)
        if not outcome.is_over:
            self._now = game.look()
        self.over = False
        self._draw()
        return outcome

    def _goes_on(self, outcome: Outcome) -> bool:
        """Show what comes next; returns True if that is the episode's end."""
        if outcome.is_over:
            self._finish("terminated" if outcome.terminated else "truncated")
        earned = f"reward {outcome.reward:+g} · return so far {self.score:+g}"
        self._tell(outcome, real_minus(earned))
        if not outcome.is_over:
            self._offer()
        return outcome.is_over

    def close(self) -> None:
        if self._game is not None:
            self._game.close()
            self._game = None

    def _offer(self) -> None:
        """Show the state and give each action a key, if it is the person's turn and there are keys enough."""
        self.choices = ()
        if self.awaits_model:
            return
        shown = ObservationShown(
            episode=len(self.returns), turn=len(self._turns), text=self._now.text
        )
        self.transcript = self.transcript.after(shown)
        with contextlib.suppress(EnvError):
            self.choices = choices(self._agent, self.open().env.action_space, self._now.actions)

    def _tell(self, outcome: Outcome, *parts: str) -> None:
        """Tell the person `parts` and what the environment returned; of its info, what is short."""
        with contextlib.suppress(*RAISED):  # a class of other people's as text
            info = (f"{name} {value}" for name, value in outcome.info.items())
            short = (part for part in info if len(part) <= LONGEST_INFO)
            told = " · ".join([*parts, *short, f"observation {outcome.observation}"])
            self.transcript = self.transcript.note(told)

    def _draw(self) -> None:
        """Draw the state, unless it is as the model sees it."""
        game = self.open()
        if not game.awaits_other or not self.drawing.text:
            state = game.outcome
            self.drawing = drawn(
                self._agent,
                game.env,
                state.observation,
                state.info,
                is_over=state.is_over,
                player="you",
            )

    def _finish(self, end: End) -> None:
        """Record the episode that has ended."""
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
        self.writer.add(demo)
        finished = EpisodeFinished(
            episode=len(self.returns), episode_return=self.score, length=len(self._turns), end=end
        )
        self.transcript = self.transcript.after(finished)
        self.returns.append(self.score)
        if self.match is not None and not self.match.is_over:
            self.match.returns.append(self.score)
        self.over = True
