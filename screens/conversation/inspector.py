"""The token inspector (key `i`): a reply token by token, as it was sampled and as it is scored now."""

import math
from typing import NamedTuple

from rich.cells import set_cell_size
from textual import on
from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Container, Vertical, VerticalScroll
from textual.content import Content
from textual.events import Resize

from llamagym_tui.protocol.commands import InspectTurn
from llamagym_tui.protocol.events import TurnInspected
from llamagym_tui.protocol.inspected import Alternative, Decision, InspectedToken, PeerGroup
from llamagym_tui.protocol.literal import literal, one_line
from llamagym_tui.screens.conversation.view import ConversationView
from llamagym_tui.screens.widgets.fields import Words
from llamagym_tui.screens.widgets.frame import HELP_KEY, CommandAsked, Fitted, OfRun
from llamagym_tui.screens.widgets.lines import Lines
from llamagym_tui.screens.widgets.look import ASIDE
from llamagym_tui.screens.widgets.numbers import BAR, bar, number, plain, share
from llamagym_tui.settings import LEARNERS
from llamagym_tui.state.returns import real_minus
from llamagym_tui.state.run import Inspection, RunState
from llamagym_tui.state.transcript import ReplySoFar

TRAINED = "●"
"""Marks a token that the policy is trained on."""
UNTRAINED = "○"
CHOSEN = "▶"
"""Marks the reply that was chosen."""
NAME_WIDTH = 12
"""Cells of a probable token."""
TITLES = f"{'p':>9}{'old':>9}{'new':>9}{'ratio':>8}{'clip':>9}  said"
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
    line: Content
    detail: Content
    """Shown while the cursor is on the row."""


class Table(NamedTuple):
    rows: list[InspectedRow]
    first: int
    """Row of the first token at which actions differ, or of the chosen reply."""


class TokenTable(Lines):
    HELP = MEANING


class InspectorScreen(OfRun, Fitted[None]):
    CSS_PATH = "inspector.tcss"
    BINDING_GROUP_TITLE = "Inspector"
    # With priority, or the table would take the arrows.
    BINDINGS = [
        Binding(
            "left_square_bracket,left",
            "turn(-1)",
            "Previous reply",
            tooltip="The previous reply of the episode.",
            id="inspector.previous",
            key_display="[",
            priority=True,
        ),
        Binding(
            "right_square_bracket,right",
            "turn(1)",
            "Next reply",
            tooltip="The next reply of the episode.",
            id="inspector.next",
            key_display="]",
            priority=True,
        ),
        HELP_KEY,
        Binding(
            "escape,i,q",
            "dismiss",
            "Back",
            tooltip="Back to the run.",
            id="inspector.back",
        ),
    ]

    def __init__(self, state: RunState, asked: InspectTurn) -> None:
        """The inspector of a reply."""
        super().__init__(state)
        self._asked = asked
        self._updates = state.updates
        self._drawn: tuple[object, ...] = ()
        self._rows: list[InspectedRow] = []

    def body(self) -> ComposeResult:
        yield Words(id="inspector-headline")
        with Container(id="inspector-body"):
            with Vertical(id="inspector-tokens"):
                yield Words(TITLES, id="inspector-titles")
                yield TokenTable()
            with VerticalScroll(id="inspector-detail"):
                yield Words(id="inspector-text")

    def on_mount(self) -> None:
        self._ask()

    def on_resize(self, event: Resize) -> None:
        self._draw()

    def show(self, state: RunState) -> None:
        self._state = state
        if state.recorded and (found := state.inspection.found) is not None:
            self._asked = InspectTurn(episode=found.episode, turn=found.turn)
        if state.updates != self._updates:
            self._updates = state.updates
            self._ask()
        self._draw()

    @property
    def _turns(self) -> int:
        """Known replies of the episode."""
        found = self._state.inspection.found
        return found.turns if found is not None and found.episode == self._asked.episode else 0

    def _draw(self) -> None:
        if not self.is_mounted:
            return
        state = self._state
        found = state.inspection.of(self._asked.episode, self._asked.turn)
        title = headline(state.inspection, self._asked, is_live=state.live)
        self.query_one("#inspector-headline", Words).update(title)
        shown = (found, self._asked, self._turns, state.live)
        if self._drawn == shown:
            return
        self._drawn = shown
        self.refresh_bindings()
        self._rows, cursor = ([], 0) if found is None else table(found)
        tokens = self.query_one(TokenTable)
        if tokens.count:
            cursor = max(0, min(tokens.cursor, len(self._rows) - 1))
        tokens.show(len(self._rows), lambda at: self._rows[at].line, cursor)
        self._show_row()

    @on(Lines.Moved)
    def _show_row(self) -> None:
        detail = self._rows[self.query_one(TokenTable).cursor].detail if self._rows else ""
        self.query_one("#inspector-text", Words).update(detail)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        if action != "turn" or not isinstance(by := parameters[0], int):
            return True
        return True if self._state.live and 0 <= self._asked.turn + by < self._turns else None

    def action_turn(self, by: int) -> None:
        self._asked = InspectTurn(episode=self._asked.episode, turn=self._asked.turn + by)
        self._ask()
        self._draw()

    def _ask(self) -> None:
        if self._state.live:
            self.post_message(CommandAsked(self._asked))


