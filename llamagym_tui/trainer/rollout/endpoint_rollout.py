"""Episodes whose replies come as text from elsewhere: many environments, one request for each turn of them all.

There are no tokens here and nothing to train on; what an episode is, is as in `env_slot`: resets by its seed, the
fallback action where a reply names none, cut after `max_turns`, dropped where other people's code fails.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from typing import Any, Literal, NamedTuple

from llamagym_tui.demos.demonstration import PlayedTurn, conversation
from llamagym_tui.errors import RAISED, GeneratorError
from llamagym_tui.game.agent_base import AgentBase
from llamagym_tui.game.chat import Conversation, user
from llamagym_tui.game.environment import Env, turn_limit
from llamagym_tui.game.observed import Observed
from llamagym_tui.trainer.rollout.environments import (
    LARGEST_RETURN,
    close,
    stepped,
    was_reset,
    worded,
)
from llamagym_tui.trainer.rollout.episode_counts import EpisodeCounts
from llamagym_tui.trainer.rollout.failures import EpisodeFault, Failures, Notices

Replies = Callable[[Sequence[Conversation], Sequence[int]], Sequence[str | GeneratorError]]
"""Replies to conversations, each with a seed of its sampling; an error where one does not come."""
LARGEST_SEED = 2**31
"""Servers take seeds of 32 bits with a sign."""


class Played(NamedTuple):
    """An episode that has ended."""

    counts: EpisodeCounts
    turns: list[PlayedTurn]
    end: Literal["terminated", "truncated"]
    seed: int
    """To which its environment was reset."""


@dataclass(slots=True)
class _Table:
    """An environment and the episode in it."""

    index: int
    env: Env
    shown: Observed | None = None
    """What the next reply is to. None: no episode is under way."""
    counts: EpisodeCounts = field(default_factory=EpisodeCounts)
    turns: list[PlayedTurn] = field(default_factory=list)
    named: list[int] = field(default_factory=list)
    """Turns in which the reply named each action."""
    is_broken: bool = False
    """Whether its environment has failed, and is made anew before the next episode."""

    def close(self) -> None:
        close(self.env, self.index)


class EndpointRollout:
    def __init__(
        self,
        agent: AgentBase,
        replies: Replies,
        *,
        system_prompt: str,
        history: int | None,
        seed_of: Callable[[int], int],
        max_turns: int | None,
        max_failures: int,
        make_env: Callable[[], Env],
        warn: Callable[[str], None] = lambda sentence: None,
    ) -> None:
        """A rollout that has played nothing yet.

        Args:
            history: turns before the present one that a prompt has. None: all.
            seed_of: the seed to which the environment is reset for the episode of a number.
            max_turns: after which an episode is truncated. None: the environment's own limit.
            max_failures: dropped episodes in a row that end it.
            warn: receives sentences for people.
        """
        self.agent = agent
        self._replies = replies
        self._system_prompt = system_prompt
        self._history = history
        self._seed_of = seed_of
        self._max_turns = max_turns
        self._make_env = make_env
        self.failures = Failures(max_failures, warn)
        self._notices = Notices(agent, warn)

    def play(self, episodes: int, n_envs: int) -> Iterator[Played]:
        """So many episodes, in the order in which they end; a dropped one is replaced by one of a later number.

        Raises:
            EnvError: an environment cannot be made, or too many episodes in a row were dropped.
            GeneratorError: a reply does not come; the episodes that end by the others have ended before.
        """
        started = ended = 0
        tables: list[_Table] = []
        with ExitStack() as stack:
            for index in range(min(n_envs, episodes)):
                tables.append(_Table(index, self._make_env()))
                stack.callback(tables[-1].close)
            while ended < episodes:
                for table in tables:
                    live = sum(each.shown is not None for each in tables)
                    if table.shown is None and ended + live < episodes:
                        self._guarded(table, self._begin, started)
                        started += 1
                playing = [table for table in tables if table.shown is not None]
                if not playing:
                    continue  # all that were begun have failed at once
                texts = self._replies(
                    [self._conversation(table) for table in playing],
                    [self._sampling_seed(table) for table in playing],
                )
                fault: GeneratorError | None = None
                for table, text in zip(playing, texts, strict=True):
                    if isinstance(text, GeneratorError):
                        fault = text
                    elif (played := self._guarded(table, self._turn, text)) is not None:
                        ended += 1
                        yield played
                if fault is not None:
                    raise fault

    def _guarded(
        self, table: _Table, act: Callable[..., Played | None], value: Any
    ) -> Played | None:
        """What comes of an act at a table; a fault of other people's code drops its episode."""
        try:
            return act(table, value)
        except EpisodeFault as fault:
            table.shown = None
            table.is_broken = True
            number = table.counts.number
            step = table.counts.length + 1
            where = f"Environment {table.index + 1:,}, episode {number:,}, step {step:,}"
            self.failures.add(number, where, fault)
            return None

    def _begin(self, table: _Table, number: int) -> None:
        table.counts = EpisodeCounts(mode="inference", number=number)
        if table.is_broken:
            table.close()
            try:
                table.env = self._make_env()
            except RAISED as error:
                raise EpisodeFault(f"{self.agent.env_id} failed to reset", error) from error
            table.is_broken = False
        table.turns = []
        table.named = [0] * len(self.agent.action_names)
        observation, info = was_reset(table.env, self.agent.env_id, self._seed_of(number))
        table.shown = worded(self.agent, observation, info)

    def _conversation(self, table: _Table) -> Conversation:
        first = 0 if self._history is None else max(0, len(table.turns) - self._history)
        assert table.shown is not None
        return [
            *conversation(self._system_prompt, table.turns[first:]),
            user(table.shown.text),
        ]

    def _sampling_seed(self, table: _Table) -> int:
        return (self._seed_of(table.counts.number) + table.counts.length) % LARGEST_SEED

    def _turn(self, table: _Table, text: str) -> Played | None:
        """A reply at a table; the episode if that ended it."""
        agent = self.agent
        before = table.counts
        shown = table.shown
        assert shown is not None
        reading = agent.read(text)
        self._notices.of_reading(text, reading)
        action = agent.fallback_action if reading.failed else reading.action
        outcome = stepped(table.env, agent.env_id, action, reading.failed)
        total = before.episode_return + outcome.reward
        # Not `>`, so that a return that is no number is refused, too.
        if not abs(total) <= LARGEST_RETURN:
            raise EpisodeFault(f"the reward of {agent.env_id} is {outcome.reward:g}, no finite one")
        table.turns.append(PlayedTurn(shown.text, shown.actions, text, action, outcome.reward))
        if not reading.failed and isinstance(action, int) and 0 <= action < len(table.named):
            table.named[action] += 1
        table.counts = replace(
            before,
            episode_return=total,
            length=before.length + 1,
            parse_failures=before.parse_failures + int(reading.failed),
            refusals=before.refusals + int(outcome.is_refused and not reading.failed),
        )
        if not (outcome.terminated or outcome.truncated):
            table.shown = worded(agent, outcome.observation, outcome.info)
            limit = self._max_turns or turn_limit(table.env)
            if table.counts.length < limit:
                return None
            self._notices.of_cut(f"after {limit:,} turns: --set max_turns=N sets another number")
        table.shown = None
        end: Literal["terminated", "truncated"] = (
            "terminated" if outcome.terminated else "truncated"
        )
        counts = replace(table.counts, actions=tuple(table.named), is_truncated=end == "truncated")
        return Played(counts, table.turns, end, self._seed_of(counts.number))
