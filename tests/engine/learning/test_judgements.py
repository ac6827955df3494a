"""Judgements: hand-worked scores and fits, and a person who teaches three kinds of points."""

from __future__ import annotations

import time
from operator import eq
from statistics import median
from typing import Any

import pytest
import torch

from llamagym_tui.engine.learning.judgements import (
    NOISE,
    PRECISION,
    Belief,
    Judgement,
    certainty,
    choose,
    fit,
    lens_of,
    ruled_out,
    sort,
)
from llamagym_tui.engine.sorter import Sorter


def generator() -> torch.Generator:
    return torch.Generator().manual_seed(0)


def test_one_label_is_one_row_of_a_ridge_for_every_action() -> None:
    features = torch.tensor([[1.0, 1.0]])
    belief = fit(features, [Judgement(0, shown=2, label=1)], 3)
    # (x x' + p I)^-1 x y = x y / (p + x'x), with x'x = 2
    weight = 1 / (PRECISION + 2)
    wanted = [[-0.5 * weight] * 2, [weight] * 2, [-0.5 * weight] * 2]
    torch.testing.assert_close(belief.mean, torch.tensor(wanted))


def test_wrong_tells_of_the_shown_action_alone() -> None:
    belief = fit(torch.tensor([[1.0]]), [Judgement(0, shown=0, label=None)], 3)
    assert belief.mean.flatten().tolist() == pytest.approx([-0.5 / (PRECISION + 1), 0.0, 0.0])
    # Uncertainty shrinks for the shown action alone.
    spreads = [NOISE / (PRECISION + 1) ** 0.5, NOISE / PRECISION**0.5, NOISE / PRECISION**0.5]
    assert belief.spread.flatten().tolist() == pytest.approx(spreads)


def test_of_two_actions_a_wrong_one_names_the_right_one() -> None:
    features = torch.tensor([[1.0]])
    by_thumb = fit(features, [Judgement(0, shown=0, label=None)], 2)
    by_label = fit(features, [Judgement(0, shown=0, label=1)], 2)
    assert torch.equal(by_thumb.mean, by_label.mean)


def test_a_certain_belief_chooses_the_higher_score() -> None:
    belief = Belief(torch.tensor([[0.0], [1.0]]), torch.zeros(2, 1, 1))
    assert choose(belief, torch.tensor([1.0]), generator()) == 1
    assert choose(belief, torch.tensor([-1.0]), generator()) == 0


def test_what_was_ruled_out_is_never_sorted_so_and_a_label_is_certain() -> None:
    belief = Belief(torch.tensor([[0.0], [1.0], [2.0]]), torch.zeros(3, 1, 1))
    judgements = [Judgement(0, shown=2, label=None), Judgement(1, shown=2, label=0)]
    wrong = ruled_out(judgements, 3, 3)
    assert wrong.tolist() == [[False, False, True], [False, True, True], [False, False, False]]
    assert sort(belief, torch.ones(3, 1), wrong).tolist() == [1, 0, 2]
    shares = certainty(belief, torch.ones(3, 1), wrong, generator())
    assert shares.tolist() == [[0, 1, 0], [1, 0, 0], [0, 0, 1]]


def test_certainty_is_shared_before_any_judgement() -> None:
    belief = fit(torch.ones(1, 1), [], 2)
    (shares,) = certainty(belief, torch.ones(1, 1), ruled_out([], 1, 2), generator())
    assert shares.sum() == 1
    assert 0.25 < shares[0] < 0.75


def test_items_that_do_not_differ_have_the_constant_feature_alone() -> None:
    lens = lens_of(torch.ones(3, 4))
    assert lens.features(torch.ones(3, 4)).tolist() == [[1.0]] * 3


def points(count: int) -> tuple[list[str], torch.Tensor, list[int]]:
    """Items of three kinds, by turns, with their states."""
    noise = torch.randn(count, 8, generator=generator()) / 4
    kinds = [item % 3 for item in range(count)]
    states = noise + 3 * torch.eye(8)[kinds]
    return [str(item) for item in range(count)], states, kinds


def read(sorter: Sorter, states: torch.Tensor) -> None:
    """Read all items; the actions' names tell nothing."""

    def state(text: str) -> torch.Tensor:
        return states[int(text)] if text.isdecimal() else torch.ones(states.shape[1])

    sorter.read_all(lambda texts: torch.stack([state(text) for text in texts]))


def test_thumbs_teach_what_nobody_judged() -> None:
    items, states, kinds = points(90)
    sorter = Sorter(items, ["a", "b", "c"])
    read(sorter, states)
    for _ in range(30):
        shown = sorter.shown
        assert shown is not None
        sorter.judge(shown.action if shown.action == kinds[shown.item] else None)
    rest = range(30, 90)
    right = sum(int(sorter.chosen[item]) == kinds[item] for item in rest)
    assert right >= 57
    assert sorter.score().judged == 30
    assert sum(sorter.unjudged_by_action()) == 60


class Watched(Sorter):
    """Looks at each item at the moment when it is shown, as another thread could."""

    def __setattr__(self, name: str, value: Any) -> None:
        assert name != "shown" or value is None or len(value.certainties) == len(self.actions)
        super().__setattr__(name, value)


def test_an_item_is_shown_with_its_certainties_at_once() -> None:
    items, states, _ = points(90)
    sorter = Watched(items, ["a", "b", "c"])
    read(sorter, states)
    sorter.judge(None)
    assert sorter.shown is not None


def test_a_judgement_among_ten_thousand_items_takes_some_milliseconds() -> None:
    items, states, kinds = points(10_000)
    sorter = Sorter(items, ["a", "b", "c"])
    read(sorter, states)
    took = []
    for item in range(21):
        before = time.thread_time()
        sorter.judge(kinds[item])
        took.append(time.thread_time() - before)
    assert median(took) <= 0.03


def test_a_judgement_that_is_taken_back_leaves_no_trace() -> None:
    items, states, kinds = points(12)
    sorter = Sorter(items, ["a", "b", "c"])
    read(sorter, states)
    before = sorter.shown
    sorter.judge(kinds[0])
    assert sorter.shown is not None
    assert sorter.shown.item == 1
    sorter.take_back()
    assert sorter.shown == before


def test_the_names_of_the_actions_sort_before_any_judgement() -> None:
    items, states, kinds = points(30)
    sorter = Sorter(items, ["a", "b", "c"])
    of_text = dict(zip([*items, "a", "b", "c"], [*states, *(3 * torch.eye(8)[:3])], strict=True))
    sorter.read_all(lambda texts: torch.stack([of_text[text] for text in texts]))
    found = sorter.chosen.tolist()
    assert sum(map(eq, found, kinds)) >= 27
