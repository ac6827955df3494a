"""Each fact of a conversation as paragraphs of literal text: a label, pieces with a style, or a rule."""

from typing import NamedTuple, assert_never

from llamagym_tui.game.actions import parted
from llamagym_tui.protocol.events import (
    ActionsProbed,
    EpisodeFinished,
    EpisodeStarted,
    ObservationShown,
    TurnFinished,
)
from llamagym_tui.protocol.literal import literal, one_line
from llamagym_tui.returns import counted
from llamagym_tui.screens.widgets.numbers import bar, number, share
from llamagym_tui.state.transcript import Fact, Notice, ReplySoFar

MOST_ACTIONS = 6
"""Actions whose probabilities are shown."""
LEAST_REST = 0.005
"""Probability of other replies from which on it is shown."""
HOW_READ = {
    "json": "read as JSON",
    "pattern": "read by pattern",
    "keyword": "read by keyword",
    "custom": "read by the agent",
    "human": "chosen by you",
    "failed": "fallback, because the reply names no action",
}
"""How a reply was read, for people."""


class Piece(NamedTuple):
    text: str
    style: str


class Paragraph(NamedTuple):
    label: str
    """Role; empty for a rule or a notice."""
    label_style: str
    pieces: tuple[Piece, ...]
    rule: bool = False
    """Whether it is drawn as a line across the width."""


def paragraphs(fact: Fact, *, prompt_is_new: bool, by_person: bool = False) -> list[Paragraph]:
    """The paragraphs of a fact; the system prompt only where it is another one than above."""
    match fact:
        case EpisodeStarted():
            heading = f"episode {fact.episode:,} · {fact.mode} · prompt v{fact.prompt_version}"
            if by_person:
                heading = f"your episode {fact.episode + 1:,}"
            prompt = Piece(literal(fact.system_prompt) or "(none)", "system")
            rule = Paragraph("", "rule", (Piece(heading, "heading"),), rule=True)
            if not prompt_is_new:
                return [rule]
            return [rule, Paragraph("system", "label", (prompt,))]
        case ObservationShown():
            return [
                *_left_out(fact),
                Paragraph("env", "label", (Piece(literal(fact.text), "env"),)),
            ]
        case ReplySoFar():
            speaker = "you" if by_person or fact.by_person else "agent"
            return [Paragraph(speaker, "agent-label", _said(fact))]
        case ActionsProbed():
            return [_probed(fact)]
        case TurnFinished():
            return [_action(fact), *_replaced(fact)]
        case EpisodeFinished():
            return [_end(fact)]
        case Notice():
            return [Paragraph("", "notice", (Piece(literal(fact.text), "notice"),))]
        case _:
            assert_never(fact)


def _said(reply: ReplySoFar) -> tuple[Piece, ...]:
    """A reply, its reason apart from its action; a thought that is over is folded."""
    thought, reason, action = (literal(part) for part in parted(reply.text))
    pieces: list[Piece] = []
    if thought and reply.done:
        pieces.append(Piece("[thought] ", "aside"))
        reason, action = (reason.lstrip(), action) if reason.strip() else ("", action.lstrip())
    elif thought:
        pieces.append(Piece(thought, "aside"))
    if reason:
        pieces.append(Piece(reason, "aside"))
    ending = "" if reply.done else "▌"
    pieces.append(Piece(action + ending, "agent-action" if reason or thought else "agent"))
    return tuple(pieces)


def _left_out(shown: ObservationShown) -> list[Paragraph]:
    """How many turns the reply to an observation cannot take into account."""
    if not shown.left_out:
        return []
    n = shown.left_out
    turns = "oldest turn of the episode is" if n == 1 else f"{n:,} oldest turns of the episode are"
    return [
        Paragraph(
            "", "notice", (Piece(f"the {turns} left out: the model reads no more", "notice"),)
        )
    ]


def _probed(probed: ActionsProbed) -> Paragraph:
    """The most probable actions, as digits and bars; what an update has changed of them."""
    pieces: list[Piece] = []
    order = sorted(range(len(probed.names)), key=lambda at: -probed.shares[at])
    for at in order[:MOST_ACTIONS]:
        probability = probed.shares[at]
        was = f"{share(probed.before[at], 0)} → " if probed.before else ""
        name = one_line(probed.names[at])
        pieces += [
            Piece(f"{name} {was}{share(probability, 0)} ", "env"),
            Piece(bar(probability), "agent"),
        ]
        pieces.append(Piece("  ", "aside"))
    if len(order) > MOST_ACTIONS:
        pieces.append(Piece(f"{len(order) - MOST_ACTIONS} more actions  ", "aside"))
    if (rest := 1 - sum(probed.shares)) >= LEAST_REST:
        pieces.append(Piece(f"other replies {share(rest, 0)}", "aside"))
    return Paragraph("updated" if probed.before else "policy", "label", tuple(pieces))


def _action(turn: TurnFinished) -> Paragraph:
    how = HOW_READ[turn.how] + (", refused by the environment" if turn.is_refused else "")
    return Paragraph(
        "action",
        "warning" if turn.names_none else "label",
        (
            Piece(one_line(turn.action_name), "action"),
            Piece(f" · {how}", "warning" if turn.names_none else "aside"),
            Piece(f" · reward {number(turn.reward)}", "aside"),
        ),
    )


def _replaced(turn: TurnFinished) -> list[Paragraph]:
    """The agent's own reply where a person acted."""
    if turn.replaced is None:
        return []
    action = one_line(turn.replaced_action) or "no action in it"
    pieces = (
        Piece(f"the agent: {literal(turn.replaced)}", "aside"),
        Piece(f" · {action}", "aside"),
    )
    return [Paragraph("instead", "label", pieces)]


def _end(episode: EpisodeFinished) -> Paragraph:
    value = episode.episode_return
    style, glyph = result_style(value)
    length = f" · {counted(episode.length, 'turn')}, {episode.end}"
    return Paragraph(
        "return", style, (Piece(f"{glyph} {number(value)}", style), Piece(length, "aside"))
    )


def result_style(value: float) -> tuple[str, str]:
    """The style of a return and the character that stands before it."""
    if value > 0:
        return "won", "▲"
    return ("lost", "▼") if value < 0 else ("even", "■")
