"""Two ranks with a half of the weights each: they compute, learn and keep what one process does with all of them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from msgspec.structs import replace

from llamagym_tui.config import PPOConfig
from llamagym_tui.engine.learning.checkpoint import (
    keep_checkpoint,
    load_checkpoint,
    roll_back,
    save_checkpoint,
)
from llamagym_tui.engine.learning.ppo import PPO
from llamagym_tui.engine.policy.policy import Policy
from llamagym_tui.engine.ranks import ALONE, GLOO
from llamagym_tui.errors import ModelLoadError, RankLost, RunStoreError
from tests.engine.learning.second_rank import held_bytes, steady, weights_of
from tests.engine.learning.test_ranks import SETTINGS, Pair, collect, require_equal

# Two processes are started for them, each with torch.
pytestmark = [pytest.mark.timeout(60), pytest.mark.slow]
# No step goes too far: shards undo none.
CONFIG = replace(SETTINGS, mini_batch_size=16, epochs=2, update_kl=1e9)


@pytest.fixture(scope="module")
def pair():
    pair = Pair()
    yield pair
    pair.close()


@contextmanager
def in_shards(
    pair: Pair, policy: Policy, config: PPOConfig, *batches: Any, at: int, **job: Any
) -> Iterator[PPO]:
    """The learner of the first rank; the other learns its part of the batches, and then waits for the first one."""
    lora = policy.model.is_adapted
    given = {
        "lora": lora,
        "config": config,
        "batches": [batch[at:] for batch in batches],
        "shard": True,
    }
    pair.ranks.first(given | job)
    policy.model.backbone.shard(pair.ranks)
    ppo = steady(PPO(policy, config, seed=3, ranks=pair.ranks))
    ppo.share()
    yield ppo
    pair.held = pair.ranks.gather(held_bytes(policy, ppo))
    pair.ranks.meet = lambda: None


def learn(pair: Pair, ppo: PPO, *batches: Any, at: int) -> Any:
    """Weights, figures and state of both ranks; the weights are gathered by the first one."""
    for batch in batches:
        stats = ppo.update(batch[:at])
    found = pair.ranks.gather((None, stats, ppo.state))
    return [(whole_weights(ppo), *rest) for _, *rest in found]


def whole_weights(ppo: PPO) -> list[torch.Tensor]:
    assert ppo.shards is not None
    weights, _ = ppo.shards.gather()
    names = [
        name
        for name, each in ppo.policy.model.pretrained_model.named_parameters()
        if each.requires_grad
    ]
    return [
        *(weights[name] for name in names),
        *(weight.detach() for weight in ppo.policy.model.v_head.parameters()),
    ]


@pytest.mark.parametrize("lora", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_shards_learn_what_whole_weights_learn(pair, make_policy, lora):
    policy = make_policy(lora=lora)
    batches = [collect(policy), collect(policy)]
    with in_shards(pair, policy, CONFIG, *batches, at=7) as ppo:
        found = learn(pair, ppo, *batches, at=7)
    alone = steady(PPO(make_policy(lora=lora), CONFIG, seed=3))
    for batch in batches:
        stats = alone.update(batch)
    require_equal(found, weights_of(alone), stats, alone)


def test_each_rank_holds_a_half_of_weights_moments_and_reference(pair, make_policy):
    policy = make_policy()
    batch = collect(policy)
    with in_shards(pair, policy, CONFIG, batch, at=16) as ppo:
        learn(pair, ppo, batch, at=16)
    alone = steady(PPO(make_policy(), CONFIG, seed=3))
    alone.update(batch)
    weights, moments, reference = held_bytes(alone.policy, alone)
    head = 2 * sum(
        each.nbytes for each in alone.policy.model.v_head.parameters()
    )  # its moments are whole everywhere
    for held in zip(*pair.held, strict=True):
        assert abs(held[0] - held[1]) < 0.05 * held[0]
    assert [sum(held) for held in zip(*pair.held, strict=True)] == [
        weights,
        moments + head,
        reference,
    ]


def test_one_rank_plays_while_the_other_waits(pair, make_policy):
    sharded, whole = make_policy(), make_policy()
    with in_shards(pair, sharded, CONFIG, at=0):
        pair.ranks.gather(None)
        found = collect(sharded)
    for one, other in zip(found, collect(whole), strict=True):
        for its, alone in zip(one.segments, other.segments, strict=True):
            assert its.ids == alone.ids
            for turn, same in zip(its.turns, alone.turns, strict=True):
                assert turn.logprobs == pytest.approx(same.logprobs, abs=1e-5)


@pytest.mark.parametrize("lora", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_a_checkpoint_is_whole_and_can_be_gone_back_to(pair, make_policy, tmp_path, lora):
    policy = make_policy(lora=lora)
    batch = collect(policy)
    with in_shards(pair, policy, CONFIG, batch, at=16) as ppo:
        good = learn(pair, ppo, batch, at=16)[0][0]
        save_checkpoint(tmp_path, policy, ppo, {})
        keep_checkpoint(tmp_path)
        with torch.no_grad():
            for weight in policy.model.parameters():
                weight.mul_(1.5)
        roll_back(tmp_path, policy, ppo)
        assert all(map(torch.equal, whole_weights(ppo), good))
        moments = ppo.shards.gather()[1]
    loaded, alone = (
        steady(PPO(make_policy(lora=lora), CONFIG, seed=3)),
        steady(PPO(make_policy(lora=lora), CONFIG, seed=3)),
    )
    load_checkpoint(tmp_path, loaded.policy, loaded)
    alone.update(batch)
    assert all(map(torch.equal, weights_of(loaded), good))
    found, expected = loaded.optimizer.state_dict()["state"], alone.optimizer.state_dict()["state"]
    assert found.keys() == expected.keys() == moments.keys()
    for index, kept in found.items():
        for name, value in kept.items():
            assert torch.equal(value, moments[index][name])
            torch.testing.assert_close(value, expected[index][name], rtol=0, atol=1e-5)


def test_a_rank_without_a_row_goes_along_and_changes_nothing(pair, make_policy):
    config = replace(CONFIG, lr=2e-4, mini_batch_size=1, epochs=1)
    policy = make_policy()
    batch = collect(policy)[:8]
    with in_shards(pair, policy, config, batch, at=7) as ppo:
        found = learn(pair, ppo, batch, at=7)
    alone = steady(PPO(make_policy(), config, seed=3))
    stats = alone.update(batch)
    require_equal(found, weights_of(alone), stats, alone)


def test_a_model_that_shares_no_keys_and_values_is_refused(make_policy):
    backbone = make_policy().model.backbone
    backbone.shares = False
    with pytest.raises(ModelLoadError, match="leave out shard"):
        backbone.shard(ALONE)
    assert backbone.shards is None


def test_a_rank_that_is_killed_in_a_forward_ends_the_other_with_a_sentence(
    pair, make_policy, tmp_path
):
    policy = make_policy()
    batch = collect(policy)
    with (
        pytest.raises(RankLost, match=r"rank .* has ended or does not answer.*--resume"),
        pair.ranks.explained(GLOO),
        in_shards(pair, policy, CONFIG, batch, at=16, shard="until it dies in a forward") as ppo,
    ):
        learn(pair, ppo, batch, at=16)
    assert pair.other.wait(10) == -9
    with pytest.raises(RunStoreError, match="needs the parts of all ranks"):
        save_checkpoint(tmp_path, policy, ppo, {})
