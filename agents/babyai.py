"""BabyAI and MiniGrid (any id that begins like that): missions in rooms, in which one sees 7 by 7 tiles ahead."""

import itertools
import textwrap
from typing import Any, ClassVar, NamedTuple

from llamagym_tui.agent import Agent, Drawing, Ground, Piece

OBJECTS = (
    "unseen", "empty", "wall", "floor", "door", "key", "ball", "box", "goal", "lava", "agent",
)  # fmt: skip
"""Kinds of objects, in the order of the first of a tile's three numbers."""
COLOURS = ("red", "green", "blue", "purple", "yellow", "grey")
"""Colours, in the order of its second number."""
DOORS = ("open", "closed", "locked")
"""States of a door, in the order of its third number."""
WIDTH = 60
"""Most columns of a drawing."""
SIGNS = dict(zip(OBJECTS, " ·#·+koBG~@", strict=True))
"""The sign of each kind of object."""
GROUNDS: dict[str, Ground] = {
    "empty": "floor", "floor": "floor", "wall": "wall", "goal": "goal", "lava": "danger",
    "door": "thing", "key": "thing", "ball": "thing", "box": "thing",
}  # fmt: skip
"""The ground of each kind, for its colour."""
THINGS = ("key", "ball", "box")
"""Kinds that can be picked up."""
NAMES = ("turn left", "turn right", "go forward", "pick up", "drop", "open", "finish")
"""Names of the actions, in the order of their indices."""
FORWARD = 2
MOST_SEEN = 8
"""Most things that an observation names, the nearest ones."""


class Tile(NamedTuple):
    """The contents of a tile."""

    kind: str
    """One of `OBJECTS`."""
    colour: str = ""
    """The colour of a door or thing; empty: it is neither."""
    door: str = ""
    """The state of a door; empty: there is none."""

    @property
    def words(self) -> str:
        """The tile in words: ``locked red door``."""
        return " ".join(part for part in (self.door, self.colour, self.kind) if part)

    @property
    def is_free(self) -> bool:
        """The agent can walk over it."""
        return self.kind in ("empty", "floor", "goal") or self.door == "open"


class View(NamedTuple):
    """An observation, by tiles ahead and to the right."""

    image: Any
    """(size, size, 3) column, row and what is there; the agent is in the middle of the last row."""

    def tile(self, ahead: int, right: int) -> Tile:
        size = len(self.image)
        column = size // 2 + right
        if not (0 <= ahead < size and 0 <= column < size):
            return Tile("unseen")
        number, colour, door = [int(each) for each in self.image[column][size - 1 - ahead]]
        kind = OBJECTS[number]
        if kind == "door":
            return Tile(kind, COLOURS[colour], DOORS[door])
        return Tile(kind, COLOURS[colour] if kind in THINGS else "")

    @property
    def carried(self) -> str:
        """The thing that the agent carries, which is shown on its own tile, in words; empty: it carries nothing."""
        here = self.tile(0, 0)
        return here.words if here.kind in THINGS else ""

    def free(self, ahead: int, right: int) -> int:
        """Free tiles in a direction."""
        steps = 0
        while self.tile(ahead * (steps + 1), right * (steps + 1)).is_free:
            steps += 1
        return steps

    def seen(self) -> list[str]:
        """The things in view, nearest first: ``red ball 2 ahead 1 left``."""
        size = len(self.image)
        found = []
        for ahead, column in itertools.product(range(size), range(size)):
            right = column - size // 2
            tile = self.tile(ahead, right)
            if (ahead, right) == (0, 0) or tile.kind in ("unseen", "empty", "wall", "floor"):
                continue
            words = tile.words
            if ahead > 0:
                words += f" {ahead} ahead"
            if right != 0:
                words += f" {abs(right)} {'right' if right > 0 else 'left'}"
            found.append((ahead + abs(right), ahead, right, words))
        return [words for *_, words in sorted(found)]


