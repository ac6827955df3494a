"""A model behind an endpoint plays the episodes of a policy here, on the same seeds."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import gymnasium
import pytest

from llamagym_tui.errors import GeneratorError, UsageError
from llamagym_tui.game import endpoint
from llamagym_tui.game.endpoint import KEY, Endpoint, require_address
from llamagym_tui.game.environment import episode_seed
from llamagym_tui.trainer.builders import EVALUATION_SEED
from tests.chat_server import Chat, serving
from tests.cli.test_main import run

pytest.importorskip("openai")
STICK = '{"action": 0}'
SECRET = "sk-very-secret"
HELLO = [[{"role": "user", "content": "Hello."}]]


@pytest.fixture
def chat(monkeypatch: pytest.MonkeyPatch, data_folder: Path) -> Chat:
    monkeypatch.setenv(KEY, SECRET)
    return Chat(lambda messages: STICK)


@pytest.fixture
def address(chat: Chat) -> Iterator[str]:
    with serving(chat) as found:
        yield found


def test_an_evaluation_plays_the_seeds_of_a_policy_here(chat: Chat, address: str) -> None:
    result = run(
        *("eval", "blackjack", "--model", address, "--episodes", "20", "--envs", "8"),
        *("--seed", "7", "--json"),
    )
    assert result.exit_code == 0, result.stderr
    env = gymnasium.make("Blackjack-v1", sab=False)
    earned = []
    for number in range(20):
        env.reset(seed=episode_seed(EVALUATION_SEED + 7, number))
        earned.append(float(env.step(0)[1]))
    figures = json.loads(result.stdout)
    assert figures["mean_return"] == pytest.approx(sum(earned) / 20)
    assert figures["parse_failure_rate"] == 0
    assert {request["temperature"] for request in chat.requests} == {0.0}
    assert {len(request["messages"]) for request in chat.requests} == {2}
    assert chat.keys == {f"Bearer {SECRET}"}
    assert SECRET not in result.stdout + result.stderr


def test_a_reply_without_an_action_plays_the_fallback(chat: Chat, address: str) -> None:
    chat.reply = lambda messages: "hm"
    result = run("eval", "blackjack", "--model", address, "--episodes", "5")
    assert result.exit_code == 0, result.stderr
    assert "100.0% of replies named no action" in result.stdout
    assert len(chat.requests) == 5, "it sticks"


def test_the_model_is_the_one_that_is_named_or_the_only_one(chat: Chat, address: str) -> None:
    assert Endpoint(address).model == "small"
    assert Endpoint(f"{address}#other:4b").model == "other:4b"
    chat.models = ("one", "two")
    with pytest.raises(UsageError, match=r"has 2 models \(one, two\); name one, as .*#one"):
        Endpoint(address)


def test_replies_come_in_order_after_a_busy_server_was_asked_again(
    chat: Chat, address: str
) -> None:
    chat.faults = [(503, "busy"), (429, "busy")]
    chat.reply = lambda messages: messages[-1]["content"].upper()
    words = [[{"role": "user", "content": word}] for word in ("a", "b", "c")]
    found = Endpoint(address).replies(words, [1, 2, 3], max_tokens=4, temperature=1.0)  # type: ignore[arg-type]
    assert found == ["A", "B", "C"]


def test_an_error_in_an_answer_of_200_is_asked_again_and_said_if_it_stays(
    chat: Chat, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(endpoint, "PAUSE_S", 0.0)
    limit = (200, json.dumps({"error": {"message": "Rate limit exceeded", "code": 429}}))
    parts = [{"type": "thinking", "thinking": []}, {"type": "text", "text": STICK}]
    chat.reply = lambda messages: parts  # type: ignore[assignment, return-value]
    model = Endpoint(address)
    chat.faults = [limit, (200, json.dumps({"choices": None}))]
    assert model.replies(HELLO, [1], max_tokens=4, temperature=1.0) == [STICK]  # type: ignore[arg-type]
    chat.faults = [limit] * 5
    with pytest.raises(GeneratorError, match="Rate limit exceeded"):
        model.replies(HELLO, [1], max_tokens=4, temperature=1.0)  # type: ignore[arg-type]


def test_a_refusal_is_one_sentence_without_the_key(chat: Chat, address: str) -> None:
    chat.faults = [(401, json.dumps({"error": {"message": f"no such key: {SECRET}"}}))]
    with pytest.raises(GeneratorError, match="no such key") as caught:
        Endpoint(address).replies(HELLO, [1], max_tokens=4, temperature=1.0)  # type: ignore[arg-type]
    assert SECRET not in str(caught.value)
    result = run("eval", "blackjack", "--model", "http://localhost:9/v1#x", "--episodes", "1")
    assert (result.exit_code, "gives no reply" in result.stderr) == (1, True)


@pytest.mark.parametrize("name", ["http://me:key@host/v1", "http://host/v1?key=1", "http:///v1"])
def test_an_address_has_a_host_and_no_secret(name: str) -> None:
    with pytest.raises(UsageError):
        require_address(name)
    assert require_address("http://host:1#small") == "http://host:1/v1"
