"""Events of the policy maps of the bundled agents, with made-up policies."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec.structs import replace

from llamagym_tui.agent import Agent
from llamagym_tui.agents.blackjack import BlackjackAgent
from llamagym_tui.agents.frozen_lake import FrozenLakeAgent
from llamagym_tui.protocol.events import AnyEvent, PolicyMapLaidOut, PolicyMapped, RunStarted
from llamagym_tui.trainer.map_layout import lay_out
from tests import fakes
from tests.fakes import STATS, UpdateFinished


def layout_of(agent: Agent) -> PolicyMapLaidOut:
    """An agent's layout."""
    policy_map = agent.policy_map()
    assert policy_map is not None
    return lay_out(agent, policy_map)


def hitting(threshold: float, *, update: int, prompt_version: int = 1) -> PolicyMapped:
    """A player of Blackjack who hits below a total, the surer the farther from it."""
    totals = [total for lowest in (4, 12) for total in range(21, lowest - 1, -1) for _ in range(10)]
    hits = [min(max(0.5 + 0.11 * (threshold - total), 0.01), 0.99) for total in totals]
    shares = [[round(0.99 * (1 - hit), 4), round(0.99 * hit, 4)] for hit in hits]
    return PolicyMapped(update=update, prompt_version=prompt_version, shares=shares)


def updated(threshold: float, update: int) -> list[AnyEvent]:
    """An update, and its map."""
    return [
        UpdateFinished(update=update, episodes=0, stats=STATS),
        hitting(threshold, update=update),
    ]


def opening_events(updates: int) -> list[AnyEvent]:
    """A trainer that goes on after some updates."""
    events = fakes.opening_events()
    return [
        replace(each, updates=updates, episodes=0) if isinstance(each, RunStarted) else each
        for each in events
    ]


def blackjack(threshold: float = 14.5, update: int = 12) -> Iterator[AnyEvent]:
    """A run of Blackjack with its map."""
    yield from opening_events(update)
    yield layout_of(BlackjackAgent())
    yield hitting(threshold, update=update)


def lake() -> Iterator[AnyEvent]:
    """A run on the lake whose policy goes down wherever it is, and to the right in the last row."""
    yield from opening_events(4)
    yield layout_of(FrozenLakeAgent())
    fields = [0, 1, 2, 3, 4, 6, 8, 9, 10, 13, 14]
    shares = [
        [0.04, 0.2, 0.7, 0.06] if field > 11 else [0.05, 0.81, 0.08, 0.06] for field in fields
    ]
    yield PolicyMapped(update=4, prompt_version=1, shares=shares)
