"""A comparison in one sentence: what B does otherwise, what it earns by that, and how sure it is."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import structs

from llamagym_tui.protocol.events import (
    DepthMeasured,
    EvaluationFinished,
    PromptsCompared,
    WarmStartEvaluated,
)
from llamagym_tui.state.texts import compared_text, comparison_text, depth_text, unread_text
from tests import fakes


def side(version: int, prompt: str, mean: float) -> EvaluationFinished:
    return fakes.evaluation(
        mean,
        episodes=400,
        return_stderr=0.1,
        update=7,
        prompt_version=version,
        system_prompt=prompt,
    )


def comparison(**changes: Any) -> PromptsCompared:
    """Standard error 0.025: half of the interval is 0.049."""
    a, b = side(1, fakes.PROMPT, -0.2), side(2, "Hit below 13.", -0.08)
    found = {"pairs": 400, "difference": 0.12, "difference_stderr": 0.025, "enough": 0.05}
    return PromptsCompared(**{"a": a, "b": b, **found, **changes})


PAIRS = "400 pairs of episodes on the same seeds"


def test_one_sentence_has_what_a_side_earns_and_whether_that_may_be_chance() -> None:
    assert compared_text(comparison(), "chips a hand") == (
        f"B against A: +0.120 ± 0.049 chips a hand (95 %, {PAIRS})."
    )
    close = comparison(difference=0.01, enough=0.04)
    assert compared_text(close, "chips a hand") == (
        "B against A: +0.010 ± 0.049 chips a hand, which may be chance "
        f"(95 %, {PAIRS}; not yet ± 0.04)."
    )


@pytest.mark.parametrize(("share", "said"), [(0.5, ""), (0.51, "51%"), (0.94, "94%")])
def test_a_side_whose_replies_name_no_action_in_most_turns_says_so(share: float, said: str) -> None:
    found = comparison()
    b = structs.replace(found.b, parse_failure_rate=share)
    text = compared_text(structs.replace(found, b=b), "")
    if not said:
        assert text.endswith("same seeds).")
        return
    sentence = f" B's replies name no action in {said} of turns, so there the fallback plays."
    assert text.endswith(sentence)
    both = structs.replace(found, a=b, b=b)
    assert unread_text(both, "X") == sentence.replace(" B's", " X's") + sentence


BEFORE = fakes.evaluation(-0.4)
AFTER = fakes.evaluation(-0.05)


def test_what_it_has_changed_is_one_line() -> None:
    worse = structs.replace(AFTER, parse_failure_rate=0.162, greedy=False)
    # 1.96 · 0.05 = 0.098
    assert comparison_text(WarmStartEvaluated(before=BEFORE, after=worse)) == (
        "Warm start: replies without an action 0.0% → 16.2%, mean return −0.400 ± 0.098 → −0.050 ± 0.098, "
        "over 300 sampled episodes each"
    )
    fewer = WarmStartEvaluated(before=BEFORE, after=structs.replace(AFTER, episodes=128))
    assert comparison_text(fewer).endswith("over 300 and 128 sampled episodes")
    assert "→ −0.050 ± 0.098 chips a hand, over" in comparison_text(fewer, "chips a hand")


def test_the_depth_is_drawn_for_each_value_and_its_bars_are_seen_in_a_narrow_terminal() -> None:
    event = DepthMeasured(
        layers=[6, 12, 30],
        explained=[[0.24, 0.0, 0.1], [0.48, 0.2, 0.0], [0.0, 0.1, 0.0]],
        values=["reward", "return", "next observation"],
        read=12,
    )
    assert depth_text(event) == (
        "Layers 6–30: reward ▅█▁  return ▁█▅  observation █▁▁; bars: how much is foretold after 6, 12, 30 layers, "
        "at best 48% of the reward, 20% of the return, 10% of the next observation"
    )
    longest = structs.replace(event, layers=[6] * 7 + [30], explained=[[0.1, 0.1, 0.1]] * 8)
    bars, _, _ = depth_text(longest).partition(";")
    assert len(bars) < 70
