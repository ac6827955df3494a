"""LlamaGym 0.1.1 on Blackjack, timed: the other side of `vs_llamagym`, run by the interpreter of its own environment.

    python benchmarks/llamagym_side.py SETUP.json

Imports nothing of this project. The set-up file holds the folder of the converted model, the number of threads, the
seed, the system prompt and the text of every observation. After loading, each line on stdin is a number of seconds:
it plays and trains that long, finishes the update that it is in, and answers with one line of JSON on stdout; or it is
``save FOLDER``, and the model is written there.
"""

import json
import os
import re
import sys
import time
from typing import ClassVar

import gymnasium
import torch
from llamagym import Agent
from transformers import AutoTokenizer
from trl import AutoModelForCausalLMWithValueHead

BATCH = {"batch_size": 16, "mini_batch_size": 16, "ppo_epochs": 4}
"""LlamaGym's and TRL's own defaults, written out."""
GENERATION = {"max_new_tokens": 32, "do_sample": True, "top_p": 0.6, "top_k": 0, "temperature": 0.9}
"""LlamaGym's own defaults, written out."""
ACTION = re.compile(r'"action": (\d)')


class BlackjackAgent(Agent):
    """LlamaGym's example, with this project's prompts."""

    system_prompt = ""
    observations: ClassVar[dict] = {}

    def get_system_prompt(self):
        return self.system_prompt

    def format_observation(self, observation):
        return self.observations[" ".join(str(int(part)) for part in observation)]

    def extract_action(self, response):
        """As in the example: what cannot be parsed is 0."""
        match = ACTION.search(response)
        return int(match[1]) if match and match[1] in "01" else 0


def play(agent, env, until):
    """Episodes until the first update that ends after `until`; (episodes, turns, updates)."""
    episodes = turns = updates = 0
    while True:
        observation, _ = env.reset()
        done = False
        while not done:
            observation, reward, terminated, truncated, _ = env.step(agent.act(observation))
            agent.assign_reward(reward)
            done = terminated or truncated
            turns += 1
        episodes += 1
        if agent.terminate_episode():
            updates += 1
            if time.perf_counter() >= until:
                return episodes, turns, updates


def weights(model):
    return torch.cat(
        [parameter.detach().flatten() for parameter in model.pretrained_model.parameters()]
    )


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
    model = AutoModelForCausalLMWithValueHead.from_pretrained(setup["model"])
    reply_tokens = []
    generate = model.generate

    def generate_counted(inputs, **options):
        ids = generate(inputs=inputs, **options)
        reply_tokens.append(ids.shape[1] - inputs.shape[1])
        return ids

    model.generate = generate_counted
    agent = BlackjackAgent(model, tokenizer, "cpu", dict(GENERATION), dict(BATCH))
    env = gymnasium.make("Blackjack-v1", natural=False, sab=False)
    env.reset(seed=setup["seed"])
    print(json.dumps({"parameters": len(weights(model))}), file=answers, flush=True)
    for line in sys.stdin:
        if line.startswith("save "):
            model.pretrained_model.save_pretrained(line[5:].strip())
            print(json.dumps({"saved": line[5:].strip()}), file=answers, flush=True)
            continue
        before, counted = weights(model), len(reply_tokens)
        began, processor = time.perf_counter(), time.process_time()
        episodes, turns, updates = play(agent, env, began + float(line))
        elapsed_s, processor_s = time.perf_counter() - began, time.process_time() - processor
        answer = {
            "episodes": episodes,
            "turns": turns,
            "updates": updates,
            "elapsed_s": elapsed_s,
            "processor_s": processor_s,
            "reply_tokens": sum(reply_tokens[counted:]) / max(len(reply_tokens) - counted, 1),
            "weight_change": float((weights(model) - before).abs().max()),
        }
        print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    main()
