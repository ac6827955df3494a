"""An inspected reply as text: a headline, the rows of its table, and the details of each row."""

import math
from typing import NamedTuple

from rich.cells import set_cell_size
from textual.content import Content

from llamagym_tui.protocol.events import TurnInspected
from llamagym_tui.protocol.inspected import Alternative, Decision, InspectedToken, PeerGroup
from llamagym_tui.protocol.literal import literal, one_line
from llamagym_tui.screens.widgets.look import ASIDE
from llamagym_tui.screens.widgets.numbers import BAR, bar, number, plain, share
from llamagym_tui.settings import LEARNERS
from llamagym_tui.state.returns import real_minus
from llamagym_tui.state.run import Inspection

TRAINED = "●"
"""Marks a token that the policy is trained on."""
UNTRAINED = "○"
CHOSEN = "▶"
"""Marks the reply that was chosen."""
NARROW_NAME = 12
"""Width of the column of tokens or replies where there is little room."""
WIDE_NAME = 24
NUMBERS = (("p", 6), ("old", 7), ("new", 7), ("ratio", 6), ("clip", 7))
"""Titles and widths of the other columns."""
MEANING = (
    "Each row is a token of the reply.\n"
    f"{TRAINED} the policy is trained on it, {UNTRAINED} it is not.\n"
    "p: its probability now.\n"
    "old: its log-probability in nats when it was sampled.\n"
    "new: its log-probability now.\n"
    "ratio: exp(new − old); 1 until an update changes the policy.\n"
    "clip: clipped where the ratio has left the clip range in the direction of the advantage, so that the token has no "
    "gradient; outside where it left in the other direction.\n"
    f"Below: value, advantage, and the most probable tokens; {TRAINED} marks those that lead to an action.\n"
    "· stands for a space, ↵ for a line end."
)
SMALLEST_SHOWN = 1e-6
"""Outcomes with a smaller spread are alike."""
WHY_UNTRAINED = {
    "under_way": "not trained yet, its episode has not ended.",
    "waiting": "not trained yet, its batch is not complete.",
    "inference": "played in inference mode, so nothing is trained on it.",
    "trained": "its update did not train on it.",
}
"""Reasons for a reply without an advantage, by the stage of its episode."""
_VISIBLE = str.maketrans({" ": "·", "\n": "↵", "\t": "⇥"})


class InspectedRow(NamedTuple):
    mark: str
    name: str
    numbers: tuple[str, ...]
    detail: Content
    """Shown while the cursor is on the row."""


class Table(NamedTuple):
    name: str
    """Title of the column of tokens or replies."""
    rows: list[InspectedRow]
    first: int
    """Row of the first token at which actions differ, or of the chosen reply."""


def visible(text: str) -> str:
    """A token with visible spaces, line ends and control characters."""
    return literal(text).translate(_VISIBLE) or "∅"


def headline(inspection: Inspection, episode: int, turn: int, *, is_live: bool) -> str:
    """A sentence about the inspected reply, or about the answer that is awaited."""
    name = f"Reply {turn + 1:,} of episode {episode:,}"
    found = inspection.of(episode, turn)
    why_not = one_line(inspection.why_not(episode, turn))
    if found is None:
        awaited = "there is no trainer to answer."
        if is_live:
            awaited = "requested; the trainer answers between two steps."
        return f"{name}: {why_not or awaited}"
    policies = f"sampled by policy {found.sampled_by:,}, now policy {found.policy:,}"
    old = f"\nThese figures are of policy {found.policy:,}. {why_not}" if why_not else ""
    return f"{name}, {policies}: {_verdict(found)}{old}"


def _verdict(found: TurnInspected) -> str:
    if not found.said_by_policy:
        return "not sampled from the policy, so not trained on."
    how, decisions = "", [token.decision for token in found.tokens]
    if found.choice is not None:
        decisions = [found.choice]
        how = f"chosen by its score from {len(found.replies):,} replies; "
    advantages = [decision.advantage for decision in decisions if decision.advantage is not None]
    if not advantages:
        return how + WHY_UNTRAINED[found.stage]
    low, high = number(min(advantages), 2), number(max(advantages), 2)
    span = f"advantage {low}" if low == high else f"advantages {low} … {high}"
    clipped = sum(decision.clipped is True for decision in decisions)
    return f"{how}{span}, {clipped} of {len(decisions)} clipped."


