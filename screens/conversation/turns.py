"""The conversation as rows, a turn or a notice each: on one line, and in full. Every text is literal."""

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from itertools import islice
from typing import NamedTuple, assert_never

from textual.content import Content

from llamagym_tui.game.actions import parted
from llamagym_tui.protocol.events import (
    ActionsProbed,
    EpisodeFinished,
    EpisodeStarted,
    ObservationShown,
    TurnFinished,
)
from llamagym_tui.protocol.literal import literal, one_line
from llamagym_tui.screens.widgets.look import ASIDE
from llamagym_tui.screens.widgets.numbers import bar, number, share
from llamagym_tui.state.returns import counted
from llamagym_tui.state.transcript import Entry, Fact, Notice, ReplySoFar

MOST_ACTIONS = 6
"""The number of probable actions that are shown."""
LEAST_REST = 0.005
"""The probability of other replies is shown from here on."""
HOW_READ = {
    "json": "read as JSON",
    "pattern": "read by pattern",
    "keyword": "read by keyword",
    "custom": "read by the agent",
    "human": "chosen by you",
    "failed": "fallback, because the reply names no action",
}
GUTTER = 8
"""Cells of the column of labels."""
MOST = 200
"""Characters of a text that can stand on a line."""
MIN_WORDS = 12
"""Cells that an observation keeps on its line beside a long action."""
WORDS_WIDE = 20
"""Cells of an observation on its line; the actions stand below each other after shorter ones."""
MODEL = "$primary"
BOLD = "bold $foreground"
WARNING = "$text-warning"
NOTICE = "italic $text-accent"


# Rows


class Row(NamedTuple):
    """The entries of a turn, or a notice."""

    turn: tuple[int, int] | None
    """Episode and turn; None for a notice."""
    entries: tuple[Entry, ...]

    @property
    def serial(self) -> int:
        """The serial number of the first entry."""
        return self.entries[0].serial

    @property
    def reply(self) -> ReplySoFar | None:
        replies = (each.fact for each in self.entries if isinstance(each.fact, ReplySoFar))
        return next(replies, None)


def rows_of(entries: Sequence[Entry], before: list[Row]) -> list[Row]:
    """The rows of a conversation; rows of `before` that have not changed are taken over."""
    first = entries[0].serial if entries else 0
    rows = before[bisect_left(before, first, key=lambda row: row.serial) :]
    if rows and _ends_in(rows[-1], entries, first):
        rows.pop()  # There may be more of its turn now.
    while rows and not _ends_in(rows[-1], entries, first):
        rows.pop()
    known = rows[-1].entries[-1].serial + 1 - first if rows else 0
    for entry in islice(entries, known, None):
        turn = _turn_of(entry.fact)
        if rows and turn is not None and turn == rows[-1].turn:
            rows[-1] = Row(turn, (*rows[-1].entries, entry))
        else:
            rows.append(Row(turn, (entry,)))
    return rows


def _ends_in(row: Row, entries: Sequence[Entry], first: int) -> bool:
    at = row.entries[-1].serial - first
    return at < len(entries) and entries[at] is row.entries[-1]


def _turn_of(fact: Fact) -> tuple[int, int] | None:
    """Episode and turn; an episode begins with its first turn and ends with its last."""
    match fact:
        case EpisodeStarted():
            return fact.episode, 0
        case EpisodeFinished():
            return fact.episode, fact.length - 1
        case Notice():
            return None
        case _:
            return fact.episode, fact.turn


# One line


