"""Two ranks, on gloo: with half of a batch each they make the update that one process makes of the whole."""

from __future__ import annotations

import dataclasses
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from msgspec.structs import asdict, replace
from torch.distributed import TCPStore, destroy_process_group

from llamagym_tui.engine.learning.packing import batch_rows, parts_of
from llamagym_tui.engine.learning.ppo import PPO
from llamagym_tui.engine.ranks import Ranks
from llamagym_tui.errors import RankLost
from llamagym_tui.settings import PPOConfig
from tests.engine.learning import test_ppo
from tests.engine.learning.second_rank import steady, weights_of

ROOT = Path(__file__).resolve().parents[3]
SETTINGS = PPOConfig(
    lr=1e-3,
    epochs=3,
    mini_batch_size=10_000,
    critic_warmup_updates=0,
    kl_coef=0.05,
    entropy_coef=0.01,
    reward_scale=None,
    whiten_advantages=True,
    target_kl=None,
)


def collect(policy: Any) -> list[Any]:
    """32 episodes of two turns, with rewards of all kinds."""
    batch, rng = test_ppo.collect(policy), random.Random(2)
    for number, episode in enumerate(batch):
        episode.group = number // 4
    for segment in (segment for episode in batch for segment in episode.segments):
        segment.turns[:] = [
            dataclasses.replace(turn, reward=rng.uniform(-3, 3)) for turn in segment.turns
        ]
    return batch


class Pair:
    """The first rank, in this process, and the second one in another."""

    def __init__(self) -> None:
        store = TCPStore("127.0.0.1", 0, 2, is_master=True, wait_for_workers=False)
        command = [sys.executable, "-m", "tests.engine.learning.second_rank", str(store.port)]
        self.other = subprocess.Popen(command, cwd=ROOT)
        self.ranks = Ranks(0, 2, store)

    def update(
        self, policy: Any, config: PPOConfig, *batches: Any, at: int = 20, **job: Any
    ) -> tuple[Any, Any, Any]:
        """What both ranks have after updates, the first `at` episodes of each batch being the first one's."""
        lora = policy.model.is_adapted
        self.ranks.first(
            {"lora": lora, "config": config, "batches": [batch[at:] for batch in batches], **job}
        )
        ppo = steady(PPO(policy, config, seed=3, ranks=self.ranks))
        ppo.share()
        for batch in batches:
            stats = ppo.update(batch[:at])
        return self.ranks.gather((weights_of(ppo), stats, ppo.state))

    def close(self) -> None:
        if self.other.poll() is None:
            self.ranks.first(None)
            self.other.wait(20)
        destroy_process_group()


@pytest.fixture(scope="module")
def pair():
    pair = Pair()
    yield pair
    pair.close()


def require_equal_figures(found: Any, expected: Any) -> None:
    """Figures of two computations of one update of sampled tokens, which may differ by rounding."""
    figures, others = asdict(found), asdict(expected)
    for name in figures.keys() - {"update_s", "first_ratio", "clip_fraction"}:
        assert figures[name] == pytest.approx(others[name], rel=1e-3, abs=1e-4, nan_ok=True), name


def require_equal(found: Any, weights: list[torch.Tensor], stats: Any, ppo: PPO) -> None:
    (first, its_stats, its_state), (second, *_) = found
    for one, other, alone in zip(first, second, weights, strict=True):
        assert torch.equal(one, other)
        torch.testing.assert_close(one, alone, rtol=0, atol=1e-5)
    require_equal_figures(its_stats, stats)
    assert its_state.return_moments == pytest.approx(ppo.return_moments)


@pytest.mark.parametrize("lora", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_two_ranks_with_half_of_each_batch_learn_what_one_learns_of_all(pair, make_policy, lora):
    policy = make_policy(lora=lora)
    batches = [collect(policy), collect(policy)]
    found = pair.update(policy, SETTINGS, *batches)
    alone = steady(PPO(make_policy(lora=lora), SETTINGS, seed=3))
    for batch in batches:
        stats = alone.update(batch)
    require_equal(found, weights_of(alone), stats, alone)


@pytest.mark.parametrize("learner", [pytest.param("ppo", marks=pytest.mark.slow), "grpo"])
def test_the_minibatches_are_those_of_one_process(pair, make_policy, learner):
    config = replace(SETTINGS, lr=5e-4, mini_batch_size=24, learner=learner)
    policy = make_policy()
    batch = collect(policy)
    found = pair.update(policy, config, batch, at=7)
    alone = steady(PPO(make_policy(), config, seed=3))
    stats = alone.update(batch)
    require_equal(found, weights_of(alone), stats, alone)


def test_a_minibatch_is_split_into_neighbours(make_policy):
    rows = batch_rows(collect(make_policy()))
    parts = parts_of(rows, 3)
    assert [len(part) for part in parts] == [10, 11, 11]
    assert [row for part in parts for row in part] == sorted(rows, key=lambda row: row.segment.ids)
    assert parts_of(rows, 1)[0] is rows


def test_a_rank_without_a_row_of_a_minibatch_makes_as_many_steps(pair, make_policy):
    policy = make_policy()
    batch = collect(policy)[:8]
    (first, stats, _), (second, *_) = pair.update(
        policy, replace(SETTINGS, mini_batch_size=1, epochs=1), batch, at=7
    )
    assert all(map(torch.equal, first, second))
    assert (stats.turns, stats.skipped_steps) == (16, 0)


def test_both_end_an_update_by_the_divergence_that_both_have_found(pair, make_policy):
    policy = make_policy()
    batch = collect(policy)
    config = replace(SETTINGS, lr=3e-2, target_kl=1e-3, epochs=9)
    (first, *_), (second, *_) = pair.update(policy, config, batch, at=4)
    assert all(map(torch.equal, first, second))


def test_a_stop_of_the_first_rank_stops_both_between_two_steps(pair, make_policy):
    policy = make_policy()
    batch = collect(policy)
    config = replace(SETTINGS, mini_batch_size=16)
    pair.ranks.first({"lora": False, "config": config, "batches": [batch[20:]]})
    ppo = steady(PPO(policy, config, seed=3, ranks=pair.ranks))
    ppo.share()
    stats = ppo.update(batch[:20], should_stop=lambda: True)
    (first, *_), (second, *_) = pair.ranks.gather((weights_of(ppo), stats, None))
    assert all(map(torch.equal, first, second))


def test_the_weights_that_critic_warm_up_leaves_alone_stay_without_moments(pair, make_policy):
    policy = make_policy()
    before = [weight.detach().clone() for weight in policy.model.pretrained_model.parameters()]
    pair.update(policy, replace(SETTINGS, critic_warmup_updates=1), collect(policy))
    assert all(map(torch.equal, before, policy.model.pretrained_model.parameters()))


def test_a_rank_that_is_killed_ends_the_other_with_a_sentence(pair, make_policy):
    policy = make_policy()
    batch = collect(policy)
    with pytest.raises(RankLost, match=r"rank .* has ended or does not answer.*--resume"):
        pair.update(policy, SETTINGS, batch, dies=True)
    assert pair.other.wait(10) == -9
