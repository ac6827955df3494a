"""The generic agent, completed by its environment: words, names, actions of every kind."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from llamagym_tui.errors import UsageError
from llamagym_tui.game.environment import EnvMaker, agent_env
from llamagym_tui.runs.run_store import RunStore
from llamagym_tui.settings import RunConfig, from_dict
from llamagym_tui.setup import catalog
from llamagym_tui.setup.run_agent import RunAgent
from llamagym_tui.setup.run_config import env_kwargs, run_config
from llamagym_tui.trainer.builders import Builders

Register = Callable[..., str]


class Echo(gymnasium.Env[Any, Any]):
    """Shows the action that it took, and how it was made."""

    def __init__(self, actions: spaces.Space[Any], size: int = 3, **_: Any) -> None:
        self.action_space, self.observation_space = actions, spaces.Text(99)
        self.size = size

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[str, dict[str, Any]]:
        return f"size {self.size}", {}

    def step(self, action: Any) -> tuple[str, float, bool, bool, dict[str, Any]]:
        assert self.action_space.contains(action)
        return str(action), 0.0, False, False, {}


@pytest.fixture
def register() -> Iterator[Register]:
    made: list[str] = []

    def register(actions: spaces.Space[Any], **more: Any) -> str:
        made.append(f"Any/Echo{len(made)}-v0")
        gymnasium.register(made[-1], entry_point=lambda **kwargs: Echo(actions, **kwargs), **more)
        return made[-1]

    yield register
    for env_id in made:
        gymnasium.registry.pop(env_id)


def took(env_id: str, action: int) -> str:
    """What an environment takes for an action of the generic agent's."""
    env = EnvMaker(catalog.find_agent(env_id)())()
    env.reset()
    return str(env.step(action)[0])


@pytest.mark.parametrize(
    ("env_id", "first", "names"),
    [
        ("CartPole-v1", "position 50, speed 46, angle 45, spin 53", "left right"),
        ("MountainCar-v0", "position 39, speed 50", "left wait right"),
        ("FrozenLake8x8-v1", "0", "left down right up"),
        ("CliffWalking-v1", "36", "up right down left"),
        ("Blackjack-v1", "total 20, dealer 7, ace 0", "stick hit"),
    ],
)
def test_what_gymnasium_documents_is_named(env_id: str, first: str, names: str) -> None:
    agent = catalog.find_agent(env_id)()
    observation, _ = agent_env(agent).reset(seed=1)
    assert agent.format_observation(observation) == f"Observation: {first}"
    assert " ".join(agent.action_names) == names


def test_actions_may_be_counted_from_any_number(register: Register) -> None:
    env_id = register(spaces.Discrete(2, start=-1))
    assert catalog.find_agent(env_id).action_names == ("action -1", "action 0")
    assert [took(env_id, 0), took(env_id, 1)] == ["-1", "0"]


def test_combined_actions_are_counted_by_product(register: Register) -> None:
    env_id = register(spaces.MultiDiscrete([2, 3]))
    assert catalog.find_agent(env_id).action_names == ("0+0", "0+1", "0+2", "1+0", "1+1", "1+2")
    assert [took(env_id, 2), took(env_id, 3)] == ["[0 2]", "[1 0]"]
    assert took(register(spaces.MultiBinary(6)), 33) == "[1 0 0 0 0 1]"


def test_a_text_is_an_action_if_the_space_has_it(register: Register) -> None:
    agent = catalog.find_agent(register(spaces.Text(5, charset="abc ", min_length=1)))()
    assert "a text of at most 5 characters" in agent.get_system_prompt()
    assert agent.read(" a cab\n").action == agent.format_action("a cab") == "a cab"
    assert agent.read("abcabc").failed
    assert agent_env(agent).action_space.contains(agent.fallback_action)


