"""How probable each action is where the watched episode stands: on the right ids, under the right distribution."""

from __future__ import annotations

import pytest
import torch

from llamagym_tui.engine.policy.decisions import probabilities_of_actions, reply_logprobs
from llamagym_tui.engine.policy.episode import prompt_after
from llamagym_tui.game.chat import assistant, user
from llamagym_tui.protocol import events
from llamagym_tui.trainer.probes.inspect_reply import ActionProbes
from llamagym_tui.trainer.rollout.rollout import Rollout
from tests.toy_env import CountAgent, EndlessAgent


@pytest.fixture
def rollout(make_policy):
    emitted: list[events.Event] = []
    policy = make_policy(replies=[CountAgent().format_action(action) for action in (0, 1)])
    made = Rollout(
        EndlessAgent(), policy, n_envs=2, max_turns=9, batch_turns=100, seed=1, emit=emitted.append
    )
    made.emitted = emitted  # type: ignore[attr-defined]
    return made


def test_a_sampled_actions_probability_is_that_of_its_canonical_reply(make_policy):
    policy = make_policy(temperature=0.7)
    prompt = policy.chat.opening("Play.", "a b")
    (found,) = probabilities_of_actions(policy, [prompt])
    assert found == pytest.approx(
        reply_logprobs(policy, [prompt], policy.trie, 0.7)[0].exp().tolist(), abs=0
    )
    assert 0 < sum(found) < 1


@pytest.mark.parametrize("normalization", ["sum", "token", "word"])
def test_probabilities_of_the_score_policy_are_those_that_its_sampler_draws_from(
    make_policy, normalization
):
    from llamagym_tui.engine.policy.sampler import Sampler

    policy = make_policy(policy="score", temperature=0.6, normalization=normalization)
    prompt = policy.chat.opening("Play.", "a b")
    (found,) = probabilities_of_actions(policy, [prompt])
    assert sum(found) == pytest.approx(1.0)
    [reply] = Sampler(policy).reply([prompt])
    assert reply.choice is not None
    assert found[reply.choice.chosen] == pytest.approx(
        float(torch.tensor(reply.choice.logprob).exp()), abs=1e-4
    )


@pytest.mark.parametrize("turns", [1, 2, 3])
def test_the_pending_prompt_is_the_one_that_the_reply_is_sampled_on(rollout, turns):
    for _ in range(turns):
        rollout.step()
    where = rollout.pending_prompt()
    assert (where.env, where.turn) == (0, turns)
    segments = rollout.recall(where.episode)[0].segments
    segment_before = list(segments[-1].ids)
    rollout.step()
    segment = segments[-1]
    assert (where.prompt.prefix, list(where.prompt.rest)) == (
        segment.prefix,
        segment.ids[: segment.turns[-1].start],
    )
    assert len(segment.ids) > len(segment_before)


def test_a_pending_prompt_is_probed_once_under_the_same_weights(rollout):
    probing = ActionProbes(rollout.agent, rollout.policy)
    rollout.step()
    where = rollout.pending_prompt()
    first = probing.probe(where)
    assert (first.names, len(first.shares)) == (["wait", "go"], 2)
    assert probing.probe(where) is None
    with torch.no_grad():
        for weight in rollout.policy.model.parameters():
            weight.mul_(1.1)
    rollout.policy.version += 1
    again = probing.probe(where)
    assert again.shares != pytest.approx(first.shares, rel=0.01, abs=0)


def test_probing_draws_no_random_number_and_leaves_the_episode_alone(rollout):
    rollout.step()
    before = rollout.policy.generator.get_state()
    ActionProbes(rollout.agent, rollout.policy).probe(rollout.pending_prompt())
    assert (rollout.policy.generator.get_state() == before).all()
    assert rollout.slots[0].episode.turns == 1


@pytest.mark.parametrize("turns", [0, 2])
def test_a_conversation_that_a_person_plays_is_probed_on_the_ids_that_a_rollout_would_have(
    rollout, turns
):
    rollout.begin_episodes()
    for _ in range(turns):
        rollout.step()
    where, seat = rollout.pending_prompt(), rollout.slots[0]
    messages = [*seat.episode.conversation, user(seat.shown.text)]
    canonical = [
        assistant(CountAgent().format_action(0)) if message["role"] == "assistant" else message
        for message in messages
    ]
    found = prompt_after(rollout.policy, messages if turns == 0 else canonical)
    assert found.prefix == where.prompt.prefix
    if turns == 0:
        assert found == where.prompt
    else:
        assert rollout.policy.chat.prompt(canonical) == [*found.prefix, *found.rest]
