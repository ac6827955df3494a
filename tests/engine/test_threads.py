"""The number of threads is chosen by what it costs."""

from __future__ import annotations

import time

import pytest
import torch

from llamagym_tui.engine import threads
from llamagym_tui.engine.threads import (
    calibrate_threads,
    calibrate_threads_for,
    update_like_step,
    use_threads,
)


@pytest.fixture(autouse=True)
def _one_thread_afterwards():
    yield
    torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def _threads_run_at_once(monkeypatch):
    monkeypatch.setattr(threads, "products", lambda: None)


def work_that_takes(seconds_by_threads: dict[int, float], tried: list[int]):
    def work() -> None:
        tried.append(torch.get_num_threads())
        if seconds := seconds_by_threads[torch.get_num_threads()]:
            time.sleep(seconds)

    return work


def on_cores(monkeypatch, count: int) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda pid: set(range(count)), raising=False)


def test_more_threads_are_taken_only_if_they_are_clearly_faster(monkeypatch):
    on_cores(monkeypatch, 4)
    assert calibrate_threads(work_that_takes({1: 0.04, 2: 0.02, 4: 0.01}, []), budget_s=9) == 4
    assert calibrate_threads(work_that_takes({1: 0.04, 2: 0.039, 4: 0.001}, []), budget_s=9) == 1
    assert torch.get_num_threads() == 1


def test_all_cores_are_tried_also_where_they_are_no_power_of_two(monkeypatch):
    on_cores(monkeypatch, 6)
    tried: list[int] = []
    seconds = {1: 0.08, 2: 0.04, 4: 0.02, 6: 0.01}
    assert calibrate_threads(work_that_takes(seconds, tried), budget_s=9) == 6
    assert set(tried) == {1, 2, 4, 6}


def test_a_count_that_is_much_slower_is_tried_once(monkeypatch):
    on_cores(monkeypatch, 2)
    tried: list[int] = []
    assert calibrate_threads(work_that_takes({1: 0.01, 2: 0.1}, tried)) == 1
    assert tried.count(2) == 1


def test_threads_that_wait_for_each_other_in_small_products_never_get_the_step(monkeypatch):
    on_cores(monkeypatch, 2)
    tried, probed = [], []
    monkeypatch.setattr(threads, "products", work_that_takes({1: 0.0, 2: 0.1}, probed))
    assert calibrate_threads(work_that_takes({1: 0.01, 2: 0.001}, tried)) == 1
    assert (tried.count(2), probed.count(2)) == (0, 1)


def test_once_the_time_is_up_no_further_count_is_tried(monkeypatch):
    on_cores(monkeypatch, 2)
    tried: list[int] = []
    assert calibrate_threads(work_that_takes({1: 0.01, 2: 0.001}, tried), budget_s=0.0) == 1
    assert set(tried) == {1}


def test_the_measured_work_changes_nothing(make_policy):
    policy = make_policy()
    before = [p.clone() for p in policy.model.parameters()]
    update_like_step(policy)()
    assert all(torch.equal(a, b) for a, b in zip(before, policy.model.parameters(), strict=True))
    assert all(p.grad is None for p in policy.model.parameters())


def test_a_large_model_is_measured_at_the_products_of_wide_layers(make_policy, monkeypatch):
    measured = []
    monkeypatch.setattr(threads, "SMALL_MODEL", 0)
    monkeypatch.setattr(threads, "update_like_step", None)
    monkeypatch.setattr(
        threads, "calibrate_threads", lambda step, use: measured.append(step()) or 1
    )
    assert calibrate_threads_for(make_policy()) == 1
    assert {tuple(product.shape) for product in measured[0]} == {(24, 2048)}


def test_batches_of_a_small_model_are_divided_among_threads_and_products_of_a_larger_one(
    make_policy, monkeypatch
):
    policy = make_policy()
    use_threads(policy, 2)
    assert (policy.threads, torch.get_num_threads()) == (2, 1)
    monkeypatch.setattr(threads, "SMALL_MODEL", 0)
    use_threads(policy, 2)
    assert (policy.threads, torch.get_num_threads()) == (1, 2)


def test_the_fastest_number_of_threads_is_found_for_a_small_model(make_policy, monkeypatch):
    on_cores(monkeypatch, 2)
    policy, seconds = make_policy(), {1: 0.04, 2: 0.02}
    monkeypatch.setattr(
        threads, "update_like_step", lambda policy: lambda: time.sleep(seconds[policy.threads])
    )
    assert calibrate_threads_for(policy) == 2
    assert policy.threads == 2


def test_where_batches_are_divided_products_are_not_probed_for_long(make_policy, monkeypatch):
    on_cores(monkeypatch, 2)
    probed: list[int] = []
    monkeypatch.setattr(threads, "products", lambda: probed.append(torch.get_num_threads()))
    monkeypatch.setattr(threads, "update_like_step", lambda policy: lambda: None)
    calibrate_threads_for(make_policy())
    assert 0 < len(probed) < threads.PROBES
    assert set(probed) == {1}
