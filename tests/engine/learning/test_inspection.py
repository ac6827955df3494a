"""A reply token by token: sampled and present probabilities, and what the update used, each exactly."""

from __future__ import annotations

import dataclasses
import math

import pytest
import torch
from msgspec.structs import replace as replaced

from llamagym_tui.engine.learning.figures import is_clipped
from llamagym_tui.engine.learning.ppo import PPO
from llamagym_tui.engine.policy.decisions import reply_logprobs
from llamagym_tui.engine.tokens.tokenization import Opening
from llamagym_tui.settings import PPOConfig
from llamagym_tui.trainer.probes.inspect_reply import ReplyInspector
from llamagym_tui.trainer.rollout.rollout import Rollout
from tests.engine.conftest import REPLIES
from tests.toy_env import CountAgent

HAND = PPOConfig(
    lr=3e-2, lr_final=3e-2, epochs=2, mini_batch_size=8, critic_warmup_updates=0, kl_coef=0.0, kl_coef_final=0.0,
    entropy_coef=0.0, entropy_coef_final=0.0, gamma=1.0, lam=1.0, parse_penalty=0.0, reward_scale=1.0,
    whiten_advantages=False, clip_range=0.1, target_kl=None, update_kl=1e9,
)  # fmt: skip
"""Episodes of two turns that pay 1 at the end: every return is 1, every advantage 1 - V."""


class Course:
    """Two-turn episodes, updates, and the inspector."""

    def __init__(self, policy, config: PPOConfig = HAND) -> None:
        self.policy, self.ppo = policy, PPO(policy, config)
        self.rollout = Rollout(CountAgent(), policy, n_envs=4, max_turns=9, batch_turns=16, seed=1)
        self.inspecting = ReplyInspector(policy, self.ppo, self.rollout)

    def inspect(self, episode: int, turn: int):
        return self.inspecting.inspect(episode, turn)

    def fill(self) -> None:
        while not self.rollout.batch_ready:
            self.rollout.step()

    def update(self) -> list:
        self.fill()
        batch = self.rollout.take_batch()
        self.ppo.update(batch)
        return batch


@pytest.fixture
def course(make_policy):
    return Course(make_policy(temperature=0.7))


def plain(policy, segment, turn):
    """Log-probabilities and values of a turn's tokens by one plain forward, nothing shared, nothing cached."""
    with torch.no_grad():
        whole = policy.model(torch.tensor([[*segment.prefix, *segment.ids]]))
    places = slice(len(segment.prefix) + turn.start - 1, len(segment.prefix) + turn.end - 1)
    logprobs = (whole.logits[0, places] / policy.generation.temperature).log_softmax(-1)
    return logprobs, whole.values[0, places]


def place(batch, episode: int, turn: int):
    [segment] = next(each for each in batch if each.episode == episode).segments
    return segment, segment.turns[turn]


@pytest.mark.parametrize(
    ("ratio", "advantage", "clipped"),
    [
        (1.3, 1.0, True),
        (1.3, -1.0, False),
        (0.7, -1.0, True),
        (0.7, 1.0, False),
        (1.1, 1.0, False),
        (0.9, -1.0, False),
        (1.3, 0.0, False),
    ],
)
def test_a_token_is_clipped_only_where_the_ratio_has_gone_where_its_advantage_pushes(
    ratio, advantage, clipped
):
    assert is_clipped(ratio, advantage, 0.2) is clipped


def test_under_way_every_ratio_is_one_and_there_is_no_advantage_yet(course):
    course.rollout.step()
    seen = course.inspect(2, 0)
    assert (seen.why_not, seen.stage, seen.turns) == ("", "under_way", 1)
    assert (seen.sampled_by, seen.policy, seen.clip_range, seen.temperature) == (0, 0, 0.1, 0.7)
    for token in seen.tokens:
        assert token.decision.ratio == pytest.approx(1.0, abs=1e-4)
        assert token.decision.clipped is token.decision.advantage is token.decision.value is None


def test_before_its_update_a_reply_waits_and_its_ratio_is_one(course):
    course.fill()
    seen = course.inspect(0, 1)
    assert (seen.stage, seen.turns) == ("waiting", 2)
    assert [token.decision.ratio for token in seen.tokens] == pytest.approx(
        [1.0] * len(seen.tokens), abs=1e-4
    )


def test_after_an_update_every_number_is_that_of_a_plain_forward_and_of_the_return_worked_by_hand(
    course,
):
    batch = course.update()
    found_clipped = set()
    for episode in [trajectory.episode for trajectory in batch]:
        for number in (0, 1):
            segment, turn = place(batch, episode, number)
            seen = course.inspect(episode, number)
            logprobs, values = plain(course.policy, segment, turn)
            ids = segment.ids[turn.start : turn.end]
            assert (seen.stage, seen.sampled_by, seen.policy) == ("trained", 0, 1)
            assert [token.token for token in seen.tokens] == ids
            for at, token in enumerate(seen.tokens):
                decision, new = token.decision, float(logprobs[at, ids[at]])
                ratio = math.exp(new - turn.logprobs[at])
                advantage = 1.0 - turn.value
                assert decision.old == turn.logprobs[at]
                assert decision.new == pytest.approx(new, abs=1e-5)
                assert decision.ratio == pytest.approx(ratio, rel=1e-4)
                assert (decision.value, decision.target) == (
                    pytest.approx(turn.value),
                    pytest.approx(1.0),
                )
                assert decision.advantage == pytest.approx(advantage, abs=1e-6)
                assert decision.value_now == pytest.approx(float(values[0]), abs=1e-5)
                # On the edge of the clip range the ratios of two computations may lie on either side.
                if min(abs(ratio - 1.1), abs(ratio - 0.9)) > 1e-3:
                    assert decision.clipped == (ratio > 1.1 if advantage > 0 else ratio < 0.9)
                    found_clipped.add(decision.clipped)
    assert found_clipped == {True, False}


