"""The second of two ranks, for the tests of both: `python -m tests.engine.learning.second_rank PORT`.

It gets the settings, its part of each batch, and whether it is slow or dies, from the first one.
"""

from __future__ import annotations

import os
import sys

import torch
from torch.distributed import TCPStore
from transformers import AutoTokenizer

from llamagym_tui.engine.learning.ppo import PPO
from llamagym_tui.engine.model.sources import bundled_model_path
from llamagym_tui.engine.model.value_head import AutoModelForCausalLMWithValueHead, with_adapter
from llamagym_tui.engine.policy.policy import Policy
from llamagym_tui.engine.ranks import Ranks
from llamagym_tui.errors import RankLost
from llamagym_tui.settings import GenerationConfig, LoraConfig
from tests.engine.conftest import REPLIES, tiny_llama


def weights_of(ppo: PPO) -> list[torch.Tensor]:
    return [
        weight.detach().clone()
        for group in ppo.steps.optimizer.param_groups
        for weight in group["params"]
    ]


def steady(ppo: PPO) -> PPO:
    """The learner itself, with steps that do not enlarge the rounding of gradients that are nearly 0, as Adam's do."""
    for group in ppo.steps.optimizer.param_groups:
        group["eps"] = 1e-4
    return ppo


def main(port: int) -> None:
    torch.set_num_threads(1)
    tokenizer = AutoTokenizer.from_pretrained(bundled_model_path(), local_files_only=True)
    ranks = Ranks(1, 2, TCPStore("127.0.0.1", port, 2, is_master=False))
    while (job := ranks.first({})) is not None:
        lm = tiny_llama(len(tokenizer))
        model = AutoModelForCausalLMWithValueHead(
            with_adapter(lm, LoraConfig(layers="all", r=4, alpha=8.0)) if job["lora"] else lm
        )
        policy = Policy(model, tokenizer, GenerationConfig(max_new_tokens=6), REPLIES, seed=7)
        ppo = steady(PPO(policy, job["config"], seed=7, ranks=ranks))
        ppo.share()
        if job.get("dies"):
            ppo.steps.train = lambda *_: os.kill(os.getpid(), 9)
        for batch in job["batches"]:
            stats = ppo.update(batch)
        ranks.gather((weights_of(ppo), stats, ppo.state))


if __name__ == "__main__":
    try:
        main(int(sys.argv[1]))
    except RankLost:
        sys.exit(3)
