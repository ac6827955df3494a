"""`eval`, `compare` and `demos generate` by a model behind an endpoint: the episodes of a policy here, on the same
seeds; refusals of what needs weights."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import gymnasium
import pytest

from llamagym_tui.agents.blackjack import BlackjackAgent
from llamagym_tui.demos import files
from llamagym_tui.game.endpoint import KEY
from llamagym_tui.game.environment import episode_seed
from llamagym_tui.trainer.builders import EVALUATION_SEED
from tests.chat_server import Chat, serving
from tests.cli.test_main import run

STICK, HIT = '{"action": 0}', '{"action": 1}'
SECRET = "sk-very-secret"


@pytest.fixture
def chat(monkeypatch: pytest.MonkeyPatch, data_folder: Path) -> Chat:
    monkeypatch.setenv(KEY, SECRET)
    return Chat(lambda messages: STICK)


@pytest.fixture
def address(chat: Chat) -> Iterator[str]:
    with serving(chat) as found:
        yield found


def sticking(seed: int, episodes: int) -> list[float]:
    """What always sticking earns on the seeds of an evaluation."""
    env = gymnasium.make("Blackjack-v1", sab=False)
    found = []
    for number in range(episodes):
        env.reset(seed=episode_seed(EVALUATION_SEED + seed, number))
        found.append(float(env.step(0)[1]))
    return found


def test_an_evaluation_plays_the_seeds_of_a_policy_here(chat: Chat, address: str) -> None:
    result = run(
        *("eval", "blackjack", "--model", address, "--episodes", "20", "--envs", "8"),
        *("--seed", "7", "--json"),
    )
    assert result.exit_code == 0, result.stderr
    figures = json.loads(result.stdout)
    expected = sticking(7, 20)
    assert figures["mean_return"] == pytest.approx(sum(expected) / 20)
    assert (figures["model"], figures["episodes"], figures["parse_failure_rate"]) == (
        address,
        20,
        0,
    )
    assert figures["tokens_written"] == 40
    assert figures["tokens_read"] > 20 * 20
    assert [request["temperature"] for request in chat.requests] == [0.0] * 20
    assert chat.keys == {f"Bearer {SECRET}"}
    assert SECRET not in result.stdout + result.stderr


def test_a_conversation_has_the_turns_of_the_history_and_a_fallback_plays_without_an_action(
    chat: Chat, address: str
) -> None:
    chat.reply = lambda messages: "hm" if len(messages) == 2 else STICK
    result = run(
        *("eval", "blackjack", "--model", address, "--episodes", "30", "--history", "1"),
        *("--env", "natural=false", "--set", "generation.max_new_tokens=5"),
    )
    assert result.exit_code == 0, result.stderr
    assert BlackjackAgent.fallback_action == 0
    assert "100.0% of replies named no action" in result.stdout
    assert {len(request["messages"]) for request in chat.requests} == {2}
    chat.requests.clear()
    chat.reply = lambda messages: STICK if len(messages) > 3 else HIT
    assert (
        run(
            "eval",
            "blackjack",
            "--model",
            address,
            "--episodes",
            "9",
            "--history",
            "1",
            "--sampled",
        ).exit_code
        == 0
    )
    longer = [request["messages"] for request in chat.requests if len(request["messages"]) == 4]
    assert [[each["role"] for each in messages] for messages in longer[:1]] == [
        ["system", "user", "assistant", "user"]
    ]
    assert longer[0][2]["content"] == HIT
    assert {request["temperature"] for request in chat.requests} == {1.0}


def test_replies_that_were_cut_off_are_told_with_the_setting(
    chat: Chat, address: str, capfd: pytest.CaptureFixture[str]
) -> None:
    chat.reply = lambda messages: "so let me think " + STICK
    run(
        *("eval", "blackjack", "--model", address, "--episodes", "3"),
        *("--set", "generation.max_new_tokens=2"),
    )
    assert "3 of 3 replies ended at 2 tokens" in capfd.readouterr().err


@pytest.mark.parametrize("in_json", [False, True])
def test_an_evaluation_that_cannot_go_on_has_the_episodes_before_and_the_words_of_the_server(
    chat: Chat, address: str, in_json: bool
) -> None:
    chat.refused_from = 7
    words = ["eval", "blackjack", "--model", address, "--episodes", "20", "--envs", "1"]
    result = run(*words, *(["--json"] if in_json else []))
    assert result.exit_code == 1
    assert "refuses (400): out of credit" in result.stderr
    if in_json:
        figures = json.loads(result.stdout)
        assert (figures["episodes"], "out of credit" in figures["error"]) == (7, True)
        assert figures["mean_return"] == pytest.approx(sum(sticking(0, 7)) / 7)
    else:
        assert "over 7 episodes" in result.stdout


def test_demonstrations_that_cannot_go_on_are_those_before(
    chat: Chat, address: str, tmp_path: Path
) -> None:
    chat.refused_from = 20
    path = tmp_path / "made.jsonl"
    words = ["demos", "generate", "blackjack", "--model", address, "-o", str(path)]
    result = run(*words, "--episodes", "40")
    assert result.exit_code == 1
    assert "refuses (400): out of credit" in result.stderr
    made = files.read(path)
    assert len(made) == 20
    assert [each.seed for each in made] == sorted(each.seed for each in made)


def test_a_comparison_that_cannot_go_on_has_the_pairs_before(
    chat: Chat, address: str, tmp_path: Path
) -> None:
    other = tmp_path / "prompt.txt"
    other.write_text("Stick, too.")
    chat.refused_from = 18
    result = run(
        *("compare", "blackjack", "--model", address, "--b-prompt-file", str(other)),
        *("--episodes", "12", "--json"),
    )
    assert result.exit_code == 1
    found = json.loads(result.stdout)
    assert found["pairs"] == 6
    assert "out of credit" in found["error"]


@pytest.mark.slow
def test_two_prompts_of_an_endpoint_are_compared_on_the_same_seeds(
    chat: Chat, address: str, tmp_path: Path
) -> None:
    other = tmp_path / "prompt.txt"
    other.write_text("Always hit.")
    chat.reply = lambda messages: HIT if messages[0]["content"] == "Always hit." else STICK
    result = run(
        *("compare", "blackjack", "--model", address, "--b-prompt-file", str(other)),
        *("--episodes", "12", "--json"),
    )
    assert result.exit_code == 0, result.stderr
    found = json.loads(result.stdout)
    assert found["pairs"] == 12
    assert found["a"]["mean_return"] == pytest.approx(sum(sticking(0, 12)) / 12)
    assert found["b"]["mean_return"] == -1  # it hits until it is bust
    assert [side["written"] for side in found["tokens"]] == [24, 2 * (len(chat.requests) - 12)]
    shown = run(
        "compare", "blackjack", "--model", address, "--b-prompt-file", str(other), "--episodes", "2"
    )
    assert "tokens read and 4 written" in shown.stdout


def test_a_model_here_is_compared_with_one_behind_an_endpoint(chat: Chat, address: str) -> None:
    result = run(
        *("compare", "blackjack", "--b-model", address, "--device", "cpu", "--episodes", "4"),
        "--json",
    )
    assert result.exit_code == 0, result.stderr
    found = json.loads(result.stdout)
    assert found["models"] == ["bundled", address]
    assert found["tokens"][0] is None
    assert found["b"]["mean_return"] == pytest.approx(sum(sticking(0, 4)) / 4)
    assert found["maps"] == []


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["train", "blackjack", "--model", "URL"], "but neither learn nor be watched."),
        (["sft", "blackjack", "--model", "URL"], "but neither learn nor be watched."),
        (["eval", "blackjack", "--base", "URL"], "but neither learn nor be watched."),
        (
            ["eval", "blackjack", "--model", "URL", "--dtype", "bfloat16", "--device", "cpu"],
            "--device, --dtype is about a model that is loaded here",
        ),
        (
            ["eval", "blackjack", "--model", "URL", "--set", "generation.policy=score"],
            "generation.policy is about a model that is loaded here",
        ),
        (["demos", "generate", "blackjack", "--model", "smollm2"], "--model takes an endpoint's address"),
        (["demos", "generate", "blackjack", "--set", "max_turns=3"], "--set is about play by a model"),
    ],
)  # fmt: skip
def test_what_needs_weights_is_refused_with_a_sentence(
    data_folder: Path, words: list[str], sentence: str
) -> None:
    result = run(*(word.replace("URL", "http://localhost:1/v1#x") for word in words))
    assert result.exit_code == 2
    assert sentence in result.stderr
    assert result.stderr.count("\n") == 1
