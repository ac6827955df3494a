"""Measuring how the bundled model plays each world that ships before anything is learnt, and after a person's hands."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.timing import evaluated, printed, summary
from llamagym_tui.demos.expert_play import FIRST_SEED

EPISODES = {
    "frozen_lake": 500,
    "cliff_walking": 40,
    "cart_pole": 100,
    "taxi": 40,
    "mountain_car": 10,
    "acrobot": 5,
}
"""Of greedy and of sampled play under the default prompt, of each agent."""
SEED = 7
"""Of evaluations."""
HANDS = 20
"""Demonstrations in which a sentence stands before the action."""
SENTENCES = (
    "because {total} is low", "{total} is high", "I have {total}, the dealer {dealer}.", "so far {total}",
    "the dealer shows {dealer}, so I do it", "risky with {total}!", "as always", "{total} against {dealer}: clear",
)  # fmt: skip
"""As a person types them at the table."""


def report_play(path: Path) -> dict[str, float]:
    found: dict[str, float] = {}
    for agent, episodes in EPISODES.items():
        for way, figures in evaluated(agent, path, episodes, 2, SEED).items():
            found[f"default prompt, {agent}, {way}: mean return"] = figures["mean_return"]
    return found | {
        f"parse failures after {HANDS} hands with a sentence before the action": after_sentences(
            path
        )
    }


def after_sentences(path: Path, seed: int = 1) -> float:
    """Share of sampled replies that name no action, after a warm start on such hands."""
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        expert = place / "expert.jsonl"
        limits = ("--episodes", HANDS, "--seed", FIRST_SEED + 1_000_000 * seed)
        printed("demos", "generate", "blackjack", *limits, "--out", expert)
        hands = [json.loads(line) for line in expert.open()]
        file = place / "hands.jsonl"
        file.write_text("".join(json.dumps(hand) + "\n" for hand in reasoned(hands)))
        start = ("--model", path, "--sft-data", file, "--episodes", 0, "--seed", seed)
        summary("sft", "blackjack", *start, "--run-dir", place / "sft")
        return float(
            evaluated("blackjack", place / "sft", 5000, 2, SEED)["sampled"]["parse_failure_rate"]
        )


def reasoned(hands: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """With a sentence before each action, in turn."""
    number = 0
    for hand in hands:
        for seen, reply in zip(hand["messages"][1::2], hand["messages"][2::2], strict=True):
            total, dealer = (
                seen["content"].split(word)[1].split(".")[0].strip()
                for word in ("total:", "shows:")
            )
            sentence = SENTENCES[number % len(SENTENCES)].format(total=total, dealer=dealer)
            reply["content"], number = f"{sentence} {reply['content']}", number + 1
        yield hand
