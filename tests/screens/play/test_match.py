"""You against the model: the same seeds for both, and a card with both scores at the end."""

from __future__ import annotations

from typing import Any

from llamagym_tui.demos.human_game import MATCH, MatchAgainstModel
from llamagym_tui.protocol.commands import Evaluate
from llamagym_tui.protocol.events import EvaluationFinished, MatchPlayed
from llamagym_tui.screens.play.table import match_text
from tests import fakes
from tests.screens.conftest import MakeApp
from tests.screens.play.test_table import SIZE, play_one
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
    assert match_text(match, after(fakes.run_started(), found)) == (
        "You earn +0.500, the model −0.050, update 3, prompt v2 “Hit below 13.”. "
        "You against it: +0.58 ± 0.27 (95 %, 19 pairs of episodes on the same seeds)."
    )


def test_a_match_under_way_and_one_that_the_model_has_not_played_have_no_scores() -> None:
    other = after(fakes.run_started(), by_model([0.0] * MATCH, 0.0, seed=6))
    assert (
        match_text(MatchAgainstModel(5, [1.0] * 3), other)
        == "against the model: 3 of 20 episodes played"
    )
    assert (
        match_text(MatchAgainstModel(5, [1.0] * MATCH), other)
        == "against the model: it has not played its episodes"
    )


async def test_a_match_is_begun_between_two_episodes_and_ends_with_its_card(
    make_app: MakeApp,
) -> None:
    client = fakes.FakeClient()
    app = make_app(client)
    async with rolling_out(app, SIZE) as pilot:
        await pilot.press("h")
        await sees(pilot, "Your total:")
        await pilot.press("ctrl+g")  # nothing: an episode is under way
        await play_one(pilot, app)
        await pilot.press("ctrl+g")
        await until(pilot, lambda: client.sent == [Evaluate(episodes=20, seed=2)])
        await sees(pilot, "against the model: 0 of 20 episodes played")
        game = app.recorder.game
        assert game is not None
        assert game.match is not None
        game.match.returns.extend([1.0] * 19)
        await play_one(pilot, app)
        await sees(pilot, "it has not played its episodes")
        client.emit(by_model([0.0] * MATCH, 0.0, seed=2))
        await sees(pilot, "the model +0.000, update 3, prompt v2")
