"""Inspected replies, and a scripted trainer that answers requests for them."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec.structs import replace

from llamagym_tui.protocol.commands import AnyCommand, InspectTurn
from llamagym_tui.protocol.events import AnyEvent, TurnInspected
from llamagym_tui.protocol.inspected import (
    Alternative,
    Decision,
    InspectedToken,
    ScoredReply,
)
from tests import fakes

UNTRAINED = {"clipped": None, "value": None, "target": None, "advantage": None}


def decision(old: float, new: float, ratio: float, *, clipped: bool | None = False) -> Decision:
    """A decision of a turn that had an advantage of 0.83."""
    return Decision(
        old=old,
        new=new,
        ratio=ratio,
        clipped=clipped,
        value=0.17,
        value_now=0.21,
        target=1.0,
        advantage=0.83,
    )


def other(token: int, text: str, probability: float, *, admissible: bool = False) -> Alternative:
    return Alternative(token=token, text=text, probability=probability, admissible=admissible)


TOKENS = [
    InspectedToken(
        token=282,
        text='{"action":',
        decision=decision(-0.02, -0.01, 1.01),
        alternatives=[other(282, '{"action":', 0.99, admissible=True), other(83, "I", 0.0097)],
    ),
    InspectedToken(
        token=269,
        text=" 1",
        decision=decision(-0.693, -0.357, 1.4, clipped=True),
        alternatives=[
            other(269, " 1", 0.7, admissible=True),
            other(278, " 0", 0.28, admissible=True),
            other(9, "\n", 0.02),
        ],
    ),
    InspectedToken(
        token=97,
        text="}",
        decision=decision(-0.105, -0.511, 0.6667),
        alternatives=[other(97, "}", 0.6, admissible=True), other(7, "\x1b[2J[b]", 0.4)],
    ),
    InspectedToken(
        token=0,
        text="<|end|>",
        decision=decision(-0.001, -0.0004, 1.0),
        alternatives=[other(0, "<|end|>", 0.9996, admissible=True)],
    ),
]
"""Of a reply whose action is clipped, and whose brace went the other way."""


def told(episode: int, turn: int, **changes: object) -> TurnInspected:
    """A reply that the last update trained on."""
    fields: dict[str, object] = {
        "stage": "trained",
        "turns": 2,
        "sampled_by": 39,
        "policy": 40,
        "clip_range": 0.2,
        "tokens": TOKENS,
        **changes,
    }
    return TurnInspected(episode=episode, turn=turn, **fields)  # type: ignore[arg-type]


def untrained(event: TurnInspected) -> TurnInspected:
    """The same before any update: every ratio is 1."""
    tokens = [
        replace(
            token, decision=replace(token.decision, new=token.decision.old, ratio=1.0, **UNTRAINED)
        )  # type: ignore[arg-type]
        for token in event.tokens
    ]
    return replace(event, stage="waiting", policy=event.sampled_by, tokens=tokens)


def scored(event: TurnInspected) -> TurnInspected:
    """The same, chosen whole by its score."""
    replies = [
        ScoredReply(text='{"action": 1}', score=-0.412, probability=0.7, chosen=True),
        ScoredReply(text='{"action": 0}', score=-1.259, probability=0.3, chosen=False),
    ]
    tokens = [
        replace(token, decision=replace(token.decision, ratio=None, **UNTRAINED))
        for token in event.tokens
    ]  # type: ignore[arg-type]
    return replace(
        event, tokens=tokens, choice=decision(-0.693, -0.357, 1.4, clipped=True), replies=replies
    )


class InspectedClient(fakes.FakeClient):
    """A trainer that answers `InspectTurn`: the first turn was trained on, the others wait for their batch."""

    def __init__(self, events: Iterator[AnyEvent] | None = None, *, confirms: bool = True) -> None:
        super().__init__(events or fakes.demo_run(), confirms=confirms)

    @property
    def inspected(self) -> list[tuple[int, int]]:
        """Episodes and turns that were asked for."""
        return [(each.episode, each.turn) for each in self.sent if isinstance(each, InspectTurn)]

    def _answer(self, command: AnyCommand) -> AnyEvent | None:
        if isinstance(command, InspectTurn):
            answer = told(command.episode, command.turn)
            return untrained(answer) if command.turn else answer
        return super()._answer(command)
