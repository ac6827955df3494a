"""The agent files of docs/examples for TextArena, by a stand-in for it, and classes for TRL's trainers."""

from __future__ import annotations

import runpy
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import gymnasium
import pytest

from llamagym_tui.errors import AgentFileError
from llamagym_tui.game.environment import agent_env
from llamagym_tui.game.observed import observed
from llamagym_tui.setup import catalog

EXAMPLES = Path(__file__).resolve().parents[2] / "docs" / "examples"


@pytest.fixture(autouse=True)
def _unregistered() -> Iterator[None]:
    """Each load of a file registers its environment again, which Gymnasium warns of."""
    yield
    gymnasium.registry.pop("TextArena-v0", None)


class Falling:
    """Has the shape of TextArena's Connect Four: what is called is called as there, and a full column wins."""

    def reset(self, num_players: int, seed: int | None = None) -> None:
        assert num_players == 2
        board = [["."] * 7 for _ in range(6)]
        self.state = SimpleNamespace(current_player_id=0, game_state={"board": board})

    def step(self, action: str) -> tuple[bool, dict[str, Any]]:
        column = int(action.removeprefix("[col ").removesuffix("]"))
        board = self.state.game_state["board"]
        rows = [row for row in reversed(board) if row[column] == "."]
        rows[0][column] = "XO"[self.state.current_player_id]
        if len(rows) == 1:
            self.winner = self.state.current_player_id
            return True, {}
        self.state.current_player_id = 1 - self.state.current_player_id
        return False, {}

    def close(self) -> tuple[dict[int, int], dict[str, Any]]:
        return {self.winner: 1, 1 - self.winner: -1}, {}


