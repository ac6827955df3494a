"""The second of two ranks, for the tests of both: `python -m tests.engine.learning.second_rank PORT`.

It gets the settings, its part of each batch, and whether it is slow or dies, from the first one.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterable

import torch
from torch.distributed import TCPStore
from torch.distributed.tensor import DTensor
from transformers import AutoTokenizer

from llamagym_tui.config import GenerationConfig, LoraConfig
from llamagym_tui.engine.learning.ppo import PPO
from llamagym_tui.engine.model.sources import bundled_model_path
from llamagym_tui.engine.model.value_head import AutoModelForCausalLMWithValueHead, with_adapter
from llamagym_tui.engine.policy.policy import Policy
from llamagym_tui.engine.ranks import Ranks
from llamagym_tui.errors import RankLost
from tests.engine.conftest import REPLIES, tiny_llama


def weights_of(ppo: PPO) -> list[torch.Tensor]:
    return [
        weight.detach().clone()
        for group in ppo.optimizer.param_groups
        for weight in group["params"]
    ]


def steady(ppo: PPO) -> PPO:
    """The learner itself, with steps that do not enlarge the rounding of gradients that are nearly 0, as Adam's do."""
    for group in ppo.optimizer.param_groups:
        group["eps"] = 1e-4
    return ppo


def held_bytes(policy: Policy, ppo: PPO) -> tuple[int, int, int]:
    """Of the weights, their moments, and the reference, in this process."""

    def total(tensors: Iterable[torch.Tensor]) -> int:
        return sum(
            each.to_local().nbytes if isinstance(each, DTensor) else each.nbytes for each in tensors
        )

    moments = (
        each[name] for each in ppo.optimizer.state.values() for name in ("exp_avg", "exp_avg_sq")
    )
    reference = [then for _, then in ppo.reference.start] if ppo.reference else []
    return total(policy.model.pretrained_model.parameters()), total(moments), total(reference)


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
        if shard := job.get("shard"):
            with torch.no_grad():
                for weight in lm.parameters():
                    weight.mul_(2)  # it gets those of the first one
            model.backbone.shard(ranks)
            if shard == "until it dies in a forward":
                lm.get_decoder().layers[1].register_forward_pre_hook(
                    lambda *_: os.kill(os.getpid(), 9)
                )
        ppo = steady(PPO(policy, job["config"], seed=7, ranks=ranks))
        ppo.share()
        loss = ppo.loss

        def other_loss(*arguments, loss=loss, job=job, **more):
            if job.get("dies"):
                os.kill(os.getpid(), 9)
            time.sleep(job.get("slow_s", 0.0))
            return loss(*arguments, **more)

        ppo.loss = other_loss
        for batch in job["batches"]:
            stats = ppo.update(batch)
        ranks.gather((None if shard else weights_of(ppo), stats, ppo.state))
        if shard:
            ranks.gather(
                held_bytes(policy, ppo)
            )  # and go along with the first one until it does the same
            ranks.meet = lambda: None


if __name__ == "__main__":
    try:
        main(int(sys.argv[1]))
    except RankLost:
        sys.exit(3)