@pytest.mark.parametrize("env_id", ["Pendulum-v1", "MountainCarContinuous-v0"])
def test_continuous_actions_are_refused_with_the_lines_that_choose_some(
    env_id: str, tmp_path: Path
) -> None:
    with pytest.raises(UsageError, match=rf"{env_id} takes actions from Box") as refused:
        catalog.find_agent(env_id)
    sentence = str(refused.value)
    first, second = sentence.split("`")[1::2]
    file = tmp_path / "few.py"
    file.write_text(
        "import gymnasium\nfrom llamagym_tui.agents.generic import GenericAgent\n"
        f"class Few(GenericAgent):\n    env_id = '{env_id}'\n    {first}\n        {second}\n"
    )
    agent = catalog.find_agent(str(file))()
    env = agent_env(agent)
    env.reset(seed=1)
    assert agent.action_names == ("action 0", "action 1")
    assert env.step(1)[0] is not None


def test_an_agents_own_names_and_ranges_come_first(tmp_path: Path) -> None:
    file = tmp_path / "pole.py"
    file.write_text(
        "from llamagym_tui.agents.generic import GenericAgent\n"
        "class Pole(GenericAgent):\n"
        "    env_id, title, action_names = 'CartPole-v1', 'Pole', ('west', 'east')\n"
        "    observation_names = ('x', 'v', 'a', 'w')\n"
        "    observation_ranges = ((-1, 1), (-2, 2), (0, 1), (0, 1))\n"
    )
    agent = catalog.find_agent(str(file))()
    assert agent.format_observation(np.array([0.5, 1, 0, 0])) == "Observation: x 75, v 75, a 0, w 0"
    assert agent.get_system_prompt().startswith("You are playing Pole.")
    assert '{"action": 1} (east)' in agent.get_system_prompt()


def test_a_run_keeps_the_ranges_that_it_began_with(tmp_path: Path) -> None:
    config = run_config("CartPole-v1", {"run_dir": str(tmp_path / "run")})
    assert config.observation_ranges is not None
    assert len(config.observation_ranges) == 4
    begun = from_dict(
        RunConfig,
        {"agent": "CartPole-v1", "run_dir": config.run_dir, "observation_ranges": [(0, 1)] * 4},
    )
    RunStore.create(begun).close()
    for agent in (None, "CartPole-v1"):
        resumed = run_config(agent, {"run_dir": str(tmp_path / "run"), "resume": True})
        assert resumed.observation_ranges == [(0, 1)] * 4
    for agent_of_run in (Builders(resumed).agent(), RunAgent(resumed.agent, config=resumed).agent):
        shown = agent_of_run.format_observation([0.5, 1, 0, 0.25])
        assert shown == "Observation: position 50, speed 99, angle 0, spin 25"


def test_arguments_are_read_as_numbers_truths_or_texts() -> None:
    assert env_kwargs(["a=8", "b=0.5", "c=True", "d=none", "e=8x8", "f="]) == {
        "a": 8, "b": 0.5, "c": True, "d": None, "e": "8x8", "f": "",
    }  # fmt: skip
    for wrong in ("size", "=8", "a b=1"):
        with pytest.raises(UsageError, match="--env takes NAME=VALUE, as in --env size=8, not"):
            env_kwargs([wrong])


def test_an_id_may_name_the_module_that_registers_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "far_mazes.py").write_text(
        "import gymnasium\n"
        "gymnasium.register('Far/Maze-v3', entry_point='gymnasium.envs.toy_text.cliffwalking:CliffWalkingEnv')\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    agent = catalog.find_agent("far_mazes:Far/Maze-v3")()
    assert agent.format_observation(36) == "Observation: 36"
    sys.modules.pop("far_mazes")
    gymnasium.registry.pop("Far/Maze-v3")
    with pytest.raises(
        UsageError, match=r"Maze-v0 cannot be made: .* named 'no_such_mazes'; install"
    ):
        catalog.find_agent("no_such_mazes:Maze-v0")
