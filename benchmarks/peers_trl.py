"""TRL's GRPO on an environment: the other side of `peers`, as TRL's documentation has it, with a rollout function.

Started by `peers` with one argument, JSON. An episode is one completion: the replies, and what the environment answers
in between, which `env_mask` leaves out of the loss. A group of eight plays the same episode. The model is saved at each
mark of processor minutes, with its adapter merged in if it has one; saving does not count. TRL's newer way, an
`environment_factory`, refuses chat templates without tool calls, as those of our models are.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Mapping, Sequence
from copy import deepcopy
from pathlib import Path
from typing import IO, Any

import torch
from datasets import Dataset
from peft import LoraConfig, PeftModel
from transformers import AutoModelForCausalLM, AutoTokenizer, TrainerCallback
from trl import GRPOConfig, GRPOTrainer

from llamagym_tui.game.environment import agent_env
from llamagym_tui.setup import catalog

GROUP = 8
"""Episodes of one prompt; GRPO's own number."""
PROMPTS = 20_000
REPLY = 32
"""Tokens of a reply at most, as of ours."""
PARSE_PENALTY = 0.5
"""For a reply that names no action, as of ours; the agent's fallback action is played in its place, as in ours."""
SHOWN = 4
"""Episodes of an update whose replies are logged."""
CONTENT = "\N{REPLACEMENT CHARACTER}"
"""Stands for a reply while the chat template writes what comes after it."""


class Episodes:
    """Plays the episodes of a batch together, one `generate` for a turn of all that are not over."""

    def __init__(self, agent: Any, tokenizer: Any, max_turns: int, batch: int) -> None:
        """A batch of at most `batch` episodes."""
        self._agent = agent
        self._tokenizer = tokenizer
        self._max_turns = max_turns
        self._envs = [agent_env(agent) for _ in range(batch)]
        self.turns = 0
        self.episodes = 0
        self.tokens = 0
        """Sampled so far; an update trains on all of them."""

    def prompt(self, seed: int) -> list[dict[str, Any]]:
        """Of the episode with a seed, which the message carries along."""
        seen, _ = self._envs[0].reset(seed=seed)
        messages = (
            ("system", self._agent.get_system_prompt()),
            ("user", self._agent.format_observation(seen)),
        )
        return [{"role": role, "content": words, "seed": seed} for role, words in messages]

    def __call__(
        self, prompts: list[list[dict[str, Any]]], trainer: GRPOTrainer
    ) -> dict[str, list[Any]]:
        begun = [self._ids(self._words(messages)) for messages in prompts]
        replies: list[list[int]] = [[] for _ in prompts]
        masks: list[list[int]] = [[] for _ in prompts]
        log_probs: list[list[float]] = [[] for _ in prompts]
        returns = [0.0] * len(prompts)
        for env, messages in zip(self._envs, prompts, strict=False):
            env.reset(seed=messages[0]["seed"])
        live = list(range(len(prompts)))
        for turn in range(self._max_turns):
            sampled = self._sample(trainer, [begun[row] + replies[row] for row in live])
            going_on = []
            for row, (ids, scores) in zip(live, sampled, strict=True):
                replies[row] += ids
                masks[row] += [1] * len(ids)
                self.tokens += len(ids)
                log_probs[row] += scores
                over, words, reward = self._step(
                    row, self._tokenizer.decode(ids, skip_special_tokens=True)
                )
                returns[row] += reward
                if not over and turn + 1 < self._max_turns:
                    more = self._between(prompts[row], ids, words)
                    replies[row] += more
                    masks[row] += [0] * len(more)
                    log_probs[row] += [0.0] * len(more)
                    going_on.append(row)
            self.turns += len(live)
            live = going_on
            if not live:
                break
        self.episodes += len(prompts)
        for reply, ends_with in list(zip(replies, returns, strict=True))[:SHOWN]:
            print(f"{ends_with:+.1f} {self._tokenizer.decode(reply)!r}", flush=True)
        played = {"prompt_ids": begun, "completion_ids": replies, "logprobs": log_probs}
        return {**played, "env_mask": masks, "returns": returns}

    def _words(self, messages: list[dict[str, Any]]) -> str:
        """A conversation up to where the reply begins."""
        words: str = self._tokenizer.apply_chat_template(
            messages, tokenize=False, add_generation_prompt=True
        )
        return words

    def _ids(self, words: str) -> list[int]:
        """Of words that hold their special tokens already."""
        ids: list[int] = self._tokenizer(words, add_special_tokens=False)["input_ids"]
        return ids

    def _between(self, prompt: list[dict[str, Any]], reply: list[int], words: str) -> list[int]:
        """The chat template's tokens from a reply's last one to the next reply, with the environment's words.

        A reply that was cut off is ended there; the others have ended themselves.
        """
        turns = ({"role": "assistant", "content": CONTENT}, {"role": "user", "content": words})
        after = self._ids(self._words([*prompt, *turns]).partition(CONTENT)[2])
        return after[1:] if reply[-1] == after[0] else after

    @torch.no_grad()
    def _sample(
        self, trainer: GRPOTrainer, contexts: Sequence[list[int]]
    ) -> list[tuple[list[int], list[float]]]:
        """A reply to each context, and its tokens' log-probabilities."""
        width, pad, end = (
            max(map(len, contexts)),
            self._tokenizer.pad_token_id,
            self._tokenizer.eos_token_id,
        )
        ids = torch.tensor([[pad] * (width - len(each)) + each for each in contexts])
        mask = torch.tensor([[0] * (width - len(each)) + [1] * len(each) for each in contexts])
        made = trainer.accelerator.unwrap_model(trainer.model).generate(
            input_ids=ids, attention_mask=mask, do_sample=True, temperature=1.0, top_k=0, top_p=1.0,
            max_new_tokens=REPLY, pad_token_id=pad, eos_token_id=end, output_logits=True, return_dict_in_generate=True,
        )  # fmt: skip
        new = made.sequences[:, width:]
        scores = (
            torch.stack(made.logits, dim=1)
            .log_softmax(-1)
            .gather(-1, new.unsqueeze(-1))
            .squeeze(-1)
        )
        replies = []
        for row, of_row in zip(new.tolist(), scores.tolist(), strict=True):
            length = row.index(end) + 1 if end in row else len(row)
            replies.append((row[:length], of_row[:length]))
        return replies

    def _step(self, row: int, reply: str) -> tuple[bool, str, float]:
        """True if the episode is over, the next observation, and the reward."""
        reading = self._agent.read(reply)
        action = self._agent.fallback_action if reading.failed else reading.action
        seen, reward, terminated, truncated, _ = self._envs[row].step(action)
        over, words = terminated or truncated, self._agent.format_observation(seen)
        return over, words, float(reward) - PARSE_PENALTY * reading.failed


