"""A text game with admissible commands in `info`, as TextWorld has them: take the key, open the chest, done."""

from __future__ import annotations

from typing import Any

import gymnasium
from gymnasium import spaces

from llamagym_tui.agent import Agent

ROOMS = {
    "hall": ("You are in a hall.", ["take key", "go north"]),
    "hall, with key": ("You are in a hall. You hold a key.", ["go north"]),
    "attic": ("There is a chest.", ["go south", "look at chest", "wait"]),
    "attic, with key": ("There is a chest.", ["go south", "look at chest", "wait", "open chest"]),
}


class ChestEnv(gymnasium.Env[str, str]):
    """Pays 1 for the open chest; a command that is not admissible is refused, and changes nothing."""

    def __init__(self) -> None:
        self.action_space, self.observation_space = spaces.Text(40), spaces.Text(200)
        self.place = "hall"

    def _seen(self, **more: Any) -> tuple[str, dict[str, Any]]:
        text, commands = ROOMS[self.place]
        return text, {"admissible_commands": list(commands)} | more

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[str, dict[str, Any]]:
        super().reset(seed=seed)
        self.place = "hall"
        return self._seen()

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        if action not in ROOMS[self.place][1]:
            text, info = self._seen(invalid_action=True)
            return text, 0.0, False, False, info
        has_key = "key" in self.place or action == "take key"
        room = {"go north": "attic", "go south": "hall"}.get(action, self.place.split(",")[0])
        self.place = f"{room}, with key" if has_key else room
        text, info = self._seen()
        is_open = action == "open chest"
        return text, float(is_open), is_open, False, info


if "LlamaChest-v0" not in gymnasium.registry:
    gymnasium.register("LlamaChest-v0", entry_point=ChestEnv, max_episode_steps=8)


class ChestAgent(Agent):
    """Its replies are the commands themselves."""

    env_id = "LlamaChest-v0"
    fallback_action = "look"

    def get_system_prompt(self) -> str:
        return "Open the chest."

    def format_observation(self, observation: str, info: dict[str, Any]) -> str:
        return f"{observation} You can: {', '.join(info['admissible_commands'])}."

    def extract_action(self, response: str) -> str | None:
        return response.strip() or None

    def format_action(self, action: str) -> str:
        return action

    def expert(self, observation: str, info: dict[str, Any], env: Any) -> str:
        has_key = "key" in env.unwrapped.place
        for command in ["open chest", "take key"] + (["go north"] if has_key else ["go south"]):
            if command in info["admissible_commands"]:
                return command
        raise AssertionError(info)


class CommandAgent(ChestAgent):
    """The same, with the admissible commands as its actions."""

    def actions(self, observation: str, info: dict[str, Any]) -> list[str]:
        return list(info["admissible_commands"])
