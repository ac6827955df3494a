"""Training the bundled model from random weights.

Two processes of one thread each share the mean of their gradients. Muon trains the layers' matrices. Cross-entropy is
on replies and on what `Heads` read: what each word means on the way from an instruction to an action. Without them,
rules of two look-ups and a comparison stay at chance; with them they are learnt in minutes. Lessons begin easy and in
few words, and become harder as fast as they are learnt. The state is kept every few minutes, and training goes on from
it.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, distributed, nn
from torch import multiprocessing as mp
from transformers import LlamaForCausalLM, PreTrainedTokenizerFast

from llamagym_tui.engine.tokens.tokenization import ChatTokenizer
from scripts.bundled_model.batches import Batch, batches
from scripts.bundled_model.beginning import HIDDEN, new_model
from scripts.bundled_model.lessons import MOST_HINTS, MOST_VALUES, Chance, Mark
from scripts.bundled_model.mixture import lesson

PROMPTS_PER_STEP = 12
CONVERSATIONS_PER_PROMPT = 10
PROCESSES = 2
PARTS = 4
"""The parts of a step: rows of similar length make one; each process computes half of them, one after the other."""
KEPT = "training.pt"
LEARNT = 0.06
"""Lessons become harder in each step in which the mean loss of the last ones is below this."""
PACE = 1 / 1200
"""By how much they become harder then, where 1 is all there is; and at the latest they do so over the steps between a
tenth and half of all."""
LEAST_VARIETY = 0.05
STEPS = 8_500
MATRIX_LR = 0.005
"""The learning rate of Muon, for the layers' matrices."""
OTHER_LR = 3e-3
"""The learning rate of AdamW, for all else."""
WARMUP_STEPS = 100
KEPT_EVERY = 250
"""Steps between two states from which training can go on."""

# The weights of the auxiliary heads' losses.
VALUE_WEIGHT = 0.2
HINT_WEIGHT = 1.0
MARK_WEIGHT = 1.0


class Readers(nn.Module):
    """Linear readers of hidden states, one for each place of a tuple of words; dropped after training."""

    def __init__(self, hidden: int, places: int) -> None:
        super().__init__()
        self.read = nn.ModuleList([nn.Linear(hidden, hidden, bias=False) for _ in range(places)])

    def loss(
        self, hidden: Tensor, wanted: list[tuple[int, int, tuple[int, ...]]], head: nn.Module
    ) -> Tensor:
        """() mean over places of the mean cross-entropy of (row, column, tokens); (B, T, D) hidden states."""
        losses = []
        for place, read in enumerate(self.read):
            at = [
                (row, column, tokens[place])
                for row, column, tokens in wanted
                if len(tokens) > place and tokens[place] >= 0
            ]
            if at:
                rows, columns, ids = torch.tensor(at).T
                losses.append(nn.functional.cross_entropy(head(read(hidden[rows, columns])), ids))
        return torch.stack([*losses, torch.zeros(())]).sum() / max(len(losses), 1)


class Heads(nn.Module):
    """What reads the values, hints and marks of a batch off its hidden states."""

    def __init__(self, hidden: int) -> None:
        super().__init__()
        self.values = Readers(hidden, MOST_VALUES)
        self.hints = Readers(hidden, MOST_HINTS)
        self.marks = Readers(hidden, len(Mark._fields) - 1)

    def loss(self, hidden: Tensor, batch: Batch, head: nn.Module) -> Tensor:
        return (
            VALUE_WEIGHT * self.values.loss(hidden, batch.values, head)
            + HINT_WEIGHT * self.hints.loss(hidden, batch.hints, head)
            + MARK_WEIGHT * self.marks.loss(hidden, batch.marks, head)
        )


def train(
    tokenizer: PreTrainedTokenizerFast,
    *,
    seed: int,
    folder: Path,
    steps: int = STEPS,
) -> LlamaForCausalLM:
    """Train from random weights, or go on from what `folder` keeps: one process of one thread for each core."""
    with tempfile.TemporaryDirectory() as meeting:
        arguments = (f"{meeting}/processes", tokenizer, seed, folder / KEPT, steps)
        mp.spawn(_train, arguments, nprocs=PROCESSES)
    model = new_model(tokenizer, seed)
    model.load_state_dict(torch.load(folder / KEPT, weights_only=True)["model"])
    return model.eval()


