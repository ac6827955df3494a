"""Train the bundled model."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer

from llamagym_tui.engine.model.sources import bundled_model_path
from scripts.bundled_model.tokenizer import train_tokenizer
from scripts.bundled_model.train import KEPT, STEPS, train


def main(
    out: Annotated[
        Path | None, typer.Option(help="Folder of the model; default: where it ships.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Of weights and lessons.")] = 0,
    steps: Annotated[int, typer.Option(help="Of training.")] = STEPS,
) -> None:
    path = out or bundled_model_path()
    path.mkdir(parents=True, exist_ok=True)
    began_at = time.perf_counter()
    tokenizer = train_tokenizer(seed)
    model = train(tokenizer, seed=seed, folder=path, steps=steps)
    model.save_pretrained(path)
    tokenizer.save_pretrained(path)
    (path / KEPT).unlink()
    print(f"trained in {time.perf_counter() - began_at:.0f} s")


if __name__ == "__main__":
    typer.run(main)
