"""Our GRPO beside TRL's on Blackjack: mean returns by episodes, on equal terms.

    python -m benchmarks.grpo_beside_trl
    python -m benchmarks.grpo_beside_trl --updates 4 --seeds 1

Both train all weights of the bundled model by whole batches: 128 hands an update, in groups of eight of one seed, one
optimizer step (AdamW, betas 0.9 and 0.95, no weight decay, the same learning rate throughout), clip range 0.2, no KL,
no bonus, temperature 1, the whole conversation as a prompt, half a chip for a reply that names no action. Ours plays
and learns by the program's own rollout and learner, TRL's `GRPOTrainer` 1.16 by `loss_type="grpo"` and
`scale_rewards="group"` with the rollout function of `peers_trl`. Gradients are not clipped: ours has another length, by
factors that `tests/engine/learning/test_grpo_of_trl.py` states, and Adam's steps do not depend on one of all episodes.
Prints the table again after each seed.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from statistics import fmean, stdev
from typing import Annotated

import torch
import typer

from benchmarks.bare_run import BareRun, settings
from benchmarks.peers import BUNDLED, MAX_TURNS
from benchmarks.timing import machine

AGENT = "blackjack"
EPISODES = 128
"""Of an update."""
ROWS = 3
"""Of the table."""
UNCLIPPED = 1e9

Returns = Sequence[Sequence[float]]
"""(U, G) of each update, what the groups of a seed earned on average; penalties are taken."""


def main(
    updates: Annotated[int, typer.Option(help="Of each run.")] = 30,
    seeds: Annotated[int, typer.Option(help="Runs of each.")] = 2,
    lr: Annotated[float, typer.Option(help="Learning rate of both.")] = 2e-4,
) -> None:
    found: dict[str, list[Returns]] = {name: [] for name in SIDES}
    for seed in range(1, seeds + 1):
        for name, train in SIDES.items():
            torch.manual_seed(seed)
            found[name].append(train(seed, updates, lr))
            print(f"{name}, seed {seed}: {curve(found[name][-1:], updates)}", flush=True)
        print(machine())
        print(table(found, updates), flush=True)


def ours(seed: int, updates: int, lr: float) -> Returns:
    """The program's own rollout and learner."""
    from benchmarks.peers_trl import GROUP, PARSE_PENALTY, REPLY

    changes = {
        "seed": seed, "n_envs": EPISODES, "history": "all", "max_turns": MAX_TURNS,
        "generation.policy": "generate", "generation.temperature": 1.0, "generation.max_new_tokens": REPLY,
        "ppo.learner": "grpo", "ppo.group_size": GROUP, "ppo.mini_batch_size": EPISODES * MAX_TURNS, "ppo.epochs": 1,
        "ppo.lr": lr, "ppo.lr_final": lr, "ppo.update_kl": 1e9, "ppo.max_grad_norm": UNCLIPPED, "ppo.clip_range": 0.2,
        "ppo.kl_coef": 0.0, "ppo.kl_coef_final": 0.0, "ppo.entropy_coef": 0.0, "ppo.entropy_coef_final": 0.0,
        "ppo.novelty_coef": 0.0, "ppo.reward_scale": 1.0, "ppo.parse_penalty": PARSE_PENALTY, "ppo.gamma": 1.0,
    }  # fmt: skip
    words = [f"{name}={value}" for name, value in changes.items()]
    run = BareRun(settings(AGENT, words, full_finetuning=True), threads=1)
    found = []
    for update in range(1, updates + 1):
        run.rollout.episode_limit = update * EPISODES
        while run.rollout.episodes < update * EPISODES:
            run.rollout.step()
        batch = run.rollout.take_batch()
        groups: dict[int | None, list[float]] = {}
        for each in batch:
            earned = sum(turn.reward - PARSE_PENALTY * turn.parse_failed for turn in each.turns)
            groups.setdefault(each.group, []).append(earned)
        found.append([fmean(group) for group in groups.values()])
        run.learner.update(batch)
    run.rollout.close()
    return found


