"""What the policy would do where a person plays: the request to the trainer, and its answer.

Knows neither the screen nor the trainer process. A turn is requested once under the same policy, so an open table
costs nothing; an answer to an earlier turn is ignored.
"""

from llamagym_tui.demos.human_game import HumanGame
from llamagym_tui.protocol.commands import WeighActions
from llamagym_tui.protocol.events import ConversationWeighed
from llamagym_tui.screens.widgets.numbers import share
from llamagym_tui.state.run import RunState

MOST_NAMED = 4
"""Actions shown, the most probable first."""
LEAST_SHOWN = 0.005
"""Probability of other replies, which name no action, from which it is shown."""


class PolicyHint:
    def __init__(self) -> None:
        self._ticket = 0
        self._requested: object = None
        self._place: object = None
        self._first_ticket = 0
        """Of the first request for the present turn."""

    def question(self, game: HumanGame, state: RunState) -> WeighActions | None:
        """The request for this turn; None: nobody can answer, or it was sent already.

        Another update or setting makes it another policy, which is requested again.
        """
        if game.over or not state.live or state.run is None:
            return None
        about = (game.place, state.pid, state.updates, state.marks)
        if about == self._requested:
            return None
        self._ticket += 1
        if game.place != self._place:
            self._place, self._first_ticket = game.place, self._ticket
        self._requested = about
        return WeighActions(ticket=self._ticket, messages=game.messages)

    def answer(self, game: HumanGame, state: RunState) -> ConversationWeighed | None:
        """The newest answer for the present turn."""
        found = state.weighed
        if found is None or game.over or game.place != self._place:
            return None
        return found if self._first_ticket <= found.ticket <= self._ticket else None

    def text(self, game: HumanGame, state: RunState) -> str:
        """The policy's probabilities, or why there are none."""
        if (answer := self.answer(game, state)) is not None:
            return probabilities_text(answer)
        if not state.live:
            return "there is no trainer"
        return "the model is still loading" if state.run is None else "requested; the trainer answers between two steps"


def probabilities_text(weighed: ConversationWeighed) -> str:
    """The most probable action first."""
    if weighed.why_not:
        return weighed.why_not
    if not weighed.names:
        return "its actions have no names, so it has no probabilities to show"
    ranked = sorted(zip(weighed.shares, weighed.names, strict=True), key=lambda pair: -pair[0])
    named = [f"{name} {share(probability, 0)}" for probability, name in ranked[:MOST_NAMED]]
    if len(ranked) > MOST_NAMED:
        named.append("…")
    if (rest := 1 - sum(weighed.shares)) >= LEAST_SHOWN:
        named.append(f"other replies {share(rest, 0)}")
    return ", ".join(named)