def _train(
    process: int,
    meeting: str,
    tokenizer: PreTrainedTokenizerFast,
    seed: int,
    kept: Path,
    steps: int,
) -> None:
    """Train on every second lesson, with the mean of all processes' gradients: all keep the same weights."""
    torch.set_num_threads(1)
    distributed.init_process_group("gloo", f"file://{meeting}", rank=process, world_size=PROCESSES)
    model, heads = new_model(tokenizer, seed), Heads(HIDDEN)
    model.set_attn_implementation("shared_prefix")
    chat = ChatTokenizer(tokenizer)
    weights = [*model.parameters(), *heads.parameters()]
    matrices = [weight for weight in model.model.layers.parameters() if weight.ndim == 2]
    muon = torch.optim.Muon(matrices, lr=MATRIX_LR, weight_decay=0.01, momentum=0.95)
    others = [weight for weight in weights if all(weight is not matrix for matrix in matrices)]
    adam = torch.optim.AdamW(others, lr=OTHER_LR, betas=(0.9, 0.98), weight_decay=0.01)
    parts = {"model": model, "heads": heads, "muon": muon, "adam": adam}
    first, pace, loss = _restored(kept, parts)
    began = time.perf_counter()
    for step in range(first, steps):
        rate = _schedule(step, steps)
        muon.param_groups[0]["lr"], adam.param_groups[0]["lr"] = (MATRIX_LR * rate, OTHER_LR * rate)
        pace = min(1.0, max(pace + (loss < LEARNT) * PACE, (step / steps - 0.1) / 0.4))
        rng = Chance(f"{seed} {step} {process}", max(LEAST_VARIETY, pace))
        lessons = [
            lesson(rng, CONVERSATIONS_PER_PROMPT, easy=1 - pace)
            for _ in range(PROMPTS_PER_STEP // PROCESSES)
        ]
        sums = torch.zeros(2)
        for batch in batches(lessons, chat, PARTS // PROCESSES):
            both = losses(model, heads, batch)
            ((both[0] + both[1]) / PARTS).backward()
            sums += torch.stack(both).detach()
        gradients = [
            torch.zeros_like(weight) if weight.grad is None else weight.grad for weight in weights
        ]
        gradient = torch.cat([*(each.flatten() for each in gradients), sums / PARTS])
        distributed.all_reduce(gradient)
        loss = 0.98 * loss + 0.02 * float(gradient[-2])
        gradient[:-2] *= min(1.0, 1 / float(gradient[:-2].norm()))
        for weight, mean in zip(
            weights, gradient[:-2].split([weight.numel() for weight in weights]), strict=True
        ):
            weight.grad = mean.view_as(weight)
        muon.step()
        adam.step()
        adam.zero_grad()
        muon.zero_grad()
        if process == 0 and (step % 50 == 0 or step == steps - 1):
            elapsed_s, (replies, values) = time.perf_counter() - began, gradient[-2:]
            print(
                f"step {step:5d}  reply {replies:.4f}  heads {values:.4f}  pace {pace:.3f}  {elapsed_s:6.0f} s",
                flush=True,
            )
        if process == 0 and ((step + 1) % KEPT_EVERY == 0 or step == steps - 1):
            torch.save(
                {"step": step + 1, "pace": pace, "loss": loss}
                | {name: part.state_dict() for name, part in parts.items()},
                kept,
            )
    distributed.destroy_process_group()


def _restored(kept: Path, parts: Mapping[str, Any]) -> tuple[int, float, float]:
    """The step to go on from, how hard its lessons are, and the mean loss of the last ones."""
    if not kept.exists():
        return 0, 0.0, 1.0
    state = torch.load(kept, weights_only=True)
    for name, part in parts.items():
        part.load_state_dict(state[name])
    return state["step"], state["pace"], state["loss"]


def losses(model: LlamaForCausalLM, heads: Heads, batch: Batch) -> tuple[Tensor, Tensor]:
    """() cross-entropy of the replies, () of what the heads read."""
    with torch.autocast("cpu", torch.bfloat16):
        hidden = model.model(
            input_ids=batch.ids,
            position_ids=batch.positions,
            attention_mask=batch.mask,
            use_cache=False,
            batch=batch,
        ).last_hidden_state
        taught = batch.targets >= 0
        logits = model.lm_head(hidden[taught])
    hidden = hidden.float()
    return (
        nn.functional.cross_entropy(logits.float(), batch.targets[taught]),
        heads.loss(hidden, batch, model.lm_head),
    )


def _schedule(step: int, steps: int) -> float:
    """Up in a line, level, and down in a line over the last half."""
    return min(1.0, (step + 1) / WARMUP_STEPS, 0.02 + 2 * (steps - step) / steps)