def line_of(row: Row, width: int) -> Content:
    """A turn on one line: observation, action with its probability, and at the right end the reward."""
    if row.turn is None:
        (notice,) = row.entries
        assert isinstance(notice.fact, Notice)
        text = Content.styled(one_line(notice.fact.text[:MOST]), NOTICE)
        return (Content(" " * GUTTER) + text).truncate(width, ellipsis=True)
    episode, turn = row.turn
    label = (f"{f'·{turn + 1:,}':>7} ", ASIDE) if turn else (f"{f'{episode:,}':<7} ", ASIDE)
    words, action, earned = "", Content(""), Content("")
    for entry in row.entries:
        match entry.fact:
            case ObservationShown() as shown:
                words = shown.text
            case ReplySoFar(done=False) as reply:
                action = Content.styled(f"{one_line(reply.text[:MOST])}▌", MODEL)
            case TurnFinished() as turn_finished:
                words = turn_finished.words or words
                action = _action_on_line(turn_finished)
                if turn_finished.reward:
                    earned = Content.styled(number(turn_finished.reward), ASIDE)
            case EpisodeFinished() as finished:
                earned = Content.styled(*_result(finished.episode_return))
            case _:
                pass
    room = width - GUTTER - earned.cell_length - (2 if earned else 0)
    action = action.truncate(max(1, room - MIN_WORDS), ellipsis=True)
    seen = Content(one_line(words[:MOST]))
    seen = seen.truncate(max(1, room - action.cell_length - 2), ellipsis=True)
    seen = seen.pad_right(max(0, min(WORDS_WIDE, room // 2) - seen.cell_length))
    left = Content.assemble(label, seen, "  ", action).truncate(width - earned.cell_length)
    return left.pad_right(width - left.cell_length - earned.cell_length) + earned


def _action_on_line(turn: TurnFinished) -> Content:
    if turn.how == "failed":
        return Content.styled("no action named", WARNING)
    name = (one_line(turn.action_name[:MOST]), BOLD)
    if turn.is_refused:
        return Content.assemble(name, (" refused", WARNING))
    if turn.replaced is not None:
        return Content.assemble(name, (" by you", ASIDE))
    if turn.probability is not None:
        return Content.assemble(name, (f" {share(turn.probability, 0)}", ASIDE))
    return Content.assemble(name)


# In full


class Piece(NamedTuple):
    text: str
    style: str


class Paragraph(NamedTuple):
    label: str
    """Who speaks; empty for a notice."""
    pieces: tuple[Piece, ...]
    label_style: str = ASIDE


def in_full(row: Row, width: int, *, by_person: bool = False) -> Content:
    """All of a turn; `by_person`: a person speaks in the agent's place."""
    parts = [part for each in row.entries for part in paragraphs(each.fact, by_person=by_person)]
    parts.sort(key=lambda part: part.label == "system")  # Last, as it is long and mostly known.
    return typeset(parts, width)


def typeset(parts: Iterable[Paragraph], width: int) -> Content:
    """Paragraphs, wrapped beside their labels."""
    lines = []
    for paragraph in parts:
        pieces = [Content.styled(piece.text, piece.style) for piece in paragraph.pieces]
        label = Content.styled(f"{paragraph.label:<{GUTTER}}", paragraph.label_style)
        for wrapped in Content("").join(pieces).wrap(max(1, width - GUTTER)):
            lines.append(label + wrapped)
            label = Content(" " * GUTTER)
    return Content("\n").join(lines)


def paragraphs(fact: Fact, *, by_person: bool = False) -> list[Paragraph]:
    match fact:
        case EpisodeStarted():
            heading = f"{fact.episode:,}"
            if not by_person:
                heading += f" · {fact.mode} · prompt v{fact.prompt_version}"
            return [
                Paragraph("episode", (Piece(heading, ASIDE),)),
                Paragraph("system", (Piece(literal(fact.system_prompt) or "(none)", ASIDE),)),
            ]
        case ObservationShown():
            shown = Paragraph("env", (Piece(literal(fact.text), "$foreground"),))
            return [*_left_out(fact), shown]
        case ReplySoFar():
            speaker = "you" if by_person or fact.by_person else "agent"
            return [Paragraph(speaker, _said(fact), f"bold {MODEL}")]
        case ActionsProbed():
            return [_probed(fact)]
        case TurnFinished():
            return [_action(fact), *_replaced(fact)]
        case EpisodeFinished():
            result, style = _result(fact.episode_return)
            length = f" · {counted(fact.length, 'turn')}, {fact.end}"
            return [Paragraph("return", (Piece(result, style), Piece(length, ASIDE)), style)]
        case Notice():
            return [Paragraph("", (Piece(literal(fact.text), NOTICE),))]
        case _:
            assert_never(fact)


def _said(reply: ReplySoFar) -> tuple[Piece, ...]:
    """A reply, its reason apart from its action; a thought that has ended is one dim word."""
    thought, reason, action = (literal(part) for part in parted(reply.text))
    pieces = []
    if thought and reply.done:
        pieces.append(Piece("[thought] ", ASIDE))
        reason, action = (reason.lstrip(), action) if reason.strip() else ("", action.lstrip())
    elif thought:
        pieces.append(Piece(thought, ASIDE))
    if reason:
        pieces.append(Piece(reason, ASIDE))
    ending = "" if reply.done else "▌"
    pieces.append(Piece(action + ending, f"bold {MODEL}" if pieces else MODEL))
    return tuple(pieces)


def _left_out(shown: ObservationShown) -> list[Paragraph]:
    """The number of turns that no longer fit into the prompt."""
    if not shown.left_out:
        return []
    left_out = f"The prompt leaves out the oldest {counted(shown.left_out, 'turn')} of the episode."
    return [Paragraph("", (Piece(left_out, NOTICE),))]


def _probed(probed: ActionsProbed) -> Paragraph:
    """The most probable actions with bars."""
    pieces: list[Piece] = []
    ranked = sorted(zip(probed.shares, probed.names, strict=True), key=lambda pair: -pair[0])
    for probability, name in ranked[:MOST_ACTIONS]:
        pieces.append(Piece(f"{one_line(name)} {share(probability, 0)} ", "$foreground"))
        pieces.append(Piece(f"{bar(probability)}  ", MODEL))
    if len(ranked) > MOST_ACTIONS:
        pieces.append(Piece(f"{len(ranked) - MOST_ACTIONS} more actions  ", ASIDE))
    rest = 1 - sum(probed.shares)
    if rest >= LEAST_REST:
        pieces.append(Piece(f"other replies {share(rest, 0)}", ASIDE))
    return Paragraph("policy", tuple(pieces))


def _action(turn: TurnFinished) -> Paragraph:
    how = HOW_READ[turn.how] + (", refused by the environment" if turn.is_refused else "")
    style = WARNING if turn.names_none else ASIDE
    pieces = (
        Piece(one_line(turn.action_name), BOLD),
        Piece(f" · {how}", style),
        Piece(f" · reward {number(turn.reward)}", ASIDE),
    )
    return Paragraph("action", pieces, style)


def _replaced(turn: TurnFinished) -> list[Paragraph]:
    """The agent's own reply where a person acted."""
    if turn.replaced is None:
        return []
    action = one_line(turn.replaced_action) or "no action in it"
    said = f"the agent: {literal(turn.replaced)} · {action}"
    return [Paragraph("instead", (Piece(said, ASIDE),))]


def _result(episode_return: float) -> tuple[str, str]:
    """A return with its sign as a glyph, and its style."""
    if episode_return > 0:
        return f"▲ {number(episode_return)}", "bold $text-success"
    if episode_return < 0:
        return f"▼ {number(episode_return)}", "bold $text-error"
    return f"■ {number(episode_return)}", f"bold {ASIDE}"
