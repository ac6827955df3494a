"""The lessons of the bundled model: every wording means what it says, and some are kept back."""

from __future__ import annotations

import json
import random
import re

import pytest

from scripts.bundled_model import blackjack, worlds
from scripts.bundled_model.conditions import BELOW, MAKERS, Numbers, said
from scripts.bundled_model.grammar import SYMBOL, WORDS, expanded, is_kept_back, worded
from scripts.bundled_model.instructions import Instruction, either
from scripts.bundled_model.lessons import Chance, Mark

ANGLE = Numbers({"angle": (0, 99)}, {})
TWO = Numbers({"angle": (0, 99), "speed": (0, 99)}, {})


def drawn_until(text: str, kind: str, of: Numbers) -> tuple[str, object]:
    """A condition of the kind whose text has the words, drawn from many seeds."""
    for seed in range(3000):
        condition = MAKERS[kind](Chance(seed), of)
        if text in condition.text:
            return condition.text, condition.holds
    raise AssertionError(text)


@pytest.mark.parametrize(
    ("words", "kind", "first_false_or_true"),
    [
        ("is below", "below", lambda n: {n - 1: True, n: False}),
        ("at most", "below", lambda n: {n: True, n + 1: False}),
        ("has not reached", "below", lambda n: {n - 1: True, n: False}),
        ("or more", "from", lambda n: {n: True, n - 1: False}),
        ("more than", "from", lambda n: {n: False, n + 1: True}),
        ("not under", "from", lambda n: {n: True, n - 1: False}),
        ("is exactly", "equals", lambda n: {n: True, n - 1: False}),
    ],
)
def test_a_limit_belongs_to_the_side_that_its_wording_names(words, kind, first_false_or_true):
    text, holds = drawn_until(words, kind, ANGLE)
    (number,) = re.findall(r"\d+", text)
    for value, wanted in first_false_or_true(int(number)).items():
        assert holds({"angle": value}) == wanted, text


def test_two_numbers_are_compared_in_the_order_of_the_wording():
    for seed in range(40):
        condition = MAKERS["larger"](Chance(seed), TWO)
        first_is_larger = not re.search(
            "below|less|smaller|lower|under|beneath|<|reach|short", condition.text
        )
        first, second = re.findall("angle|speed", condition.text)
        assert condition.holds({first: 7, second: 6}) == first_is_larger, condition.text
        assert not condition.holds({first: 7, second: 7})


def test_a_limit_is_written_as_its_neighbour_where_the_wording_needs_that():
    assert said("{x} is at most {n-1}", x="angle", n=40) == "angle is at most 39"
    assert said("{y} is above {m+1}", y="the speed", m=7) == "the speed is above 8"


def test_half_the_drawn_instructions_name_the_action_of_the_other_case_first():
    for seed in range(200):
        made = either(Chance(seed), ANGLE, ("left", "right"), kind="below")
        for value in (0, 99):
            assert (
                made.act({"angle": value}) == made.actions[0 if made.told({"angle": value}) else 1]
            )


def test_a_wording_that_is_kept_back_is_in_no_lesson_but_each_of_its_words_is():
    lessons = {worded(Chance(seed), BELOW) for seed in range(3000)}
    every = {
        expanded(form, random.Random(seed).choice, WORDS) for form in BELOW for seed in range(500)
    }
    plain = {form for form in BELOW if len(SYMBOL.findall(form)) < 2}
    kept_back = {text for text in every - plain if is_kept_back(text)} - lessons
    assert len(lessons) > 12 < len(kept_back)
    words = {word for text in lessons for word in text.split()}
    assert {word for text in kept_back for word in text.split()} <= words


def test_no_lesson_at_the_table_has_a_sentence_that_is_kept_back():
    at_the_table = [blackjack.instruction(Chance(seed)).text for seed in range(2000)]
    assert not blackjack.KEPT_BACK & {blackjack.form(text) for text in at_the_table}


@pytest.mark.parametrize(
    ("text", "first_stick"),
    [("hit below n.", 0), ("stick at n or more.", 0), ("hit with n or less.", 1)],
)
def test_a_limit_at_the_table_is_the_first_total_that_sticks(text, first_stick):
    drawn = (blackjack._limit(Chance(seed)) for seed in range(20_000))
    made = next(each for each in drawn if blackjack.form(each.text) == text)
    (number,) = map(int, re.findall(r"\d+", made.text))
    rule = blackjack.rule_of(made)
    assert rule((number + first_stick - 1, 7, False))
    assert not rule((number + first_stick, 7, False))


def test_marks_stand_at_the_last_character_of_what_they_are_about():
    made = Instruction(
        "If the angle is below 40, go left, else right.",
        lambda state: 0,
        "below",
        lambda state: state["angle"] < 40,
        (1, 0),
        ("angle", 40),
        ("go left", "right"),
    )
    prompt = f"You play. {made.text}"
    named = {
        prompt[mark.at - 3 : mark.at + 1]: (mark.index, mark.role)
        for mark in made.own_marks(prompt)
    }
    assert named == {"left": ("1", "yes"), "ight": ("0", "no")}
    shown = "Speed 7, angle 39."
    assert made.marks(shown, {"speed": 7, "angle": 39}) == (
        Mark(6, "no"),
        Mark(16, "yes", "yes", "yes"),
    )
    assert made.hints({"speed": 7, "angle": 40}) == ("no", "no", "1", "0", "", "", "40", "40")


def test_every_reply_of_a_world_is_in_the_format():
    for seed in range(300):
        for exchanges in worlds.lesson(Chance(seed), 2).conversations:
            for exchange in exchanges:
                assert json.loads(exchange.reply[exchange.reply.index("{") :])["action"] >= 0
