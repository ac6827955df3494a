"""Things to fetch: a parcel on a grid of 5 by 5 that is brought to a door, told in words."""

from __future__ import annotations

from typing import Any

import gymnasium
from gymnasium import spaces

from llamagym_tui.agent import Agent, read_action

SIZE = 5
TURNS = 30
MOVES = {"north": (0, -1), "south": (0, 1), "west": (-1, 0), "east": (1, 0)}


class PostEnv(gymnasium.Env[Any, Any]):
    """A step costs 0.02; the parcel is taken where one stands on it, for 1; bringing it to the door pays 1 and ends."""

    observation_space = spaces.Text(200)
    action_space = spaces.Discrete(4)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        fields = self.np_random.choice(SIZE * SIZE, size=3, replace=False)
        me, parcel, door = [divmod(int(field), SIZE) for field in fields]
        self.me = me
        self.parcel = parcel
        self.door = door
        self.carries = False
        self.turn = 0
        return self._seen(), {}

    def step(self, action: int) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        dx, dy = list(MOVES.values())[action]
        x, y = self.me
        self.me = (max(0, min(SIZE - 1, x + dx)), max(0, min(SIZE - 1, y + dy)))
        self.turn += 1
        reward = -0.02
        if not self.carries and self.me == self.parcel:
            self.carries = True
            reward += 1
        ended = self.carries and self.me == self.door
        if ended:
            reward += 1
        return self._seen(), reward, ended, self.turn >= TURNS, {}

    def _seen(self) -> Any:
        return {"me": self.me, "parcel": self.parcel, "door": self.door, "carries": self.carries}


if "Post-v0" not in gymnasium.registry:
    gymnasium.register("Post-v0", entry_point=PostEnv)


class PostAgent(Agent):
    env_id = "Post-v0"
    baselines = {"random": 0.019, "optimal": 1.867}  # noqa: RUF012
    """Exact mean returns, by dynamic programming."""

    def get_system_prompt(self) -> str:
        return (
            "You are a courier. Fetch the parcel and bring it to the door. "
            'Reply with {"action": n}: 0 north, 1 south, 2 west, 3 east.'
        )

    def format_observation(self, observation: Any) -> str:
        name = "door" if observation["carries"] else "parcel"
        x, y = observation["me"]
        goal_x, goal_y = observation[name]
        held = "You carry the parcel." if observation["carries"] else "You carry nothing."
        return f"{held} You are at column {x}, row {y}. The {name} is at column {goal_x}, row {goal_y}."

    def extract_action(self, response: str) -> Any:
        return read_action(response, tuple(MOVES))
