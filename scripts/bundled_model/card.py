"""The model card, written from measured figures."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from scripts.bundled_model import agents, blackjack, commands, worlds
from scripts.bundled_model.mixture import SHARES
from scripts.bundled_model.train import STEPS

CARD = """---
library_name: transformers
license: mit
pipeline_tag: text-generation
---

# The bundled model

A `LlamaForCausalLM` of {parameters:,} parameters with a byte-level BPE tokenizer and a chat template of its own,
{megabytes:.1f} MB on disk. It is what `llamagym-tui` plays with when no other model is asked for: small enough to be
trained by PPO, live, on two CPU cores.

It is no general language model. It speaks one format (`{{"action": 1}}`), reads integers and short words that have
names, follows short instructions about them, and plays every default prompt badly on purpose, so that there is
something to learn.

## How it was made

From random weights, by `python -m scripts.bundled_model` ({steps} steps, seed {seed}), on conversations that a grammar
produces, told as the built-in agents and the generic one tell them:

- Made-up worlds ({worlds:.0%} of the lessons): one to eight named integers from 0 to 99, words, grids; two to six
  actions with changing names. Instructions in many wordings of each kind: below, from, between, equals,
  nearer, larger, same, sums, words, joined by and, or, not; reports ("Reply with {{"action": n}}, where n is the
  angle."); always and never. Some replies begin with a reason, as a person writes it.
- Blackjack ({blackjack:.0%}): prompts that can only be followed by reading the cards exactly, and the default prompt,
  hitting at random with 43 %, whatever the cards.
- The other worlds that ship ({agents:.0%}): their own prompts and observations, with instructions or random actions.
- Text games ({commands:.0%}): rooms with a list of commands, one of which is to be chosen.

No lesson shows good play. During training small heads read off single words what they mean (the number behind a name,
whether a condition holds, which action a name stands for); they are not part of the model. One wording in eight is kept
from the lessons: the words are known, the sentence is new.

## What it does

Measured by `python -m scripts.bundled_model --check`, on worlds, states and wordings that no lesson had, half of them
with names of actions and numbers that no lesson had. Returns of Blackjack are exact (dynamic programming over first
turns).

| figure | value |
|---|---|
{rows}

Optimal play of Blackjack returns -0.0466 a hand, always sticking -0.186, playing at random -0.396.

## What it does not do

It knows no facts and no language beyond its lessons' grammar. A prompt in words or of a form that it was not trained
on changes its play unpredictably; the figures above show what is read with certainty and what is not. Names that no
lesson had are read less well, the more of them there are; distances, sums and conditions in a row are hardly followed.
Without an instruction it answers in the right format and otherwise at random, until PPO teaches it.
"""


def write_card(path: Path, figures: Mapping[str, float], *, seed: int) -> None:
    """Write ``README.md`` into the model's folder."""
    counts = {"parameters", "bytes on disk"}
    rows = "\n".join(
        f"| {name} | {figure:+.3f} |" for name, figure in figures.items() if name not in counts
    )
    text = CARD.format(
        parameters=int(figures["parameters"]),
        megabytes=figures["bytes on disk"] / 1e6,
        steps=STEPS,
        seed=seed,
        **{
            each.__name__.rsplit(".", 1)[1]: SHARES[each.lesson]
            for each in (worlds, blackjack, agents, commands)
        },
        rows=rows.replace("+1.000", "1.000").replace("| +0", "| 0"),
    )
    (path / "README.md").write_text(text, encoding="utf-8")
