"""Two ranks with half of the weights each make the update that one process makes with all of them."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from llamagym_tui.engine.learning.ppo import PPO
from tests.engine.learning.second_rank import whole
from tests.engine.learning.test_ranks import SETTINGS, Pair, collect, require_equal, weights_of

pytestmark = [pytest.mark.slow, pytest.mark.timeout(60)]


@pytest.fixture(scope="module")
def pair():
    pair = Pair()
    yield pair
    pair.close()


class Sharded:
    """What both ranks have after an update of shards; the first rank's parts stay for a look."""

    def __init__(self, pair, policy, config, batch, at):
        lora = policy.model.is_adapted
        pair.ranks.first({"lora": lora, "config": config, "batches": [batch[at:]], "shard": True})
        self.pair, self.policy = pair, policy
        policy.model.backbone.shard(pair.ranks)
        self.ppo = PPO(policy, config, seed=3, ranks=pair.ranks)
        self.ppo.share()
        stats = self.ppo.update(batch[:at])
        self.found = pair.ranks.gather(([whole(each) for each in weights_of(self.ppo)], stats, self.ppo.state))

    def close(self):
        held = sum(each.to_local().numel() for each in self.policy.model.pretrained_model.parameters())
        held = self.pair.ranks.gather(held)
        self.pair.ranks.meet = lambda: None
        return held


@pytest.mark.parametrize("lora", [False, True])
def test_shards_learn_what_whole_weights_learn(pair, make_policy, lora):
    config = replace(SETTINGS, mini_batch_size=12, gradient_accumulation_steps=2, epochs=2)
    policy = make_policy(lora=lora)
    batch = collect(policy)
    sharded = Sharded(pair, policy, config, batch, at=7)
    held = sharded.close()
    alone = PPO(make_policy(lora=lora), config, seed=3)
    stats = alone.update(batch)
    require_equal(sharded.found, weights_of(alone), stats, alone)
    every = sum(weight.numel() for weight in policy.model.pretrained_model.parameters())
    assert sum(held) == every
    assert max(held) < 0.55 * every
