"""The token inspector by its keys, against a scripted trainer."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import pytest
from textual.pilot import Pilot

from llamagym_tui.app.app import LlamaGymApp
from llamagym_tui.protocol.events import TurnInspected, UpdateFinished
from llamagym_tui.protocol.inspected import PeerGroup
from llamagym_tui.screens.conversation.inspector import TokenTable
from llamagym_tui.screens.conversation.view import ConversationView
from tests import fakes
from tests.recorded_run import record
from tests.screens.conftest import MakeApp
from tests.screens.inspected import TOKENS, InspectedClient, scored, told
from tests.screens.steps import sees, shown, until

SIZE = (116, 34)
LAST = 160 * 128 + 14
"""The watched episode of the demo run."""


@asynccontextmanager
async def opened(
    make_app: MakeApp, client: InspectedClient, size: tuple[int, int] = SIZE
) -> AsyncIterator[Pilot[None]]:
    """The app once the last reply of the demo run is told."""
    async with make_app(client).run_test(size=size) as pilot:
        await sees(pilot, "Your total: 12")
        view = pilot.app.screen.query_one(ConversationView)
        await until(pilot, lambda: view.rows)
        await pilot.press("i")
        await sees(pilot, f"Reply 1 of episode {LAST:,}, sampled by policy 39, now policy 40")
        assert client.inspected == [(LAST, 0)]
        yield pilot


async def test_i_opens_the_last_reply_of_what_is_watched_with_a_sentence_about_it(
    make_app: MakeApp,
):
    client = InspectedClient()
    async with opened(make_app, client) as pilot:
        await sees(pilot, "advantage +0.83, 1 of 4 clipped.")
        lines = shown(pilot).splitlines()
        [action] = [line for line in lines if "·1" in line and "70.0%" in line and "1.400" in line]
        assert action.split()[:7] == ["▌●", "70.0%", "−0.693", "−0.357", "1.400", "clipped", "·1"]


async def test_of_a_run_that_tells_no_clip_range_nothing_is_said_of_clipping(make_app: MakeApp):
    client = InspectedClient()
    async with opened(make_app, client) as pilot:
        client.emit(told(LAST, 0, clip_range=0.0))
        await sees(pilot, "advantage +0.83.")
        assert "of 4 clipped" not in shown(pilot)


async def test_up_and_down_move_between_tokens_and_each_is_told(make_app: MakeApp):
    client = InspectedClient()
    async with opened(make_app, client) as pilot:
        await sees(pilot, "token 2 of 4")
        await sees(pilot, "p 50.0% → 70.0%: ratio 1.400, clipped 0.8 … 1.2")
        await sees(
            pilot, "advantage +0.83 of the whole reply · value +0.17, now +0.21 · return +1.00"
        )
        await sees(pilot, "● ·0            28.0%")
        await pilot.press("down")
        await sees(pilot, "token 3 of 4")
        await sees(pilot, "ratio 0.667, outside 0.8 … 1.2")
        await pilot.press("up", "up")
        await sees(pilot, "token 1 of 4")


async def test_without_a_critic_the_advantage_has_its_learner_and_what_it_was_compared_with(
    make_app: MakeApp,
):
    client = InspectedClient()
    async with opened(make_app, client) as pilot:
        alike = PeerGroup(peers="turns on its observation", size=9, outcome=1.0, mean=1.0, spread=0)
        alone = PeerGroup(
            peers="episodes that began alike", size=1, outcome=1.0, mean=1.0, spread=0
        )
        differing = PeerGroup(
            peers="episodes of its seed", size=8, outcome=1.0, mean=0.5, spread=0.7
        )
        tokens = [
            msgspec.structs.replace(
                each,
                decision=msgspec.structs.replace(each.decision, value=None, value_now=None),
            )
            for each in TOKENS
        ]
        groups = [differing, alike, alone]
        client.emit(told(LAST, 0, tokens=tokens, learner="grpo", groups=groups))
        await sees(pilot, "advantage +0.83 of the whole reply, by GRPO · return +1.00")
        await sees(pilot, "compared with 8 episodes of its seed: +1.00, mean +0.50, spread 0.700")
        await sees(pilot, "compared with 9 turns on its observation: +1.00, mean +1.00, all alike")
        await sees(pilot, "alone among episodes that began alike")
        assert "value" not in shown(pilot)
        formula = "times mean turns of an episode ÷ turns of this one"
        await sees(pilot, formula)


@pytest.mark.parametrize(
    ("there", "back"),
    [
        ("right_square_bracket", "left_square_bracket"),
        pytest.param("right", "left", marks=pytest.mark.slow),
    ],
)
async def test_brackets_and_arrows_go_to_the_other_replies_of_the_episode(
    make_app: MakeApp, there: str, back: str
):
    client = InspectedClient()
    async with opened(make_app, client) as pilot:
        await pilot.press(back)
        await pilot.press(there)
        await sees(
            pilot, "Reply 2 of episode 20,494, sampled by policy 39, now policy 39: not trained yet"
        )
        await sees(pilot, "no advantage: not trained yet, its batch is not complete.")
        await pilot.press("down")
        await sees(pilot, "token 3 of 4")
        await pilot.press(there)
        await pilot.press(back)
        await sees(pilot, "1 of 4 clipped")
        assert client.inspected == [(LAST, 0), (LAST, 1), (LAST, 0)], (
            "none before the first or after the last"
        )


async def test_every_update_asks_again(make_app: MakeApp):
    client = InspectedClient()
    async with opened(make_app, client) as pilot:
        await pilot.press("down")
        client.emit(UpdateFinished(update=41, episodes=30_000, stats=fakes.STATS))
        await until(pilot, lambda: client.inspected == [(LAST, 0)] * 2)
        client.confirms = False
        client.emit(told(LAST, 0, policy=41))
        await sees(pilot, "now policy 41")
        await sees(pilot, "token 3 of 4")  # the cursor stays


async def test_figures_stay_with_a_sentence_when_nothing_more_can_be_told(make_app: MakeApp):
    client = InspectedClient()
    async with opened(make_app, client) as pilot:
        client.emit(
            TurnInspected(episode=LAST, turn=0, why_not="Episode 20,494 is of another time.")
        )
        await sees(pilot, "These figures are of policy 40. Episode 20,494 is of another time.")
        assert "1.400" in shown(pilot)


async def test_a_reply_that_is_not_kept_is_refused_in_a_sentence(make_app: MakeApp):
    client = InspectedClient(confirms=False)
    async with make_app(client).run_test(size=SIZE) as pilot:
        await sees(pilot, "20,494 ")
        await pilot.press("i")
        await sees(
            pilot, "Reply 1 of episode 20,494: requested; the trainer answers between two steps."
        )
        client.emit(
            TurnInspected(episode=LAST, turn=0, why_not="Episode 20,494 is of another time.")
        )
        await sees(pilot, "Reply 1 of episode 20,494: Episode 20,494 is of another time.")
        assert "most probable under" not in shown(pilot)


async def test_the_marked_reply_is_the_one_that_is_opened(make_app: MakeApp):
    client = InspectedClient()
    async with make_app(client).run_test(size=(100, 18)) as pilot:
        await sees(pilot, "20,494 ")
        view = pilot.app.screen.query_one(ConversationView)
        await pilot.press(*"kkkk")
        assert view.marked is not None
        place = (view.marked.episode, view.marked.turn)
        assert place != (LAST, 0)
        await pilot.press("i")
        await until(pilot, lambda: client.inspected == [place])


async def test_a_reply_chosen_by_score_shows_the_replies_and_says_so(make_app: MakeApp):
    client = InspectedClient(confirms=False)
    async with make_app(client).run_test(size=SIZE) as pilot:
        await sees(pilot, "20,494 ")
        await pilot.press("i")
        await sees(pilot, "requested; the trainer answers")
        assert isinstance(pilot.app.focused, TokenTable), "or no key would move anything"
        client.emit(scored(told(LAST, 0)))
        await sees(pilot, "chosen by its score from 2 replies; advantage")
        await sees(pilot, "+0.83, 1 of 1 clipped.")
        lines = shown(pilot).splitlines()
        assert any(
            line.split()[:2] == ["▌▶", "70.0%"] and '{"action":·1}' in line for line in lines
        )
        assert any(line.split()[:3] == ["○", "30.0%", '{"action":·0}'] for line in lines)
        await sees(pilot, "score −0.412 nats")


def recording(run_dir: Path, *, inspected: bool) -> LlamaGymApp:
    def no_client():
        raise AssertionError("a trainer was started")

    events = [*fakes.demo_run(batches=4), *([told(526, 0)] if inspected else [])]
    return LlamaGymApp(replay=record(run_dir, events), client_factory=no_client)


async def test_in_a_replay_the_reply_that_was_inspected_is_shown_again(tmp_path: Path):
    app = recording(tmp_path / "run", inspected=True)
    async with app.run_test(size=SIZE) as pilot:
        await sees(pilot, "REPLAY")
        await until(pilot, lambda: app.screen.player.recording.complete)  # type: ignore[attr-defined]
        await pilot.press("end")
        await until(
            pilot, lambda: app.run_state is not None and app.run_state.inspection.found is not None
        )
        await pilot.press("i")
        await sees(pilot, "Reply 1 of episode 526, sampled by policy 39")
        await pilot.press("down")
        await sees(pilot, "token 3 of 4")
