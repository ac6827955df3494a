"""BabyAI and MiniGrid (any id that begins like that): missions in rooms, in which one sees 7 by 7 tiles ahead."""

import textwrap
from typing import Any, ClassVar, NamedTuple

from llamagym_tui.agent import Agent, Drawing, Ground, Piece

OBJECTS = (
    "unseen",
    "empty",
    "wall",
    "floor",
    "door",
    "key",
    "ball",
    "box",
    "goal",
    "lava",
    "agent",
)
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
    "empty": "floor",
    "wall": "wall",
    "floor": "floor",
    "door": "thing",
    "key": "thing",
    "ball": "thing",
    "box": "thing",
    "goal": "goal",
    "lava": "danger",
}
"""The ground of each kind, for its colour."""
THINGS = ("key", "ball", "box")
"""Kinds that can be picked up."""
NAMES = ("turn left", "turn right", "go forward", "pick up", "drop", "open", "finish")
"""Names of the actions, in the order of their indices."""
LEFT = 0
RIGHT = 1
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
        object_number, colour_number, door_number = [
            int(number) for number in self.image[column][size - 1 - ahead]
        ]
        kind = OBJECTS[object_number]
        if kind == "door":
            return Tile(kind, COLOURS[colour_number], DOORS[door_number])
        if kind in THINGS:
            return Tile(kind, COLOURS[colour_number])
        return Tile(kind)

    @property
    def carried(self) -> Tile | None:
        """The thing that the agent carries, which is shown on its own tile; None: it carries nothing."""
        here = self.tile(0, 0)
        return here if here.kind in THINGS else None

    def free(self, ahead: int, right: int) -> int:
        """Free tiles in a direction."""
        steps = 0
        while self.tile(ahead * (steps + 1), right * (steps + 1)).is_free:
            steps += 1
        return steps

    def seen(self) -> list[str]:
        """The things in view, nearest first: ``red ball 2 ahead 1 left``."""
        size = len(self.image)
        places = [(ahead, column - size // 2) for ahead in range(size) for column in range(size)]
        places.remove((0, 0))
        places.sort(key=lambda place: (place[0] + abs(place[1]), place))
        found = []
        for ahead, right in places:
            tile = self.tile(ahead, right)
            if tile.kind in ("unseen", "empty", "wall", "floor"):
                continue
            words = tile.words
            if ahead > 0:
                words += f" {ahead} ahead"
            if right > 0:
                words += f" {right} right"
            if right < 0:
                words += f" {-right} left"
            found.append(words)
        return found


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
    _advised = LEFT
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
        carried = f" You carry a {view.carried.words}." if view.carried else ""
        return (
            f"Mission: {observation['mission']}. Free: {view.free(1, 0)} ahead, {view.free(0, -1)} left, "
            f"{view.free(0, 1)} right. You see {seen}.{carried}"
        )

    def actions(self, observation: Any) -> list[str]:
        """The actions that may change something."""
        view = View(observation["image"])
        front = view.tile(1, 0)
        carried = view.carried
        has_its_key = carried == Tile("key", front.colour)
        is_possible = {
            "turn left": True,
            "turn right": True,
            "go forward": front.is_free or front.kind == "lava",
            "pick up": front.kind in THINGS and carried is None,
            "drop": front.kind == "empty" and carried is not None,
            "open": front.kind == "box"
            or front.door in ("open", "closed")
            or (front.door == "locked" and has_its_key),
            "finish": "MiniGrid-GoTo" in self.env_id,  # elsewhere it does nothing
        }
        return [name for name in self.action_names if is_possible[name]]

    def draw(self, observation: Any) -> Drawing:
        """The view from above, the agent as ``^`` at its lower edge; ``+`` is a door, ``/`` an open one."""
        view = View(observation["image"])
        size = len(observation["image"])
        middle = size // 2
        carried = f"carries a {view.carried.words}" if view.carried else ""
        mission = textwrap.wrap(str(observation["mission"]), WIDTH - 2 * size - 2)
        words = [*mission, carried, *view.seen()]
        lines: list[list[str | Piece]] = []
        for row in range(size):
            tiles = [view.tile(size - 1 - row, right) for right in range(-middle, middle + 1)]
            pieces = []
            for tile in tiles:
                sign = "/" if tile.door == "open" else SIGNS[tile.kind]
                pieces.append(Piece(f"{sign} ", GROUNDS.get(tile.kind, "")))
            if row == size - 1:
                pieces[middle] = Piece("^ ", "player")
            beside = words[row] if row < len(words) else ""
            lines.append([*pieces, f"  {beside}"[: WIDTH - 2 * size]])
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
