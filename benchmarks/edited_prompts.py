"""What a policy of Blackjack that trained the head alone plays under prompts that were edited mid-run.

    python -m benchmarks.edited_prompts RUN

What was learnt is carried to each prompt, as an edit in the running program does it. Returns are exact.
"""

from __future__ import annotations

from pathlib import Path
from statistics import fmean
from typing import Annotated

import torch
import typer

from benchmarks.exact_blackjack import STATES, State
from benchmarks.hit_probabilities import carry, load_policy
from benchmarks.reading import LOOKED_AT, OWN, hits, without_adapter, worth
from llamagym_tui.config import GenerationConfig
from llamagym_tui.engine.policy.policy import Policy

EDITS = (" Good luck.", " Play as well as you can.")
"""Behind the prompt of the run; they ask for nothing."""
RULES = {
    "Stick at 17 or more.": 17,
    "Always stick, never hit.": 0,
    "Hit while your total is less than 15.": 15,
    "Stand on 13 and above.": 13,
    "Always hit.": 22,
}
"""In place of the prompt of the run: the total from which on each says to stick."""


def main(run: Annotated[Path, typer.Argument(help="Folder of a run of Blackjack.")]) -> None:
    torch.set_num_threads(1)
    policy = load_policy(run / "model")
    policy.generation = GenerationConfig(policy="score")
    print(f"under its own prompt: {worth(hits(policy, STATES))}", flush=True)
    assert policy.narrow is not None, "the head alone was trained"
    adapter = policy.narrow.down, policy.narrow.up
    learnt = [tensor.detach().clone() for tensor in adapter]
    for prompt in [*(OWN + edit for edit in EDITS), *RULES]:
        with torch.no_grad():
            for tensor, value in zip(adapter, learnt, strict=True):
                tensor.copy_(value)
        carry(policy, prompt)
        after = said(policy, prompt)
        without_adapter(policy)
        print(
            f"{prompt.removeprefix(OWN)!r}: {after} (untrained: {said(policy, prompt)})", flush=True
        )


def said(policy: Policy, prompt: str) -> str:
    """Returns under an edit, or how probable what a rule says is."""
    if prompt not in RULES:
        return worth(hits(policy, STATES, prompt=prompt))
    found = hits(policy, LOOKED_AT, prompt=prompt)

    def follows(state: State) -> float:
        return found[state] if state[0] < RULES[prompt] else 1 - found[state]

    return f"followed at {fmean(map(follows, LOOKED_AT)):.2f}"


if __name__ == "__main__":
    typer.run(main)
