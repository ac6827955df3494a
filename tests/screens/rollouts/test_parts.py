"""A rollout in rows, and what its colours mean."""

from __future__ import annotations

import math
import time
import tracemalloc

import pytest
from textual.color import Color

from llamagym_tui.rollouts.rollout import Rollout, Said, Token
from llamagym_tui.screens.rollouts.colouring import LOG_RATIO, colourings, figures_of, token_style
from llamagym_tui.screens.rollouts.parts import Part, parted_from, parts_of, rows_of


def test_tokens_are_broken_where_the_next_one_has_no_room_and_at_line_ends():
    tokens = [Token("one"), Token(" two"), Token(" three\n"), Token("日本")]
    rows = rows_of([Part("assistant", "", tokens=tokens)], (), 8)
    assert [row.text for row in rows] == ["one two", " three", "日本"]
    assert rows[1].pieces == [(" three", tokens[2])]


def test_a_token_wider_than_a_row_is_in_several():
    (token,) = tokens = [Token("abcdef")]
    rows = rows_of([Part("assistant", "", tokens=tokens)], (), 4)
    assert [row.pieces for row in rows] == [[("abcd", token)], [("ef", token)]]


def test_each_turn_has_its_reward_below_it():
    rollout = Rollout((Said("assistant", "hit", reward=-1.0, note="hit 60%"), Said("user", "bust")))
    assert [(part.label, part.text) for part in parts_of(rollout)] == [
        ("assistant", "hit"),
        ("reward", "▼ −1 · hit 60%"),
        ("user", "bust"),
    ]


def labelled(text: str, role: str = "assistant") -> list[tuple[str, str]]:
    return [(part.label, part.text) for part in parts_of(Rollout((Said(role, text),)))]


def test_calls_and_answers_within_a_reply_of_verl_stand_apart_in_their_order():
    text = (
        "<think>I ask.</think>Wait.\n<tool_call>\nlook(1)\n</tool_call>\n<tool_response>\none\n<tool_call>\n"
        "</tool_response>\n<think>Good.</think>It is one.<tool_call>cut o"
    )
    parts = parts_of(Rollout((Said("assistant", text),)))
    assert [(part.label, part.text, part.folds) for part in parts] == [
        ("thought", "I ask.", True),
        ("assistant", "Wait.", False),
        ("call", "look(1)", True),
        ("tool", "one\n<tool_call>", True),
        ("thought", "Good.", True),
        ("assistant", "It is one.", False),
        ("call", "cut o", True),
    ]
    assert [part.style for part in parts][2:4] == [parts[1].style, parts[0].style]
    example = "Call as <tool_call>name()</tool_call>."
    assert labelled(example, "system") == [("system", example)]
    assert labelled("no call </tool_call>\n\n here") == [
        ("assistant", "no call </tool_call>\n\n here")
    ]


@pytest.mark.parametrize(
    "hostile", ["<tool_call>", "</tool_call>", "<tool_", "<", "<tool_call></tool_response>"]
)
def test_hostile_tags_take_no_time(hostile: str):
    began = time.perf_counter()
    labelled(hostile * (200_000 // len(hostile)))
    labelled(f"{hostile}</tool_call>" * (200_000 // len(hostile)))
    assert time.perf_counter() - began < 5.0


def test_a_long_reply_takes_little_more_memory_than_its_text():
    rollout = Rollout((Said("assistant", "word " * 400_000),))
    tracemalloc.start()
    parts_of(rollout)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 40e6


def test_facts_are_one_part_of_a_line_each():
    facts = (("episode", "181"), ("expected", "a\nb"), ("end", "truncated"))
    parts = parts_of(Rollout((Said("user", "3?"),), facts=facts))
    assert [part.label for part in parts] == ["fact", "user"]
    assert rows_of(parts, (), 80)[0].text == "episode: 181 · expected: a\nb · end: truncated"
    unfolded = [row.text for row in rows_of(parts, (0,), 80)]
    assert unfolded == ["episode: 181", "expected: a", "b", "end: truncated", "3?"]


def test_rollouts_part_where_their_words_do():
    asked = Part("user", "3 + 4?")
    one, other = parted_from(
        [[asked, Part("assistant", "It is 7")], [asked, Part("assistant", "It was")]]
    )
    assert [part.text for part in one] == ["… 10 characters alike …", "is 7"]
    assert [part.text for part in other] == ["… 10 characters alike …", "was"]


def test_rollouts_that_are_all_alike_are_shown_whole():
    parts = [Part("user", "3?"), Part("assistant", "4")]
    assert parted_from([parts, parts]) == [parts, parts]


def test_a_reference_that_thinks_a_token_impossible_gives_a_number():
    figures = figures_of(Rollout(()), Token("a", logprob=-1.0, reference=-math.inf))
    assert math.isfinite(figures["ratio"])


def test_the_advantage_of_the_rollout_is_that_of_its_tokens():
    said = Said("assistant", "a", tokens=(Token("a"),))
    assert colourings(Rollout((said,), advantage=0.5)) == ["advantage"]
    assert colourings(Rollout((said,))) == []


class Colours:
    native_ansi_color = True
    no_color = False


@pytest.mark.parametrize(
    ("logprob", "ground"),
    [(-0.1, None), (-2.0, "ansi_yellow"), (-math.inf, "ansi_yellow"), (math.nan, None)],
)
def test_an_improbable_token_is_amber(logprob: float, ground: str | None):
    style = token_style(Colours(), {"log-probability": logprob}, "log-probability")  # type: ignore[arg-type]
    assert style.background == (None if ground is None else Color.parse(ground))


def test_without_colours_a_token_is_underlined_below_0_and_bold_above():
    class NoColours(Colours):
        no_color = True

    app = NoColours()
    below, above = (token_style(app, {LOG_RATIO: each}, LOG_RATIO) for each in (-1.0, 1.0))  # type: ignore[arg-type]
    assert (below.underline, below.bold) == (True, False)
    assert (above.underline, above.bold) == (False, True)
