"""Plays a class that TRL's trainers take as `environment_factory`: each call of a tool is an action."""

import inspect
import itertools
import json
from typing import Literal, get_args, get_type_hints

import gymnasium

from llamagym_tui import Agent


class Vault:
    """A class as TRL has them, or imported from yours: methods are tools, and the reward comes at the end."""

    def reset(self, **kwargs) -> str:
        self.pressed = []
        return "A vault opens by three buttons, in the order of a traffic light that is about to let you go."

    def press(self, button: Literal["red", "yellow", "green"]) -> str:
        """Press a button.

        Args:
            button: Which one.

        Returns:
            What is pressed by now.
        """
        self.pressed.append(button)
        return f"Pressed: {', '.join(self.pressed)}."

    def get_reward(self) -> float:
        wanted = ["red", "yellow", "green"]
        return sum(a == b for a, b in zip(self.pressed, wanted, strict=False)) / 3


FACTORY, MOST_CALLS = Vault, 3
TOOLS = {
    name: tool
    for name, tool in inspect.getmembers(FACTORY, inspect.isfunction)
    if name not in ("reset", "get_reward") and not name.startswith("_")
}


def calls(name):
    """All calls of a tool whose arguments are `Literal`."""
    hints = {
        key: get_args(kind) for key, kind in get_type_hints(TOOLS[name]).items() if key != "return"
    }
    for values in itertools.product(*hints.values()):
        yield json.dumps({"name": name, "arguments": dict(zip(hints, values, strict=True))})


class TrlAgent(Agent):
    env_id = "TrlFactory-v0"
    run_settings = {"generation.policy": "score"}
    action_names = tuple(call for name in TOOLS for call in calls(name))

    def get_system_prompt(self):
        listed = "\n".join(f"{index}: {call}" for index, call in enumerate(self.action_names))
        return f'Reply with the number of a call, as {{"action": 0}}.\n{listed}'

    def format_observation(self, observation):
        return observation


class Episode(gymnasium.Env):
    action_space = gymnasium.spaces.Discrete(len(TrlAgent.action_names))
    observation_space = gymnasium.spaces.Text(10_000)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.made, self.calls = FACTORY(), 0
        return self.made.reset() or "Begin.", {}

    def step(self, action):
        call = json.loads(TrlAgent.action_names[action])
        said, self.calls = getattr(self.made, call["name"])(**call["arguments"]), self.calls + 1
        is_over = self.calls == MOST_CALLS
        return str(said), self.made.get_reward() if is_over else 0.0, is_over, False, {}


gymnasium.register("TrlFactory-v0", Episode)
