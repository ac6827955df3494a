"""The watched state is drawn while somebody wants to see it: each state that is shown, and the last one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gymnasium
import pytest

from llamagym_tui.game.pictures import Piece
from llamagym_tui.protocol import events
from llamagym_tui.trainer.rollout.rollout import Rollout
from tests.toy_env import CountAgent, CountEnv


class RenderingEnv(CountEnv):
    """Renders its count."""

    metadata = {"render_modes": ["ansi"]}  # noqa: RUF012
    rendered = 0

    def __init__(self, render_mode: str | None = None) -> None:
        super().__init__()
        self.render_mode = render_mode

    def render(self) -> str:
        RenderingEnv.rendered += 1
        return f"\x1b[41m{self.steps}\x1b[0m steps"


for name, entry in (("LlamaRenders-v0", RenderingEnv),):
    if name not in gymnasium.registry:
        gymnasium.register(name, entry_point=entry)


class RenderedAgent(CountAgent):
    env_id = "LlamaRenders-v0"


class DrawingAgent(CountAgent):
    drawings_made = 0

    def draw(self, observation: Any) -> str:
        DrawingAgent.drawings_made += 1
        return "#" * (observation + 1)


class HidingAgent(CountAgent):
    """Draws what it observes, and at the end what its environment hid."""

    def draw(self, observation: Any, info: Any, env: Any = None) -> list[Piece]:
        return [Piece(f"{observation} of {'?' if env is None else 'some'}", "back")]

    def reveal(self, observation: Any, info: Any, env: Any) -> list[Piece]:
        return [Piece(f"{observation} of {env.unwrapped.steps}", "card")]


Make = Callable[..., tuple[Rollout, list[events.Event]]]


@pytest.fixture
def make_rollout(make_policy) -> Make:  # type: ignore[no-untyped-def]
    def make(agent: CountAgent, n_envs: int = 2) -> tuple[Rollout, list[events.Event]]:
        seen: list[events.Event] = []
        return Rollout(
            agent,
            make_policy(),
            n_envs=n_envs,
            max_turns=9,
            batch_turns=100,
            seed=1,
            emit=seen.append,
        ), seen

    return make


def drawn(seen: list[events.Event]) -> list[tuple[int, int, str]]:
    return [
        (event.episode, event.turn, event.text)
        for event in seen
        if isinstance(event, events.StateDrawn)
    ]


def order(seen: list[events.Event]) -> list[str]:
    return [type(event).__name__ for event in seen if not isinstance(event, events.TokensStreamed)]


def test_a_state_is_drawn_before_it_is_reported_and_the_last_one_before_the_end(
    make_rollout: Make,
) -> None:
    rollout, seen = make_rollout(DrawingAgent())
    rollout.set_drawing(True)
    rollout.step()
    rollout.step()
    assert drawn(seen) == [(0, 0, "#"), (0, 1, "##"), (0, 2, "###")]
    assert order(seen) == [
        *("EpisodeStarted", "StateDrawn", "ObservationShown", "TurnFinished"),
        *("StateDrawn", "ObservationShown", "TurnFinished", "StateDrawn", "EpisodeFinished"),
    ]


def test_nothing_is_drawn_while_nobody_asks_and_only_the_watched_state_else(
    make_rollout: Make,
) -> None:
    rollout, seen = make_rollout(DrawingAgent())
    DrawingAgent.drawings_made = 0
    rollout.step()
    assert (drawn(seen), DrawingAgent.drawings_made, rollout.draws) == ([], 0, True)
    rollout.set_drawing(True)
    assert drawn(seen) == [(0, 1, "##")], "the present state comes at once"
    rollout.step()
    assert drawn(seen)[1:] == [(0, 2, "###")]


def test_what_was_hidden_is_drawn_once_the_episode_is_over(
    make_rollout: Make,
) -> None:
    rollout, seen = make_rollout(HidingAgent())
    rollout.set_drawing(True)
    rollout.step()
    rollout.step()
    assert drawn(seen) == [(0, 0, "0 of some"), (0, 1, "1 of some"), (0, 2, "2 of 2")]
    places = [event.grounds for event in seen if isinstance(event, events.StateDrawn)]
    assert places == [[(0, 9, "back")], [(0, 9, "back")], [(0, 6, "card")]]


def test_environments_render_text_where_the_agent_draws_nothing(make_rollout: Make) -> None:
    rollout, seen = make_rollout(RenderedAgent())
    RenderingEnv.rendered = 0
    rollout.set_drawing(True)
    rollout.step()
    assert drawn(seen) == [(0, 0, "0 steps"), (0, 1, "1 steps")]
    places = [event.grounds for event in seen if isinstance(event, events.StateDrawn)]
    assert places == [[(0, 1, "player")]] * 2
    assert RenderingEnv.rendered == 2
