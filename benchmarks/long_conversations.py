"""What a turn costs late in a conversation: the 50th over the 5th, in 16 environments at once.

    python -m benchmarks.long_conversations

Plays conversations of 52 turns and times every turn; turn 5 is the mean of turns 3 to 7, and 50 that of 48 to 52. Every
conversation has early and late turns, so a busy machine slows down both. A reply has at most four tokens, so that every
turn has the same number of new tokens. Three settings: the bundled model; a model of 20 M random weights; and the
bundled model with a chat template that rewrites earlier replies, so that every turn computes the whole conversation.
"""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean, median
from typing import Annotated

import typer

from benchmarks.bare_run import BareRun, random_model, settings
from benchmarks.counting_agent import TURNS
from benchmarks.timing import alternate, machine, ratios
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


def main(
    repeats: Annotated[int, typer.Option(help="Conversations of each setting, after one that does not count.")] = 5,
    envs: Annotated[int, typer.Option(help="Environments that are played together.")] = 16,
    threads: Annotated[int, typer.Option(help="Of torch.")] = 1,
    policy: Annotated[str, typer.Option(help="generate or score.")] = "generate",
) -> None:
    print(f"{machine()}, {threads} threads, {envs} environments, {policy}", flush=True)
    own = [f"n_envs={envs}", f"max_turns={2 * TURNS}", "generation.max_new_tokens=4", f"generation.policy={policy}"]
    shape = {"hidden_size": 448, "intermediate_size": 1216, "num_hidden_layers": 8, "num_attention_heads": 7}
    with tempfile.TemporaryDirectory() as folder:
        models = {
            "bundled model": "bundled",
            "20 M random weights": random_model(
                Path(folder) / "larger", **shape, num_key_value_heads=7, vocab_size=1009, pad_token_id=0
            ),
            "bundled model, rewriting template": rewriting_model(Path(folder) / "rewriting"),
        }
        runs = {
            name: BareRun(settings(AGENT, own, model=str(model)), threads=threads) for name, model in models.items()
        }
    found = alternate({name: lambda run=run: conversation_s(run) for name, run in runs.items()}, repeats)
    for name, conversations in found.items():
        early, late = ([near(turns_s, k) for turns_s in conversations] for k in (EARLY, LATE))
        history = "keeps history" if runs[name].policy.chat.keeps_history else "rewrites history"
        print(
            f"{name} ({runs[name].loaded.parameters / 1e6:.1f} M, {history}):"
            f" turn {EARLY} {median(early) * 1e3:.1f} ms, turn {LATE} {median(late) * 1e3:.1f} ms,"
            f" ratio {ratios(late, early):.2f}"
        )


def conversation_s(run: BareRun) -> list[float]:
    """Seconds of each turn of one conversation in every environment."""
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
    return fmean(turns_s[k - 1 - AROUND : k + AROUND])


def rewriting_model(folder: Path) -> Path:
    """The bundled model with a template that rewrites history."""
    shutil.copytree(bundled_model_path(), folder, ignore=shutil.ignore_patterns("*.py", "__pycache__"))
    (folder / "chat_template.jinja").write_text(REWRITING, encoding="utf-8")
    return folder


if __name__ == "__main__":
    typer.run(main)