class BabyAIAgent(Agent):
    """Plays the worlds of minigrid; an observation is a mission and the tiles in view."""

    history = 0
    env_id = "minigrid:BabyAI-GoToRedBallNoDists-v0"
    more_ids = "BabyAI-|MiniGrid-"
    extra = "minigrid"
    title = "BabyAI"
    description = (
        "Go to the red ball in a room; by their ids, any other mission of BabyAI and MiniGrid."
    )
    action_names: ClassVar[tuple[str, ...]] = NAMES
    action_keys: ClassVar[dict[str, int]] = {"a": 0, "d": 1, "w": 2, "p": 3, "x": 4, "o": 5, "e": 6}
    baselines = {"random": 0.3, "expert": 0.93}
    """Mean returns; ``python -m benchmarks.world_baselines babyai`` measures them."""

    _mission: Any = None
    _bot: Any = None
    _advised = 0
    _advised_at = 0

    def __init_subclass__(cls) -> None:
        if "Dynamic-Obstacles" in cls.env_id:  # where one can only turn and go
            cls.action_names = NAMES[: FORWARD + 1]
            keys = BabyAIAgent.action_keys.items()
            cls.action_keys = {key: action for key, action in keys if action <= FORWARD}

    def get_system_prompt(self) -> str:
        actions = [
            f'{{"action": {index}}} to {name}' for index, name in enumerate(self.action_names)
        ]
        return (
            "You are in a world of rooms. Do what the mission says. "
            f"Reply with {', '.join(actions[:-1])} or {actions[-1]}."
        )

    def format_observation(self, observation: Any) -> str:
        view = View(observation["image"])
        things = view.seen()
        named = things[:MOST_SEEN]
        if len(things) > MOST_SEEN:
            named.append("and more")
        seen = ", ".join(named) or "nothing"
        carried = f" You carry a {view.carried}." if view.carried else ""
        return (
            f"Mission: {observation['mission']}. Free: {view.free(1, 0)} ahead, {view.free(0, -1)} left, "
            f"{view.free(0, 1)} right. You see {seen}.{carried}"
        )

    def actions(self, observation: Any) -> list[str]:
        """The actions that may change something."""
        view = View(observation["image"])
        front = view.tile(1, 0)
        has_its_key = view.carried == f"{front.colour} key"
        is_possible = {
            "turn left": True,
            "turn right": True,
            "go forward": front.is_free or front.kind == "lava",
            "pick up": front.kind in THINGS and not view.carried,
            "drop": front.kind == "empty" and bool(view.carried),
            "open": front.kind == "box"
            or front.door in ("open", "closed")
            or (front.door == "locked" and has_its_key),
            "finish": "MiniGrid-GoTo" in self.env_id,  # elsewhere it does nothing
        }
        return [name for name in self.action_names if is_possible[name]]

    def draw(self, observation: Any) -> Drawing:
        """The view from above, the agent as ``^`` at its lower edge; ``+`` is a door, ``/`` an open one."""
        view = View(observation["image"])
        size = len(view.image)
        width = WIDTH - 2 * size
        words = textwrap.wrap(str(observation["mission"]), width - 2)
        words.append(f"carries a {view.carried}" if view.carried else "")
        words += view.seen()
        lines: list[list[str | Piece]] = []
        for row in range(size):
            line: list[str | Piece] = []
            for column in range(size):
                tile = view.tile(size - 1 - row, column - size // 2)
                sign = "/" if tile.door == "open" else SIGNS[tile.kind]
                line.append(Piece(f"{sign} ", GROUNDS.get(tile.kind, "")))
            lines.append([*line, f"  {words[row] if row < len(words) else ''}"[:width]])
        lines[-1][size // 2] = Piece("^ ", "player")
        return lines

    def expert(self, observation: Any, info: Any, env: Any) -> int | None:
        """The advice of minigrid's bot, if its advice was taken so far; None outside BabyAI."""
        world: Any = env.unwrapped if env else None
        if not hasattr(world, "instrs"):
            return None
        from minigrid.utils.baby_ai_bot import BabyAIBot

        if world.instrs is not self._mission:
            self._mission = world.instrs
            self._bot = BabyAIBot(world)
            self._advised = int(self._bot.replan())
        elif world.step_count != self._advised_at:
            self._advised = int(self._bot.replan(self._advised))
        self._advised_at = world.step_count
        return self._advised