@pytest.fixture
def text_arena(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(catalog, "missing", lambda agent: "")
    made: list[str] = []

    def make(name: str) -> Falling:
        made.append(name)
        return Falling()

    monkeypatch.setitem(sys.modules, "textarena", SimpleNamespace(make=make))

    def agent(**env: Any) -> Any:
        return catalog.player(catalog.find_agent(str(EXAMPLES / "textarena_agent.py"), env))

    yield agent
    assert set(made) == {"ConnectFour-v0-raw"}


def test_a_policy_moves_for_the_other_player_of_text_arena_and_rewards_are_ones_own(text_arena):
    agent = text_arena(opponent="self", begins="opponent")
    env = agent_env(agent)
    observation, info = env.reset(seed=1)
    assert info["opponent_moves"]
    assert observed(agent, observation, info).text.startswith("You are X.\n. . .")
    for ply in range(5):
        observation, reward, is_over, _, info = env.step(2)
        assert (reward, is_over, info["opponent_moves"]) == (0, False, ply % 2 == 1)
    assert observation.startswith("You are O.")
    observation, reward, is_over, _, info = env.step(2)
    assert (reward, is_over, info["opponent_moves"]) == (1, True, False)


def test_text_arenas_random_opponent_moves_within_a_step_and_full_columns_are_not_offered(
    text_arena,
):
    agent = text_arena(begins="player")
    env = agent_env(agent)
    env.reset(seed=1)
    observation, _, _, _, info = env.step(0)
    assert (observation.count("X"), observation.count(" O") + observation.count("\nO")) == (2, 1)
    assert not info["opponent_moves"]
    env.unwrapped.game.state.game_state["board"][0][3] = "O"  # type: ignore[attr-defined]
    observation, _, _, _, info = env.step(0)
    actions = observed(agent, observation, info).actions
    assert actions is not None
    assert "[col 3]" not in actions


VAULT = f"{EXAMPLES / 'trl_vault.py'}:Vault"


def test_a_class_for_trls_environment_factory_is_an_agent_whose_actions_are_calls_of_its_tools():
    agent = catalog.player(catalog.find_agent(VAULT, {"max_steps": 3}))
    prompt = agent.get_system_prompt()
    assert (
        "press(self, button: Literal['red', 'yellow', 'green']) -> str\nPress a button." in prompt
    )
    env = agent_env(agent)
    observation, info = env.reset()
    assert observation.startswith("A vault")
    *calls, done = observed(agent, observation, info).actions or ()
    assert (len(calls), done) == (3, "done")
    red, _, green = calls
    assert red == '{"name": "press", "arguments": {"button": "red"}}'
    turns = [env.step(call)[:4] for call in (red, red, green)]
    assert turns[1] == ("Pressed: red, red.", 0.0, False, False)
    assert turns[2] == ("Pressed: red, red, green.", pytest.approx(2 / 3), False, True)
    assert env.reset()[0].startswith("A vault"), "a new one"
    assert env.step(red)[0].count(",") == 0
    assert env.step(done)[1:4] == (pytest.approx(1 / 3), True, False)


GUESS = """
class Guess:
    def reset(self, word="crane", **columns):
        self.word, self.reward = word, 0.0

    def guess(self, word: str) -> str:
        if len(word) != 5:
            raise ValueError("five letters")
        self.reward = float(word == self.word)
        return "right" if self.reward else "wrong"

    def _cheat(self) -> str:
        return self.word
"""


def test_a_tool_that_takes_any_text_is_called_as_it_is_written(tmp_path: Path):
    file = tmp_path / "guess.py"
    file.write_text(GUESS)
    agent = catalog.player(catalog.find_agent(f"{file}:Guess", {"word": "slate"}))
    assert "guess(self, word: str) -> str" in agent.get_system_prompt()
    env = agent_env(agent)
    observation, info = env.reset()
    assert observed(agent, observation, info) == ("", None)

    def said(reply: str) -> Any:
        return env.step(agent.read(reply).action)[:3]

    told, *_ = said('Hm. {"name": "guess", "arguments": {"word": "cr"}}')
    assert told == f"{{'error': 'ValueError: five letters ({file}, line 8)'}}"
    assert "KeyError" in said('{"name": "_cheat", "arguments": {}}')[0]
    assert said('{"name": "guess", "arguments": {"word": "slate"}}') == ("right", 0.0, False)
    assert said("It is slate.") == ("", 1.0, True)


def test_a_class_with_a_fault_is_refused_with_its_file_and_one_of_gymnasiums_needs_an_agent(
    tmp_path: Path,
):
    file = tmp_path / "guess.py"
    file.write_text(GUESS.replace("word: str", "word: 'Word'") + "import gymnasium\n"
        "class Maze(gymnasium.Env):\n    pass\n")  # fmt: skip
    with pytest.raises(AgentFileError, match=r"guess.py: Guess cannot be played: NameError"):
        catalog.find_agent(f"{file}:Guess")
    with pytest.raises(
        AgentFileError, match=r"guess.py defines no agent; .* or name one with tools"
    ):
        catalog.find_agent(f"{file}:Maze")


@pytest.mark.slow
def test_trls_trainer_takes_the_same_class(tmp_path, monkeypatch):
    monkeypatch.setenv("TRL_EXPERIMENTAL_SILENCE", "1")
    import trl
    from transformers import AutoModelForCausalLM, AutoTokenizer

    from llamagym_tui.engine.model.sources import bundled_model_path

    vault = runpy.run_path(VAULT.removesuffix(":Vault"))["Vault"]
    tokenizer = AutoTokenizer.from_pretrained(bundled_model_path())
    templates = Path(trl.__file__).parent / "chat_templates"
    tokenizer.chat_template = (templates / "qwen3.jinja").read_text()
    trainer = trl.GRPOTrainer(
        model=AutoModelForCausalLM.from_pretrained(bundled_model_path()),
        processing_class=tokenizer,
        args=trl.GRPOConfig(
            output_dir=str(tmp_path),
            per_device_train_batch_size=2,
            num_generations=2,
            use_cpu=True,
            report_to=[],
            max_steps=1,
        ),
        environment_factory=vault,
    )
    assert [tool.__name__ for tool in trainer.tools] == ["press"]
    assert trainer.reward_func_names == ["Vault"]
