"""An inspected reply as text: a headline, the rows of its table, and the details of each row.

Tokens are literal: spaces, line ends and control characters are shown as visible characters.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

from rich.cells import set_cell_size
from textual.content import Content

from llamagym_tui.config import LEARNERS
from llamagym_tui.protocol.events import TurnInspected
from llamagym_tui.protocol.inspected import (
    Alternative,
    ContextToken,
    Decision,
    InspectedToken,
    PeerGroup,
    ScoredReply,
)
from llamagym_tui.protocol.literal import literal, one_line
from llamagym_tui.returns import real_minus
from llamagym_tui.screens.widgets.look import ASIDE
from llamagym_tui.screens.widgets.numbers import BAR, bar, number, plain, share
from llamagym_tui.state.pending import Inspection
from llamagym_tui.state.run import RunState

TRAINED = "●"
"""The mark of a token that the policy is trained on, seen without colour."""
UNTRAINED = "○"
"""The mark of a token that the policy is not trained on."""
CHOSEN = "▶"
"""The mark of the reply that was chosen."""
NARROW_NAME = 12
"""Cells of the column of tokens, or of replies, where room is short."""
WIDE_NAME = 24
"""Cells of that column where there is room."""
NUMBERS = (("p", 6), ("old", 7), ("new", 7), ("ratio", 6), ("clip", 7))
"""The other columns, and their cells."""
MEANING = (
    "Each row is a token of the reply.\n"
    f"{TRAINED} the policy is trained on it, {UNTRAINED} it is not: prompt, observation, template, replies of others.\n"
    "p: its probability under the present policy.\n"
    "old: its log-probability, in nats, when it was sampled.\n"
    "new: its log-probability under the present policy.\n"
    "ratio: exp(new − old); 1 until an update has changed the policy.\n"
    "clip: clipped where the ratio has left the clip range in the direction of the advantage; PPO's objective is flat "
    "there, so the token has no gradient. outside: the ratio left in the other direction, and the gradient brings it "
    "back. inside: it has a gradient.\n"
    "Below: value (V before the token, as the update used it), or what the learner without a critic compared the turn "
    "with, advantage, and the most probable tokens; "
    f"{TRAINED} marks those that lead to an action's canonical reply. Every other token can be sampled too.\n"
    "· stands for a space, ↵ for a line end."
)
SMALLEST_SHOWN = 1e-6
"""Spreads up to which outcomes are alike."""
LONG_WORK = {
    "updating": "an update",
    "evaluating": "an evaluation",
    "warm_starting": "a warm start",
}
"""Phases during which the trainer does not answer."""
WHY_UNTRAINED = {
    "under_way": "not trained yet, its episode has not ended.",
    "waiting": "not trained yet, its batch is not complete.",
    "inference": "played in inference mode, so nothing is trained on it.",
    "trained": "its update did not train on it.",
}
"""Why a reply has no advantage, by how far its episode has come."""
_VISIBLE = str.maketrans({" ": "·", "\n": "↵", "\t": "⇥"})


class InspectedRow(NamedTuple):
    mark: str
    name: str
    numbers: tuple[str, ...]
    dim: bool
    detail: Content
    """Shown while the cursor is on the row."""


class Table(NamedTuple):
    name: str
    """Title of the column of tokens or replies."""
    rows: list[InspectedRow]
    first: int
    """Row where the cursor starts: the first token at which the actions differ, or the chosen reply."""


def visible(text: str) -> str:
    """A token with spaces, line ends and control characters made visible."""
    return literal(text).translate(_VISIBLE) or "∅"


def awaited_text(state: RunState) -> str:
    if not state.live:
        return "there is no trainer to answer."
    if (doing := LONG_WORK.get(state.phase)) is None:
        return "requested; the trainer answers between two steps."
    progress = f", {one_line(state.detail)}," if state.detail else ""
    return f"requested; {doing} is under way{progress} and the trainer answers after it."


def headline(inspection: Inspection, episode: int, turn: int, *, awaited: str) -> str:
    """A sentence about the inspected reply; `awaited` stands in it while there is no answer."""
    name = f"Reply {turn + 1:,} of episode {episode:,}"
    found = inspection.of(episode, turn)
    if found is None:
        return f"{name}: {one_line(inspection.why_not(episode, turn)) or awaited}"
    policies = f"sampled by policy {found.sampled_by:,}, now policy {found.policy:,}"
    return f"{name}, {policies}: {_verdict(found)}{_with_loss(found)}"


def status(inspection: Inspection, episode: int, turn: int) -> str:
    """Why the figures may be old; empty if they are not."""
    found, why_not = inspection.of(episode, turn), one_line(inspection.why_not(episode, turn))
    return (
        f"These figures are of policy {found.policy:,}. {why_not}"
        if found is not None and why_not
        else ""
    )


def _verdict(found: TurnInspected) -> str:
    if not found.said_by_policy:
        return "not sampled from the policy, so not trained on."
    decisions = [found.choice] if found.choice else [token.decision for token in found.tokens]
    advantages = [decision.advantage for decision in decisions if decision.advantage is not None]
    if not advantages:
        return _how(found) + WHY_UNTRAINED[found.stage]
    low, high = number(min(advantages), 2), number(max(advantages), 2)
    span = f"advantage {low}" if low == high else f"advantages {low} … {high}"
    clipped = sum(decision.clipped is True for decision in decisions)
    if found.choice:
        return f"{_how(found)}{span}, {'clipped' if clipped else 'not clipped'}."
    return f"{span}, {clipped} of {len(decisions)} tokens clipped."


def _with_loss(found: TurnInspected) -> str:
    """How many tokens the loss is on, checked against those that were sampled."""
    wrong = (
        f", but {found.sampled:,} should: this is a fault of ours"
        if found.with_loss != found.sampled
        else ""
    )
    return f" {found.with_loss:,} of {found.conversation:,} tokens carry loss{wrong}."


def _how(found: TurnInspected) -> str:
    replies = "one reply" if len(found.replies) == 1 else f"{len(found.replies):,} replies"
    return f"chosen by its score from {replies}; " if found.choice else ""


def table(found: TurnInspected) -> Table:
    """The rows of a reply: the context before it, its tokens or the replies to choose from, the context after it."""
    if found.choice is not None:
        middle = [_reply_row(found, reply, found.choice) for reply in found.replies]
        first = next((at for at, reply in enumerate(found.replies) if reply.chosen), 0)
    else:
        middle = [_token_row(found, at, token) for at, token in enumerate(found.tokens)]
        several = (
            sum(each.admissible for each in token.alternatives) > 1 for token in found.tokens
        )
        first = next((at for at, differs in enumerate(several) if differs), 0)
    before = [_context_row("before", found.before)] if found.before else []
    after = [_context_row("after", found.after)] if found.after else []
    name = "token" if found.choice is None else "reply"
    return Table(name, [*before, *middle, *after], len(before) + first)


def _context_row(where: str, tokens: Sequence[ContextToken]) -> InspectedRow:
    text = visible("".join(token.text for token in tokens))
    name = f"…{text[1 - WIDE_NAME :]}" if where == "before" else f"{text[: WIDE_NAME - 1]}…"
    whose = (
        ""
        if any(token.trained for token in tokens)
        else ", not trained: environment, prompt, template"
    )
    count = f"{len(tokens)} tokens {where} it{whose}"
    pieces: list[tuple[str, str]] = [
        (f"{count}; │ separates them, bold ones belong to another reply:\n", ASIDE)
    ]
    for token in tokens:
        pieces += [(visible(token.text), "bold" if token.trained else ""), ("│", ASIDE)]
    return InspectedRow(
        UNTRAINED,
        name,
        ("", "", "", "", f"{len(tokens)} more"),
        True,
        Content.assemble(*pieces[:-1]),
    )


def _reply_row(found: TurnInspected, reply: ScoredReply, choice: Decision) -> InspectedRow:
    of_chosen = _numbers(choice, found.clip_range)
    numbers = of_chosen if reply.chosen else (_share(reply.probability), "", "", "", "")
    lines = [
        Content.assemble(
            (visible(reply.text), "bold"),
            (f"  score {number(reply.score, 3)} nats, temperature {found.temperature:g}", ASIDE),
        )
    ]
    if reply.chosen:
        lines += _decision_lines(found, choice)
        lines.append(
            Content.styled(
                f"its tokens, none of them a decision of its own ({TRAINED} trained):", ASIDE
            )
        )
        shown = [
            f"{visible(token.text)} {_share(math.exp(token.decision.new))}"
            for token in found.tokens
        ]
        lines.append(Content(" │ ".join(shown)))
    return InspectedRow(
        CHOSEN if reply.chosen else UNTRAINED,
        visible(reply.text),
        numbers,
        False,
        Content("\n").join(lines),
    )


def _token_row(found: TurnInspected, at: int, token: InspectedToken) -> InspectedRow:
    mark = TRAINED if found.said_by_policy else UNTRAINED
    numbers = _numbers(token.decision, found.clip_range)
    lines = [
        Content.assemble(
            (f"token {at + 1} of {len(found.tokens)} ", ASIDE),
            (visible(token.text), "bold"),
            (f"  id {token.token}", ASIDE),
        ),
        *_decision_lines(found, token.decision),
        Content.styled(
            f"most probable under policy {found.policy:,} ({TRAINED} leads to an action; every token is allowed):",
            ASIDE,
        ),
        *[_alternative(each, sampled=each.token == token.token) for each in token.alternatives],
    ]
    return InspectedRow(
        mark, visible(token.text), numbers, not found.said_by_policy, Content("\n").join(lines)
    )


def _decision_lines(found: TurnInspected, decision: Decision) -> list[Content]:
    lines = []
    if decision.old is not None and decision.ratio is not None:
        low, high, side = (
            1 - found.clip_range,
            1 + found.clip_range,
            _clip(decision, found.clip_range),
        )
        moved = f"p {_share(math.exp(decision.old))} → {_share(math.exp(decision.new))}: ratio {_ratio(decision.ratio)}"
        bound = f"at {high if decision.ratio > 1 else low:g}: no gradient"
        lines.append(
            Content(f"{moved}, {side} {bound if side == 'clipped' else f'{low:g} … {high:g}'}")
        )
    whose = "of the whole reply" if found.credit == "turn" or found.choice else "of this token"
    if (
        decision.advantage is not None
        and decision.value is None
        and decision.target is not None
        and found.learner is not None
    ):
        by = LEARNERS[found.learner].title
        advantage, earned = number(decision.advantage, 2), number(decision.target, 2)
        lines.append(Content(f"advantage {advantage} {whose}, by {by} · return {earned}"))
        lines += [Content(_group(each)) for each in found.groups]
        if any(each.spread > SMALLEST_SHOWN for each in found.groups):
            lines.append(Content.styled(LEARNERS[found.learner].formula, ASIDE))
    elif (
        decision.advantage is not None
        and decision.value is not None
        and decision.target is not None
    ):
        now = f", now {number(decision.value_now, 2)}" if decision.value_now is not None else ""
        advantage, value = number(decision.advantage, 2), number(decision.value, 2)
        lines.append(
            Content(
                f"advantage {advantage} {whose} · value {value}{now} · return {number(decision.target, 2)}"
            )
        )
    elif decision.value_now is not None:
        lines.append(
            Content(
                f"value now {number(decision.value_now, 2)} · no advantage: {WHY_UNTRAINED[found.stage]}"
            )
        )
    elif decision.ratio is not None:
        lines.append(Content(f"no advantage: {WHY_UNTRAINED[found.stage]}"))
    return lines


def _group(group: PeerGroup) -> str:
    """What a turn was compared with, in a line."""
    if group.size == 1:
        return f"alone among {group.peers}, so with nothing to be compared with"
    known = f"compared with {group.size:,} {group.peers}: {number(group.outcome, 2)}, mean "
    if group.spread <= SMALLEST_SHOWN:
        return f"{known}{number(group.mean, 2)}, all alike: nothing is learnt of it"
    return f"{known}{number(group.mean, 2)}, spread {plain(group.spread)}"


def _alternative(other: Alternative, *, sampled: bool) -> Content:
    mark = TRAINED if other.admissible else " "
    return Content.assemble(
        f"{mark} {set_cell_size(visible(other.text), NARROW_NAME)} {_share(other.probability):>6} ",
        (f"{bar(other.probability):<{BAR}}", "$primary"),
        (" sampled" if sampled else "", "bold"),
    )


def _numbers(decision: Decision, clip_range: float) -> tuple[str, ...]:
    return (
        _share(math.exp(decision.new)),
        "" if decision.old is None else _logprob(decision.old),
        _logprob(decision.new),
        "" if decision.ratio is None else _ratio(decision.ratio),
        _clip(decision, clip_range),
    )


def _clip(decision: Decision, clip_range: float) -> str:
    """Where the ratio is; nothing is clipped without an advantage."""
    if decision.ratio is None:
        return ""
    if decision.clipped:
        return "clipped"
    return "outside" if abs(decision.ratio - 1) > clip_range else "inside"


def _share(probability: float) -> str:
    return "<0.1%" if probability < 0.0005 else share(probability)


def _logprob(logprob: float) -> str:
    """With a real minus sign; 0 has none, however small it was before it was rounded."""
    return real_minus(f"{logprob:z.{3 if logprob > -99 else 0}f}")


def _ratio(ratio: float) -> str:
    return f"{ratio:.3f}" if ratio < 99 else f"{ratio:.0e}"
