"""How the policy plays in training and in inference, counted to be compared side by side, in bounded memory.

A count belongs to one manner of play: it begins again with another prompt, temperature or rule of sampling, and with
each switch to inference. As the policy changes in training, only its last `RECENT` episodes or a few more count there.
"""

from typing import NamedTuple

from llamagym_tui.protocol.events import EpisodesCounted
from llamagym_tui.returns import RECENT
from llamagym_tui.state.prompts import Totals

STRETCHES = 16
"""The number of parts into which the training episodes are divided; the oldest part is dropped as a whole."""


class Manner(NamedTuple):
    """What decides how a policy plays, apart from its weights."""

    prompt_version: int
    temperature: float
    policy: str
    """``generate`` or ``score``, with other settings of sampling."""


class PlayCount(NamedTuple):
    """What some episodes of one manner came to."""

    manner: Manner | None = None
    """How they were played. None: nothing was played."""
    returns: Totals = Totals()
    turns: int = 0
    parse_failures: int = 0
    """The number of turns whose reply named no action."""
    refusals: int = 0
    """The number of turns whose reply named an action that the environment refused."""
    actions: tuple[int, ...] = ()
    """For each action, the number of turns whose reply named it; empty: they are not counted."""
    update: int = 0
    """The number of updates of the policy that played last."""

    def plus(self, other: "PlayCount") -> "PlayCount":
        """Both together, `other` having been played later."""
        if not self.actions:
            actions = other.actions
        elif not other.actions:
            actions = self.actions
        elif len(self.actions) != len(other.actions):
            return other  # the agent of a resumed run has other actions than before: the count begins anew
        else:
            actions = tuple(a + b for a, b in zip(self.actions, other.actions, strict=True))
        return PlayCount(
            manner=other.manner,
            returns=self.returns.plus(other.returns),
            turns=self.turns + other.turns,
            parse_failures=self.parse_failures + other.parse_failures,
            refusals=self.refusals + other.refusals,
            actions=actions,
            update=other.update,
        )

    @property
    def failure_share(self) -> float | None:
        """The share of turns whose reply named no action; None if there were no turns."""
        return self.parse_failures / self.turns if self.turns else None

    @property
    def refusal_share(self) -> float | None:
        """The share of turns whose reply named an action that was refused; None if there were no turns."""
        return self.refusals / self.turns if self.turns else None

    def action_share(self, action: int) -> float | None:
        """The share of an action among the turns whose reply named one; None if there were none."""
        named = sum(self.actions)
        if not named or action >= len(self.actions):
            return None
        return self.actions[action] / named


class PlayCounts(NamedTuple):
    """How the policy plays in training and in inference."""

    stretches: tuple[PlayCount, ...] = ()
    """The last training episodes, divided into stretches, in order."""
    inference: PlayCount = PlayCount()

    @property
    def train(self) -> PlayCount:
        """All of these training episodes together."""
        total = PlayCount()
        for stretch in self.stretches:
            total = total.plus(stretch)
        return total

    def counted(self, event: EpisodesCounted, manner: Manner, update: int = 0) -> "PlayCounts":
        """The counts with more episodes under the present prompt, played by the policy after an update."""
        played = PlayCount(
            manner=manner,
            returns=Totals().add(event.returns),
            turns=sum(event.lengths),
            parse_failures=event.parse_failures,
            refusals=event.refusals,
            actions=tuple(event.actions),
            update=update,
        )
        if event.mode == "train":
            return self._replace(stretches=_recent(self.stretches, played))
        if self.inference.manner == manner:
            played = self.inference.plus(played)
        return self._replace(inference=played)

    def switched_to_inference(self) -> "PlayCounts":
        """The counts at a switch to inference, whose count begins again."""
        return self._replace(inference=PlayCount())


def _recent(stretches: tuple[PlayCount, ...], played: PlayCount) -> tuple[PlayCount, ...]:
    """The stretches with more episodes at their end, without those that are too old or of another manner."""
    if stretches and stretches[-1].manner != played.manner:
        return (played,)
    if stretches and stretches[-1].returns.episodes < RECENT // STRETCHES:
        stretches = (*stretches[:-1], stretches[-1].plus(played))
    else:
        stretches = (*stretches, played)
    while sum(stretch.returns.episodes for stretch in stretches[1:]) >= RECENT:
        stretches = stretches[1:]
    return stretches
