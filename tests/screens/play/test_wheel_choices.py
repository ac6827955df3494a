"""The wheel's keys: those of the turn that waits, else those of every turn."""

from __future__ import annotations

from llamagym_tui.game.choices import OfferedAction
from llamagym_tui.protocol.events import ActionAwaited, TurnFinished, WheelTaken
from llamagym_tui.screens.play.wheel_screen import choices_at
from llamagym_tui.state.wheel import WheelState

ALWAYS, NOW = (
    [OfferedAction("a", 0, "left"), OfferedAction("d", 1, "right")],
    [OfferedAction("0", "open door", "open door")],
)


def test_a_turn_with_choices_of_its_own_has_those_until_it_is_over():
    wheel = WheelState().after(WheelTaken(env=0, choices=ALWAYS))
    assert choices_at(wheel) == ALWAYS
    waits = wheel.after(ActionAwaited(episode=1, turn=0, reply="", action_name="", choices=NOW))
    assert choices_at(waits) == NOW
    turn = TurnFinished(
        episode=1, turn=0, reply="", action=0, action_name="", how="human", reward=0.0
    )
    assert choices_at(waits.after(turn)) == ALWAYS
    assert (
        choices_at(waits.after(ActionAwaited(episode=1, turn=1, reply="", action_name="")))
        == ALWAYS
    )
