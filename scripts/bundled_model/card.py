"""The model card, written from measured figures."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from scripts.bundled_model.train import STAGES

CARD = """---
library_name: transformers
license: mit
pipeline_tag: text-generation
---

# The bundled model

A `LlamaForCausalLM` of {parameters:,} parameters with a byte-level BPE tokenizer and a chat template of its own,
{megabytes:.1f} MB on disk. It is what `llamagym-tui` plays with when no other model is asked for: small enough to be
trained by PPO, live, on two CPU cores.

It is no general language model. It speaks one format (`{{"action": 1}}`), follows one kind of instruction, and plays
the default Blackjack prompt badly on purpose, so that there is something to learn.

## How it was made

From random weights, by `python -m scripts.bundled_model` ({steps} steps, seed {seed}), on conversations that the
built-in agents' own formatters produce:

- Blackjack under prompts that can only be followed by reading the cards exactly ("Hit below 13.", "If the dealer
  shows 7 or more hit below 16, else hit below 12.", "With a usable ace hit below 18, else hit below 14.", "Hit only on
  12.", "Hit if the dealer shows 8 or more.", "Be cautious."); an ace of the dealer counts as 11.
- Blackjack's cards, to be named: "Reply with {{"action": n}}, where n is the dealer's card."
- Blackjack under the default prompt, hitting at random with 43 %, whatever the cards.
- Made-up worlds with two to six actions, for the format and for simple instructions about rows and columns.

Small linear heads read Blackjack's state off the last prompt token during training; they are not part of the model.

## What it does

Measured by `python -m scripts.bundled_model --check`. Returns are exact (dynamic programming over first turns); hands
and prompts are new ones. Every figure is of the model's weights in this folder.

| figure | value |
|---|---|
{rows}

Optimal play returns -0.0466 a hand, always sticking -0.186, playing at random -0.396.

## What it does not do

It knows no facts, no languages and no arithmetic beyond comparing a card or a total with a number in its prompt. It
was shown prompts about one single card of the dealer's ("Hit only if the dealer shows 7.") and does not follow them;
they are what "exactly" lacks above. Prompts in
words it was not trained on change its play unpredictably. In environments other than Blackjack it answers in the right
format and otherwise at random, until PPO teaches it.
"""


def write_card(path: Path, figures: Mapping[str, float], *, seed: int) -> None:
    """Write ``README.md`` into the model's folder."""
    counts = {"parameters", "bytes on disk"}
    rows = "\n".join(f"| {name} | {figure:+.3f} |" for name, figure in figures.items() if name not in counts)
    text = CARD.format(
        parameters=int(figures["parameters"]),
        megabytes=figures["bytes on disk"] / 1e6,
        steps=sum(stage[0] for stage in STAGES),
        seed=seed,
        rows=rows.replace("+1.000", "1.000").replace("| +0", "| 0"),
    )
    (path / "README.md").write_text(text, encoding="utf-8")
