"""Reading actions out of replies, kind ones and hostile ones."""

from __future__ import annotations

import time

import pytest

from llamagym_tui.game.actions import FAILED, ActionReading, read_action
from tests.llamagym_agent import SeedAgent

NAMES = ("stick", "hit")


@pytest.mark.parametrize(
    ("reply", "action"),
    [
        ('{"action": 1}', 1),
        ('{"action": 0}', 0),
        ('{"Action": " HIT "}', 1),
        ('{"action": "0"}', 0),
        ('I think so.\n```json\n{"action": 1, "why": "low"}\n```', 1),
        ('[{"action": 1}]', 1),
        ('{"name": "act", "arguments": {"action": 1}}', 1),
        ('{"name": "act", "arguments": "{\\"action\\": 1}"}', 1),
        ('{"name": "stick", "arguments": "{\\"action\\": 1}"}', 1),
    ],
)
def test_json_is_read_first(reply: str, action: int) -> None:
    assert read_action(reply, NAMES) == ActionReading(action, "json")


@pytest.mark.parametrize(
    ("reply", "action"),
    [
        ("Action: 1", 1),
        ("action = stick", 0),
        ("My action is hit.", 1),
        ("**Action**: `0`", 0),
        ("Action: 1.", 1),
        ('{"action": 1', 1),
        ('{"thought": {"action": 0}}', 0),
    ],
)
def test_a_pattern_is_read_where_there_is_no_json(reply: str, action: int) -> None:
    assert read_action(reply, NAMES) == ActionReading(action, "pattern")


def test_a_keyword_is_read_last() -> None:
    assert read_action("I would HIT here", NAMES) == ActionReading(1, "keyword")


def test_json_outranks_a_pattern_that_says_otherwise() -> None:
    assert read_action('Action: 0. {"action": 1} Action: 0.', NAMES) == ActionReading(1, "json")


def test_the_last_json_object_counts() -> None:
    assert read_action('{"action": 0} no, {"action": 1}', NAMES).action == 1


def test_the_last_pattern_counts() -> None:
    assert read_action("Action: 0? No. Action: 1", NAMES) == ActionReading(1, "pattern")


def test_an_object_without_an_admissible_action_is_passed_over() -> None:
    assert read_action('{"action": 0} {"action": 7}', NAMES) == ActionReading(0, "json")


def test_two_names_in_a_reply_are_no_keyword() -> None:
    assert read_action("hit or stick?", NAMES) == FAILED


def test_a_name_inside_another_word_is_no_keyword() -> None:
    assert read_action("white sticky", NAMES) == FAILED


def test_the_longer_of_two_names_that_overlap_counts() -> None:
    assert read_action("go up-left", ("left", "up-left")) == ActionReading(1, "keyword")


@pytest.mark.parametrize(
    "reply",
    [
        "",
        "\x00",
        '{"action": true}',
        '{"action": null}',
        '{"action": 1.5}',
        '{"action": -1}',
        '{"action": 2}',
        '{"action": [1]}',
        '{"action": NaN}',
        '{"action": "1e0"}',
        '{"action": ' + "9" * 5000 + "}",
        "Action: 1.5",
        "Action: 1,000",
        "action is 1st",
        "action: -1",
        "Action:",
    ],
)
def test_what_is_no_action_fails(reply: str) -> None:
    assert read_action(reply, NAMES) == FAILED


@pytest.mark.parametrize(
    "piece",
    [
        "{",
        '{"a":',
        '{"action":',
        "[",
        "action ",
        "action:",
        '"',
        "\\",
        '[{"a":',
        '{"arguments":',
        "<a>",
        "```",
        "<think>",
        "</think>",
        "action a='b' ",
        "action: (",
        "*action*\n",
        "1 ",
        "not ",
        '{"action":[]},',
    ],
)
def test_a_hostile_reply_fails_soon(piece: str) -> None:
    begun = time.process_time()
    assert read_action(piece * 50_000, NAMES).failed
    assert time.process_time() - begun < 5.0, "0.2 s, or 15 s were all of it read"


def test_without_names_nothing_is_an_action() -> None:
    assert read_action('{"action": 0} hit', ()) == FAILED


@pytest.mark.parametrize(
    ("reply", "reading"),
    [
        ('{"action": 1}', ActionReading(1, "json")),
        ('Action: 0. {"action": 1}', ActionReading(1, "json")),
        ('Action: 0. {"name": "act", "arguments": {"action": 1}}', ActionReading(1, "json")),
        ('<think>{"action": 0}</think> {"action": 1} or Action: 0', ActionReading(1, "json")),
        ('Action: 0 <think>{"action": 1}', ActionReading(0, "custom")),
        ('Action: 0 [{"action": 1}, {"action": 0}]', ActionReading(0, "custom")),
        ('{"action": 0}', ActionReading(0, "custom")),  # as it reads it itself
        ("Action: 1", ActionReading(1, "custom")),
        ("I hit.", ActionReading(1, "custom")),
        ('{"action": "1"} with a card', ActionReading(0, "custom")),
        ('{"action": true}', ActionReading(0, "custom")),
        ('{"action": -1}', ActionReading(0, "custom")),
        ('{"action": 3}', ActionReading(0, "custom")),  # its prompt names 0 and 1
    ],
)
def test_json_counts_for_an_agent_that_reads_no_json(reply: str, reading: ActionReading) -> None:
    assert SeedAgent().read(reply) == reading
