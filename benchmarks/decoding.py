"""How many turns a second a rollout of free text plays, against plain `generate()` of transformers on the same model.

    python -m benchmarks.decoding
    python -m benchmarks.decoding --size 5M --other ../old

A Llama of random weights plays Blackjack with the bundled tokenizer: its replies are whatever it samples, 32 tokens
long unless the end of a turn comes sooner. `generate()` gets the same prompts whole, in batches of 16, its usual way.
With `--other`, the rollouts are those of this checkout and of another one, each in a process of its own. Figures are
turns a second of one thread's processor time; the last line of each model has the ratios, formed within each round.
"""

import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median
from typing import Annotated

import typer

from benchmarks.against import HERE, ONE_THREAD, Env, require_code_of
from benchmarks.bare_run import BareRun, settings
from benchmarks.first_frame import environment
from benchmarks.timing import alternate, machine, ratios, spread

SHAPES = {"5M": (256, 6, 4, 704), "32M": (512, 10, 8, 1408), "135M": (576, 30, 9, 1536)}
"""Hidden size, layers, heads, intermediate size."""
TOGETHER = 16
"""Prompts that `generate()` gets at once."""


def main(
    size: Annotated[list[str] | None, typer.Option(help=f"Some of {', '.join(SHAPES)}. (5M and 32M)")] = None,
    envs: Annotated[list[int] | None, typer.Option(help="Environments of a rollout. (16 and 128)")] = None,
    rounds: Annotated[int, typer.Option(help="That count, after a first one that does not.")] = 3,
    turns: Annotated[int, typer.Option(help="Of a batch, at least; a round is one batch.")] = 256,
    other: Annotated[Path | None, typer.Option(help="Folder of another checkout; its rollouts, too.")] = None,
    rate_of: Annotated[Path | None, typer.Option(hidden=True)] = None,
) -> None:
    if rate_of is not None:
        run = bare_run(rate_of, (envs or [TOGETHER])[0], turns)
        rate(run)
        print(median(rate(run) for _ in range(rounds)))
        return
    print(machine())
    for name in size or ["5M", "32M"]:
        with tempfile.TemporaryDirectory() as folder, environment() as env:
            model = Path(folder)
            build_model(SHAPES[name], model)
            compare(name, model, env, envs or [16, 128], rounds, turns, other)


def compare(name: str, model: Path, env: Env, envs: list[int], rounds: int, turns: int, other: Path | None) -> None:
    runs = {f"{count} environments": bare_run(model, count, turns) for count in envs}
    sides: dict[str, Callable[[], float]] = {"generate()": partial(generate_rate, runs[f"{envs[0]} environments"])}
    if other is None:
        sides |= {side: partial(rate, run) for side, run in runs.items()}
    else:
        for folder, side in ((HERE, "here"), (other.resolve(), "there")):
            for count in envs:
                sides[f"{count} {side}"] = partial(rate_by_code_of, folder, env, model, count, turns)
    rates = alternate(sides, rounds, warm_up=1 if other is None else 0)
    print(f"{name}, turns a second: " + ", ".join(f"{side} {spread(found):.1f}" for side, found in rates.items()))
    base = rates.pop("generate()")
    if other is not None:
        for count in envs:
            print(f"  {count} environments, here over there: {ratios(rates[f'{count} here'], rates[f'{count} there']):.2f}")
    print("  over generate(): " + ", ".join(f"{side} {ratios(found, base):.2f}" for side, found in rates.items()), flush=True)


def build_model(shape: tuple[int, int, int, int], folder: Path) -> None:
    """A Llama of random weights with the bundled tokenizer."""
    import torch
    from transformers import AutoTokenizer, LlamaConfig, LlamaForCausalLM

    from llamagym_tui.engine.model.loading import bundled_model_path

    names = ("hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size")
    tokenizer = AutoTokenizer.from_pretrained(bundled_model_path(), local_files_only=True)
    sizes = dict(zip(names, shape, strict=True), vocab_size=len(tokenizer), max_position_embeddings=4096)
    torch.manual_seed(0)
    LlamaForCausalLM(LlamaConfig(**sizes, tie_word_embeddings=True)).save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def bare_run(model: Path, envs: int, turns: int) -> BareRun:
    changes = ["seed=11", f"n_envs={envs}", f"ppo.batch_size={turns}"]
    return BareRun(settings("blackjack", changes, model=str(model)), threads=1)


def rate(run: BareRun) -> float:
    """Of one batch of a rollout."""
    began = time.process_time()
    run.play()
    elapsed_s = time.process_time() - began
    return sum(part.own_turns for part in run.rollout.take_batch()) / elapsed_s


def generate_rate(run: BareRun) -> float:
    """Of `generate()` on first prompts of the game."""
    import torch

    chat, model = run.policy.chat, run.policy.model.causal_lm
    openings = [chat.opening(run.agent.get_system_prompt(), run.agent.format_observation(state)) for state in STATES]
    rows = [[*opening.prefix, *opening.rest] for opening in openings]
    width = max(map(len, rows))
    began = time.process_time()
    ids = torch.tensor([[0] * (width - len(row)) + row for row in rows])
    seen = torch.tensor([[0] * (width - len(row)) + [1] * len(row) for row in rows])
    for _ in range(ROUNDS_OF_GENERATE):
        model.generate(ids, attention_mask=seen, do_sample=True, top_k=0, max_new_tokens=32, pad_token_id=0, eos_token_id=list(chat.end_ids))
    return ROUNDS_OF_GENERATE * len(rows) / (time.process_time() - began)


STATES = [(total, 1 + total % 10, 0) for total in range(4, 4 + TOGETHER)]
ROUNDS_OF_GENERATE = 4


def rate_by_code_of(folder: Path, env: Env, model: Path, envs: int, turns: int) -> float:
    """The same of a rollout by another checkout's code."""
    variables = env | ONE_THREAD | {"PYTHONPATH": str(folder)}
    require_code_of(folder, variables)
    words = ["--rate-of", str(model), "--envs", str(envs), "--turns", str(turns), "--rounds", "1"]
    command = [sys.executable, str(Path(__file__)), *words]
    done = subprocess.run(command, cwd=folder, env=variables, stdout=subprocess.PIPE, text=True, check=True)
    return float(done.stdout.split()[-1])


if __name__ == "__main__":
    typer.run(main)
