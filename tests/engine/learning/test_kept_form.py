"""The part of the loss that keeps replies in the form of admissible ones."""

from __future__ import annotations

import math

import pytest
import torch
from msgspec.structs import replace
from torch import Tensor

from llamagym_tui.config import LoraConfig
from llamagym_tui.engine.learning.kept_form import UNASKED, KeptForm
from llamagym_tui.engine.model.forward import Encoded
from llamagym_tui.engine.model.narrow import NarrowEncoded, NarrowHead
from llamagym_tui.engine.model.value_head import AutoModelForCausalLMWithValueHead
from llamagym_tui.engine.policy.fixed_trunk import states_of
from llamagym_tui.engine.policy.policy import Policy
from llamagym_tui.engine.tokens.token_tree import ActionTrie
from llamagym_tui.engine.tokens.tokenization import Opening
from tests.engine.conftest import tiny_llama
from tests.engine.learning.test_head_ppo import head_learner, head_policy, play

TRIE = ActionTrie([(5, 7), (5, 8)])
"""After the prompt comes 5; there, replies part."""


@pytest.fixture
def narrow() -> NarrowHead:
    """It sees a state's first number, and nothing has been learnt."""
    model = AutoModelForCausalLMWithValueHead(tiny_llama(16))
    model.adapt(LoraConfig(layers="head", r=1))
    narrow = NarrowHead(model.backbone.head)
    narrow.include([5, 7, 8], [7, 8])
    with torch.no_grad():
        narrow.down.zero_()[0, 0] = 1.0
    return narrow


def read(narrow: NarrowHead, features: list[float]) -> Encoded:
    """A prompt's last token and the node of 5, with what the adapter sees of each."""
    hidden = torch.zeros(1, 2, narrow.down.shape[1])
    hidden[0, :, 0] = torch.tensor(features)
    # Logits of 5, 7 and 8, and the log of the sum over all others.
    moved = torch.tensor([[[0.0, -10.0, -10.0], [-10.0, 0.0, 0.0]]])
    others = torch.tensor([[[-20.0, 0.0], [-5.0, 0.0]]])
    return NarrowEncoded(narrow, hidden, moved, others)


def loss(narrow: NarrowHead, encoded: Encoded) -> Tensor:
    return KeptForm(narrow, {TRIE.tree: TRIE}, [(TRIE.tree, encoded)]).loss()


def learn(narrow: NarrowHead, of_7: float, of_8: float) -> None:
    with torch.no_grad():
        narrow.up[7, 0], narrow.up[8, 0] = of_7 / narrow.scale, of_8 / narrow.scale


def test_an_action_before_the_reply_has_begun_costs_the_square_of_its_odds(narrow) -> None:
    encoded = read(narrow, [12.0, 0.0])
    assert loss(narrow, encoded) == 0
    learn(narrow, 1.0, 0.0)
    # Against 0 for the token 5: 2 for the token 7, -10 for 8, and -20 for all others.
    odds = math.log(math.exp(2) + math.exp(-10) + math.exp(-20))
    assert float(loss(narrow, encoded)) == pytest.approx((odds - UNASKED) ** 2, rel=1e-5)


def test_preferring_an_action_where_replies_part_costs_nothing(narrow) -> None:
    learn(narrow, 3.0, 0.0)
    assert loss(narrow, read(narrow, [0.0, 1.0])) == 0


def test_avoiding_all_actions_costs_what_the_other_tokens_gain(narrow) -> None:
    learn(narrow, -4.0, -4.0)
    # -5 for all others and -10 for 5, against log 2 at first and log 2 - 4 now. The odds at first are allowed.
    found = float(loss(narrow, read(narrow, [0.0, 1.0])))
    assert found == pytest.approx(4.0**2, rel=1e-5)


def test_it_is_a_mean_over_prompts(narrow) -> None:
    learn(narrow, 1.0, 0.0)
    alone, at_rest = read(narrow, [12.0, 0.0]), read(narrow, [0.0, 0.0])
    tries = {TRIE.tree: TRIE}
    both = KeptForm(narrow, tries, [(TRIE.tree, alone), (TRIE.tree, at_rest)]).loss()
    assert float(both) == pytest.approx(float(loss(narrow, alone)) / 2)


def leaving(policy: Policy, prompt: Opening) -> float:
    """Log-odds of a token with which no admissible reply begins, after a prompt."""
    narrow = policy.narrow
    assert narrow is not None
    encoded = states_of(policy, [prompt], policy.trie)
    first = torch.tensor([0])
    logprobs = encoded.logits_at(first, first).log_softmax(-1)[0]
    begins = sorted({reply[0] for reply in policy.trie.replies})
    staying = logprobs[begins].exp().sum()
    return float(((1 - staying) / staying).log())


def odds_after_updates(tokenizer, kind: str) -> tuple[float, float, float]:
    """Largest odds of leaving the form of a policy that has hardly learnt, of one that leaves it, and of that one after
    six updates."""
    policy = head_policy(tokenizer, "score")
    learner = head_learner(policy)
    learner.update(play(policy))
    narrow = policy.narrow
    assert narrow is not None
    found: list[float] = []

    def measure() -> None:
        prompts = [
            Opening(segment.prefix, tuple(segment.ids[: segment.turns[0].start]))
            for each in play(policy, 20)
            for segment in each.segments
        ]
        found.append(max(leaving(policy, prompt) for prompt in prompts))

    measure()
    with torch.no_grad():
        narrow.up[narrow.trained] *= 60.0
    policy.version += 1
    measure()
    for _ in range(6):
        policy.generation = replace(policy.generation, policy="score")
        batch = play(policy, as_free_text=True)
        policy.generation = replace(policy.generation, policy=kind)
        learner.update(batch)
    measure()
    return found[0], found[1], found[2]


def test_updates_bring_sampled_replies_back_to_the_form(tokenizer) -> None:
    at_first, before, after = odds_after_updates(tokenizer, "generate")
    assert before > at_first + 5
    assert after < before - 1


def test_the_form_is_not_asked_for_where_a_reply_is_chosen(tokenizer) -> None:
    _, before, after = odds_after_updates(tokenizer, "score")
    assert after > before
