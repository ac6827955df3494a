"""The lessons of the bundled model: every wording means what it says, and the check's are not among them."""

from __future__ import annotations

import json
import re

import pytest

from scripts.bundled_model import agents, blackjack, mixture, worlds
from scripts.bundled_model.conditions import BELOW, MAKERS, Numbers, said
from scripts.bundled_model.grammar import kept, worded
from scripts.bundled_model.instructions import Instruction, either
from scripts.bundled_model.lessons import Chance, Mark

ANGLE = Numbers({"angle": (0, 99)}, {})
TWO = Numbers({"angle": (0, 99), "speed": (0, 99)}, {})


def drawn_until(text: str, kind: str, of: Numbers) -> tuple[str, object]:
    """A condition of the kind whose text has the words, drawn from many seeds."""
    for seed in range(3000):
        condition = MAKERS[kind](Chance(seed), of, False)
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
        condition = MAKERS["larger"](Chance(seed), TWO, False)
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


def test_a_wording_is_either_of_lessons_or_of_the_check():
    lessons = {worded(Chance(seed), BELOW) for seed in range(3000)}
    check = {worded(Chance(seed), BELOW, held_out=True) for seed in range(3000)}
    assert not lessons & check
    assert len(lessons) > 12 < len(check)
    assert all(map(kept, check))


def test_every_word_of_the_checks_wordings_stands_in_those_of_lessons():
    lessons = {word for seed in range(3000) for word in worded(Chance(seed), BELOW).split()}
    assert {
        word for seed in range(500) for word in worded(Chance(seed), BELOW, held_out=True).split()
    } <= lessons


def test_no_lesson_at_the_table_has_a_sentence_of_the_check():
    at_the_table = [blackjack.instruction(Chance(seed)).text for seed in range(2000)]
    assert not blackjack.HELD_OUT_FORMS & {blackjack.form(text) for text in at_the_table}


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


def test_blackjack_and_frozen_lake_are_at_most_a_quarter():
    lakes = len([name for name in agents.GRIDS if "frozen" in name]) * 2
    worlds_that_ship = len(
        agents.GRIDS[:1] * 2 + agents.GRIDS[1:] * 2 + agents.BOXES * 2 + agents.DISCRETE
    )
    share = (
        mixture.SHARES[blackjack.lesson]
        + mixture.SHARES[agents.lesson] * (lakes + 1) / worlds_that_ship
    )
    assert sum(mixture.SHARES.values()) == pytest.approx(1)
    assert 0.15 < share < 0.25


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
