"""Taking the wheel by its keys, against a scripted trainer: when it is whose turn, and what a key does."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from textual.pilot import Pilot

from llamagym_tui.game.choices import OfferedAction
from llamagym_tui.protocol.commands import Act, AnyCommand, LetGo, TakeWheel
from llamagym_tui.protocol.events import (
    ActionAwaited,
    AnyEvent,
    EpisodeCorrected,
    EpisodeFinished,
    EpisodeStarted,
    ObservationShown,
    PhaseChanged,
    TurnFinished,
    WarningRaised,
    WheelLetGo,
    WheelTaken,
)
from llamagym_tui.screens.play.wheel import WheelScreen
from tests import fakes
from tests.screens.conftest import MakeApp
from tests.screens.pictures import WIDE, at_sizes
from tests.screens.steps import rolling_out, sees, shown, until

SIZE = (100, 30)
CHOICES = [OfferedAction("s", 0, "stick"), OfferedAction("h", 1, "hit")]
HIT, STICK = '{"action": 1}', '{"action": 0}'
YOUR_TURN = "YOU HAVE THE WHEEL  your turn"


class Trainer(fakes.FakeClient):
    """Hands the wheel over, waits for the person, and ends each hand with their action."""

    def __init__(self, events: Iterator[AnyEvent] | None = None) -> None:
        super().__init__(events if events is not None else fakes.opening_events())
        self.episode = 7
        self.silent: tuple[type[AnyCommand], ...] = ()
        """Commands that it leaves unanswered."""

    async def send(self, command: AnyCommand) -> None:
        if isinstance(command, self.silent):
            self.sent.append(command)
            return
        await super().send(command)
        match command:
            case TakeWheel():
                self.emit(WheelTaken(env=0, choices=CHOICES), *self.hand())
            case Act():
                self.emit(*self.acted(command))
                self.episode += 1
                self.emit(*self.hand())
            case LetGo():
                self.emit(WheelLetGo())

    def hand(self) -> list[AnyEvent]:
        start = EpisodeStarted(
            episode=self.episode, system_prompt=fakes.PROMPT, prompt_version=1, mode="train"
        )
        text = "Your total: 17. Usable ace: no. Dealer shows: 6."
        awaited = ActionAwaited(episode=self.episode, turn=0, reply=HIT, action_name="hit")
        return [start, ObservationShown(episode=self.episode, turn=0, text=text), awaited]

    def acted(self, act: Act) -> list[AnyEvent]:
        fields: dict[str, Any] = {
            "episode": act.episode,
            "turn": act.turn,
            "how": "human",
            "reward": 1.0,
        }
        name, reply = ("stick", STICK) if act.action == 0 else ("hit", HIT)
        turn = TurnFinished(
            **fields,
            action=act.action,
            action_name=name,
            reply=reply,
            replaced=HIT,
            replaced_action="hit",
        )
        end = EpisodeFinished(episode=act.episode, episode_return=1.0, length=1, end="terminated")
        start, observation, _ = self.hand()
        assert isinstance(start, EpisodeStarted)
        assert isinstance(observation, ObservationShown)
        whole = EpisodeCorrected(
            started=start, observations=[observation.text], turns=[turn], finished=end
        )
        return [turn, end, whole]


async def take(pilot: Pilot[None]) -> None:
    await sees(pilot, "episode ")
    await pilot.press("w")
    await sees(pilot, YOUR_TURN)


async def test_w_hands_over_the_wheel_and_a_key_takes_its_action_at_once(make_app: MakeApp):
    client = Trainer()
    async with make_app(client).run_test(size=SIZE) as pilot:
        await take(pilot)
        assert "YOU HAVE THE WHEEL  your turn · episode 7, turn 1" in shown(pilot)
        assert "The model chose hit in your place." in shown(pilot)
        assert HIT not in shown(pilot)
        assert "Your total: 17." in shown(pilot)
        client.silent = (Act,)
        await pilot.press("h")
        client.emit(WarningRaised(message="That turn is already over.", refused="wheel"))
        await sees(pilot, "That turn is already over.")
        client.silent = ()
        await pilot.press("s")
        await sees(pilot, "episode 8, turn 1")
        assert client.sent[-1] == Act(episode=7, turn=0, action=0)
        await sees(pilot, "you stick   return ▲ +1")
        await pilot.press("tab")
        await sees(pilot, "stick by you")
        assert "left out of the mean" in shown(pilot)


async def test_actions_keys_mean_actions_and_nothing_else(make_app: MakeApp):
    client = Trainer()
    async with make_app(client).run_test(size=SIZE) as pilot:
        await take(pilot)
        client.silent = (Act,)
        await pilot.press("h", "s", "h")
        await sees(pilot, "▶ hit ◀")
        assert client.sent[1:] == [Act(episode=7, turn=0, action=1)], "one turn, one action"
        assert isinstance(pilot.app.screen, WheelScreen), "h opens no table and s no settings"


async def test_before_the_trainer_has_confirmed_nothing_is_the_persons(make_app: MakeApp):
    client = Trainer()
    client.silent = (TakeWheel,)
    async with rolling_out(make_app(client), SIZE) as pilot:
        await pilot.press("w")
        await sees(pilot, "WHEEL REQUESTED")
        await pilot.press("h")
        client.emit(PhaseChanged(phase="updating", detail="epoch 1 of 4"))
        await sees(pilot, "learning epoch 1 of 4")
        client.emit(WarningRaised(message="Its actions are no keys.", refused="wheel"))
        await sees(pilot, "Warning: Its actions are no keys.")
        assert not isinstance(pilot.app.screen, WheelScreen)
        assert client.sent == [TakeWheel()]


async def test_while_the_others_play_or_the_model_learns_it_is_not_your_turn(make_app: MakeApp):
    client = Trainer()
    async with make_app(client).run_test(size=SIZE) as pilot:
        await take(pilot)
        client.hand = list  # type: ignore[method-assign]
        client.acted = lambda act: [  # type: ignore[method-assign]
            TurnFinished(
                episode=7,
                turn=0,
                reply=HIT,
                action=1,
                action_name="hit",
                how="human",
                reward=0.0,
                replaced=HIT,
            )
        ]
        await pilot.press("h")
        await sees(pilot, "not your turn yet")
        await sees(pilot, "The other environments of the batch are playing")
        await pilot.press("h")
        assert len(client.sent) == 2


async def test_who_does_not_wait_for_the_trainer_finds_the_wheel_again(make_app: MakeApp):
    client = Trainer()
    async with make_app(client).run_test(size=SIZE) as pilot:
        await take(pilot)
        client.silent = (LetGo,)
        await pilot.press("escape")
        await sees(pilot, "LEAVING THE WHEEL")
        await pilot.press("escape")
        await until(pilot, lambda: not isinstance(pilot.app.screen, WheelScreen), "the playground")
        await pilot.press("w")
        await sees(pilot, "LEAVING THE WHEEL")
        client.emit(WheelLetGo())
        await until(pilot, lambda: not isinstance(pilot.app.screen, WheelScreen), "the playground")
        assert client.sent == [TakeWheel(), LetGo()]


async def test_a_corrected_episode_is_on_disk_at_once(make_app: MakeApp, tmp_path: Path):
    client = Trainer()
    async with make_app(client).run_test(size=SIZE) as pilot:
        await take(pilot)
        await pilot.press("s")
        path = tmp_path / "data" / "demos" / "blackjack.jsonl"
        await until(pilot, lambda: path.exists() and path.read_text().endswith("\n"), "the file")
        (line,) = path.read_text().splitlines()
        assert '"source":"correction"' in line
        assert '"replaced_replies":{"0":' in line


@at_sizes(WIDE)
def test_the_wheel(
    snap_compare: Any,
    make_app: MakeApp,
    size: tuple[int, int],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LLAMAGYM_TUI_DATA", "data")
    client = Trainer(fakes.demo_run(batches=8))
    client.episode = 8 * 128 + 20

    async def act(pilot: Pilot[None]) -> None:
        await take(pilot)
        await pilot.press("s")
        await sees(pilot, "1,045")
        await sees(pilot, YOUR_TURN)
        await until(pilot, (tmp_path / "data" / "demos" / "blackjack.jsonl").exists, "the file")

    assert snap_compare(make_app(client), terminal_size=size, run_before=act)
