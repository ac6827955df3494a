"""What the bundled model's card claims, measured on the weights that ship."""

from __future__ import annotations

import pytest

from benchmarks.exact_blackjack import STATES, expected_return, greedy
from benchmarks.hit_probabilities import AGENT, hit_probabilities, load_policy
from scripts.bundled_model import blackjack
from scripts.bundled_model.check import followed_on_hands, probe


@pytest.fixture(scope="module")
def policy(request):
    from llamagym_tui.engine.model.sources import bundled_model_path

    return load_policy(bundled_model_path())


def hit_rate(policy, manner: str) -> float:
    return sum(hit_probabilities(policy, f"{AGENT.get_system_prompt()} {manner}").values()) / len(
        STATES
    )


def test_it_plays_the_default_prompt_badly(policy):
    chosen = hit_probabilities(policy, AGENT.get_system_prompt())
    assert -0.40 < expected_return(chosen.__getitem__) < -0.25
    assert expected_return(greedy({state: p > 0.5 for state, p in chosen.items()})) < -0.15


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("Hit below 13.", blackjack.below(13)),
        ("Stick at 18 or more.", blackjack.below(18)),
        (
            "If the dealer shows 7 or more hit below 16, else hit below 12.",
            blackjack.by_dealer(7, 16, 12),
        ),
        (
            "If the dealer shows 5 or more hit below 18, else hit below 9.",
            blackjack.by_dealer(5, 18, 9),
        ),
    ],
)
def test_it_follows_prompts_that_need_exact_reading_on_new_hands(policy, text, rule):
    assert followed_on_hands(policy, text, rule) >= 0.95


def test_a_bold_and_a_cautious_prompt_differ_by_thirty_points(policy):
    assert hit_rate(policy, "Be bold.") - hit_rate(policy, "Be cautious.") > 0.30


def test_a_linear_probe_reads_the_state_at_the_first_reply_token(policy):
    assert min(probe(policy).values()) >= 0.95
