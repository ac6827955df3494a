"""What `--threads auto` costs and gains: the bundled model, and one of random weights that counts as large.

    python -m benchmarks.threads --repeats 5

Prints, for each calibration, the seconds that it took, the threads that it chose, and how long the measured work takes
on them and on one. The last line is the worst ratio of chosen to one thread: above 1, it would have been a bad choice.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Annotated

import torch
import typer
from transformers import LlamaConfig, LlamaForCausalLM

from llamagym_tui.config import GenerationConfig
from llamagym_tui.engine.model.loading import load_model_and_tokenizer
from llamagym_tui.engine.model.value_head import AutoModelForCausalLMWithValueHead
from llamagym_tui.engine.policy.policy import Policy
from llamagym_tui.engine.threads import calibrate_threads_for, layer_like_step, update_like_step


def policies() -> dict[str, Policy]:
    """The bundled model, and 134 M parameters at random."""
    loaded = load_model_and_tokenizer("bundled", "cpu")
    config = LlamaConfig(hidden_size=1024, intermediate_size=2816, num_hidden_layers=10, vocab_size=4096)
    large = AutoModelForCausalLMWithValueHead(LlamaForCausalLM(config).eval())
    return {
        name: Policy(model, loaded.tokenizer, GenerationConfig())
        for name, model in (("bundled", loaded.model), ("large", large))
    }


def fastest_s(step: Callable[[], object], threads: int, repeats: int = 3) -> float:
    """Seconds of a step on some threads, the best of a few."""
    torch.set_num_threads(threads)
    times = []
    for _ in range(repeats):
        began = time.perf_counter()
        step()
        times.append(time.perf_counter() - began)
    return min(times)


def main(repeats: Annotated[int, typer.Option(help="Calibrations of each model.")] = 5) -> None:
    """Calibrate a few times for each model, and measure what was chosen."""
    torch.set_num_threads(1)
    worst = 0.0
    for name, policy in policies().items():
        step = update_like_step(policy) if name == "bundled" else layer_like_step(policy)
        for _ in range(repeats):
            began = time.perf_counter()
            chosen = calibrate_threads_for(policy)
            took_s = time.perf_counter() - began
            one_s, here_s = fastest_s(step, 1), fastest_s(step, chosen)
            worst = max(worst, here_s / one_s if chosen > 1 else 1.0)
            print(
                f"{name}: {took_s:.2f} s to choose {chosen}; {here_s * 1000:.0f} ms on that, "
                f"{one_s * 1000:.0f} ms on one; load {os.getloadavg()[0]:.1f}"
            )
    print(f"{worst:.2f}")


if __name__ == "__main__":
    typer.run(main)
