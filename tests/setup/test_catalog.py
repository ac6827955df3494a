"""Finding agents by name, by file and by Gymnasium id."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import gymnasium
import numpy as np
import pytest
from gymnasium.envs.registration import registry

from llamagym_tui.agents.blackjack import BlackjackAgent
from llamagym_tui.errors import AgentFileError, UsageError
from llamagym_tui.setup import catalog
from llamagym_tui.setup.run_agent import RunAgent

CLIFF = """
from llamagym_tui import Agent

class CliffAgent(Agent):
    env_id = "CliffWalking-v1"

    def get_system_prompt(self):
        return "Walk."

    def format_observation(self, observation):
        return f"At {observation}."

    def extract_action(self, response):
        return int(response)
"""

Write = Callable[[str], Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def _write(source: str) -> Path:
        path = tmp_path / "cliff.py"
        path.write_text(source, encoding="utf-8")
        return path

    return _write


def test_a_built_in_agent_is_found_by_name() -> None:
    assert catalog.find_agent("blackjack") is BlackjackAgent
    assert catalog.built_in()["blackjack"] is BlackjackAgent


def test_the_id_of_a_world_that_its_number_does_not_tell_is_played_by_its_agent() -> None:
    assert catalog.find_agent("Taxi-v4") is catalog.find_agent("taxi")


def test_an_id_that_a_package_registers_is_refused_with_how_its_module_is_named() -> None:
    with pytest.raises(
        UsageError, match=r"There is no agent named 'ALE/Pong-v5'; .*ale_py:ALE/Pong-v5"
    ):
        catalog.find_agent("ALE/Pong-v5")


def test_a_module_that_is_not_installed_is_named() -> None:
    with pytest.raises(
        UsageError,
        match=r"ModuleNotFoundError: No module named 'no_such'; install the package that has it\.$",
    ):
        catalog.find_agent("no_such:Maze-v0")


def test_an_unknown_name_is_refused_with_the_nearest_ones() -> None:
    with pytest.raises(UsageError, match=r"no agent named 'blackjak'; did you mean blackjack"):
        catalog.find_agent("blackjak")
    with pytest.raises(UsageError, match=r"CartPole-v1"):
        catalog.find_agent("cartpole")


def test_an_agent_file_of_the_three_methods_and_env_id_is_enough(write: Write) -> None:
    agent_class = catalog.find_agent(str(write(CLIFF)))
    assert agent_class.__name__ == "CliffAgent"
    assert agent_class().read("2").action == 2
    assert catalog.action_names(agent_class) == ("action 0", "action 1", "action 2", "action 3")


def test_a_relative_path_is_found_and_can_be_made_absolute(
    write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(CLIFF)
    monkeypatch.chdir(path.parent)
    assert catalog.find_agent("./cliff.py").env_id == "CliffWalking-v1"
    assert (
        catalog.absolute_spec("./cliff.py:CliffAgent") == f"{path.parent / 'cliff.py'}:CliffAgent"
    )
    assert catalog.absolute_spec("CartPole-v1") == "CartPole-v1"


@pytest.mark.parametrize(
    ("spec", "other", "is_same"),
    [
        ("/a/two.py:One", "/a/two.py:One", True),
        ("/a/two.py:One", "/a/two.py:Two", False),
        ("/a/two.py", "/a/two.py:One", True),
        ("/a/two.py:One", "/b/two.py:One", False),
        ("/a/blackjack.py", "blackjack", False),
        ("frozen-lake", "frozen_lake", True),
        ("CartPole-v1", "CartPole-v1", True),
    ],
)
def test_an_agent_of_a_file_is_its_path_and_class(spec: str, other: str, is_same: bool) -> None:
    assert catalog.is_same_agent(spec, other) == catalog.is_same_agent(other, spec) == is_same


def test_of_several_agents_in_a_file_one_is_named(write: Write) -> None:
    path = write(CLIFF + '\nclass Other(CliffAgent):\n    env_id = "Taxi-v4"\n')
    assert catalog.find_agent(f"{path}:Other").env_id == "Taxi-v4"
    with pytest.raises(
        AgentFileError, match=r"several agents; name one: cliff.py:CliffAgent, cliff.py:Other"
    ):
        catalog.find_agent(str(path))
    with pytest.raises(AgentFileError, match=r"no agent class Nope; name one: "):
        catalog.find_agent(f"{path}:Nope")


def test_an_unfinished_base_class_is_not_taken_for_the_agent(write: Write) -> None:
    source = CLIFF.replace(
        "class CliffAgent(Agent):", "class Base(Agent):\n    pass\n\nclass CliffAgent(Base):"
    )
    assert catalog.find_agent(str(write(source))).__name__ == "CliffAgent"


def test_a_file_can_import_its_neighbours(write: Write) -> None:
    path = write(
        "import cliff_neighbour\n" + CLIFF.replace('"CliffWalking-v1"', "cliff_neighbour.ID")
    )
    path.with_name("cliff_neighbour.py").write_text('ID = "Taxi-v4"\n', encoding="utf-8")
    assert catalog.find_agent(str(path)).env_id == "Taxi-v4"


@pytest.mark.parametrize(
    ("source", "line", "sentence"),
    [
        ("x = 1\ndef broken(:\n", 2, "invalid syntax"),
        ("x = 1\ny = undefined_name\n", 2, "NameError"),
        ("import sys\n\nsys.exit(3)\n", 3, "SystemExit"),
        ("def f():\n    raise ValueError('in here\\nand on')\n\nf()\n", 2, "ValueError: in here$"),
        ("\n\nimport no_such_module_at_all\n", 3, "ModuleNotFoundError"),
        (CLIFF.replace("def format_observation", "def format"), 4, "lacks format_observation"),
        (CLIFF.replace("env_id =", "environment ="), 4, "names no environment"),
        ("x = '\0'\n", 1, "null bytes"),
    ],
)
def test_a_faulty_file_is_refused_with_file_and_line(
    write: Write, source: str, line: int, sentence: str
) -> None:
    path = write(source)
    with pytest.raises(AgentFileError, match=sentence) as caught:
        catalog.find_agent(str(path))
    assert str(caught.value).startswith(f"{path}, line {line}: ")
    assert "\n" not in str(caught.value)


def test_a_file_without_an_agent_is_refused(write: Write) -> None:
    with pytest.raises(AgentFileError, match="defines no agent; write a class"):
        catalog.find_agent(str(write("x = 1\n")))


def test_what_is_wrong_with_an_agent_is_told_when_it_is_asked(write: Write) -> None:
    path = write("x = 1\n")
    with pytest.raises(AgentFileError, match=r"cliff.py defines no agent; write a class"):
        catalog.find_agent(f"{path}:Nope")
    write(CLIFF.replace('return "Walk."', "return 1 / 0"))
    agent = RunAgent(str(path))
    with pytest.raises(
        AgentFileError,
        match=r"^CliffAgent.get_system_prompt failed: ZeroDivisionError: .*line 8\)\.$",
    ):
        agent.own_prompt()
    assert (agent.name, agent.title) == ("cliff", "CliffAgent")
    assert agent.demos_path().name == "cliff.jsonl"


def test_a_gymnasium_id_gets_an_agent_that_lists_the_actions() -> None:
    agent = catalog.find_agent("CartPole-v1")()
    assert agent.env_id == "CartPole-v1"
    assert agent.action_names == ("left", "right")
    assert '{"action": 0}' in agent.get_system_prompt()
    assert '{"action": 1}' in agent.get_system_prompt()


@pytest.mark.parametrize(
    ("env_id", "history"), [("CartPole-v1", 0), ("CliffWalking-v1", 0), ("Blackjack-v1", None)]
)
def test_where_an_observation_is_one_box_or_number_it_is_all_that_a_prompt_has(
    env_id: str, history: int | None
) -> None:
    assert catalog.find_agent(env_id).history == history


class _Stub(gymnasium.Env[np.ndarray, int]):
    """An environment whose two spaces are given."""

    def __init__(self, observation_space: gymnasium.Space, action_space: gymnasium.Space) -> None:
        self.observation_space = observation_space
        self.action_space = action_space


def _broken() -> gymnasium.Env:
    raise RuntimeError("no display\nand more")


def _refusing() -> gymnasium.Env:
    raise TypeError("no such size")


@pytest.mark.parametrize(
    ("env_id", "entry_point", "sentence"),
    [
        (
            "Stub/Image-v0",
            lambda: _Stub(
                gymnasium.spaces.Box(0, 255, (64, 64, 3), np.uint8), gymnasium.spaces.Discrete(2)
            ),
            r"12,288 numbers",
        ),
        (
            "Stub/Many-v0",
            lambda: _Stub(gymnasium.spaces.Discrete(4), gymnasium.spaces.MultiDiscrete([5, 13])),
            r"at most 64; .*`def wrap_env\(self, env\):` and `return .*\(env, ACTIONS.__getitem__, ",
        ),
        (
            "Stub/Broken-v0",
            _broken,
            r"cannot be made: RuntimeError: no display \(.*test_catalog\.py, line \d+\)\.$",
        ),
        (
            "Stub/Refusing-v0",
            _refusing,
            r"cannot be made: TypeError: no such size \(.*test_catalog\.py, line \d+\)\.$",
        ),
        (
            "Stub/Parts-v0",
            lambda: _Stub(
                gymnasium.spaces.Dict(
                    {
                        "a": gymnasium.spaces.Box(0, 255, (64, 64), np.uint8),
                        "b": gymnasium.spaces.Tuple([gymnasium.spaces.Discrete(3)] * 2),
                        "c": gymnasium.spaces.Text(5),
                    }
                ),
                gymnasium.spaces.Discrete(2),
            ),
            r"^Stub/Parts-v0 shows 4,099 numbers at a time, too many for a text; write an agent file",
        ),
        (
            "Stub/Silent-v0",
            lambda: _Stub(
                gymnasium.spaces.Box(-np.inf, np.inf, (2,)), gymnasium.spaces.Discrete(2)
            ),
            r"^Stub/Silent-v0 failed to reset: ",
        ),
        (
            "Stub/Leaving-v0",
            lambda: sys.exit(3),
            r"cannot be made: SystemExit: 3 \(.*test_catalog\.py, line \d+\)",
        ),
    ],
)
def test_an_environment_that_does_not_fit_into_text_is_refused(
    env_id: str, entry_point: object, sentence: str
) -> None:
    gymnasium.register(env_id, entry_point=entry_point, disable_env_checker=True)
    try:
        with pytest.raises(UsageError, match=sentence):
            catalog.find_agent(env_id)
    finally:
        registry.pop(env_id)
