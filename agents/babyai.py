"""BabyAI and MiniGrid (any id that begins so): missions in rooms, of which 7 by 7 tiles ahead are seen."""

import copy
import textwrap
from typing import Any, ClassVar, NamedTuple

from llamagym_tui.agent import Agent, Landmark, Panel, PolicyMap

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
COLOURS = ("red", "green", "blue", "purple", "yellow", "grey")
DOORS = ("open", "closed", "locked")
"""What the three numbers of a tile count."""
WIDTH = 60
"""Of a drawing."""
SIGNS = dict(zip(OBJECTS, " ·#·+koBG~@", strict=True))
THINGS = ("key", "ball", "box")
"""What can be picked up."""
NAMES = ("turn left", "turn right", "go forward", "pick up", "drop", "open", "finish")
LEFT, RIGHT, FORWARD = range(3)
MOST_SEEN = 8
"""Things in an observation, the nearest ones."""


class Tile(NamedTuple):
    kind: str
    colour: str = ""
    door: str = ""

    @property
    def words(self) -> str:
        return " ".join(part for part in (self.door, self.colour, self.kind) if part)

    @property
    def is_free(self) -> bool:
        """Whether one can go there and on."""
        return self.kind in ("empty", "floor", "goal") or self.door == "open"


class View(NamedTuple):
    """What an observation shows, by tiles ahead and to the right."""

    image: Any
    """(size, size, 3) column, row and what is there; the agent is in the middle of the last row."""

    def tile(self, ahead: int, right: int) -> Tile:
        size = len(self.image)
        column = size // 2 + right
        if not (0 <= ahead < size and 0 <= column < size):
            return Tile("unseen")
        kind, colour, state = (int(number) for number in self.image[column][size - 1 - ahead])
        has_colour, is_door = OBJECTS[kind] in ("door", *THINGS), OBJECTS[kind] == "door"
        return Tile(
            OBJECTS[kind], COLOURS[colour] if has_colour else "", DOORS[state] if is_door else ""
        )

    @property
    def carried(self) -> Tile | None:
        here = self.tile(0, 0)
        return here if here.kind in THINGS else None

    def free(self, ahead: int, right: int) -> int:
        """How many tiles one can go in a direction."""
        steps = 0
        while self.tile(ahead * (steps + 1), right * (steps + 1)).is_free:
            steps += 1
        return steps

    def seen(self) -> list[str]:
        """What lies where, the nearest first."""
        size = len(self.image)
        places = [(ahead, column - size // 2) for ahead in range(size) for column in range(size)]
        found = []
        for ahead, right in sorted(
            set(places) - {(0, 0)}, key=lambda place: (place[0] + abs(place[1]), place)
        ):
            if (tile := self.tile(ahead, right)).kind not in ("unseen", "empty", "wall", "floor"):
                side = "right" if right > 0 else "left"
                way = [f"{ahead} ahead"] * (ahead > 0) + [f"{abs(right)} {side}"] * (right != 0)
                found.append(" ".join([tile.words, *way]))
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
    picture = "# · · · o\n# · · · ·\n# · ^ · ·\n# # # # #"
    action_names: ClassVar[tuple[str, ...]] = NAMES
    action_keys = {"a": 0, "d": 1, "w": 2, "p": 3, "x": 4, "o": 5, "e": 6}
    baselines = {"random": 0.3, "expert": 0.93}
    """Mean returns; ``python -m benchmarks.world_baselines babyai`` measures them."""
    _bot: Any = None
    _advised: tuple[Any, Any, int] = (None, None, LEFT)
    """Mission of the last advice, the environment as it was then, and the action."""

    def __init_subclass__(cls) -> None:
        if "Dynamic-Obstacles" in cls.env_id:  # where one can only turn and go
            cls.action_names = NAMES[: FORWARD + 1]

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
        seen = (
            ", ".join([*things[:MOST_SEEN], *["and more"] * (len(things) > MOST_SEEN)]) or "nothing"
        )
        carried = f" You carry a {view.carried.words}." if view.carried else ""
        return (
            f"Mission: {observation['mission']}. Free: {view.free(1, 0)} ahead, {view.free(0, -1)} left, "
            f"{view.free(0, 1)} right. You see {seen}.{carried}"
        )

    def actions(self, observation: Any) -> list[str]:
        """Those that may change something."""
        view = View(observation["image"])
        front, carried = view.tile(1, 0), view.carried
        key = Tile("key", front.colour)
        could = (
            True,
            True,
            front.is_free or front.kind == "lava",
            front.kind in THINGS and not carried,
            front.kind == "empty" and bool(carried),
            front.kind == "box"
            or front.door in ("open", "closed")
            or (front.door, carried) == ("locked", key),
            "MiniGrid-GoTo" in self.env_id,  # elsewhere it does nothing
        )
        return [name for name, can in zip(self.action_names, could, strict=False) if can]

    def draw(self, observation: Any) -> str:
        """The view from above, the agent as ``^`` at its lower edge; ``+`` is a door, ``/`` an open one."""
        view, size = View(observation["image"]), len(observation["image"])
        carried = f"carries a {view.carried.words}" if view.carried else ""
        mission = textwrap.wrap(str(observation["mission"]), WIDTH - 2 * size - 2)
        words = [*mission, carried, *view.seen(), *[""] * size]
        lines = []
        for row in range(size):
            tiles = [
                view.tile(size - 1 - row, right) for right in range(-(size // 2), size // 2 + 1)
            ]
            signs = ["/" if tile.door == "open" else SIGNS[tile.kind] for tile in tiles]
            if row == size - 1:
                signs[size // 2] = "^"
            lines.append(f"{' '.join(signs)}   {words[row]}".rstrip()[:WIDTH])
        return "\n".join(lines)

    def expert(self, observation: Any, info: Any, env: Any) -> int | None:
        """What minigrid's bot advises, whose plan goes on from one turn to the next; None: this is no BabyAI level."""
        world: Any = env.unwrapped if env else None
        if not hasattr(world, "instrs"):
            return None
        from minigrid.utils.baby_ai_bot import BabyAIBot

        mission, before, action = self._advised
        if world.instrs is not mission or _state(world) != _state(before):
            taken = self._taken(world) if world.instrs is mission else None
            if taken is None:
                self._bot = BabyAIBot(world)
            action = int(self._bot.replan(taken))
            self._advised = world.instrs, copy.deepcopy(world), action
        return action

    def _taken(self, world: Any) -> int | None:
        """The action that led here from where the last advice was given; None: it was more than one."""
        _, before, advised = self._advised
        for action in (advised, *range(len(self.action_names))):
            after = copy.deepcopy(before)
            after.step(action)
            if _state(after) == _state(world):
                return action
        return None

    def policy_map(self) -> PolicyMap | None:
        """Each tile on which a red ball may be in view, in the open."""
        if "GoToRedBall" not in self.env_id:
            return None
        rows, sides = range(6, -1, -1), range(-3, 4)
        states = [[_red_ball(ahead, right) for right in sides] for ahead in rows]
        states[-1][3], states[-2][3] = (
            Landmark("^", "you"),
            None,
        )  # next to it is where one wants to be
        columns = ["3l", "2l", "1l", "0", "1r", "2r", "3r"]
        panel = Panel(
            "the red ball", [str(row) for row in rows], columns, states, "ahead", "left or right"
        )
        return PolicyMap([panel], signs="↰↱↑pxo.", best=_to_red_ball)


def _red_ball(ahead: int, right: int) -> Any:
    """What one sees where there is floor all around, and a red ball."""
    import numpy as np

    image = np.zeros((7, 7, 3), dtype=np.uint8)
    image[:, :, 0] = OBJECTS.index("empty")
    image[3 + right, 6 - ahead, 0] = OBJECTS.index("ball")
    return {"image": image, "mission": "go to the red ball"}


def _to_red_ball(observation: Any) -> list[int]:
    """The first action of the shortest way to a red ball in the open."""
    (column,), (row,) = (observation["image"][:, :, 0] == OBJECTS.index("ball")).nonzero()
    return [FORWARD if row < 6 else LEFT if column < 3 else RIGHT]


def _state(world: Any) -> tuple[int, str]:
    return world.step_count, world.hash()
