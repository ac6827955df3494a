"""Learning from preferences: the ids of a rollout, a loss worked by hand, nothing changed but the weights."""

from __future__ import annotations

from math import log

import pytest
import torch

from benchmarks.hit_probabilities import hit_probabilities
from llamagym_tui.agents.blackjack import BlackjackAgent
from llamagym_tui.engine.learning.imitation import learn_from
from llamagym_tui.engine.learning.ppo import PPO
from llamagym_tui.engine.learning.trl_training import pair_row
from llamagym_tui.engine.model.loading import load_model_and_tokenizer
from llamagym_tui.engine.policy.policy import Policy
from llamagym_tui.game.chat import Preference, assistant, system, user
from llamagym_tui.settings import DPOSettings, GenerationConfig, PPOConfig, WarmStartStats

AGENT = BlackjackAgent()
HIT, STICK = AGENT.format_action(1), AGENT.format_action(0)
JOKE = "I would rather tell a joke about cards than play another hand of them."


def pair(total: int, card: int = 10, *, chosen: str = HIT, rejected: str = STICK) -> Preference:
    observation = AGENT.format_observation((total, card, 0))
    return Preference([system(AGENT.get_system_prompt()), user(observation)], chosen, rejected)


def prefer(policy: Policy, pairs: list[Preference], settings: DPOSettings) -> WarmStartStats:
    return learn_from(PPO(policy, PPOConfig()), pairs, settings)


def test_a_pair_has_the_ids_that_the_policy_sees(make_policy) -> None:
    policy = make_policy()
    later = Preference(
        [*pair(8).prompt, assistant(HIT), user(AGENT.format_observation((19, 10, 0)))],
        chosen=STICK,
        rejected=HIT,
    )
    row = pair_row(policy, later)
    assert policy.chat.text(row["prompt_ids"]) == policy.chat.text(policy.chat.prompt(later.prompt))
    assert row["prompt_ids"] == policy.chat.prompt(later.prompt)
    assert row["chosen_ids"] == [*policy.chat.reply_ids(STICK)]
    assert row["rejected_ids"] == [*policy.chat.reply_ids(HIT)]
    assert row["chosen_ids"][-1] == policy.chat.end_ids[0]


@pytest.mark.parametrize("lora", [False, True])
def test_the_loss_is_that_of_the_change_since_the_policy_before(make_policy, lora: bool) -> None:
    policy = make_policy(lora=lora)
    model = policy.model.pretrained_model
    before = {name: weight.detach().clone() for name, weight in policy.model.named_parameters()}
    trained = {name for name, weight in policy.model.named_parameters() if weight.requires_grad}
    row = pair_row(policy, pair(12))

    def gap() -> float:
        """log p(chosen) - log p(rejected), ends included."""
        sums = []
        for reply in (row["chosen_ids"], row["rejected_ids"]):
            ids = torch.tensor([row["prompt_ids"] + reply])
            with torch.no_grad():
                logprobs = model(input_ids=ids).logits[0].log_softmax(-1)
            at = len(row["prompt_ids"])
            sums.append(sum(logprobs[at + k - 1, token].item() for k, token in enumerate(reply)))
        return sums[0] - sums[1]

    gaps = [gap()]
    settings = DPOSettings(epochs=1, min_steps=0, batch_size=1, lr=1e-2, warmup=0.0, beta=0.5)
    first = prefer(policy, [pair(12)], settings)
    assert first.first_loss == pytest.approx(log(2))  # the policy is its own reference
    assert first.steps == 1
    gaps.append(gap())
    assert gaps[1] > gaps[0]
    # A second training has the policy after the first as its reference; its second step sees the change of its first.
    second = prefer(
        policy,
        [pair(12)],
        DPOSettings(epochs=2, min_steps=0, batch_size=1, lr=1e-3, warmup=0.0, beta=0.5),
    )
    assert second.first_loss == pytest.approx(log(2))
    assert second.steps == 2
    assert second.last_loss < log(2)
    after = dict(policy.model.named_parameters())
    assert after.keys() == before.keys()
    assert {name for name, weight in after.items() if weight.requires_grad} == trained
    same = {name for name, weight in before.items() if torch.equal(after[name], weight)}
    assert not any("v_head" in name for name in before.keys() - same)
    assert any(name in trained for name in before.keys() - same)
    assert policy.version == 2


@pytest.mark.slow
def test_corrections_raise_the_probability_of_the_action_they_choose() -> None:
    """24 made corrections, one a state in which the model would stick: hit."""
    loaded = load_model_and_tokenizer("bundled", "cpu")
    policy = Policy(
        loaded.model, loaded.tokenizer, GenerationConfig(max_new_tokens=8), [STICK, HIT]
    )
    states = [(total, card, 0) for total in (12, 13, 14, 15) for card in (2, 3, 4, 5, 6, 7)]
    high = [(total, card, 0) for total in (18, 19, 20, 21) for card in range(1, 11)]

    def hits(states: list[tuple[int, int, int]]) -> float:
        return sum(hit_probabilities(policy, AGENT.get_system_prompt(), states).values()) / len(
            states
        )

    before, high_before = hits(states), hits(high)
    stats = prefer(policy, [pair(total, card) for total, card, _ in states], DPOSettings())
    assert (stats.demonstrations, stats.steps) == (24, 60)
    assert stats.first_loss == pytest.approx(log(2), rel=1e-3)
    assert stats.last_loss < log(2)
    assert (before, hits(states)) == (
        pytest.approx(0.384, abs=0.002),
        pytest.approx(0.490, abs=0.01),
    )
    assert hits(high) - high_before < 0.5 * (
        hits(states) - before
    )  # where nothing was corrected, less changes
