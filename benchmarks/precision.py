"""fp32 against bf16 products: seconds of rollout and update in turns, first ratio and KL, on Blackjack.

    python -m benchmarks.precision                                   the bundled model
    python -m benchmarks.precision --width 512 --layers 12 --lora    a Llama of random weights

Time is the process's own CPU time on one thread, so that other work on the machine weighs less. The first round of
each warms up. The ratio of the updates comes last.
"""

from __future__ import annotations

import statistics
import time
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

import torch
import typer

from llamagym_tui.config import GenerationConfig, PPOConfig, Precision, RunConfig
from llamagym_tui.engine.learning.ppo import PPO
from llamagym_tui.trainer.builders import Builders
from llamagym_tui.trainer.rollout.rollout import Rollout


@dataclass
class Side:
    """One precision's run, and what was seen of it."""

    precision: Precision
    rollout: Rollout
    ppo: PPO
    rollout_s: list[float] = field(default_factory=list)
    update_s: list[float] = field(default_factory=list)

    def round(self) -> None:
        """One batch and one update; seconds a turn are kept."""
        began = time.process_time()
        while not self.rollout.batch_ready:
            self.rollout.step()
        batch = self.rollout.take_batch()
        played = time.process_time()
        stats = self.ppo.update(batch)
        updated = time.process_time()
        self.rollout_s.append((played - began) / stats.turns)
        self.update_s.append((updated - played) / stats.turns)
        print(
            f"{self.precision}: {1e3 * self.rollout_s[-1]:.2f} + {1e3 * self.update_s[-1]:.2f} ms a turn, first ratio "
            f"{stats.first_ratio:.5f}, approximate KL {stats.approx_kl:.5f}, mean return {stats.mean_return:+.3f}",
            flush=True,
        )


def random_model(folder: str, width: int, layers: int) -> str:
    """A Llama of random weights with 32,000 tokens, of which the bundled tokenizer knows the first."""
    from transformers import AutoTokenizer, LlamaConfig, LlamaForCausalLM

    from llamagym_tui.engine.model.loading import bundled_model_path

    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=32_000,
        hidden_size=width,
        intermediate_size=8 * width // 3,
        num_hidden_layers=layers,
        num_attention_heads=width // 64,
        tie_word_embeddings=True,
    )
    LlamaForCausalLM(config).save_pretrained(folder)
    AutoTokenizer.from_pretrained(bundled_model_path()).save_pretrained(folder)
    return folder


def side(precision: Precision, model: str, turns: int, lora: bool) -> Side:
    """A run at a precision, its model freshly loaded."""
    is_random = Path(model).is_dir()
    config = RunConfig(
        agent="blackjack",
        model=model,
        run_dir="",
        device="cpu",
        n_envs=min(turns, 128),
        max_turns=4,
        precision=precision,
        full_finetuning=not lora,
        generation=GenerationConfig(max_new_tokens=8 if is_random else 32),
        ppo=PPOConfig(batch_size=turns, mini_batch_size=max(turns // 4, 1), critic_warmup_updates=0),
    )
    builders = Builders(config)
    agent = builders.agent()
    policy = builders.policy(agent, builders.model())
    return Side(precision, builders.rollout(agent, policy, seed=1, emit=lambda event: None), builders.ppo(policy))


def main(
    width: Annotated[int, typer.Option(help="Hidden size of a model of random weights. 0: the bundled model.")] = 0,
    layers: Annotated[int, typer.Option(help="Its layers.")] = 12,
    lora: Annotated[bool, typer.Option("--lora", help="Train an adapter instead of all weights.")] = False,
    turns: Annotated[int, typer.Option(help="Turns of a batch.")] = 512,
    rounds: Annotated[int, typer.Option(help="Batches of each, the first not counted.")] = 5,
) -> None:
    with TemporaryDirectory() as folder:
        model = random_model(folder, width, layers) if width else "bundled"
        sides = [side("fp32", model, turns, lora), side("bf16", model, turns, lora)]
    for _ in range(rounds):
        for one in sides:
            one.round()
    fp32, bf16 = sides
    rollout = statistics.median(fp32.rollout_s[1:]) / statistics.median(bf16.rollout_s[1:])
    update = statistics.median(fp32.update_s[1:]) / statistics.median(bf16.update_s[1:])
    print(f"rollout: bf16 {rollout:.2f} times as fast as fp32")
    print(f"update: bf16 {update:.2f} times as fast as fp32")


if __name__ == "__main__":
    typer.run(main)
