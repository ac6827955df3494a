"""AgileRL's LLMPPO on an environment: the other side of `peers`, run by the interpreter of its own environment.

Started by `peers` with one argument, JSON, which holds the prompts too; imports nothing of this project. An episode is
one conversation, as its `RolloutHarness` has it, and a turn is one action of its PPO. The actor's LoRA adapter is
merged into plain weights and saved at each mark of processor minutes; saving does not count.

Set-up on a CPU takes two steps that its documentation does not have. The extra cpu-llm needs liger-kernel, whose
layers end in triton's "0 active drivers ([]). There should only be one.": `HAS_LIGER_KERNEL` is unset before the model
is made. And the harness repeats its system prompt after every observation: ours is put into the chat template instead,
before all other messages.
"""

import json
import os
import re
import sys
import time
from copy import deepcopy
from pathlib import Path

import gymnasium
import torch
import transformers
from agilerl.algorithms import LLMPPO
from agilerl.algorithms.core import base
from agilerl.llm_envs import RolloutHarness
from agilerl.training.llm.rollout import train_llm_rollout
from peft import LoraConfig
from transformers import AutoTokenizer

REPLY = 32
"""Tokens of a reply at most, as of ours."""
PARSE_PENALTY = 0.5
"""For a reply that names no action, as of ours; the fallback action is played in its place, as in ours."""
FALLBACK = 0
SHOWN_EVERY = 8
"""Steps of an environment of which one is logged, with its reply."""
ACTION = re.compile(r'"action": (\d)')


class TextWorld:
    """A Gymnasium environment in words, as the harness drives one."""

    def __init__(self, env_id, env_kwargs, observations):
        self._env = gymnasium.make(env_id, **env_kwargs)
        self._texts = observations
        self._steps = 0

    def reset(self, seed=None):
        seen, _ = self._env.reset(seed=seed)
        return self._text(seen), {}

    def step(self, reply):
        named = ACTION.search(reply)
        failed = named is None or int(named[1]) not in self._env.action_space
        action = FALLBACK if failed else int(named[1])
        seen, reward, terminated, truncated, _ = self._env.step(action)
        if self._steps % SHOWN_EVERY == 0:
            print(f"{reward:+} {reply!r}")
        self._steps += 1
        return self._text(seen), float(reward) - PARSE_PENALTY * failed, terminated, truncated, {}

    def _text(self, seen):
        parts = seen if isinstance(seen, tuple) else (seen,)
        return self._texts[" ".join(str(int(part)) for part in parts)]


class Marks:
    """Stands for the agent's `learn`: saves the policy at each mark, and ends the training after the last one."""

    def __init__(self, agent, minutes, folder, answers):
        self._agent = agent
        self._learn = agent.learn
        self._left = list(minutes)
        self._folder = Path(folder)
        self._answers = answers
        self._known = {"updates": 0, "turns": 0, "episodes": 0}
        self._began = time.process_time()

    def __call__(self, experiences, turn_ids, **more):
        found = self._learn(experiences, turn_ids=turn_ids, **more)
        print(found, flush=True)
        self._known["updates"] += 1
        self._known["turns"] += int((turn_ids.max(dim=1).values + 1).sum())
        self._known["episodes"] += len(turn_ids)
        now = time.process_time()
        if now - self._began >= 60 * self._left[0]:
            mark = self._left.pop(0)
            target = self._folder / f"{mark:g}"
            save(self._agent, target)
            print(
                json.dumps({"minutes": mark, "model": str(target), **self._known}),
                file=self._answers,
                flush=True,
            )
            if not self._left:
                sys.exit()
            self._began += time.process_time() - now
        return found


def save(agent, folder):
    """Write the policy with the actor's adapter merged in; the agent's own weights are left alone."""
    policy = deepcopy(agent.actor.pretrained_model)
    policy.merge_and_unload(adapter_names=["actor"]).save_pretrained(folder)


def main(
    env_id,
    env_kwargs,
    system_prompt,
    observations,
    model,
    folder,
    seed,
    minutes,
    max_turns,
    lr,
    batch_size,
    mini_batch_size,
    update_epochs,
    threads,
):
    """Train; a batch and a mini-batch are the episodes of an update and of an optimizer step."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what libraries print goes to stderr
    torch.set_num_threads(threads)
    transformers.logging.set_verbosity_error()
    base.HAS_LIGER_KERNEL = False
    tokenizer = AutoTokenizer.from_pretrained(model)
    first = json.dumps({"role": "system", "content": system_prompt})
    tokenizer.chat_template = (
        f"{{%- set messages = [{first}] + messages -%}}{tokenizer.chat_template}"
    )
    agent = LLMPPO(
        pad_token_id=tokenizer.pad_token_id, pad_token=tokenizer.pad_token, model_name=model,
        model_config={"torch_dtype": torch.float32}, device="cpu", seed=seed * 1_000_000,
        batch_size=batch_size, mini_batch_size=mini_batch_size, update_epochs=update_epochs,
        lora_config=LoraConfig(r=16, lora_alpha=32, target_modules="all-linear", task_type="CAUSAL_LM"),
        lr_actor=lr, lr_critic=lr, max_output_tokens=REPLY, max_model_len=4096, top_k=0,
        use_liger_loss=False, gradient_checkpointing=False,
    )  # fmt: skip

    def harness():
        return RolloutHarness.local(
            TextWorld(env_id, env_kwargs, observations), tokenizer, max_turns
        )

    agent.learn = Marks(agent, minutes, folder, answers)
    train_llm_rollout(
        [agent], max_turns, harness, max_steps=10**9, evaluation_interval=10**9, verbose=False
    )


if __name__ == "__main__":
    main(**json.loads(sys.argv[1]))
