"""What a person sees of the state: cards on a table, a walker on the lake."""

from __future__ import annotations

from typing import Any

from llamagym_tui.agents.blackjack import BlackjackAgent
from llamagym_tui.agents.frozen_lake import FrozenLakeAgent
from llamagym_tui.game.drawing import MAX_COLUMNS, MAX_LINES, drawn
from tests.toy_env import CountAgent


def test_cards_lie_on_the_table() -> None:
    assert BlackjackAgent().draw((14, 1, 1)).split("\n") == [
        "┌────┐ ┌────┐     ┌─────────┐",
        "│  A │ │ ░░ │     │ 14 soft │",
        "└────┘ └────┘     └─────────┘",
        "dealer            you",
    ]


def test_the_walker_stands_on_the_lake() -> None:
    assert FrozenLakeAgent().draw(6).split("\n") == [
        " S  ·  ·  · ",
        " ·  O [·] O ",
        " ·  ·  ·  O ",
        " O  ·  ·  G ",
    ]


class Renders:
    """An environment that renders what it is given."""

    render_mode = "ansi"

    def __init__(self, text: object) -> None:
        self.text = text

    def render(self) -> object:
        if isinstance(self.text, Exception):
            raise self.text
        return self.text


class Plain(CountAgent):
    """Draws nothing."""


class Draws(CountAgent):
    """Draws what it observes."""

    def draw(self, observation: Any) -> str:
        return observation  # type: ignore[no-any-return]


def test_what_gymnasium_marks_by_a_colour_is_marked_without_one() -> None:
    rendered = "  (Down)\nS\x1b[41mF\x1b[0mFF\nFH\x1b[1;32mF\x1b[mH\n"
    assert drawn(Plain(), Renders(rendered), 0) == ("  (Down)\nSFFF\nFHFH", ((10, 11), (16, 17)))
    assert drawn(Plain(), Renders(rendered), 0).bracketed() == "  (Down)\nS[F]FF\nFH[F]H"


def test_a_mark_lasts_until_the_next_colour_or_the_end() -> None:
    assert drawn(Plain(), Renders("a\x1b[31mb\x1b[32mc"), 0) == ("abc", ((1, 2), (2, 3)))
    assert drawn(Plain(), Renders("a\x1b[31m\x1b[0mb"), 0) == ("ab", ())


def test_a_drawing_is_bounded_whatever_is_drawn() -> None:
    for hostile in ("x" * 1_000_000, "x\n" * 1_000_000, "\x1b[1m" * 300_000, "\t" * 1_000_000):
        text, marks = drawn(Draws(), None, hostile)
        assert len(text) <= MAX_LINES * (MAX_COLUMNS + 1)
        text, marks = drawn(Plain(), Renders(hostile), 0)
        assert len(text) <= MAX_LINES * (MAX_COLUMNS + 1)
        assert len(marks) <= MAX_LINES * MAX_COLUMNS


def test_what_raises_or_is_no_text_draws_nothing() -> None:
    class Unsayable:
        def __str__(self) -> str:
            raise RuntimeError("no")

    assert drawn(Draws(), None, Unsayable()) == ("", ())
    assert drawn(Plain(), Renders(RuntimeError("no")), 0) == ("", ())
    assert drawn(Plain(), Renders(None), 0) == ("", ())
