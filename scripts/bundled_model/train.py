"""Training the bundled model from random weights.

Several conversations under one system prompt are packed into one row: each sees the prompt and itself, never its
neighbours, and positions go on from the prompt. Cross-entropy is on replies only; small heads, dropped afterwards,
read Blackjack's state off the last prompt token, so that the state is there when a value or a policy needs it.
"""

from __future__ import annotations

import math
import random
import time
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from llamagym_tui.engine.tokens.tokenization import ChatTokenizer
from scripts.bundled_model import blackjack, worlds
from scripts.bundled_model.lessons import Lesson

HIDDEN, LAYERS, HEADS, INNER = 96, 4, 4, 256
PROMPTS_PER_STEP, CONVERSATIONS_PER_PROMPT = 12, 5
WORLD_SHARE = 0.15
STAGES = ((3600, 3e-3, 1), (1500, 2e-3, 1), (700, 1.5e-3, 4))
"""Steps, peak learning rate, and weight of the prompts about the dealer's card; each starts with a new optimizer and
schedule. Those prompts are learnt last, late in the first stage; the others make them exact."""
WARMUP_STEPS = 150
STATE_WEIGHT = 0.2
"""Weight of the auxiliary state heads' loss."""


@dataclass
class Batch:
    """Packed lessons: B rows of T tokens."""

    ids: Tensor
    """(B, T)."""
    positions: Tensor
    """(B, T)."""
    mask: Tensor
    """(B, 1, T, T) additive."""
    targets: Tensor
    """(B, T) next token where it is a reply's, else -100."""
    states: list[tuple[int, int, tuple[int, int, int]]]
    """(row, column, state) of each last prompt token in Blackjack."""


def new_model(tokenizer: PreTrainedTokenizerFast, seed: int) -> LlamaForCausalLM:
    torch.manual_seed(seed)
    return LlamaForCausalLM(
        LlamaConfig(
            vocab_size=len(tokenizer),
            hidden_size=HIDDEN,
            num_hidden_layers=LAYERS,
            num_attention_heads=HEADS,
            num_key_value_heads=HEADS,
            intermediate_size=INNER,
            max_position_embeddings=4096,
            tie_word_embeddings=True,
            initializer_range=0.05,
            bos_token_id=None,
            eos_token_id=tokenizer.eos_token_id,
            pad_token_id=tokenizer.pad_token_id,
        )
    )


def pack(lessons: list[Lesson], chat: ChatTokenizer) -> Batch:
    rows = [_pack_one(lesson, chat) for lesson in lessons]
    width = max(len(row[0]) for row in rows)
    count = len(rows)
    ids = torch.zeros(count, width, dtype=torch.long)
    positions = torch.zeros(count, width, dtype=torch.long)
    groups = torch.full((count, width), -1)
    targets = torch.full((count, width), -100)
    states = []
    for index, (row_ids, row_positions, row_groups, row_targets, row_states) in enumerate(rows):
        length = len(row_ids)
        ids[index, :length] = torch.tensor(row_ids)
        positions[index, :length] = torch.tensor(row_positions)
        groups[index, :length] = torch.tensor(row_groups)
        targets[index, :length] = torch.tensor(row_targets)
        states += [(index, column, state) for column, state in row_states]
    causal = torch.ones(width, width).tril().bool()
    same = (groups[:, :, None] == groups[:, None, :]) | (groups[:, None, :] == 0)
    mask = torch.zeros(count, width, width).masked_fill_(~(causal & same), torch.finfo(torch.float32).min)
    return Batch(ids, positions, mask[:, None], targets, states)


