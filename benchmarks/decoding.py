"""How many turns a second a rollout of free text plays, against plain `generate()` of transformers on the same model.

    python -m benchmarks.decoding
    python -m benchmarks.decoding --size 5M --envs 128

A Llama of random weights plays Blackjack with the bundled tokenizer: its replies are whatever it samples, 32 tokens
long unless the end of a turn comes sooner. `generate()` gets first prompts of that game whole, in batches of 16.
Figures are turns a second of one thread's processor time; the last line of each model has the ratios, formed within
each round.
"""

import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Annotated

import torch
import typer
from transformers import AutoTokenizer, LlamaConfig, LlamaForCausalLM

from benchmarks.bare_run import BareRun, settings
from benchmarks.timing import alternate, machine, ratios, spread
from llamagym_tui.engine.model.sources import bundled_model_path

SHAPES = {"5M": (256, 6, 4, 704), "32M": (512, 10, 8, 1408), "135M": (576, 30, 9, 1536)}
"""Hidden size, layers, heads, intermediate size."""
PROMPTS = 16
"""Prompts that `generate()` gets at once."""
BATCHES = 4
"""How often it gets them in a round."""


def main(
    size: Annotated[
        list[str] | None, typer.Option(help=f"Some of {', '.join(SHAPES)}. (5M and 32M)")
    ] = None,
    envs: Annotated[
        list[int] | None, typer.Option(help="Environments of a rollout. (16 and 128)")
    ] = None,
    rounds: Annotated[int, typer.Option(help="That count, after a first one that does not.")] = 3,
    turns: Annotated[int, typer.Option(help="Of a batch, at least; a round is one batch.")] = 512,
) -> None:
    counts = envs or [16, 128]
    print(machine())
    for name in size or ["5M", "32M"]:
        with tempfile.TemporaryDirectory() as folder:
            model = Path(folder)
            build_model(SHAPES[name], model)
            runs = {count: bare_run(model, count, turns) for count in counts}
            sides: dict[str, Callable[[], float]] = {
                "generate()": partial(generate_rate, next(iter(runs.values())))
            }
            for count, run in runs.items():
                sides[f"{count} environments"] = partial(rollout_rate, run)
            compare(name, alternate(sides, rounds))


def compare(name: str, rates: dict[str, list[float]]) -> None:
    print(
        f"{name}, turns a second: "
        + ", ".join(f"{side} {spread(found):.1f}" for side, found in rates.items())
    )
    base = rates.pop("generate()")
    over = [f"{side} {ratios(found, base):.2f}" for side, found in rates.items()]
    print("  over generate(): " + ", ".join(over), flush=True)


def build_model(
    shape: tuple[int, int, int, int], folder: Path, tokenizer_of: Path | None = None
) -> None:
    """A Llama of random weights with a model's tokenizer. (the bundled one's)"""
    names = ("hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size")
    tokenizer = AutoTokenizer.from_pretrained(
        tokenizer_of or bundled_model_path(), local_files_only=True
    )
    sizes = dict(
        zip(names, shape, strict=True), vocab_size=len(tokenizer), max_position_embeddings=4096
    )
    torch.manual_seed(0)
    LlamaForCausalLM(LlamaConfig(**sizes, tie_word_embeddings=True)).save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def bare_run(model: Path, envs: int, turns: int) -> BareRun:
    changes = ["seed=11", f"n_envs={envs}", f"ppo.batch_size={turns}"]
    return BareRun(settings("blackjack", changes, model=str(model)), threads=1)


def rollout_rate(run: BareRun) -> float:
    """Of one batch."""
    began = time.process_time()
    run.play()
    elapsed_s = time.process_time() - began
    return sum(part.own_turns for part in run.rollout.take_batch()) / elapsed_s


def generate_rate(run: BareRun) -> float:
    chat, model, agent = run.policy.chat, run.policy.model.causal_lm, run.agent
    texts = [
        agent.format_observation((total, 1 + total % 10, 0)) for total in range(4, 4 + PROMPTS)
    ]
    rows = [
        [*prefix, *rest]
        for prefix, rest in (chat.opening(agent.get_system_prompt(), text) for text in texts)
    ]
    width = max(map(len, rows))
    ids = torch.tensor([[0] * (width - len(row)) + row for row in rows])
    seen = torch.tensor([[0] * (width - len(row)) + [1] * len(row) for row in rows])
    ends = {"max_new_tokens": 32, "pad_token_id": 0, "eos_token_id": list(chat.end_ids)}
    began = time.process_time()
    for _ in range(BATCHES):
        model.generate(ids, attention_mask=seen, do_sample=True, top_k=0, **ends)
    return BATCHES * PROMPTS / (time.process_time() - began)


if __name__ == "__main__":
    typer.run(main)
