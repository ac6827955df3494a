"""What a turn costs late in a conversation: the 50th beside the 5th, in 16 environments at once.

    python -m benchmarks.long_conversations

Plays conversations of 52 turns, again and again, and times every turn of them; turn 5 stands for turns 3 to 7, and 50
for 48 to 52. Every conversation has early and late turns, so a busy machine slows down both. A reply has four tokens at
most, so that every turn has the same work in new tokens. Three settings: the bundled model; a Llama of 20 M random
weights; and the bundled model with a chat template that rewrites what was said, so that every turn begins anew. The
ratios come last.
"""

from __future__ import annotations

import json
import statistics
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from benchmarks.bare_run import BareRun, machine, settings
from benchmarks.counting_agent import TURNS
from llamagym_tui.engine.model.loading import bundled_model_path

EARLY, LATE, AROUND = 5, 50, 2
AGENT = str(Path(__file__).with_name("counting_agent.py")) + ":CountingAgent"
REWRITING = (
    "{% for message in messages %}<|{{ message['role'] }}|>"
    "{% if message['role'] == 'assistant' %}{{ message['content'].split('</think>')[-1] }}"
    "{% else %}{{ message['content'] }}{% endif %}<|end|>{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
"""The bundled model's template, but earlier replies lose their thoughts."""
LARGER = {"hidden_size": 448, "intermediate_size": 1216, "num_hidden_layers": 8, "num_attention_heads": 7}
"""With the bundled vocabulary, 20 M parameters."""


def main(
    repeats: Annotated[int, typer.Option(help="Conversations of each setting, after one that does not count.")] = 5,
    envs: Annotated[int, typer.Option(help="Environments that are played together.")] = 16,
    threads: Annotated[int, typer.Option(help="Of torch.")] = 1,
    policy: Annotated[str, typer.Option(help="generate or score.")] = "generate",
) -> None:
    """Play, in turn with each model."""
    print(f"{machine()}, {threads} threads, {envs} environments, {policy}", flush=True)
    own = [f"n_envs={envs}", f"max_turns={2 * TURNS}", "generation.max_new_tokens=4", f"generation.policy={policy}"]
    with tempfile.TemporaryDirectory() as folder:
        models = {
            "bundled model": "bundled",
            "20 M random weights": str(larger_model(Path(folder) / "larger")),
            "bundled model, rewriting template": str(rewriting_model(Path(folder) / "rewriting")),
        }
        runs = {
            name: BareRun(settings(AGENT, [*own, f"model={model}"]), threads=threads) for name, model in models.items()
        }
    seen: dict[str, list[list[float]]] = {name: [] for name in runs}
    for repeat in range(repeats + 1):
        for name, run in runs.items():
            turns_s = conversation_s(run)
            if repeat:
                seen[name].append(turns_s)
    ratios = {}
    for name, conversations in seen.items():
        early, late = (statistics.median(near(turns_s, k) for turns_s in conversations) for k in (EARLY, LATE))
        ratios[name] = statistics.median(near(turns_s, LATE) / near(turns_s, EARLY) for turns_s in conversations)
        print(
            f"{name} ({runs[name].loaded.parameters / 1e6:.1f} M, {history(runs[name])}):"
            f" turn {EARLY} {early * 1e3:.1f} ms, turn {LATE} {late * 1e3:.1f} ms"
        )
    print(f"turn {LATE} over turn {EARLY}: " + ", ".join(f"{name} {ratio:.2f}" for name, ratio in ratios.items()))


def conversation_s(run: BareRun) -> list[float]:
    """Seconds of each turn, from the first to the last, of one conversation in every environment."""
    run.rollout.mode = "inference"
    turns_s = []
    for _ in range(TURNS):
        began = time.perf_counter()
        run.rollout.step()
        turns_s.append(time.perf_counter() - began)
    assert not run.rollout.live
    return turns_s


def near(turns_s: Sequence[float], k: int) -> float:
    """Mean seconds of the k-th turn, counted from 1, and of its neighbours."""
    return statistics.fmean(turns_s[k - 1 - AROUND : k + AROUND])


def history(run: BareRun) -> str:
    """What the template does to earlier replies."""
    return "keeps history" if run.policy.chat.keeps_history else "rewrites history"


def larger_model(folder: Path) -> Path:
    """A Llama with random weights, written with the bundled tokenizer."""
    import torch
    from transformers import AutoTokenizer, LlamaConfig, LlamaForCausalLM

    config = json.loads((bundled_model_path() / "config.json").read_text(encoding="utf-8"))
    for name in ("head_dim", "num_key_value_heads"):
        config.pop(name)
    torch.manual_seed(0)
    LlamaForCausalLM(LlamaConfig(**config | LARGER)).save_pretrained(folder)
    AutoTokenizer.from_pretrained(bundled_model_path()).save_pretrained(folder)
    return folder


def rewriting_model(folder: Path) -> Path:
    """The bundled model with a template that rewrites history."""
    folder.mkdir()
    for path in bundled_model_path().iterdir():
        if path.suffix in (".json", ".safetensors"):
            (folder / path.name).write_bytes(path.read_bytes())
    (folder / "chat_template.jinja").write_text(REWRITING, encoding="utf-8")
    return folder


if __name__ == "__main__":
    typer.run(main)
