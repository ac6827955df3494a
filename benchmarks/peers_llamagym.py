"""LlamaGym 0.1.1 on Blackjack, timed: the other side of `peers`, run by the interpreter of its own environment.

    python benchmarks/llamagym_side.py SETUP.json

Imports nothing of this project. The set-up file holds the folder of the converted model, the number of threads, the
seed, the system prompt, the text of every observation, and whether an adapter is trained, as in LlamaGym's example, or
all weights. After loading, each line on stdin is a number of seconds: it plays and trains that long, finishes the
update that it is in, and answers with one line of JSON on stdout; or it is ``save FOLDER``, and the model is written
there.
"""

import json
import os
import re
import sys
import time
from copy import deepcopy
from typing import ClassVar

import gymnasium
import torch
from llamagym import Agent
from peft import LoraConfig, PeftModel
from transformers import AutoTokenizer, PreTrainedTokenizerFast
from trl import AutoModelForCausalLMWithValueHead

BATCH = {"batch_size": 16, "mini_batch_size": 16, "ppo_epochs": 4}
"""LlamaGym's and TRL's own defaults, written out."""
ADAPTER = {
    "r": 16,
    "lora_alpha": 32,
    "lora_dropout": 0.05,
    "bias": "none",
    "task_type": "CAUSAL_LM",
}
ADAPTER_BATCH = {"batch_size": 8, "mini_batch_size": 8, "ppo_epochs": 4}
"""Both of LlamaGym's example."""
GENERATION = {"max_new_tokens": 32, "do_sample": True, "top_p": 0.6, "top_k": 0, "temperature": 0.9}
"""LlamaGym's own defaults, written out."""
ACTION = re.compile(r'"action": (\d)')
PARSE_PENALTY = 0.5
"""For a reply that names no action, as of ours; LlamaGym's example has none, which pays such a reply like a stick."""
CUT = "[/INST] "
"""Where LlamaGym cuts a conversation into prompt and reply: Llama 2's mark."""
CHATML = "\n<|im_start|>assistant\n"
"""The same in ChatML."""
SHOWN_EVERY = 8
"""Episodes of which one is logged."""


class BlackjackAgent(Agent):
    """LlamaGym's example, with this project's prompts."""

    system_prompt = ""
    observations: ClassVar[dict] = {}
    has_failed = False

    def get_system_prompt(self):
        return self.system_prompt

    def format_observation(self, observation):
        return self.observations[" ".join(str(int(part)) for part in observation)]

    def extract_action(self, response):
        """As in the example: what cannot be parsed is 0."""
        match = ACTION.search(response)
        self.has_failed = not match or match[1] not in "01"
        return 0 if self.has_failed else int(match[1])


class ChatMLTokenizer(PreTrainedTokenizerFast):
    """ChatML for a model, Llama 2's mark for LlamaGym, which cuts at no other: the model never sees it."""

    def __call__(self, text, return_tensors=None):
        return super().__call__(text.replace(CUT, CHATML), return_tensors=return_tensors)

    def batch_decode(
        self, sequences, skip_special_tokens=False, clean_up_tokenization_spaces=False
    ):
        spaces = {"clean_up_tokenization_spaces": clean_up_tokenization_spaces}
        decoded = super().batch_decode(sequences, **spaces)
        words = [text.replace(CHATML, CUT) for text in decoded]
        if not skip_special_tokens:
            return words
        special = re.compile("|".join(map(re.escape, self.all_special_tokens)))
        return [special.sub("", text) for text in words]


def play(agent, env, until):
    """Episodes until the first update that ends after `until`; (episodes, turns, updates)."""
    episodes = turns = updates = 0
    while True:
        observation, _ = env.reset()
        done = False
        while not done:
            observation, reward, terminated, truncated, _ = env.step(agent.act(observation))
            agent.assign_reward(reward - PARSE_PENALTY * agent.has_failed)
            done = terminated or truncated
            turns += 1
        if episodes % SHOWN_EVERY == 0:
            print(
                f"{agent.current_episode_rewards} {agent.current_episode_messages[1:]}", flush=True
            )
        episodes += 1
        if agent.terminate_episode():
            updates += 1
            if time.perf_counter() >= until:
                return episodes, turns, updates


def whole(model):
    """A model with its adapter merged into a copy of it; one without an adapter as it is."""
    return deepcopy(model).merge_and_unload() if isinstance(model, PeftModel) else model


def main():
    with open(sys.argv[1], encoding="utf-8") as file:
        setup = json.load(file)
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what libraries print goes to stderr
    torch.set_num_threads(setup["threads"])
    torch.manual_seed(setup["seed"])
    BlackjackAgent.system_prompt = setup["system_prompt"]
    BlackjackAgent.observations = setup["observations"]
    tokenizer = AutoTokenizer.from_pretrained(setup["model"])
    if "<|im_start|>" in tokenizer.get_vocab():
        tokenizer = ChatMLTokenizer.from_pretrained(setup["model"])
    adapter = LoraConfig(**ADAPTER) if setup["adapter"] else None
    model = AutoModelForCausalLMWithValueHead.from_pretrained(setup["model"], peft_config=adapter)
    batch = ADAPTER_BATCH if adapter else BATCH
    agent = BlackjackAgent(model, tokenizer, "cpu", dict(GENERATION), dict(batch))
    env = gymnasium.make("Blackjack-v1", natural=False, sab=False)
    env.reset(seed=setup["seed"])
    print(json.dumps({"ready": True}), file=answers, flush=True)
    for line in sys.stdin:
        if line.startswith("save "):
            whole(model.pretrained_model).save_pretrained(line[5:].strip())
            print(json.dumps({"saved": line[5:].strip()}), file=answers, flush=True)
            continue
        began_s = time.process_time()
        episodes, turns, updates = play(agent, env, time.perf_counter() + float(line))
        answer = {"episodes": episodes, "turns": turns, "updates": updates}
        answer["processor_s"] = time.process_time() - began_s
        print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    main()