def test_alternatives_are_the_most_probable_tokens_and_those_that_lead_to_an_action_are_marked(
    course,
):
    batch = course.update()
    segment, turn = place(batch, 3, 0)
    seen = course.inspect(3, 0)
    probabilities = plain(course.policy, segment, turn)[0].exp()
    starts = {ids[0] for ids in course.policy.trie.replies}
    for at, token in enumerate(seen.tokens):
        shares = [other.probability for other in token.alternatives]
        assert shares == sorted(shares, reverse=True)
        assert token.token in {other.token for other in token.alternatives}
        for other in token.alternatives:
            assert other.probability == pytest.approx(
                float(probabilities[at, other.token]), abs=1e-5
            )
        assert shares[0] == pytest.approx(float(probabilities[at].max()), abs=1e-5)
    assert {other.token for other in seen.tokens[0].alternatives if other.admissible} == starts


def test_a_reply_of_somebody_else_has_no_ratio(course):
    batch = course.update()
    [segment] = next(each for each in batch if each.episode == 0).segments
    segment.turns[0] = dataclasses.replace(segment.turns[0], is_trained=False)
    seen = course.inspect(0, 0)
    assert not seen.said_by_policy
    assert {(token.decision.old, token.decision.ratio) for token in seen.tokens} == {(None, None)}


def test_a_reply_that_was_chosen_by_score_has_one_ratio_and_the_scores_of_all(make_policy):
    course = Course(
        make_policy(policy="score", temperature=0.6, normalization="token"),
        replaced(HAND, clip_range=0.01),
    )
    batch = course.update()
    segment, turn = place(batch, 4, 1)
    seen = course.inspect(4, 1)
    prompt = Opening(segment.prefix, tuple(segment.ids[: turn.start]))
    sums = reply_logprobs(course.policy, [prompt], course.policy.trie)[0]
    shares = (sums / torch.tensor(turn.choice.divisors) / 0.6).log_softmax(-1)
    new = float(shares[turn.choice.chosen])
    assert seen.choice.old == turn.choice.logprob
    assert seen.choice.new == pytest.approx(new, abs=1e-5)
    assert seen.choice.ratio == pytest.approx(math.exp(new - turn.choice.logprob), rel=1e-4)
    assert seen.choice.advantage == pytest.approx(1 - turn.value, abs=1e-6)
    assert [reply.probability for reply in seen.replies] == pytest.approx(
        sorted(shares.exp().tolist(), reverse=True)
    )
    assert [reply.text for reply in seen.replies if reply.chosen] == [REPLIES[turn.choice.chosen]]
    assert {token.decision.ratio for token in seen.tokens} == {None}
    assert sum(token.decision.new for token in seen.tokens) == pytest.approx(
        float(sums[turn.choice.chosen]), abs=1e-4
    )


def test_inspecting_draws_no_random_number_and_changes_no_weight(course):
    course.update()
    before = (
        course.policy.generator.get_state(),
        [p.clone() for p in course.policy.model.parameters()],
    )
    course.inspect(0, 0)
    assert (course.policy.generator.get_state() == before[0]).all()
    assert all(
        torch.equal(a, b) for a, b in zip(before[1], course.policy.model.parameters(), strict=True)
    )
    assert all(p.grad is None or not p.grad.isnan().any() for p in course.policy.model.parameters())


def test_a_reply_that_cannot_be_computed_gets_a_sentence_and_ends_no_run(course, monkeypatch):
    def fail(*_: object, **__: object) -> None:
        raise RuntimeError("out of memory")

    monkeypatch.setattr(course.inspecting, "_tokens", fail)
    course.rollout.step()
    assert course.inspect(0, 0).why_not == "RuntimeError: out of memory."


def test_without_a_critic_there_is_no_value_and_the_group_is_the_one_of_the_update(make_policy):
    course = Course(make_policy(temperature=0.7), replaced(HAND, learner="rloo"))
    course.rollout.group_size = 4
    course.fill()
    batch = course.rollout.take_batch()
    for number, trajectory in enumerate(batch):
        for segment in trajectory.segments:
            segment.turns[0] = dataclasses.replace(segment.turns[0], reward=float(number))
    course.ppo.update(batch)
    first = batch[0]
    found = course.inspect(first.episode, 1)
    mine = [each for each in batch if each.group == first.group]
    returns = torch.tensor([each.episode_return for each in mine])
    (group,) = found.groups
    assert (group.peers, group.size, found.learner) == ("episodes of its seed", 4, "rloo")
    assert group.mean == pytest.approx(float(returns.mean()))
    assert group.spread == pytest.approx(float(returns.std(unbiased=False)))
    for token in found.tokens:
        decision = token.decision
        assert (decision.value, decision.value_now) == (None, None)
        assert decision.ratio is not None
        others = (returns.sum() - returns[0]) / 3
        assert decision.advantage == pytest.approx(float(returns[0] - others))
        assert decision.target == pytest.approx(float(returns[0]))
