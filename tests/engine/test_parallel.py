"""Parts of a batch that threads compute side by side."""

from __future__ import annotations

import threading

import pytest
import torch
from msgspec.structs import replace

from llamagym_tui.engine.learning.packing import Row, parts_of
from llamagym_tui.engine.learning.ppo import PPO
from llamagym_tui.engine.parallel import on_threads
from llamagym_tui.engine.policy.trajectory import Segment, Turn
from tests.engine.learning.second_rank import steady, weights_of
from tests.engine.learning.test_ranks import SETTINGS, collect, require_equal_figures


def test_each_part_has_a_thread_and_results_keep_their_order():
    meet = threading.Barrier(3, timeout=20)  # broken unless all three wait in it at once

    def work(part: int) -> tuple[int, int, int]:
        meet.wait()
        return part, torch.get_num_threads(), threading.get_ident()

    found = on_threads(work, [10, 20, 30])
    assert [part for part, *_ in found] == [10, 20, 30]
    assert [count for _, count, _ in found] == [1, 1, 1]
    assert len({thread for *_, thread in found}) == 3


@pytest.mark.parametrize("fails", [0, 1])
def test_an_error_is_raised_once_every_part_has_ended(fails: int):
    ended, go_on = [], threading.Event()

    def work(part: int) -> None:
        if part == fails:
            go_on.set()
            raise ValueError(part)
        go_on.wait(20)
        ended.append(part)

    with pytest.raises(ValueError, match=str(fails)):
        on_threads(work, [0, 1])
    assert ended == [1 - fails]


def test_parts_have_about_as_much_to_compute_and_neighbours_stay_together():
    def row(*ids: int) -> Row:
        turn = Turn(start=len(ids) - 1, end=len(ids), logprobs=(0.0,), value=0.0, reward=0.0)
        return Row(Segment((0,), list(ids), [turn]), first_turn=0)

    # One long row, 9 distinct ids and 1 scored; five that differ in their last one: 2, and 5 more of the first.
    long, *short = row(*range(20, 29)), *(row(1, 2, 3, 4, 5, last) for last in range(6, 11))
    first, second = parts_of([long, *reversed(short)], 2)
    assert [each.segment.ids for each in first] == [each.segment.ids for each in short[:4]]
    assert second == [short[4], long]
    assert [list(part) for part in parts_of([long], 3) if part] == [[long]]


@pytest.mark.usefixtures("either_path")
@pytest.mark.parametrize(
    ("either_path", "lora", "changes"),
    [
        ("lean", True, {"mini_batch_size": 32}),
        ("general", False, {"credit": "token"}),
        *(
            pytest.param(*case, marks=pytest.mark.slow)
            for case in (
                ("lean", False, {"mini_batch_size": 32}),
                ("lean", True, {}),
                ("lean", False, {}),
                ("lean", False, {"credit": "token"}),
                ("general", False, {"mini_batch_size": 32}),
                ("general", True, {}),
            )
        ),
    ],
    indirect=["either_path"],
)
def test_threads_learn_of_parts_what_one_learns_of_all_and_the_same_bits_again(
    make_policy, lora, changes
):
    def learnt(count: int):
        policy = make_policy(lora=lora)
        policy.threads = count
        ppo = steady(PPO(policy, replace(SETTINGS, epochs=2, **changes), seed=3))
        stats = [ppo.update(batch) for batch in batches]
        return weights_of(ppo), stats

    batches = [collect(make_policy(lora=lora)) for _ in range(2)]
    (alone, figures), (divided, its_figures), (again, _) = learnt(1), learnt(3), learnt(3)
    for one, other, third in zip(alone, divided, again, strict=True):
        torch.testing.assert_close(other, one, rtol=0, atol=1e-5)
        assert torch.equal(other, third)
    assert its_figures[0].first_ratio < 1e-4
    for one, other in zip(figures, its_figures, strict=True):
        require_equal_figures(other, one)


def test_a_row_alone_is_learnt_by_one_of_the_threads(make_policy):
    batch = collect(make_policy())[:1]

    def learnt(count: int) -> list[torch.Tensor]:
        policy = make_policy()
        policy.threads = count
        ppo = steady(PPO(policy, replace(SETTINGS, whiten_advantages=False), seed=3))
        ppo.update(batch)
        return weights_of(ppo)

    for one, other in zip(learnt(1), learnt(3), strict=True):
        torch.testing.assert_close(other, one, rtol=0, atol=1e-5)
