"""What the bundled model's card claims, measured on the weights that ship."""

from __future__ import annotations

import pytest

from benchmarks.exact_blackjack import STATES, expected_return, greedy
from benchmarks.hit_probabilities import AGENT, hit_probabilities, load_policy
from scripts.bundled_model import blackjack


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
        (
            "If the dealer shows 5 or more hit below 18, else hit below 9.",
            blackjack.by_dealer(5, 18, 9),
        ),
    ],
)
def test_it_follows_prompts_that_need_exact_reading(policy, text, rule):
    chosen = hit_probabilities(policy, f"{AGENT.get_system_prompt()} {text}")
    right = sum((p > 0.5) == rule(state) for state, p in chosen.items())
    assert right / len(STATES) >= 0.95


def test_a_bold_and_a_cautious_prompt_differ_by_thirty_points(policy):
    assert hit_rate(policy, "Be bold.") - hit_rate(policy, "Be cautious.") > 0.30
