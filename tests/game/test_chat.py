"""Conversations with the actions that are admissible in their turns."""

from __future__ import annotations

from llamagym_tui.game.chat import assistant, system, user, with_actions


def test_each_user_message_gets_the_actions_that_are_given_for_it() -> None:
    conversation = [
        system("Play."),
        user("a"),
        assistant("1"),
        user("b"),
        assistant("2"),
        user("c"),
    ]
    found = with_actions(conversation, [["hit"], None])
    assert found[1] == {**user("a"), "actions": ["hit"]}
    assert found[:1] + found[2:] == conversation[:1] + conversation[2:]
    assert "actions" not in conversation[1]
