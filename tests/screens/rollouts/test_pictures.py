"""How `view` looks: tokens by their log-probability, and a group side by side."""

from __future__ import annotations

import json
import math
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from textual.pilot import Pilot

from llamagym_tui.app.app import ScreenApp
from llamagym_tui.rollouts.index import Rollouts
from llamagym_tui.screens.rollouts.screen import RolloutsScreen
from tests.screens.pictures import WIDE, at_sizes
from tests.screens.steps import sees

SAID = (
    "<think>Three and four: I count on from four. Five, six, seven.</think>It is seven.",
    "<think>Three and four: I count on from three. Four, five, six.</think>It is six.",
    "<think>Three and four: that is twelve, or not? I add them: seven.</think>It is seven.",
    "<think>Three and four: I do not know.</think>I am sorry, I do not know.",
)
REWARDS = (1.0, 0.0, 1.0, -1.0)


@pytest.fixture(autouse=True)
def rollouts() -> None:
    """Four steps in which a model learns to add; a token a word."""
    lines = []
    for step in range(4):
        for group, asked in enumerate(("What is 3 + 4?", "What is 4 + 3?")):
            for at, said in enumerate(SAID):
                words = said.replace(" ", "\n ").split("\n")
                odds = [0.98 if len(word) < 5 else 1 / (2 + len(word) + at) for word in words]
                lines.append(
                    json.dumps(
                        {
                            "messages": [
                                {"role": "system", "content": "You are a careful calculator."},
                                {"role": "user", "content": asked},
                                {"role": "assistant", "content": said},
                            ],
                            "step": step,
                            "group": str(group),
                            "reward": REWARDS[at] * (step + 1) / 4,
                            "tokens": words,
                            "logprobs": [math.log(each) for each in odds],
                        }
                    )
                )
    Path("adding.jsonl").write_text("\n".join(lines) + "\n", "utf-8")


async def opened(pilot: Pilot[None]) -> None:
    await sees(pilot, "step 3")
    pilot.app.clear_notifications()


@at_sizes(WIDE)
def test_tokens_by_log_probability(snap_compare: Any, size: tuple[int, int]):
    async def coloured(pilot: Pilot[None]) -> None:
        await opened(pilot)
        await pilot.press("t", *["right"] * 9)
        await sees(pilot, "probability 0.")

    app = ScreenApp(partial(RolloutsScreen, Rollouts("adding.jsonl")))
    assert snap_compare(app, terminal_size=size, run_before=coloured)


@at_sizes(WIDE)
def test_a_group_side_by_side(snap_compare: Any, size: tuple[int, int]):
    async def beside(pilot: Pilot[None]) -> None:
        await opened(pilot)
        await pilot.press("s")
        await sees(pilot, "characters alike")

    app = ScreenApp(partial(RolloutsScreen, Rollouts("adding.jsonl")))
    assert snap_compare(app, terminal_size=size, run_before=beside)
