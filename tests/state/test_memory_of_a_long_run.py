"""However much a trainer tells, what is kept of it stays the same size."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from itertools import count, islice
from pathlib import Path

import pytest

from llamagym_tui.protocol.events import (
    AnyEvent,
    PhaseChanged,
    PromptChanged,
    SettingsChanged,
    UpdateFinished,
    WarmStartProgressed,
    WarningRaised,
)
from llamagym_tui.state import transcript
from llamagym_tui.state.reduce import reduce
from llamagym_tui.state.run import RunState, initial_state
from tests import fakes


def everything() -> Iterator[AnyEvent]:
    """A run without end that tells of all that grows: hands, counts, updates, prompts, settings, warnings."""
    yield from fakes.opening_events()
    for episode in count():
        turn = ("Your total: 12. Usable ace: no. Dealer shows: 10.", '{"action": 1}', "json")
        yield from fakes.hand(episode, [turn], 1.0)
        if episode % 4 == 0:
            yield fakes.counted([1.0, -1.0] * 32, 16 * episode + 64)
        if episode % 16 == 0:
            yield PhaseChanged(phase="updating")
            yield UpdateFinished(
                update=episode // 16 + 1, episodes=16 * episode + 64, stats=fakes.STATS
            )
            yield PhaseChanged(phase="rolling_out")
        if episode % 64 == 0:
            yield PromptChanged(
                prompt_version=episode // 64 + 2, system_prompt=f"{fakes.PROMPT} ({episode:06})"
            )
            yield SettingsChanged(changes={"ppo.lr": 1e-4 + 1e-9 * episode})
            yield WarningRaised(message="The entropy is low.")
            yield WarmStartProgressed(step=episode + 1, steps=10**6, loss=0.5)
            yield fakes.evaluation(0.0, episodes=100, return_stderr=0.1)


def size(state: RunState) -> int:
    """Bytes of all that a state holds."""
    return len(pickle.dumps(state))


@pytest.mark.parametrize(
    ("told", "entries"),
    [(30_000, 2048), pytest.param(100_000, transcript.MAX_ENTRIES, marks=pytest.mark.slow)],
)
def test_the_second_half_of_a_long_run_adds_nothing_to_its_state(
    told: int, entries: int, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(transcript, "MAX_ENTRIES", entries)
    state, events = initial_state(fakes.config(Path("/runs/demo"))), everything()
    for event in islice(events, told // 2):
        state = reduce(state, event)
    assert len(state.transcript.entries) == entries, "all that is bounded is full"
    half = size(state)
    for event in islice(events, told // 2):
        state = reduce(state, event)
    assert size(state) < 1.02 * half
