"""What is reported once about the agent and the episodes of a rollout, for people who may have made a mistake."""

from collections.abc import Callable

from llamagym_tui.errors import MOST_WORDS
from llamagym_tui.game.actions import ActionReading
from llamagym_tui.game.agent_base import AgentBase

FEWEST_READ = 50
"""Replies of ended episodes after which it is judged whether most of them name no action."""


class Notices:
    def __init__(self, agent: AgentBase, warn: Callable[[str], None]) -> None:
        """`warn` receives sentences for people."""
        self._agent, self._warn = agent, warn
        self._reported: set[str] = set()
        self._known_fault = agent.reading_fault
        self._read, self._unread, self._example = 0, 0, ""
        """Turns of ended episodes, those among them whose reply named no action, and such a reply."""
        self._refused = False
        """Whether some of them were refused by the environment instead."""

    def _warn_once(self, kind: str, sentence: str) -> None:
        if kind not in self._reported:
            self._reported.add(kind)
            self._warn(sentence)

    def of_reading(self, reply: str, reading: ActionReading) -> None:
        """An error of the agent's while it read a reply."""
        if self._agent.reading_fault != self._known_fault:
            self._known_fault = self._agent.reading_fault
            self._warn(self._known_fault)
        if reading.failed:
            self._example = reply

    def of_refusal(self, reply: str) -> None:
        """A reply whose action the environment refused."""
        self._example, self._refused = reply, True

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

    def of_unread(self, turns: int, unread: int) -> None:
        """An ended episode, after which most replies so far may name no action."""
        self._read, self._unread = self._read + turns, self._unread + unread
        if self._read >= FEWEST_READ and 2 * self._unread > self._read:
            fault = "name no action or were refused" if self._refused else "name no action"
            name, share = type(self._agent).__name__, self._unread / self._read
            self._warn_once(
                "unread",
                f"{share:.0%} of the first {self._read:,} replies {fault}, for example "
                f"{self._example[:MOST_WORDS]!r}; see the system prompt and {name}.extract_action.",
            )
