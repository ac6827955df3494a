"""How the policy plays in training and in inference, counted to be compared side by side, in bounded memory.

A count is of one manner of play: another prompt, another temperature or rule of sampling begins it again, and so does
each switch to inference. In training the policy changes, so its last `RECENT` episodes, or some more, stand for it.
"""

from functools import reduce
from typing import NamedTuple

from llamagym_tui.protocol.events import EpisodesCounted
from llamagym_tui.returns import RECENT
from llamagym_tui.state.prompts import Totals

STRETCHES = 16
"""Parts into which the training episodes are divided, of which the oldest go."""


class Manner(NamedTuple):
    """What decides how a policy plays, apart from its weights."""

    prompt_version: int
    temperature: float
    policy: str
    """``generate`` or ``score``, with what else is set of sampling."""


class Played(NamedTuple):
    manner: Manner | None = None
    """None: nothing was played."""
    returns: Totals = Totals()
    turns: int = 0
    parse_failures: int = 0
    actions: tuple[int, ...] = ()
    """Turns whose reply named each action; empty: they are not counted."""
    update: int = 0
    """Updates of the policy that played last."""

    def plus(self, other: "Played") -> "Played":
        if self.actions and other.actions and len(self.actions) != len(other.actions):
            return (
                other  # a resumed run's agent has other actions than before: its count begins anew
            )
        mine, theirs = self.returns, other.returns
        counted = zip(
            self.actions or (0,) * len(other.actions),
            other.actions or (0,) * len(self.actions),
            strict=True,
        )
        return Played(
            other.manner,
            Totals(
                mine.episodes + theirs.episodes,
                mine.total + theirs.total,
                mine.squares + theirs.squares,
            ),
            self.turns + other.turns,
            self.parse_failures + other.parse_failures,
            tuple(a + b for a, b in counted),
            other.update,
        )

    @property
    def failure_share(self) -> float | None:
        """Share of turns whose reply named no action; None without a turn."""
        return self.parse_failures / self.turns if self.turns else None

    def action_share(self, action: int) -> float | None:
        """How often an action was chosen where one was named; None where none was."""
        named = sum(self.actions)
        return self.actions[action] / named if named and action < len(self.actions) else None


class PlayCounts(NamedTuple):
    stretches: tuple[Played, ...] = ()
    """The last training episodes, in order."""
    inference: Played = Played()

    @property
    def train(self) -> Played:
        return reduce(Played.plus, self.stretches, Played())

    def counted(self, event: EpisodesCounted, manner: Manner, update: int = 0) -> "PlayCounts":
        """With the episodes of an event of the present prompt, by the policy after an update."""
        returns, actions = Totals().add(event.returns), tuple(event.actions)
        played = Played(manner, returns, sum(event.lengths), event.parse_failures, actions, update)
        if event.mode == "train":
            return self._replace(stretches=_recent(self.stretches, played))
        return self._replace(
            inference=self.inference.plus(played) if self.inference.manner == manner else played
        )

    def switched_to_inference(self) -> "PlayCounts":
        return self._replace(inference=Played())


def _recent(stretches: tuple[Played, ...], played: Played) -> tuple[Played, ...]:
    """Stretches with one more at their end, without those that are too old or of another manner."""
    if stretches and stretches[-1].manner != played.manner:
        return (played,)
    if stretches and stretches[-1].returns.episodes < RECENT // STRETCHES:
        stretches = (*stretches[:-1], stretches[-1].plus(played))
    else:
        stretches = (*stretches, played)
    while sum(stretch.returns.episodes for stretch in stretches[1:]) >= RECENT:
        stretches = stretches[1:]
    return stretches