def _pack_one(lesson: Lesson, chat: ChatTokenizer) -> tuple[list, list, list, list, list]:
    prefix = chat.opening(lesson.system_prompt, lesson.conversations[0][0].observation).prefix
    ids, positions, groups, targets = list(prefix), list(range(len(prefix))), [0] * len(prefix), [-100] * len(prefix)
    states = []
    for group, exchanges in enumerate(lesson.conversations, start=1):
        start = len(ids)
        for turn, exchange in enumerate(exchanges):
            if turn == 0:
                ids += chat.opening(lesson.system_prompt, exchange.observation).rest
            else:
                ids += chat.continuation(exchange.observation, ended=True)
            if exchange.state is not None:
                states.append((len(ids) - 1, exchange.state))
            reply = chat.reply_ids(exchange.reply)
            targets += [-100] * (len(ids) - len(targets) - 1) + list(reply)
            ids += reply
        targets.append(-100)
        length = len(ids) - start
        positions += range(len(prefix), len(prefix) + length)
        groups += [group] * length
    return ids, positions, groups, targets, states


class StateHeads(nn.Module):
    """Linear readers of Blackjack's state; dropped after training."""

    def __init__(self, hidden: int) -> None:
        super().__init__()
        self.read = nn.ModuleList([nn.Linear(hidden, classes) for classes in (22, 11, 2)])

    def loss(self, hidden: Tensor, states: Tensor) -> Tensor:
        """() mean cross-entropy of total, dealer's card and ace; (N, D) hidden states, (N, 3) states."""
        losses = [nn.functional.cross_entropy(head(hidden), states[:, i]) for i, head in enumerate(self.read)]
        return sum(losses) / len(losses)  # type: ignore[return-value]


def train(tokenizer: PreTrainedTokenizerFast, *, seed: int) -> LlamaForCausalLM:
    """Train from random weights, stage by stage."""
    model = new_model(tokenizer, seed)
    for stage, (steps, peak_lr, dealer_weight) in enumerate(STAGES):
        train_stage(model, tokenizer, steps=steps, peak_lr=peak_lr, dealer_weight=dealer_weight, seed=seed + stage)
    return model.eval()


def train_stage(
    model: LlamaForCausalLM,
    tokenizer: PreTrainedTokenizerFast,
    *,
    steps: int,
    peak_lr: float,
    dealer_weight: int,
    seed: int,
    log_every: int = 100,
) -> None:
    """One stage: lessons drawn from a seed, a new optimizer, a learning rate that rises and falls once."""
    chat, rng = ChatTokenizer(tokenizer), random.Random(seed)
    heads = StateHeads(HIDDEN)
    parameters = [*model.parameters(), *heads.parameters()]
    optimizer = torch.optim.AdamW(parameters, lr=peak_lr, betas=(0.9, 0.98), weight_decay=0.01)
    began = time.perf_counter()
    for step in range(steps):
        for group in optimizer.param_groups:
            group["lr"] = peak_lr * _schedule(step, steps)
        lessons = [
            worlds.lesson(rng, CONVERSATIONS_PER_PROMPT)
            if rng.random() < WORLD_SHARE
            else blackjack.lesson(rng, CONVERSATIONS_PER_PROMPT, dealer_weight)
            for _ in range(PROMPTS_PER_STEP)
        ]
        batch = pack(lessons, chat)
        hidden = model.model(
            input_ids=batch.ids, position_ids=batch.positions, attention_mask=batch.mask, use_cache=False
        ).last_hidden_state
        taught = batch.targets >= 0
        reply_loss = nn.functional.cross_entropy(model.lm_head(hidden[taught]), batch.targets[taught])
        at_rows = torch.tensor([row for row, _, _ in batch.states])
        at_columns = torch.tensor([column for _, column, _ in batch.states])
        states = torch.tensor([state for _, _, state in batch.states])
        state_loss = heads.loss(hidden[at_rows, at_columns], states)
        (reply_loss + STATE_WEIGHT * state_loss).backward()
        nn.utils.clip_grad_norm_(parameters, 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        if step % log_every == 0 or step == steps - 1:
            elapsed_s = time.perf_counter() - began
            print(
                f"step {step:5d}  reply loss {reply_loss:.4f}  state loss {state_loss:.4f}  {elapsed_s:6.0f} s",
                flush=True,
            )


def _schedule(step: int, steps: int) -> float:
    warm = min(1.0, (step + 1) / WARMUP_STEPS)
    return warm * (0.02 + 0.98 * 0.5 * (1 + math.cos(math.pi * step / steps)))
