"""A turn on one line: what was seen, the action and its probability, what it earned; the reply while it is under way.

Nothing of it is searched: a search looks in the texts of which it is made.
"""

from collections.abc import Sequence

from msgspec import Struct

from llamagym_tui.game.actions import parted
from llamagym_tui.protocol.events import (
    ActionsProbed,
    EpisodeFinished,
    EpisodeStarted,
    ObservationShown,
    TurnFinished,
)
from llamagym_tui.protocol.literal import one_line
from llamagym_tui.screens.conversation.entry_text import Piece, result_style
from llamagym_tui.screens.widgets.numbers import number, share
from llamagym_tui.state.transcript import Entry, Fact, ReplySoFar

MOST = 200
"""Characters of a text that can stand on a line, at most."""
MOST_OF_REASON = 40
"""Characters of the reason before an action that stand on a line, at most."""
Turn = tuple[int, int]
"""Episode, and turn of it."""


class TurnLine(Struct, frozen=True, gc=False):
    label: str
    label_style: str
    words: Piece
    rest: tuple[Piece, ...]
    """What follows the words in any case."""
    right: tuple[Piece, ...]
    """Stands at the right end."""


def turn_of(entry: Entry) -> Turn | None:
    """Episode and turn of an entry; of an episode's beginning and end, its first and its last turn. None: of none."""
    match entry.fact:
        case EpisodeStarted(episode=episode):
            return episode, 0
        case EpisodeFinished(episode=episode, length=length):
            return episode, length - 1
        case (
            ObservationShown(episode=episode, turn=turn)
            | ActionsProbed(episode=episode, turn=turn)
            | ReplySoFar(episode=episode, turn=turn)
            | TurnFinished(episode=episode, turn=turn)
        ):
            return episode, turn
        case _:
            return None


def turn_line(turn: Turn, facts: Sequence[Fact], seen: str) -> TurnLine:
    """The line of a turn.

    Args:
        turn: which.
        facts: its own that are known.
        seen: the last observation before them.
    """
    episode, number_of_turn = turn
    label, label_style = f"{episode:,}", "heading"
    if number_of_turn:
        label, label_style = f"{f'·{number_of_turn + 1:,}':>7}", "aside"
    words, action, right = seen, tuple[Piece, ...](), tuple[Piece, ...]()
    reason: tuple[Piece, ...] = ()
    for fact in facts:
        match fact:
            case ObservationShown():
                words = fact.text
            case ReplySoFar(done=False):
                action = (Piece(f"{one_line(fact.text[:MOST])}▌", "agent"),)
            case ReplySoFar():
                if said := one_line(parted(fact.text).reason[:MOST_OF_REASON]).strip():
                    reason = (Piece(f"{said} ", "aside"),)
            case TurnFinished():
                words = fact.words or words
                action, right = _action(fact), _earned(fact.reward)
            case EpisodeFinished():
                right = _result(fact.episode_return)
            case _:
                pass
    return TurnLine(
        label, label_style, Piece(one_line(words[:MOST]), "env"), (*reason, *action), right
    )


def _action(turn: TurnFinished) -> tuple[Piece, ...]:
    pieces = [Piece(one_line(turn.action_name[:MOST]), "action")]
    if turn.how == "failed":
        pieces = [Piece("no action named", "warning")]
    elif turn.is_refused:
        pieces.append(Piece(" refused", "warning"))
    elif turn.replaced is not None:
        pieces.append(Piece(" by you", "aside"))
    elif turn.probability is not None:
        pieces.append(Piece(f" {share(turn.probability, 0)}", "aside"))
    return tuple(pieces)


def _earned(reward: float) -> tuple[Piece, ...]:
    return (Piece(number(reward), "aside"),) if reward else ()


def _result(value: float) -> tuple[Piece, ...]:
    style, glyph = result_style(value)
    return (Piece(f"{glyph} {number(value)}", style),)
