"""The conversation as rows, a turn or a notice each: on one line, and in full. Every text is literal."""

import math
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
EARNED_WIDE = 6
"""Cells of a reward or a return, whatever it is, so that the actions stand below each other."""
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
                earned = Content.styled(*return_text(finished.episode_return))
            case _:
                pass
    room = width - GUTTER - earned.cell_length - (2 if earned else 0)
    action = action.truncate(max(1, room - MIN_WORDS), ellipsis=True)
    seen = Content(one_line(words[:MOST]))
    seen = seen.truncate(max(1, room - action.cell_length - 2), ellipsis=True)
    below_each_other = min(WORDS_WIDE, (width - GUTTER - EARNED_WIDE) // 2)
    seen = seen.pad_right(max(0, below_each_other - seen.cell_length))
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


class Paragraph(NamedTuple):
    label: str
    """Who speaks; empty for a notice."""
    text: Content
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
        label = Content.styled(f"{paragraph.label:<{GUTTER}}", paragraph.label_style)
        for wrapped in paragraph.text.wrap(max(1, width - GUTTER)):
            lines.append(label + wrapped)
            label = Content(" " * GUTTER)
    return Content("\n").join(lines)


def paragraphs(fact: Fact, *, by_person: bool = False) -> list[Paragraph]:
    match fact:
        case EpisodeStarted():
            heading = f"{fact.episode:,}"
            if not by_person:
                heading += f" · {fact.mode} · prompt v{fact.prompt_version}"
            return [aside("episode", heading), aside("system", fact.system_prompt or "(none)")]
        case ObservationShown():
            shown = Paragraph("env", Content(literal(fact.text)))
            if not fact.left_out:
                return [shown]
            turns = counted(fact.left_out, "turn")
            return [_notice(f"The prompt leaves out the oldest {turns} of the episode."), shown]
        case ReplySoFar():
            speaker = "you" if by_person or fact.by_person else "model"
            return [Paragraph(speaker, _said(fact), f"bold {MODEL}")]
        case ActionsProbed():
            return [Paragraph("policy", likely_actions(fact.names, fact.shares))]
        case TurnFinished():
            return [_action(fact), *_replaced(fact)]
        case EpisodeFinished():
            result, style = return_text(fact.episode_return)
            length = f" · {counted(fact.length, 'turn')}, {fact.end}"
            text = Content.assemble((result, style), (length, ASIDE))
            return [Paragraph("return", text, style)]
        case Notice():
            return [_notice(fact.text)]
        case _:
            assert_never(fact)


def aside(label: str, text: str) -> Paragraph:
    """Words that are less important than the play."""
    return Paragraph(label, Content.styled(literal(text), ASIDE))


def _notice(text: str) -> Paragraph:
    return Paragraph("", Content.styled(literal(text), NOTICE))


def _said(reply: ReplySoFar) -> Content:
    """A reply, its reason apart from its action; a thought that has ended is one dim word."""
    thought, reason, action = (literal(part) for part in parted(reply.text))
    before = thought + reason
    if thought and reply.done:
        reason, action = (reason.lstrip(), action) if reason.strip() else ("", action.lstrip())
        before = f"[thought] {reason}"
    ending = "" if reply.done else "▌"
    return Content.assemble(
        (before, ASIDE), (action + ending, f"bold {MODEL}" if before else MODEL)
    )


def likely_actions(
    names: Sequence[str], shares: Sequence[float], most: int = MOST_ACTIONS
) -> Content:
    """The most probable actions with bars, on one line."""
    ranked = sorted(zip(shares, names, strict=True), key=lambda pair: -pair[0])
    shown = Content("")
    for probability, name in ranked[:most]:
        words = f"{one_line(name)} {share(probability, 0)} "
        shown += Content.assemble(words, (f"{bar(probability)}  ", MODEL))
    if len(ranked) > most:
        shown += Content.styled(f"{len(ranked) - most} more actions  ", ASIDE)
    rest = 1 - sum(shares)
    if rest >= LEAST_REST:
        shown += Content.styled(f"other replies {share(rest, 0)}", ASIDE)
    return shown


def _action(turn: TurnFinished) -> Paragraph:
    how = HOW_READ[turn.how] + (", refused by the environment" if turn.is_refused else "")
    style = WARNING if turn.names_none else ASIDE
    text = Content.assemble(
        (one_line(turn.action_name), BOLD),
        (f" · {how}", style),
        (f" · reward {number(turn.reward)}", ASIDE),
    )
    return Paragraph("action", text, style)


def _replaced(turn: TurnFinished) -> list[Paragraph]:
    """The agent's own reply where a person acted."""
    if turn.replaced is None:
        return []
    action = one_line(turn.replaced_action) or "no action in it"
    return [aside("instead", f"the model: {turn.replaced} · {action}")]


def return_text(episode_return: float) -> tuple[str, str]:
    """A return with its sign as a glyph, and its style."""
    if episode_return > 0:
        return f"▲ {number(episode_return)}", "bold $text-success"
    if episode_return < 0:
        return f"▼ {number(episode_return)}", "bold $text-error"
    if math.isnan(episode_return):  # nobody has rewarded it
        return "no reward", ASIDE
    return f"■ {number(episode_return)}", f"bold {ASIDE}"