def open_inspector(view: ConversationView, state: RunState) -> None:
    """Open the inspector on the marked reply, else on the newest."""
    facts = (each.fact for each in reversed(view.entries))
    newest = next((fact for fact in facts if isinstance(fact, ReplySoFar)), None)
    about: ReplySoFar | TurnInspected | None = view.marked or newest
    if state.recorded or about is None:
        about = state.inspection.found
    if about is not None:
        asked = InspectTurn(episode=about.episode, turn=about.turn)
        view.app.push_screen(InspectorScreen(state, asked))


def visible(text: str) -> str:
    """A token with visible spaces, line ends and control characters."""
    return literal(text).translate(_VISIBLE) or "∅"


def headline(inspection: Inspection, asked: InspectTurn, *, is_live: bool) -> str:
    """A sentence about the inspected reply, or about the answer that is awaited."""
    name = f"Reply {asked.turn + 1:,} of episode {asked.episode:,}"
    found = inspection.of(asked.episode, asked.turn)
    why_not = one_line(inspection.why_not(asked.episode, asked.turn))
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
    if found.clip_range:  # else nothing is known of clipping
        clipped = sum(decision.clipped is True for decision in decisions)
        span += f", {clipped} of {len(decisions)} clipped"
    return f"{how}{span}."


def table(found: TurnInspected) -> Table:
    """The tokens of a reply, or the replies to choose from."""
    if found.choice is None:
        rows = [_token_row(found, at, each) for at, each in enumerate(found.tokens)]
        admissible = [sum(each.admissible for each in token.alternatives) for token in found.tokens]
        first = next((at for at, several in enumerate(admissible) if several > 1), 0)
        return Table(rows, first)
    rows = []
    for reply in found.replies:
        name = visible(reply.text)
        score = f"  score {number(reply.score, 3)} nats, temperature {found.temperature:g}"
        lines = [Content.assemble((name, "bold"), (score, ASIDE))]
        line = f"{UNTRAINED}{_share(reply.probability):>7}{'':35}  {name}"
        if reply.chosen:
            line = f"{CHOSEN}{_numbers(found.choice, found.clip_range)}  {name}"
            lines += _decision_lines(found, found.choice)
        rows.append(InspectedRow(Content(line), Content("\n").join(lines)))
    first = next((at for at, reply in enumerate(found.replies) if reply.chosen), 0)
    return Table(rows, first)


def _token_row(found: TurnInspected, at: int, token: InspectedToken) -> InspectedRow:
    name = visible(token.text)
    lines = [
        Content.assemble(
            (f"token {at + 1} of {len(found.tokens)} ", ASIDE),
            (name, "bold"),
            (f"  id {token.token}" if token.alternatives else "", ASIDE),
        ),
        *_decision_lines(found, token.decision),
    ]
    if token.alternatives:
        heading = f"most probable under policy {found.policy:,} ({TRAINED} leads to an action):"
        lines += [Content.styled(heading, ASIDE)]
        lines += [
            _alternative(each, sampled=each.token == token.token) for each in token.alternatives
        ]
    mark = TRAINED if found.said_by_policy else UNTRAINED
    line = Content(f"{mark}{_numbers(token.decision, found.clip_range)}  {name}")
    return InspectedRow(line, Content("\n").join(lines))


def _decision_lines(found: TurnInspected, decision: Decision) -> list[Content]:
    """The ratio of a decision, and its advantage by the critic or by the group of its learner."""
    lines = []
    if decision.old is not None and decision.ratio is not None:
        low, high = 1 - found.clip_range, 1 + found.clip_range
        shares = f"p {_share(math.exp(decision.old))} → {_share(math.exp(decision.new))}"
        clip = f"{_clip(decision, found.clip_range)} {low:g} … {high:g}"
        lines.append(Content(f"{shares}: ratio {_ratio(decision.ratio)}, {clip}"))
    if decision.ref is not None:
        lines.append(Content(f"under the reference p {_share(math.exp(decision.ref))}"))
    if decision.advantage is None:
        return [*lines, Content(f"no advantage: {WHY_UNTRAINED[found.stage]}")]
    advantage = f"advantage {number(decision.advantage, 2)} of the whole reply"
    if decision.target is None:
        return [*lines, Content(advantage)]
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
        f"{mark} {set_cell_size(visible(other.text), NAME_WIDTH)} {_share(other.probability):>6} ",
        (f"{bar(other.probability):<{BAR}}", "$primary"),
        (" sampled" if sampled else "", "bold"),
    )


def _numbers(decision: Decision, clip_range: float) -> str:
    """The figures of a decision below `TITLES`."""
    old = "" if decision.old is None else _logprob(decision.old)
    ratio = "" if decision.ratio is None else _ratio(decision.ratio)
    new, clip = _logprob(decision.new), _clip(decision, clip_range)
    return f"{_share(math.exp(decision.new)):>7}{old:>9}{new:>9}{ratio:>8}{clip:>9}"


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
