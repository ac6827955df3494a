"""How many observations a model distinguishes: worked by hand, and by models that see and that do not."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence

import pytest
import torch
from torch import Tensor

from llamagym_tui.agents.blackjack import BlackjackAgent
from llamagym_tui.config import GenerationConfig
from llamagym_tui.engine.learning import distinguished as module
from llamagym_tui.engine.learning.distinguished import (
    Distinguished,
    count_apart,
    differing_share,
    distinguished,
)
from llamagym_tui.engine.learning.packing import PackedRows, Row, forwards
from llamagym_tui.engine.model.forward import Encoded
from llamagym_tui.engine.model.loading import load_model_and_tokenizer
from llamagym_tui.engine.policy.episode import Episode
from llamagym_tui.engine.policy.policy import Policy
from llamagym_tui.engine.policy.sampler import Reply
from llamagym_tui.engine.policy.trajectory import Trajectory
from llamagym_tui.engine.tokens.token_tree import ForwardLimits

LIMITS = ForwardLimits(tokens=2048, scored=512)
WORDS = [f"At {number}." for number in range(20)]


def played(policy: Policy, *episodes: list[str], prompt: str = "Walk.") -> list[Trajectory]:
    """Episodes of these observations; each is replied to by the first action."""
    found = []
    for observations in episodes:
        episode = Episode(policy, prompt)
        for observation in observations:
            episode.observe(observation)
            ids = list(policy.trie.replies[0])
            episode.reply(Reply(ids, [-0.1] * len(ids), 0.0, True))
        found.append(episode.finish("terminated"))
    return found


def look(policy: Policy, batch: list[Trajectory]) -> Distinguished | None:
    """At a batch, by forwards."""
    backbone = policy.model.backbone

    def encode(rows: Sequence[Row]) -> Iterator[tuple[PackedRows, Encoded]]:
        for part in forwards(rows, LIMITS, backbone.device):
            yield part, part.encode(backbone)

    return distinguished(policy.chat, batch, encode)


def count(policy: Policy, *episodes: list[str]) -> tuple[int, int] | None:
    found = look(policy, played(policy, *episodes))
    return None if found is None else (found.observations, found.distinguished)


def blind(policy: Policy) -> Policy:
    """The same without attention: the last token of every prompt is the template's own."""
    for layer in policy.model.backbone.decoder.layers:
        torch.nn.init.zeros_(layer.self_attn.o_proj.weight)
    return policy


def at(first: float, *others: float) -> Tensor:
    return torch.tensor([[first, other] for other in others])


def test_states_are_apart_if_a_twentieth_of_their_spread_is_between_them():
    # Their mean is 0.485 and their spread 0.859: 0.043 is between those that are just apart.
    assert count_apart(at(1.0, -1.0, 1.0, 1.04, 0.9)) == 3
    assert count_apart(at(1.0, -1.0, 1.0, 1.05, 0.9)) == 4
    assert count_apart(at(1.0, -3.0, 3.0, 3.12, 2.7)) == 3, "a scale changes nothing"


def test_what_is_kept_is_apart_from_all_that_was_kept_before():
    # Their spread is 0.49, a twentieth 0.024: 0.02 is near to 0, and 0.04 only to 0.02, which was not kept.
    assert count_apart(at(1.0, 0.0, 1.0, 0.02, 1.02, 0.04)) == 3
    assert count_apart(at(1.0, *[0.0] * 9)) == 1


def test_states_that_differ_by_less_than_rounding_are_not_apart():
    # Their spread is 0.245, a twentieth 0.012; but half a percent of their length is 0.5.
    assert count_apart(at(100.0, 0.0, 0.3, 0.6)) == 2


def test_the_share_that_differs_is_that_of_the_power():
    # The mean is (10, 0); 1 of 101 of each state's power differs, along the second axis.
    assert differing_share(torch.tensor([[10.0, 1.0], [10.0, -1.0]])) == pytest.approx(1 / 101)


@pytest.mark.parametrize("lora", [False, True])
def test_a_model_that_attends_distinguishes_what_one_that_does_not_cannot(make_policy, lora):
    policy = make_policy(lora=lora)
    assert count(policy, *([word] for word in WORDS)) == (20, 20)
    assert count(blind(policy), *([word] for word in WORDS)) == (20, 1)


@pytest.mark.parametrize("history", [None, 0])
def test_an_observation_counts_once_wherever_it_stands(make_policy, history):
    policy = make_policy()
    policy.history = history
    assert count(policy, [*WORDS[:10], *WORDS[:10][::-1]]) == (10, 10)


def test_of_too_few_observations_nothing_is_concluded_and_of_many_some_are_looked_at(
    make_policy, monkeypatch
):
    policy = make_policy()
    assert count(policy, *([word] for word in WORDS[:9])) is None
    assert count(policy, *([word] for word in WORDS[:10])) == (10, 10)
    monkeypatch.setattr(module, "MOST", 12)
    assert count(policy, *([word] for word in WORDS)) == (12, 12)


def test_turns_of_a_person_are_left_out(make_policy):
    policy = make_policy()
    episode = Episode(policy, "Walk.")
    for word in WORDS:
        episode.observe(word)
        episode.add_untrained_reply('{"action": 1}')
    assert look(policy, [episode.finish("terminated")]) is None


def test_the_look_draws_nothing_and_leaves_no_gradient(make_policy):
    policy = make_policy()
    batch = played(policy, *([word] for word in WORDS))
    before = random.getstate(), torch.get_rng_state(), policy.generator.get_state()
    look(policy, batch)
    after = random.getstate(), torch.get_rng_state(), policy.generator.get_state()
    assert before[0] == after[0]
    assert all(torch.equal(one, other) for one, other in zip(before[1:], after[1:], strict=True))
    assert all(weight.grad is None for weight in policy.model.parameters())


def test_the_bundled_model_distinguishes_hands_of_blackjack(bundled):
    agent = BlackjackAgent()
    loaded = load_model_and_tokenizer(str(bundled), "cpu")
    policy = Policy(
        loaded.model, loaded.tokenizer, GenerationConfig(), ['{"action": 0}', '{"action": 1}']
    )
    hands = [
        agent.format_observation((total, card, 0))
        for total in range(8, 22)
        for card in range(1, 11)
    ]
    found = look(
        policy, played(policy, *([hand] for hand in hands), prompt=agent.get_system_prompt())
    )
    assert found is not None
    assert found.observations == 140
    assert found.distinguished > 120
