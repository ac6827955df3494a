"""Actions that change with the turn, at the wheel."""

from __future__ import annotations

from itertools import count
from pathlib import Path

from msgspec.structs import replace

from llamagym_tui.app.app import LlamaGymApp
from llamagym_tui.game.choices import OfferedAction
from llamagym_tui.protocol.commands import Act, AnyCommand, TakeWheel
from llamagym_tui.protocol.events import (
    ActionAwaited,
    ActionsProbed,
    AnyEvent,
    EpisodeStarted,
    ObservationShown,
    PaceChanged,
    TurnFinished,
    WheelTaken,
)
from tests import fakes, text_env
from tests.screens.steps import sees, shown, until

SIZE = (100, 40)
TURNS = (
    ("hall", ["take key", "go north"], [0.75, 0.25]),
    ("hall, with key", ["go north"], [1.0]),
    ("attic, with key", ["go south", "look at chest", "wait", "open chest"], [0.1, 0.2, 0.3, 0.4]),
)
PROBED = "open chest 40%"


def opening() -> list[AnyEvent]:
    first, *rest = fakes.opening_events()
    started = [
        replace(each, action_names=[]) if hasattr(each, "action_names") else each for each in rest
    ]
    episode = EpisodeStarted(
        episode=0, system_prompt="Open the chest.", prompt_version=1, mode="train"
    )
    return [first, *started, episode]


def at(turn: int) -> list[AnyEvent]:
    place, names, shares = TURNS[turn]
    text = f"{text_env.ROOMS[place][0]} You can: {', '.join(names)}."
    return [
        ObservationShown(episode=0, turn=turn, text=text, actions=names),
        ActionsProbed(episode=0, turn=turn, names=names, shares=shares),
    ]


def acted(turn: int, name: str, **more: object) -> TurnFinished:
    fields = {
        "episode": 0,
        "turn": turn,
        "reply": name,
        "action": name,
        "action_name": name,
        "reward": 0.0,
    }
    return TurnFinished(**fields | {"how": "custom"} | more)  # type: ignore[arg-type]


class ChestTrainer(fakes.FakeClient):
    """Plays to the third turn; hands over the wheel there, probes a person's table, and inspects."""

    async def send(self, command: AnyCommand) -> None:
        await super().send(command)
        names = TURNS[2][1]
        match command:
            case TakeWheel():
                choices = [OfferedAction(str(key), name, name) for key, name in enumerate(names)]
                waits = ActionAwaited(
                    episode=0, turn=2, reply="wait", action_name="wait", choices=choices
                )
                self.emit(WheelTaken(env=0, choices=[]), waits)
            case Act():
                person = acted(
                    2,
                    str(command.action),
                    how="human",
                    replaced="wait",
                    replaced_action="wait",
                    reward=1.0,
                )
                waits = ActionAwaited(
                    episode=0,
                    turn=3,
                    reply="",
                    action_name="",
                    choices=[OfferedAction("0", "bow", "bow")],
                )
                self.emit(person, replace(at(1)[0], turn=3), waits)


def events() -> list[AnyEvent]:
    slowly = PaceChanged(turn_s=1.0)  # at full speed a turn is one line, without probabilities
    return [*opening(), slowly, *at(0), acted(0, "take key"), *at(1), acted(1, "go north"), *at(2)]


def app_of(client: fakes.FakeClient) -> LlamaGymApp:
    config = replace(fakes.config(Path("/runs/demo")), agent=f"{text_env.__file__}:CommandAgent")
    seeds = count(1)
    return LlamaGymApp(config, client_factory=lambda: client, next_seed=lambda: next(seeds))


async def test_the_wheel_offers_what_is_admissible_in_the_turn_that_waits():
    client = ChestTrainer(iter(events()))
    async with app_of(client).run_test(size=SIZE) as pilot:
        await sees(pilot, "There is a chest.")
        await pilot.press("w")
        await sees(pilot, "3  open chest")
        await pilot.press("3")
        await sees(pilot, "0  bow")
        assert client.sent[-1] == Act(episode=0, turn=2, action="open chest")
        await until(pilot, lambda: "3  open chest" not in shown(pilot), "keys of the turn before")
