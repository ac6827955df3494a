"""Log-probabilities of what was decided: those of a plain log-softmax, gradients too, in the memory of the logits."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from llamagym_tui.engine.model import forward
from llamagym_tui.engine.model.forward import Scorer, entropy, scored
from llamagym_tui.engine.policy.decisions import (
    Decisions,
    collated_choices,
    reply_decisions,
    token_decisions,
)
from llamagym_tui.engine.policy.trajectory import Choice

PLACES, IDS = torch.tensor([0, 0, 2, 3, 3, 4]), torch.tensor([1, 5, 0, 8, 8, 3])
BRANCHES, CHILDREN = torch.tensor([0, 3, 5]), torch.tensor([[1, 5, -1], [0, 1, 2], [8, 0, -1]])


def scorer_of(logits: Tensor, temperature: float) -> Scorer:
    """Scores tokens by their logits, whose memory it takes."""
    return lambda places, ids: scored(logits, places, ids, temperature)


def plain(logits: Tensor, temperature: float) -> Decisions:
    """As the definition has it, with every number of the vocabulary kept."""
    logprobs = (logits / temperature).log_softmax(-1)
    parting = logprobs[PLACES[BRANCHES]]
    among = torch.stack([
        torch.distributions.Categorical(logits=each[ids[ids >= 0]]).entropy()
        for each, ids in zip(parting, CHILDREN, strict=True)
    ])  # fmt: skip
    entropy = torch.distributions.Categorical(logits=logprobs).entropy()
    return Decisions(logprobs[PLACES, IDS], entropy[PLACES].detach(), among)


def loss(found: Decisions) -> Tensor:
    return (found.logprobs * torch.arange(-2.0, 4)).sum() + (
        found.action_entropy * torch.tensor([1.0, -2, 3])
    ).sum()


@pytest.mark.parametrize("at_once", [1, 25, 10**6])
def test_tokens_are_scored_as_by_a_plain_log_softmax_whatever_the_pieces(monkeypatch, at_once):
    monkeypatch.setattr(forward, "LOGITS_AT_ONCE", at_once)
    torch.manual_seed(0)
    weights = torch.randn(5, 10, requires_grad=True)
    expected = plain(weights * 3, 0.7)
    of_expected = torch.autograd.grad(loss(expected), weights)[0]
    found = token_decisions(scorer_of(weights * 3, 0.7), PLACES, IDS, BRANCHES, CHILDREN)
    for one, other in zip(found, expected, strict=True):
        assert torch.allclose(one, other, rtol=0, atol=1e-5)
    assert torch.allclose(
        torch.autograd.grad(loss(found), weights)[0], of_expected, rtol=0, atol=1e-5
    )


def test_entropy_of_a_uniform_distribution_is_the_log_of_its_size_and_what_cannot_be_counts_for_nothing():
    logprobs = torch.tensor([[0.25] * 4, [0.5, 0.5, 0, 0]]).log()
    assert entropy(logprobs).tolist() == pytest.approx([math.log(4), math.log(2)])


def of_branches(logits: Tensor, children: Tensor) -> Tensor:
    tokens = torch.arange(len(children))
    return token_decisions(
        scorer_of(logits * 1.0, 1.0), tokens, tokens, tokens, children
    ).action_entropy


def test_entropy_of_a_branch_looks_at_admissible_tokens_only():
    logits = torch.tensor([[0.0, 0.0, 9.0, 0.0], [0.0, 1.0, 9.0, 3.0]])
    p = torch.tensor([0.0, 1.0, 3.0]).softmax(0)
    expected = [math.log(2), -(p * p.log()).sum().item()]
    assert of_branches(logits, torch.tensor([[0, 1, -1], [0, 1, 3]])).tolist() == pytest.approx(
        expected, abs=1e-6
    )


def test_entropy_of_a_branch_has_a_finite_gradient_next_to_padding():
    logits = torch.tensor([[1.0, 0, 0, 0]], requires_grad=True)
    of_branches(logits, torch.tensor([[0, 1, -1]])).sum().backward()
    assert logits.grad is not None
    assert logits.grad[0, 0] < 0 < logits.grad[0, 1]
    assert logits.grad[0, 2:].tolist() == pytest.approx([0, 0], abs=1e-7)


def test_a_choice_among_replies_is_scored_as_by_a_plain_log_softmax():
    torch.manual_seed(0)
    weights = torch.randn(4, 10, requires_grad=True)
    places, ids = torch.tensor([0, 1, 0, 2]), torch.tensor([3, 4, 5, 6])
    choice = Choice(1, 0.0, ((3, 4), (5, 6)), (1.0, 2.0))
    choices = collated_choices([choice], [(0, 0), (0, 0), (0, 1), (0, 1)], torch.device("cpu"))
    each = (weights * 3).log_softmax(-1)[places, ids]
    expected = (torch.stack([each[:2].sum(), each[2:].sum() / 2]) / 0.7).log_softmax(-1)
    found = reply_decisions(scorer_of(weights * 3, 1.0), places, ids, choices, 0.7)
    assert torch.allclose(found.logprobs, expected[1:], rtol=0, atol=1e-5)
    ours, theirs = (
        torch.autograd.grad(one.sum(), weights)[0] for one in (found.logprobs, expected[1:])
    )
    assert torch.allclose(ours, theirs, rtol=0, atol=1e-5)
