"""What the policy would do where a person plays: the question to the trainer, its answer, and how often the two agree.

Knows neither the screen nor the trainer process. A turn is asked about once under the same policy, so a table that is
looked at for long costs nothing; an answer to an earlier turn is ignored.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from llamagym_tui.protocol.commands import WeighActions
from llamagym_tui.protocol.events import ConversationWeighed
from llamagym_tui.state.run import RunState

if TYPE_CHECKING:
    from llamagym_tui.demos.human_game import HumanGame

MOST_NAMED = 4
"""Actions that are named, the most probable first."""
WORTH_A_WORD = 0.005
"""Probability from which on what is no action is named."""


class PolicyHint:
    """The policy beside one person's table."""

    def __init__(self) -> None:
        """Nothing asked yet."""
        self._ticket = 0
        self._asked_about: object = None
        self._place: object = None
        self._first_ticket = 0
        """Of the first question about the present turn."""
        self.agreed = 0
        """Turns in which the person took what the policy finds most probable."""
        self.compared = 0
        """Turns taken while the policy's word was there."""

    def question(self, game: HumanGame, state: RunState) -> WeighActions | None:
        """What is to be asked now; None: nobody can answer, or it was asked already.

        Args:
            game: the table.
            state: of the run; another update or setting makes it another policy.
        """
        if game.over or not state.live or state.run is None:
            return None
        about = (game.place, state.pid, state.updates, state.marks)
        if about == self._asked_about:
            return None
        self._ticket += 1
        if game.place != self._place:
            self._place, self._first_ticket = game.place, self._ticket
        self._asked_about = about
        return WeighActions(ticket=self._ticket, messages=game.messages)

    def answer(self, game: HumanGame, state: RunState) -> ConversationWeighed | None:
        """The newest answer that is of the turn under way."""
        found = state.weighed
        if found is None or game.over or game.place != self._place:
            return None
        return found if self._first_ticket <= found.ticket <= self._ticket else None

    def words(self, game: HumanGame, state: RunState) -> str:
        """The policy's choice for people, or why it is not there."""
        if (answer := self.answer(game, state)) is not None:
            return weighed_words(answer)
        if not state.live:
            return "there is no trainer"
        return "the model is still loading" if state.run is None else "asked; the trainer answers between two steps"

    def taken(self, action: int, answer: ConversationWeighed | None) -> None:
        """Count a person's action beside the policy's word of before, if there was any."""
        if answer is not None and answer.shares:
            self.compared += 1
            self.agreed += action == answer.shares.index(max(answer.shares))


def weighed_words(weighed: ConversationWeighed) -> str:
    """Actions with their probabilities, the most probable first."""
    if weighed.why_not:
        return weighed.why_not
    if not weighed.names:
        return "its actions have no names, so none is weighed"
    ranked = sorted(zip(weighed.shares, weighed.names, strict=True), key=lambda pair: -pair[0])
    named = [f"{name} {percent(share)}" for share, name in ranked[:MOST_NAMED]]
    if len(ranked) > MOST_NAMED:
        named.append("…")
    if (rest := 1 - sum(weighed.shares)) >= WORTH_A_WORD:
        named.append(f"other words {percent(rest)}")
    return ", ".join(named)


def percent(share: float) -> str:
    """A probability in whole percent."""
    return f"{share * 100:.0f} %"
