"""Memory and speed of two ranks with whole weights and with shards: ``python -m benchmarks.shards``.

A Llama with random weights plays Blackjack in both ways, one after the other; all weights are trained, with a
reference. Of each process: resident bytes of its own (uss), as a median over what was seen between the second update
and the end, and turns a second.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psutil
import torch
from transformers import AutoTokenizer, LlamaConfig, LlamaForCausalLM

from llamagym_tui.engine.model.sources import bundled_model_path
from llamagym_tui.protocol.events import UpdateFinished
from llamagym_tui.run_store import read_events

GIB = 2**30


def make_model(folder: Path, hidden: int, layers: int) -> int:
    """Write a model; its weights."""
    tokenizer = AutoTokenizer.from_pretrained(bundled_model_path(), local_files_only=True)
    torch.manual_seed(0)
    shape = {"hidden_size": hidden, "intermediate_size": 4 * hidden, "num_hidden_layers": layers}
    heads = {"num_attention_heads": hidden // 64, "num_key_value_heads": hidden // 64}
    model = LlamaForCausalLM(
        LlamaConfig(vocab_size=len(tokenizer), tie_word_embeddings=True, **shape, **heads)
    )
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return sum(weight.numel() for weight in model.parameters())


def measured(model: Path, run: Path, *, shard: bool, episodes: int) -> tuple[list[float], float]:
    """GiB of each rank, and turns a second."""
    command = [
        sys.executable,
        "-m",
        "llamagym_tui",
        "train",
        "blackjack",
        "--model",
        str(model),
        "--ranks",
        "2",
    ]
    command += [
        "--set",
        f"shard={json.dumps(shard)}",
        "--set",
        "full_finetuning=true",
        "--set",
        "ppo.kl_coef=0.05",
    ]
    command += [
        "--set",
        "ppo.critic_warmup_updates=0",
        "--set",
        "ppo.batch_size=16",
        "--set",
        "ppo.mini_batch_size=4",
    ]
    command += [
        "--set",
        "generation.max_new_tokens=4",
        "--envs",
        "16",
        "--threads",
        "1",
        "--episodes",
        str(episodes),
    ]
    command += ["--final-episodes", "0", "--run-dir", str(run), "--json"]
    seen: list[list[int]] = []
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    while process.poll() is None:
        time.sleep(1)
        updates = (
            sum(isinstance(event, UpdateFinished) for event in read_events(run))
            if run.exists()
            else 0
        )
        try:
            first = psutil.Process(process.pid)
            ranks = [
                first,
                *(each for each in first.children() if "spawn_main" in " ".join(each.cmdline())),
            ]
            if updates >= 2 and len(ranks) == 2:
                seen.append([each.memory_full_info().uss for each in ranks])
        except psutil.Error:
            continue
    out, _ = process.communicate()
    figures = json.loads(out)
    turns = figures["env_steps"] / figures["elapsed_s"]
    return [statistics.median(rank) / GIB for rank in zip(*seen, strict=True)], turns


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--hidden", type=int, default=1024)
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--episodes", type=int, default=60)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        weights = make_model(Path(folder) / "model", given.hidden, given.layers)
        print(f"{weights / 1e6:.0f} M weights, {4 * weights / GIB:.2f} GiB")
        for shard in (False, True):
            held, turns = measured(
                Path(folder) / "model",
                Path(folder) / f"run-{shard}",
                shard=shard,
                episodes=given.episodes,
            )
            print(
                f"shard={shard}: {' and '.join(f'{each:.2f}' for each in held)} GiB, {turns:.2f} turns/s",
                flush=True,
            )


if __name__ == "__main__":
    main()
