"""Episodes that cannot be played to their end: an environment or an agent raised, or a reward is no finite number.

Each is dropped, counted, and reported with the user's line; too many in a row, by their numbers, end the run.
"""

from collections import deque
from collections.abc import Callable

from llamagym_tui.errors import MOST_WORDS, EnvError
from llamagym_tui.game.actions import ActionReading
from llamagym_tui.game.agent_base import AgentBase
from llamagym_tui.game.game import EpisodeFault
from llamagym_tui.trainer.rollout.episode_counts import EpisodeCounts

MOST_REMEMBERED = 4096
"""Numbers of dropped episodes among which a row is searched."""


class Failures:
    """Counts the episodes that were dropped, and ends a run in which too many were."""

    def __init__(self, limit: int, warn: Callable[[str], None]) -> None:
        """None at first; `limit` in a row end the run, and `warn` receives sentences for people."""
        self.limit = limit
        """Dropped episodes in a row that end the run."""
        self._warn = warn
        self.dropped = 0
        """Episodes dropped since the run began."""
        self._numbers: deque[int] = deque(maxlen=MOST_REMEMBERED)
        self._kinds: set[str] = set()

    def add(self, number: int, where: str, fault: EpisodeFault) -> None:
        """Count a dropped episode; the first one of each kind of fault is reported.

        Raises:
            EnvError: that was the last one of as many in a row as are allowed.
        """
        self.dropped += 1
        self._numbers.append(number)
        sentence = f"{where}: {fault}."
        if self._in_a_row(number) >= self.limit:
            raise EnvError(
                f"{self.limit:,} episodes in a row failed, as many as end a run (max_failures). {sentence} "
                "Correct that, then --resume it, or begin again."
            ) from fault
        if fault.kind not in self._kinds:
            self._kinds.add(fault.kind)
            self._warn(f"An episode was dropped. {sentence}")

    def _in_a_row(self, number: int) -> int:
        """Dropped episodes whose numbers follow one another up to this one and on from it."""
        dropped = set(self._numbers)
        first = number
        last = number
        while first - 1 in dropped:
            first -= 1
        while last + 1 in dropped:
            last += 1
        return last - first + 1


FEWEST_READ = 50
"""Replies of ended episodes after which it is judged whether most of them name no action."""


class Notices:
    """Warns, once each, of what a person should know about the agent and its environment."""

    def __init__(self, agent: AgentBase, warn: Callable[[str], None]) -> None:
        """`warn` receives sentences for people."""
        self._agent = agent
        self._warn = warn
        self._reported: set[str] = set()
        self._read = 0
        """Turns of ended episodes."""
        self._unread = 0
        """Turns among them whose reply named no action."""
        self._example = ""
        """The last reply that named no action."""

    def _warn_once(self, kind: str, sentence: str) -> None:
        if sentence and kind not in self._reported:
            self._reported.add(kind)
            self._warn(sentence)

    def of_reading(self, reply: str, reading: ActionReading) -> None:
        """An error of the agent's while it read a reply, or a reply that named no action."""
        self._warn_once(self._agent.reading_fault, self._agent.reading_fault)
        if reading.failed:
            self._example = reply

    def of_cut(self, why: str) -> None:
        """An episode that cannot go on although its environment could."""
        sentence = f"Episodes of {self._agent.env_id} are cut off {why}. They count as truncated."
        self._warn_once(why.partition(":")[0], sentence)

    def of_left_out(self, context: int | None) -> None:
        """A prompt without the oldest turns."""
        self._warn_once(
            "left out",
            f"Conversations of {self._agent.env_id} become longer than the {context:,} tokens that the model "
            "reads: prompts leave out the oldest turns (--history N sets how many there are at most).",
        )

    def of_episode(self, ended: EpisodeCounts) -> None:
        """An ended episode, after which most replies so far may name no action."""
        self._read += ended.length
        self._unread += ended.parse_failures
        if self._read >= FEWEST_READ and 2 * self._unread > self._read:
            self._warn_once(
                "unread",
                f"{self._unread / self._read:.0%} of the first {self._read:,} replies name no action, for example "
                f"{self._example[:MOST_WORDS]!r}: the agent's fallback action is played in their place. Have replies "
                "chosen among the admissible ones (generation.policy = score), or make clear in the system prompt and "
                f"{type(self._agent).__name__}.extract_action what a reply is.",
            )
