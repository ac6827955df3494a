"""The records of each format, as the writers of those projects make them."""

import json
from pathlib import Path

from llamagym_tui.rollouts.formats import ill_typed, rollouts_of
from llamagym_tui.rollouts.rollout import Rollout, Said, Token

FILES = Path(__file__).parent / "files"


def as_letters(ids):
    return [chr(ord("a") + each) for each in ids]


def only(record) -> Rollout:
    (found,) = rollouts_of(record, as_letters)
    return found


def test_a_line_of_verl():
    record = {
        "input": "user\n1+1?\nassistant\n",
        "output": "2",
        "gts": "2",
        "score": 1.0,
        "step": 7,
        "acc": True,
        "uid": "5_0_1",
    }
    assert only(record) == Rollout(
        (Said("prompt", "user\n1+1?\nassistant\n"), Said("assistant", "2")),
        step=7,
        reward=1.0,
        facts=(("gts", "2"), ("uid", "5_0_1")),
    )


def test_a_row_of_trl_has_the_sum_of_its_rewards():
    record = {
        "step": 3,
        "prompt": [{"role": "user", "content": "Add."}],
        "completion": [{"role": "assistant", "content": "5"}],
        "right": 1.0,
        "short": float("nan"),
        "polite": 0.25,
        "tries": 4,
        "advantage": -0.5,
    }
    found = only(record)
    assert (found.reward, found.advantage, found.step) == (1.25, -0.5, 3)
    assert found.messages == (Said("user", "Add."), Said("assistant", "5"))
    assert found.facts == (("right", "1"), ("polite", "0.25"), ("tries", "4"))


def test_a_demonstration_of_ours_is_rewarded_by_its_return():
    record = {"messages": [{"role": "user", "content": "12."}], "episode_return": -1.0}
    assert only(record).reward == -1.0


def test_an_episode_of_verifiers():
    lines = (FILES / "verifiers.jsonl").read_text().splitlines()
    first, second = (only(json.loads(line)) for line in lines)
    assert first.step == second.step == 3
    assert first.group == second.group == "g1"
    # 2.0 · 1.0 + 0.5, and one reward that was not scored.
    assert (first.reward, second.reward) == (2.5, 0.5)
    assert (first.advantage, second.advantage) == (1.0, -1.0)
    assert first.messages == (
        Said("system", "You may add."),
        Said("user", "What is 2 plus 3?"),
        Said(
            "assistant",
            "<think>I add them.</think>",
            ('add({"a": 2, "b": 3})',),
            tokens=(Token("k", -0.25, -0.5, 1.0), Token("l", -1.5, -1.25, 1.0)),
        ),
        Said("tool", "5"),
        Said("assistant", "5", tokens=(Token("m", -0.125, -0.125, 1.0),)),
    )
    assert dict(first.facts) == {"right": "2", "short": "0.5", "stop": "done", "turns": "2"}


def test_a_trace_with_two_ends_is_two_rollouts():
    nodes = [
        {"parent": parent, "message": {"role": "assistant", "content": text}}
        for parent, text in ((None, "one"), (0, "two"), (0, "three"))
    ]
    two, three = rollouts_of({"nodes": nodes}, as_letters)
    assert [each.text for each in two.messages] == ["one", "two"]
    assert [each.text for each in three.messages] == ["one", "three"]
    assert three.facts == (("branch", "2 of 2"),)


def test_a_graph_that_goes_in_a_circle_ends():
    nodes = [{"parent": 1, "message": {}}, {"parent": 0, "message": {}}, {"parent": 1}]
    (found,) = rollouts_of({"nodes": nodes}, as_letters)
    assert len(found.messages) == 3


def test_messages_with_parts_calls_and_rewards_of_their_own():
    record = {
        "messages": [
            {"role": "user", "content": [{"type": "text", "text": "Look."}, {"type": "image"}]},
            {
                "role": "assistant",
                "content": None,
                "reasoning": "Hm.",
                "reward": 0.5,
                "tool_calls": [{"function": {"name": "look", "arguments": "{}"}}],
            },
            {"role": "tool", "content": "A door."},
            {"role": "assistant", "content": "Open it.", "reward": 1.0},
        ],
        "group": 12,
    }
    found = only(record)
    assert (found.reward, found.group) == (1.5, "12")
    assert found.messages[0].text == "Look.\n[image]"
    assert found.messages[1] == Said("assistant", "<think>Hm.</think>", ("look({})",), 0.5)
    assert found.said == "<think>Hm.</think>\nlook({})\nOpen it."


def test_tokens_beside_the_text_are_those_of_the_last_reply():
    record = {
        "prompt": "Add.",
        "completion": "no",
        "token_ids": [13, 14],
        "logprobs": [-1.0, -2.0],
        "ref_logprobs": [-1.5],
        "advantages": [0.5, "high"],
    }
    tokens = only(record).messages[-1].tokens
    assert tokens == (Token("n", -1.0, -1.5, 0.5), Token("o", -2.0, None, None))


def test_tokens_beside_several_replies_are_those_of_the_last():
    replies = [{"role": "assistant", "content": each} for each in ("x", "ab")]
    first, last = only({"messages": replies, "token_ids": [0, 1]}).messages
    assert (first.tokens, last.tokens) == ((), (Token("a"), Token("b")))


def test_a_row_of_verifiers_has_the_tokens_of_each_turn():
    turns = [
        {"tokens": {"prompt_ids": [1], "completion_ids": [0], "completion_logprobs": [-0.5]}},
        {"tokens": None},
        {"tokens": {"prompt_ids": [1], "completion_ids": [2], "completion_logprobs": [-0.25]}},
    ]
    replies = [{"role": "assistant", "content": each} for each in ("a", "b", "c")]
    answers = [{"role": "user", "content": "more"}] * 2
    record = {
        "prompt": [{"role": "user", "content": "Go."}],
        "completion": [replies[0], answers[0], replies[1], answers[1], replies[2]],
        "reward": 1.0,
        "example_id": 4,
        "trajectory": turns,
        "metrics": {"solved": 1.0},
    }
    found = only(record)
    assert [each.tokens for each in found.messages if each.role == "assistant"] == [
        (Token("a", -0.5),),
        (),
        (Token("c", -0.25),),
    ]
    assert (found.group, found.reward, found.facts) == ("4", 1.0, (("solved", "1"),))


def test_tokens_as_an_endpoint_returns_them():
    logprobs = {"content": [{"token": "Yes", "logprob": -0.5}, {"token": "!", "logprob": -3}]}
    found = only({"messages": [{"role": "assistant", "content": "Yes!", "logprobs": logprobs}]})
    assert found.messages[0].tokens == (Token("Yes", -0.5), Token("!", -3.0))


def test_values_of_another_type_are_not_there():
    record = {"prompt": 5, "completion": "x", "reward": "high", "step": True, "token_ids": "12"}
    assert only(record) == Rollout((Said("assistant", "x"),))
    assert ill_typed(record) == ["step", "reward"]
    assert ill_typed({"reward": None, "score": 1.0}) == []


def test_a_number_whose_square_is_none_is_none():
    assert only({"prompt": "p", "completion": "x", "reward": 1e308}).reward is None


def test_what_is_no_rollout():
    for record in ({}, {"type": "Hello"}, {"messages": []}, {"input": "x"}):
        assert rollouts_of(record, as_letters) == []