class Marks(TrainerCallback):
    """Saves the model at each mark; ends the training after the last one."""

    def __init__(
        self,
        folder: Path,
        minutes: Sequence[float],
        episodes: Episodes,
        tokenizer: Any,
        answers: IO[str],
    ) -> None:
        self._folder = folder
        self._left = list(minutes)
        self._episodes = episodes
        self._tokenizer = tokenizer
        self._answers = answers
        self._began = time.process_time()

    def on_step_end(self, args: Any, state: Any, control: Any, **more: Any) -> None:
        now = time.process_time()
        if now - self._began < 60 * self._left[0]:
            return
        mark = self._left.pop(0)
        target = self._folder / f"{mark:g}"
        whole(more["model"]).save_pretrained(target)
        self._tokenizer.save_pretrained(target)
        found = {"minutes": mark, "model": str(target), "updates": state.global_step}
        counts = ("turns", "episodes", "tokens")
        found |= {name: getattr(self._episodes, name) for name in counts}
        found["processor_s"] = now - self._began
        print(json.dumps(found), file=self._answers, flush=True)
        control.should_training_stop = not self._left
        self._began += time.process_time() - now


def whole(model: Any) -> Any:
    """A model with its adapter merged into a copy of it; one without an adapter as it is."""
    return deepcopy(model).merge_and_unload() if isinstance(model, PeftModel) else model


def main(
    agent: str,
    model: str,
    folder: str,
    seed: int,
    minutes: Sequence[float],
    max_turns: int,
    lr: float,
    batch: int,
    lora: Mapping[str, Any] | None,
    threads: int,
) -> None:
    """Train; `batch` is the episodes of an update, and `lora` an adapter's settings or None for all weights."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what libraries print goes to stderr
    torch.set_num_threads(threads)
    tokenizer = AutoTokenizer.from_pretrained(model)
    episodes = Episodes(catalog.find_agent(agent, {})(), tokenizer, max_turns, batch)
    prompts = [{"prompt": episodes.prompt(seed * 1_000_000 + number)} for number in range(PROMPTS)]
    settings = GRPOConfig(
        output_dir=f"{folder}/trl", num_generations=GROUP, per_device_train_batch_size=batch, learning_rate=lr,
        seed=seed, lr_scheduler_type="constant", max_steps=1_000_000, max_completion_length=4096, use_cpu=True,
        bf16=False, gradient_checkpointing=False, save_strategy="no", report_to="none", logging_steps=1,
        disable_tqdm=True, remove_unused_columns=False,
    )  # fmt: skip
    trainer = GRPOTrainer(
        AutoModelForCausalLM.from_pretrained(model), lambda returns, **_: returns, settings, Dataset.from_list(prompts),
        processing_class=tokenizer, rollout_func=episodes, peft_config=LoraConfig(**lora) if lora else None,
        callbacks=[Marks(Path(folder), minutes, episodes, tokenizer, answers)],
    )  # fmt: skip
    trainer.train()


if __name__ == "__main__":
    main(**json.loads(sys.argv[1]))
