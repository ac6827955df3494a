"""Exact returns of the policies of a run of Blackjack, from the policy maps in its folder; no hand is played for them.

    python -m benchmarks.exact_runs RUN... --every 10

An evaluation on 2,000 hands is off by 0.04 either way, which is most of what is to be learnt from -0.10 on. A policy
map has the probabilities of both actions in all hands, so the return follows from it by dynamic programming. Free text
that names no action is left out: the two actions' shares are taken as the whole.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, NamedTuple

import typer

from benchmarks.exact_blackjack import STATES, expected_return
from llamagym_tui.agents.blackjack import BlackjackAgent
from llamagym_tui.protocol.events import PolicyMapLaidOut, PolicyMapped
from llamagym_tui.runs.run_store import read_events


class Exact(NamedTuple):
    """The exact mean return a hand of a policy."""

    update: int
    at_s: float
    """Seconds since the run's process began."""
    sampled: float
    greedy: float


def exact_returns(run: Path) -> Iterator[Exact]:
    """Of each policy that was mapped, in order."""
    agent = BlackjackAgent()
    words = {agent.format_observation(state): state for state in STATES}
    hands = []
    for event in read_events(run):
        if isinstance(event, PolicyMapLaidOut):
            hands = [
                words[cell.words]
                for panel in event.panels
                for row in panel.cells
                for cell in row
                if cell.is_state
            ]
        # The first map comes in parts, of which only the last one has all hands.
        if isinstance(event, PolicyMapped) and len(event.shares) == len(hands):
            shares = zip(hands, event.shares, strict=True)
            hits = {hand: hit / (stick + hit) for hand, (stick, hit) in shares}
            best = {hand: float(share > 0.5) for hand, share in hits.items()}
            sampled = expected_return(hits.__getitem__)
            greedy = expected_return(best.__getitem__)
            yield Exact(event.update, event.at_s, sampled, greedy)


def main(
    runs: Annotated[list[Path], typer.Argument(help="Folders of runs.")],
    every: Annotated[
        int, typer.Option(min=1, help="Of how many maps one line is printed; the last one always.")
    ] = 1,
) -> None:
    for run in runs:
        print(run)
        found = list(exact_returns(run))
        for number, each in enumerate(found, 1):
            if number % every == 0 or number == len(found):
                print(
                    f"update {each.update:4} after {each.at_s:5.0f} s: "
                    f"sampled {each.sampled:+.4f}, greedy {each.greedy:+.4f}"
                )


if __name__ == "__main__":
    typer.run(main)