def table(found: TurnInspected) -> Table:
    """The tokens of a reply, or the replies to choose from."""
    if found.choice is None:
        rows = [_token_row(found, at, each) for at, each in enumerate(found.tokens)]
        admissible = [sum(each.admissible for each in token.alternatives) for token in found.tokens]
        first = next((at for at, several in enumerate(admissible) if several > 1), 0)
        return Table("token", rows, first)
    rows = []
    for reply in found.replies:
        score = f"  score {number(reply.score, 3)} nats, temperature {found.temperature:g}"
        lines = [Content.assemble((visible(reply.text), "bold"), (score, ASIDE))]
        mark = UNTRAINED
        numbers: tuple[str, ...] = (_share(reply.probability), "", "", "", "")
        if reply.chosen:
            mark, numbers = CHOSEN, _numbers(found.choice, found.clip_range)
            lines += _decision_lines(found, found.choice)
        rows.append(InspectedRow(mark, visible(reply.text), numbers, Content("\n").join(lines)))
    first = next((at for at, reply in enumerate(found.replies) if reply.chosen), 0)
    return Table("reply", rows, first)


def _token_row(found: TurnInspected, at: int, token: InspectedToken) -> InspectedRow:
    lines = [
        Content.assemble(
            (f"token {at + 1} of {len(found.tokens)} ", ASIDE),
            (visible(token.text), "bold"),
            (f"  id {token.token}", ASIDE),
        ),
        *_decision_lines(found, token.decision),
        Content.styled(
            f"most probable under policy {found.policy:,} ({TRAINED} leads to an action):", ASIDE
        ),
        *[_alternative(each, sampled=each.token == token.token) for each in token.alternatives],
    ]
    mark = TRAINED if found.said_by_policy else UNTRAINED
    numbers = _numbers(token.decision, found.clip_range)
    return InspectedRow(mark, visible(token.text), numbers, Content("\n").join(lines))


def _decision_lines(found: TurnInspected, decision: Decision) -> list[Content]:
    """The ratio of a decision, and its advantage by the critic or by the group of its learner."""
    lines = []
    if decision.old is not None and decision.ratio is not None:
        low, high = 1 - found.clip_range, 1 + found.clip_range
        shares = f"p {_share(math.exp(decision.old))} → {_share(math.exp(decision.new))}"
        clip = f"{_clip(decision, found.clip_range)} {low:g} … {high:g}"
        lines.append(Content(f"{shares}: ratio {_ratio(decision.ratio)}, {clip}"))
    if decision.advantage is None or decision.target is None:
        return [*lines, Content(f"no advantage: {WHY_UNTRAINED[found.stage]}")]
    advantage = f"advantage {number(decision.advantage, 2)} of the whole reply"
    earned = f" · return {number(decision.target, 2)}"
    if decision.value is not None:
        value = f" · value {number(decision.value, 2)}"
        if decision.value_now is not None:
            value += f", now {number(decision.value_now, 2)}"
        return [*lines, Content(f"{advantage}{value}{earned}")]
    if found.learner is not None:
        learner = LEARNERS[found.learner]
        lines.append(Content(f"{advantage}, by {learner.title}{earned}"))
        lines += [Content(_group(each)) for each in found.groups]
        lines.append(Content.styled(learner.formula, ASIDE))
    return lines


def _group(group: PeerGroup) -> str:
    """The peers that a turn was compared with."""
    if group.size == 1:
        return f"alone among {group.peers}, so it is compared with nothing"
    known = f"compared with {group.size:,} {group.peers}: {number(group.outcome, 2)}, mean "
    if group.spread <= SMALLEST_SHOWN:
        return f"{known}{number(group.mean, 2)}, all alike: nothing is learnt from it"
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
    """The place of the ratio in the clip range."""
    if decision.ratio is None:
        return ""
    if decision.clipped:
        return "clipped"
    return "outside" if abs(decision.ratio - 1) > clip_range else "inside"


def _share(probability: float) -> str:
    return "<0.1%" if probability < 0.0005 else share(probability)


def _logprob(logprob: float) -> str:
    return real_minus(f"{logprob:z.{3 if logprob > -99 else 0}f}")


def _ratio(ratio: float) -> str:
    return f"{ratio:.3f}" if ratio < 99 else f"{ratio:.0e}"
