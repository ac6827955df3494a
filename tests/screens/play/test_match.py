"""You against the model: the same seeds for both, and a card with both scores at the end."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from llamagym_tui.agents.tic_tac_toe import TicTacToeAgent
from llamagym_tui.demos.human_game import MATCH, MatchAgainstModel
from llamagym_tui.protocol.commands import AnyCommand, ProbeActions
from llamagym_tui.protocol.events import (
    AnyEvent,
    ConversationProbed,
    EvaluationFinished,
    MatchPlayed,
)
from llamagym_tui.screens.play.table import HumanTableScreen, match_text
from tests import fakes
from tests.screens.conftest import MakeApp
from tests.screens.steps import rolling_out, sees, until
from tests.state.test_reduce import after


def by_model(returns: list[float | None], mean: float, seed: int = 5) -> MatchPlayed:
    figures: dict[str, Any] = {
        "mean_return": mean,
        "return_stderr": 0.1,
        "parse_failure_rate": 0.0,
        "elapsed_s": 1.0,
    }
    of: dict[str, Any] = {"update": 3, "prompt_version": 2, "system_prompt": "Hit below 13."}
    played = EvaluationFinished(episodes=MATCH, greedy=True, **figures, **of)
    return MatchPlayed(seed=seed, returns=returns, played=played)


def test_the_card_has_both_scores_and_what_is_known_of_their_difference() -> None:
    match = MatchAgainstModel(5, [1.0] * 10 + [0.0] * 10)
    found = by_model([1.0] * 9 + [-1.0] * 10 + [None], mean=-0.05)
    # Nine pairs are equal, one differs by 2 and nine by 1: mean 11/19, deviation √(13 − 121/19)/18, √(0.3684 …).
    assert match_text(match, replace(after(fakes.run_started()), match=found)) == (
        "You earn +0.500, the model −0.050, update 3, prompt v2 “Hit below 13.”. "
        "You against it: +0.58 ± 0.27 (95 %, 19 pairs of episodes on the same seeds)."
    )


class MovesFirst(fakes.FakeClient):
    """The model's likeliest action is the first one that is admissible."""

    def _answer(self, command: AnyCommand) -> AnyEvent | None:
        if not isinstance(command, ProbeActions):
            return super()._answer(command)
        names = command.messages[-1].get("actions") or list(TicTacToeAgent.action_names)
        shares = [0.1] * len(names)
        shares[0] = 0.2
        return ConversationProbed(ticket=command.ticket, names=list(names), shares=shares)


async def test_in_a_game_for_two_the_table_is_against_the_model(
    make_app: MakeApp,
) -> None:
    client = MovesFirst()
    app = make_app(client, agent="tic_tac_toe")
    async with rolling_out(app, (100, 40)) as pilot:
        await pilot.press("h")
        await sees(pilot, "a key takes its action at once")
        screen = app.screen
        assert isinstance(screen, HumanTableScreen)
        # The right column, which nobody who takes the first empty field keeps from me.
        for _ in range(3):
            taken = [choice.key for choice in screen.choices]
            await pilot.press(next(key for key in ("9", "6", "3", "8", "7") if key in taken))
            await until(pilot, lambda: not screen._game.awaits_model)
            if screen._game.over:
                break
        assert screen._game.over
        await sees(pilot, "you against the model: ")
