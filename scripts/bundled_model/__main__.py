"""Train the bundled model, or measure the one that ships."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import torch
import typer

from llamagym_tui.engine.model.sources import bundled_model_path
from scripts.bundled_model.card import write_card
from scripts.bundled_model.check import report, report_seen
from scripts.bundled_model.tokenizer import train_tokenizer
from scripts.bundled_model.train import KEPT, STEPS, train


def main(
    check: Annotated[bool, typer.Option(help="Measure only, and write the card again.")] = False,
    seen: Annotated[
        bool, typer.Option(help="Measure only, and in the lessons' own wordings and names.")
    ] = False,
    out: Annotated[
        Path | None, typer.Option(help="Folder of the model; default: where it ships.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Of weights and lessons.")] = 0,
    threads: Annotated[int, typer.Option(help="Intra-op threads of the check.")] = 2,
    has_blackjack: Annotated[
        bool, typer.Option("--blackjack/--no-blackjack", help="Whether lessons have it.")
    ] = True,
    steps: Annotated[int, typer.Option(help="Of training.")] = STEPS,
) -> None:
    torch.set_num_threads(threads)
    path = out or bundled_model_path()
    if seen:
        print_figures(report_seen(path))
        return
    if not check:
        path.mkdir(parents=True, exist_ok=True)
        began = time.perf_counter()
        tokenizer = train_tokenizer(seed, has_blackjack=has_blackjack)
        model = train(tokenizer, seed=seed, folder=path, steps=steps, has_blackjack=has_blackjack)
        model.save_pretrained(path)
        tokenizer.save_pretrained(path)
        (path / KEPT).unlink()
        print(f"trained in {time.perf_counter() - began:.0f} s")
    figures = report(path)
    write_card(path, figures, seed=seed)
    print_figures(figures)


def print_figures(figures: Mapping[str, float]) -> None:
    for name, figure in figures.items():
        print(f"{name:62s} {figure:.4g}" if figure > 10 else f"{name:62s} {figure:+.4f}")


if __name__ == "__main__":
    typer.run(main)
