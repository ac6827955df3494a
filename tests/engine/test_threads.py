"""The number of threads is chosen by what it costs."""

from __future__ import annotations

import time

import pytest
import torch

from llamagym_tui.engine.threads import calibrate_threads, update_like_step


@pytest.fixture(autouse=True)
def _one_thread_afterwards():
    yield
    torch.set_num_threads(1)


def step_that_takes(seconds_by_threads: dict[int, float], tried: list[int]):
    def step() -> None:
        tried.append(torch.get_num_threads())
        time.sleep(seconds_by_threads[torch.get_num_threads()])

    return step


def on_cores(monkeypatch, count: int) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda pid: set(range(count)), raising=False)


def test_more_threads_are_taken_only_if_they_are_clearly_faster(monkeypatch):
    on_cores(monkeypatch, 4)
    assert calibrate_threads(step_that_takes({1: 0.02, 2: 0.01, 4: 0.005}, [])) == 4
    assert calibrate_threads(step_that_takes({1: 0.02, 2: 0.0195, 4: 0.001}, [])) == 1
    assert torch.get_num_threads() == 1


def test_a_count_that_is_much_slower_is_tried_once(monkeypatch):
    on_cores(monkeypatch, 2)
    tried: list[int] = []
    assert calibrate_threads(step_that_takes({1: 0.01, 2: 0.1}, tried)) == 1
    assert tried.count(2) == 1


def test_the_measured_work_changes_nothing(make_policy):
    policy = make_policy()
    before = [p.clone() for p in policy.model.parameters()]
    update_like_step(policy)()
    assert all(torch.equal(a, b) for a, b in zip(before, policy.model.parameters(), strict=True))
    assert all(p.grad is None for p in policy.model.parameters())
