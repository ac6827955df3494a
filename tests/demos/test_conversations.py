"""Conversations that other programs have written become demonstrations, or are left out with a reason."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from llamagym_tui.agents.blackjack import BlackjackAgent
from llamagym_tui.cli.main import app
from llamagym_tui.demos import export
from llamagym_tui.demos import files as demo_files
from llamagym_tui.demos.conversations import Form, Imported, imported
from llamagym_tui.demos.training_data import training_data
from llamagym_tui.errors import DemoFileError
from tests.demos.test_files import a_demo

AGENT = BlackjackAgent()
PROMPT = AGENT.get_system_prompt()
NOW = datetime(2026, 1, 31, 12, tzinfo=UTC)
CALLED = {"name": "act", "arguments": '{"action": 1}'}
CALL = {"id": "1", "type": "function", "function": CALLED}


def said(*texts: str, **names: str) -> list[dict[str, str]]:
    """Messages of a user and an assistant in turn, by the names that a form has for them."""
    roles = (names.get("user", "user"), names.get("assistant", "assistant"))
    role, content = names.get("role", "role"), names.get("content", "content")
    return [{role: roles[at % 2], content: text} for at, text in enumerate(texts)]


SHAREGPT = {"role": "from", "content": "value", "user": "human", "assistant": "gpt"}
FORMS: list[tuple[Form, dict[str, Any], str, list[str]]] = [
    # form, row, system prompt, the other messages
    ("openai", {"messages": said("You have 12.", "Action: 1")}, PROMPT, ["You have 12.", "Action: 1"]),
    (
        "openai",
        {"messages": [{"role": "developer", "content": "Play."}, *said("12", '{"action": 1}', "18", "stick")]},
        "Play.",
        ["12", '{"action": 1}', "18", "stick"],
    ),
    (
        "openai",
        {"messages": [{"role": "user", "content": [{"type": "text", "text": "12"}]},
                      {"role": "assistant", "content": None, "tool_calls": [CALL]},
                      {"role": "tool", "tool_call_id": "1", "content": "18"},
                      {"role": "assistant", "content": "I stick."}]},
        PROMPT,
        ["12", json.dumps(CALLED, separators=(",", ":")), "18", "I stick."],
    ),
    ("openai", {"messages": said("12", "hit", "You won.")}, PROMPT, ["12", "hit"]),
    ("sharegpt", {"conversations": said("12", "hit", **SHAREGPT)}, PROMPT, ["12", "hit"]),
    (
        "sharegpt",
        {"system": "Play.", "conversations": said("12", "<think>?</think>hit", "18", "stick", **SHAREGPT)},
        "Play.",
        ["12", "<think>?</think>hit", "18", "stick"],
    ),
    (
        "sharegpt",
        {"conversations": [{"from": "system", "value": "Play."},
                           *said("12", "hit", **SHAREGPT | {"user": "observation", "assistant": "function_call"})]},
        "Play.",
        ["12", "hit"],
    ),
    ("alpaca", {"instruction": "You have 12.", "input": "", "output": "hit"}, PROMPT, ["You have 12.", "hit"]),
    ("alpaca", {"instruction": "Which?", "input": "12", "output": "hit"}, PROMPT, ["Which?\n\n12", "hit"]),
    ("alpaca", {"instruction": PROMPT, "input": "12", "output": "hit"}, PROMPT, ["12", "hit"]),
    (
        "alpaca",
        {"system": "Play.", "instruction": "18", "output": "stick", "history": [["12", "hit"]]},
        "Play.",
        ["12", "hit", "18", "stick"],
    ),
    ("pairs", {"prompt": "You have 12.", "completion": "hit"}, PROMPT, ["You have 12.", "hit"]),
    (
        "pairs",
        {"prompt": [{"role": "system", "content": "Play."}, *said("12", "hit", "18")],
         "completion": [{"role": "assistant", "content": "stick"}]},
        "Play.",
        ["12", "hit", "18", "stick"],
    ),
]  # fmt: skip


def from_rows(folder: Path, form: Form, *rows: Any, content: bytes | None = None) -> Imported:
    path = folder / "theirs.json"
    lines = "\n".join(row if isinstance(row, str) else json.dumps(row) for row in rows)
    path.write_bytes(lines.encode() if content is None else content)
    return imported(path, form, AGENT, "blackjack", clock=lambda: NOW)


@pytest.mark.parametrize(("form", "row", "prompt", "messages"), FORMS)
def test_a_conversation_of_each_form_is_a_demonstration_by_the_agents_own_reading(
    tmp_path: Path, form: Form, row: dict[str, Any], prompt: str, messages: list[str]
) -> None:
    found = from_rows(tmp_path, form, row)
    [demo] = found.demonstrations
    assert demo.system_prompt == prompt
    assert [message["content"] for message in demo.messages[1:]] == messages
    assert demo.actions == [AGENT.read(reply).action for reply in messages[1::2]]
    assert demo.actions == [1, 0][: demo.length]
    assert (demo.rewards, demo.source, demo.end) == ([0.0] * demo.length, "import", "truncated")
    assert (found.left_out, found.unanswered) == ([], int("You won." in str(row)))
    path = tmp_path / "ours.jsonl"
    demo_files.write(path, found.demonstrations)
    assert demo_files.check(path, AGENT) == []
    assert training_data(AGENT, path).demonstrations == [demo]


@pytest.mark.parametrize(
    ("form", "row", "why"),
    [
        ("openai", "{", "truncated"),
        ("openai", "7", "it is no object"),
        ("openai", {"conversations": []}, "it has no field messages, but conversations"),
        ("openai", {"messages": []}, "it has no messages"),
        ("openai", {"messages": "hit"}, "its field messages is no list of messages"),
        ("openai", {"messages": ["hit"]}, "'hit' is no message"),
        ("openai", {"messages": [{"role": "judge", "content": "x"}]}, "the role 'judge'"),
        ("openai", {"messages": said("12", " ")}, "a message of assistant is empty"),
        ("openai", {"messages": said("12")}, "it has no reply"),
        ("openai", {"messages": said("12", "Hm.")}, "turn 1, 'Hm.': The agent reads no action"),
        ("openai", {"messages": said("12", "hit", "18", "hit or stick")}, "turn 2, 'hit or stick'"),
        ("openai", {"messages": said("hit", "12")[::-1]}, "do not take turns, the user first"),
        ("openai", {"messages": [*said("12"), *said("12", "hit")]}, "do not take turns"),
        (
            "openai",
            {"messages": [*said("12", "hit"), {"role": "system", "content": "x"}, *said("18", "hit")]},
            "a system message stands within",
        ),
        (
            "openai",
            {"messages": [{"role": "user", "content": [{"type": "image_url"}]}, *said("hit")]},
            "a part that is no text",
        ),
        ("openai", {"messages": said("12", "hit"), "episode_return": 1.0}, "demos merge"),
        ("sharegpt", {"messages": said("12", "hit")}, "it has no field conversations, but messages"),
        ("sharegpt", {"conversations": ["hit"]}, "'hit' is no message"),
        ("alpaca", {"instruction": "12"}, "it has no field output"),
        ("alpaca", {"instruction": "12", "output": "hit", "history": [["1"]]}, "no list of pairs"),
        ("pairs", {"prompt": "12"}, "it has no field completion"),
        ("pairs", {"prompt": "12", "completion": 7}, "its field completion is no list"),
    ],
)  # fmt: skip
def test_what_is_no_example_is_left_out_with_its_reason(
    tmp_path: Path, form: Form, row: Any, why: str
) -> None:
    good = next(given for name, given, _, _ in FORMS if name == form)
    found = from_rows(tmp_path, form, good, row, good)
    assert len(found.demonstrations) == 1
    assert [fault.line for fault in found.left_out] == [2, 3]
    assert why in found.left_out[0].sentence
    assert found.left_out[1].sentence == "it is the same as that of line 1"
    with pytest.raises(DemoFileError, match=r"no conversation to learn from \(line 1: "):
        from_rows(tmp_path, form, row)


def test_the_text_beside_a_call_and_the_parts_of_a_text_are_lines_of_the_reply(
    tmp_path: Path,
) -> None:
    parts = [{"type": "text", "text": "I have"}, "12."]
    messages = [
        {"role": "user", "content": parts},
        {"role": "assistant", "content": "Low.", "tool_calls": [CALL, CALL]},
        {"role": "function", "content": "18"},
        {"role": "assistant", "content": "", "function_call": CALLED},
    ]
    [demo] = from_rows(tmp_path, "openai", {"messages": messages}).demonstrations
    spelled = json.dumps(CALLED, separators=(",", ":"))
    assert demo.observations == ["I have\n12.", "18"]
    assert demo.replies == [f"Low.\n{spelled}\n{spelled}", spelled]


def test_an_array_blank_lines_and_a_byte_order_mark_are_read(tmp_path: Path) -> None:
    rows = [{"messages": said("12", "hit")}, {"messages": said("18", "stick")}]
    as_array = b"\xef\xbb\xbf" + json.dumps(rows, indent=2).encode()
    as_lines = b"\xef\xbb\xbf\n" + b"\r\n\n".join(json.dumps(row).encode() for row in rows)
    for content in (as_array, as_lines):
        found = from_rows(tmp_path, "openai", content=content)
        assert [demo.actions for demo in found.demonstrations] == [[1], [0]]
    with pytest.raises(DemoFileError, match=r"no conversation to learn from \(it is empty"):
        from_rows(tmp_path, "openai", content=b"[]\n"[:0])


def test_a_reply_that_is_not_trained_on_stays_so(tmp_path: Path) -> None:
    messages: list[dict[str, Any]] = said("12", "hit", "18", "stick")
    messages[1]["weight"] = 0
    [demo] = from_rows(tmp_path, "openai", {"messages": messages}).demonstrations
    assert [message.get("weight") for message in demo.lesson] == [None, None, 0, None, None]


def test_what_was_exported_as_pairs_comes_back(tmp_path: Path) -> None:
    ours, pairs = tmp_path / "ours.jsonl", tmp_path / "pairs.jsonl"
    demo = a_demo()
    demo_files.write(ours, [demo])
    export.to_lines(ours, pairs, "pairs")
    found = imported(pairs, "pairs", AGENT, "blackjack", clock=lambda: NOW).demonstrations
    assert found[-1].messages == demo.messages
    assert found[-1].actions == demo.actions


def test_the_command_says_what_it_wrote_and_what_it_left_out(tmp_path: Path) -> None:
    path, out = tmp_path / "theirs.json", tmp_path / "ours.jsonl"
    rows: list[Any] = [{"messages": said("12", "hit", "You won.")}]
    rows += [{"messages": said(str(total), "Hm.")} for total in range(7)]
    path.write_text(json.dumps(rows))
    words = ["demos", "import", "openai", str(path), "--agent", "blackjack", "-o", str(out)]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 0
    first, second, third, *reasons, last = done.stdout.splitlines()
    assert first == f"{out}: 1 episode; rewards are not known and are 0"
    assert second == "the last message of 1 conversation, without a reply, is left out"
    assert third == "7 conversations left out:"
    assert len(reasons) == 5
    assert reasons[0].startswith("  line 2: turn 1, 'Hm.': The agent reads no action")
    assert last == "  and 2 more"
    assert [demo.actions for demo in demo_files.read(out)] == [[1]]


def test_replies_are_read_by_the_names_of_an_environments_actions_too(tmp_path: Path) -> None:
    file, path, out = tmp_path / "mine.py", tmp_path / "theirs.json", tmp_path / "ours.jsonl"
    file.write_text(
        "from llamagym_tui import Agent\n\nclass Mine(Agent):\n    env_id = 'Blackjack-v1'\n\n"
        "    def get_system_prompt(self): return 'Play.'\n\n"
        "    def format_observation(self, observation): return str(observation)\n"
    )
    path.write_text(json.dumps([{"prompt": "12", "completion": "Action: 1"}]))
    words = ["demos", "import", "pairs", str(path), "--agent", str(file), "-o", str(out)]
    assert CliRunner().invoke(app, words).exit_code == 0
    assert (
        CliRunner().invoke(app, ["demos", "check", str(out), "--agent", str(file)]).exit_code == 0
    )
