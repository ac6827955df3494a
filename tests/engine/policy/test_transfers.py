"""How often the host waits for the device: what is read of it does not grow with the rows, nor with every token."""

from __future__ import annotations

from collections import Counter

import pytest
import torch
from torch.overrides import TorchFunctionMode

from llamagym_tui.config import PPOConfig
from llamagym_tui.engine.learning.ppo import PPO
from llamagym_tui.engine.policy.sampler import TOGETHER, Sampler
from tests.engine.learning.test_ppo import collect
from tests.engine.policy.test_sampler import scored

READS = (
    "item",
    "tolist",
    "__int__",
    "__float__",
    "__bool__",
    "__index__",
    "nonzero",
    "cpu",
    "numpy",
    "to_list",
)
MADE = ("tensor", "as_tensor")


class Transfers(TorchFunctionMode):
    """Counts what is read of tensors, and tensors made of what the host has."""

    def __init__(self) -> None:
        super().__init__()
        self.read, self.made = Counter[str](), Counter[str]()

    def __torch_function__(self, func, types, args=(), kwargs=None):
        name = getattr(func, "__name__", "")
        for names, counts in ((READS, self.read), (MADE, self.made)):
            counts[name] += name in names
        return func(*args, **(kwargs or {}))


def test_what_waits_for_the_device_is_counted():
    with Transfers() as transfers:
        values = torch.tensor([1.0])
        assert values.item() == 1.0
        assert values.tolist() == [1.0]
        assert int(values) == 1
        assert bool(values)
        assert values.nonzero().shape == (1, 1)
    assert +transfers.read == {"item": 1, "tolist": 1, "__int__": 1, "__bool__": 1, "nonzero": 1}
    assert transfers.made["tensor"] == 1


def played(make_policy, rows: int, **generation) -> tuple[Transfers, Transfers, int]:
    """Transfers of a first and a second turn in so many rows, and the tokens of the longest reply."""
    policy = make_policy(**generation)
    policy.chat.end_ids = [-1]  # nothing ends a reply, so all are as long
    sampler, counts = Sampler(policy, rows), []
    sampler._together = TOGETHER
    prompts = [[20 + row, 5, 6, 7] for row in range(rows)]
    for slot in range(rows):
        sampler.restart(slot, (8, 9))
    for _ in range(2):
        with Transfers() as transfers:
            replies = sampler.reply(range(rows), prompts)
        counts.append(transfers)
        prompts = [[reply.ids[-1], 10, 11] for reply in replies]
    return counts[0], counts[1], max(len(reply.ids) for reply in replies)


@pytest.mark.parametrize("kind", ["generate", "score"])
def test_the_number_of_transfers_does_not_grow_with_the_rows(make_policy, kind):
    few, many = (played(make_policy, rows, policy=kind, max_new_tokens=17) for rows in (3, 24))
    for turn in (0, 1):
        assert +many[turn].read == +few[turn].read
        assert many[turn].made["tensor"] == few[turn].made["tensor"]


def test_a_reply_is_read_once_every_eight_tokens(make_policy):
    read, made = {}, {}
    for tokens in (9, 17, 33):
        _, turn, length = played(make_policy, 6, max_new_tokens=tokens)
        assert length == tokens
        read[tokens], made[tokens] = turn.read.total(), turn.made.total()
    assert read[33] - read[17] == 2 * (read[17] - read[9]) == 2
    assert read[9] <= 4, "values, the tree, what was drawn first, what was drawn then"
    assert made[33] - made[17] == 2 * (made[17] - made[9]), (
        "index tensors are made when the host has looked, not before"
    )


def test_tokens_that_are_drawn_together_have_the_log_probabilities_of_a_plain_forward(make_policy):
    policy = make_policy(max_new_tokens=13)
    policy.chat.end_ids = [*policy.chat.end_ids, *range(40, 80)]
    sampler, lengths = Sampler(policy, 6), set()
    sampler._together = TOGETHER
    rows = [[8, 9, 20 + slot % 4, 7] for slot in range(6)]
    prompts = [row[2:] for row in rows]
    for slot in range(6):
        sampler.restart(slot, (8, 9))
    for _ in range(3):
        for slot, reply in enumerate(sampler.reply(range(6), prompts)):
            before = len(rows[slot])
            rows[slot] += reply.ids
            logprobs, value = scored(policy, rows[slot], before, len(rows[slot]))
            assert reply.logprobs == pytest.approx(logprobs, abs=1e-4)
            assert reply.value == pytest.approx(value, abs=1e-4)
            assert reply.ended == (reply.ids[-1] in policy.chat.end_ids)
            assert reply.ended or len(reply.ids) == 13
            lengths.add(len(reply.ids))
            rows[slot] += [10, 11]
            prompts[slot] = [reply.ids[-1], 10, 11]
    assert len(lengths) > 1


def test_an_update_reads_as_often_whatever_the_number_of_rows(make_policy):
    counts = []
    for rows in (4, 16):
        policy = make_policy()
        ppo, batch = (
            PPO(policy, PPOConfig(mini_batch_size=64, critic_warmup_updates=0, update_kl=1e9)),
            collect(policy, rows, turns=1),
        )
        with Transfers() as transfers:
            ppo.update(batch)
        counts.append(+transfers.read)
    assert counts[0] == counts[1]
    counts[0].pop("item")  # Adam's counts of steps, which are on the host
    assert counts[0].total() <= 30


def test_replies_that_follow_their_tree_or_leave_it_are_as_probable_where_they_are_drawn_together(
    make_policy,
):
    policy = make_policy(max_new_tokens=12)
    (stick, hit), sampler = policy.trie.replies, Sampler(policy, 3)
    sampler._together, extend = TOGETHER, sampler.extend
    script = [list(stick), list(hit), [*hit[:2], 7, 9, 11, hit[-1]]]

    def scripted(logits, replies, live, *rest, **named):
        step = iter(range(TOGETHER))

        def sample(logits, greedy):
            at = next(step)
            ids = [[*script[i], *[5] * 12][len(replies[i].ids) + at] for i in live]
            return torch.tensor(ids), logits.log_softmax(-1)[range(len(live)), ids]

        sampler.sample = sample
        return extend(logits, replies, live, *rest, **named)

    sampler.extend = scripted
    for slot in range(3):
        sampler.restart(slot, (8, 9))
    for slot, reply in enumerate(sampler.reply(range(3), [[20 + slot, 7] for slot in range(3)])):
        row = [8, 9, 20 + slot, 7, *script[slot]]
        assert reply.ids == script[slot]
        assert reply.logprobs == pytest.approx(scored(policy, row, 4, len(row))[0], abs=1e-4)