def trls(seed: int, updates: int, lr: float) -> Returns:
    """TRL's trainer with the rollout function of `peers_trl`."""
    from datasets import Dataset
    from transformers import AutoModelForCausalLM, AutoTokenizer
    from trl import GRPOConfig, GRPOTrainer

    from benchmarks.peers_trl import GROUP, Episodes
    from llamagym_tui.setup import catalog

    tokenizer = AutoTokenizer.from_pretrained(BUNDLED)
    episodes = Episodes(catalog.find_agent(AGENT, {})(), tokenizer, MAX_TURNS, EPISODES)
    first = seed * 1_000_000
    prompts = [
        {"prompt": episodes.prompt(first + number)} for number in range(updates * EPISODES // GROUP)
    ]
    found: list[list[float]] = []

    def noted(returns: Sequence[float]) -> Sequence[float]:
        found.append([
            fmean(returns[at : at + GROUP]) for at in range(0, len(returns), GROUP)
        ])  # fmt: skip
        return returns

    with tempfile.TemporaryDirectory() as folder:
        trainer = GRPOTrainer(
            AutoModelForCausalLM.from_pretrained(BUNDLED), lambda returns, **_: noted(returns),
            GRPOConfig(
                output_dir=folder, seed=seed, use_cpu=True, bf16=False, gradient_checkpointing=False,
                num_generations=GROUP, per_device_train_batch_size=EPISODES, max_steps=updates, num_iterations=1,
                loss_type="grpo", scale_rewards="group", beta=0.0, epsilon=0.2, temperature=1.0,
                learning_rate=lr, lr_scheduler_type="constant", adam_beta1=0.9, adam_beta2=0.95, weight_decay=0.0,
                max_grad_norm=UNCLIPPED, save_strategy="no", report_to="none", disable_tqdm=True, logging_strategy="no",
                remove_unused_columns=False, max_completion_length=4096,
            ),
            Dataset.from_list(prompts), processing_class=tokenizer, rollout_func=episodes,
        )  # fmt: skip
        trainer.train()
    return found


SIDES: Mapping[str, Callable[[int, int, float], Returns]] = {"ours": ours, "TRL": trls}


def table(found: Mapping[str, Sequence[Returns]], updates: int) -> str:
    """A row for some updates: mean returns of the batches of all seeds, and the difference, ± 95 %."""
    lines = [["episodes", *found, "difference"], ["---"] * (len(found) + 2)]
    for first, after in parts(updates):
        means, errors = [], []
        for runs in found.values():
            mean, error = mean_of_groups(runs, first, after)
            means.append(mean)
            errors.append(error)
        total = sum(error**2 for error in errors) ** 0.5
        lines.append([
            f"{first * EPISODES + 1:,} to {after * EPISODES:,}",
            *(f"{mean:+.3f} ± {1.96 * error:.3f}" for mean, error in zip(means, errors, strict=True)),
            f"{means[0] - means[1]:+.3f} ± {1.96 * total:.3f}",
        ])  # fmt: skip
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def curve(runs: Sequence[Returns], updates: int) -> str:
    return ", ".join(f"{mean_of_groups(runs, *part)[0]:+.3f}" for part in parts(updates))


def parts(updates: int) -> list[tuple[int, int]]:
    """First update of each row, and the one after its last."""
    ends = [round(updates * at / ROWS) for at in range(ROWS + 1)]
    return [(first, after) for first, after in pairwise(ends) if after > first]


def mean_of_groups(runs: Sequence[Returns], first: int, after: int) -> tuple[float, float]:
    """The mean return of some updates of all runs, and its standard error: that of the mean of so many groups."""
    groups = [group for run in runs for update in run[first:after] for group in update]
    return fmean(groups), stdev(groups) / len(groups) ** 0.5


if __name__ == "__main__":
    typer.run(main)
