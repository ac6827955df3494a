"""The other player of a game for two where that is a policy: whose turns and rewards are whose, and earlier selves."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import pytest
import torch
from msgspec.structs import replace

from llamagym_tui.demos.demonstration import PlayedTurn
from llamagym_tui.game.observed import Observed
from llamagym_tui.protocol import events
from llamagym_tui.settings import GenerationConfig, LoraConfig, RunConfig
from llamagym_tui.setup import catalog
from llamagym_tui.trainer.builders import Builders
from llamagym_tui.trainer.rollout import opponents
from llamagym_tui.trainer.rollout.endpoint_policy import EndpointPolicy
from llamagym_tui.trainer.rollout.opponents import (
    EVERY,
    MOST_KEPT,
    EarlierSelves,
    ModelOpponent,
    Seat,
)
from llamagym_tui.trainer.rollout.rollout import Rollout
from tests.tug_env import TugAgent

GENTLY = '{"action": 0}'
HARD = '{"action": 1}'
SEATS = [Seat(seed, "Pull.", [], Observed(f"The rope is at {seed}.", None)) for seed in range(4)]


class PullsHard(ModelOpponent):
    """Pulls hard in every other episode, and keeps what it was shown."""

    def __init__(self) -> None:
        self.shown: list[str] = []
        self.asked: list[int] = []

    def replies(self, seats: Sequence[Seat], *, greedy: bool) -> list[str]:
        self.shown += [seat.shown.text for seat in seats]
        self.asked.append(len(seats))
        return [GENTLY if seat.seed % 2 else HARD for seat in seats]


@pytest.fixture
def play(make_policy):
    def make(
        opponent: Any = None, policy: Any = None, **settings: Any
    ) -> tuple[Rollout, list[Any]]:
        emitted: list[Any] = []
        rollout = Rollout(
            TugAgent(),
            policy or make_policy(policy="score"),
            n_envs=4,
            max_turns=None,
            batch_turns=1000,
            seed=3,
            emit=emitted.append,
            opponent=opponent or PullsHard(),
            **settings,
        )
        return rollout, emitted

    return make


def test_the_others_turns_are_in_no_trajectory_and_its_wins_are_losses_of_the_turn_before(play):
    rollout, emitted = play()
    while rollout.episodes < 30:
        rollout.step()
    batch = [each for each in rollout.take_batch() if each.end == "terminated"]
    assert {turn.reward for each in batch for turn in each.turns} == {-1.0, 0.0, 1.0}
    for trajectory in batch:
        *before, last = trajectory.turns
        assert abs(last.reward) == 1.0
        assert not any(turn.reward for turn in before)
        assert all(turn.is_trained for turn in trajectory.turns)
    ends = [event.episode_return for event in emitted if isinstance(event, events.EpisodeFinished)]
    assert set(ends) <= {-1.0, 0.0, 1.0}
    # Of the rope as it stands for the other player: after one's own pull by one, -1, after two, -2.
    opponent = rollout.opponent
    assert isinstance(opponent, PullsHard)
    assert {"The rope is at 0.", "The rope is at -1.", "The rope is at -2."} <= set(opponent.shown)
    own = [event.text for event in emitted if isinstance(event, events.ObservationShown)]
    assert "The rope is at -2." in own, "the other one began, and has pulled hard"
    assert max(opponent.asked) > 1, "all that wait are asked together"


def test_an_opponent_that_cannot_be_worded_drops_its_episode_alone(play, monkeypatch):
    rollout, _ = play()
    worded = TugAgent.format_observation

    def failing(self: TugAgent, observation: Any) -> str:
        if observation == 1:
            raise ArithmeticError("no word for it")
        return worded(self, observation)

    monkeypatch.setattr(TugAgent, "format_observation", failing)
    while not rollout.episodes:
        rollout.step()
    assert rollout.failures.dropped > 0


def changed(policy: Any) -> None:
    """As after an update."""
    with torch.no_grad():
        if policy.narrow is not None:  # no other row of it is ever trained
            policy.narrow.up[policy.narrow.ids] += 1.0
            policy.narrow.down += 1.0
        for weight in policy.model.pretrained_model.parameters():
            if weight.requires_grad and policy.narrow is None:
                weight.add_(torch.randn(weight.shape) * 0.5)
    policy.version += 1


def logits(policy: Any) -> torch.Tensor:
    ids = torch.tensor([[1, 2, 3]])
    with torch.no_grad():
        return policy.model.causal_lm(ids).logits.clone()


@pytest.fixture(params=["all weights", "adapter", "head"])
def policy(make_policy, request):
    made = make_policy(lora=request.param == "adapter", policy="score")
    if request.param == "head":
        made.model.adapt(LoraConfig(layers="head", r=4))
        made = type(made)(made.model, made.chat.tokenizer, made.generation, [GENTLY, HARD])
        made.narrow.down.copy_(torch.randn(made.narrow.down.shape))
    return made


def versions(pool: EarlierSelves) -> list[int]:
    return [earlier.version for earlier, _ in pool._selves]


def test_selves_are_kept_now_and_then_and_each_game_draws_one_by_its_seed(make_policy, monkeypatch):
    policy = make_policy(policy="score")
    pool = EarlierSelves(policy)
    for update in range(1, EVERY * (MOST_KEPT + 2) + 1):
        changed(policy)
        pool.learnt(update)
    # The first self is let go, and so is the one after it.
    assert versions(pool) == [EVERY * at for at in range(3, MOST_KEPT + 3)]
    asked: dict[int, set[int]] = {}

    def replies(policy: Any, sampler: Any, seats: Any, *, greedy: bool) -> list[str]:
        asked.setdefault(policy.version, set()).update(seat.seed for seat in seats)
        return [f"{policy.version} to {seat.seed}" for seat in seats]

    with monkeypatch.context() as patched:
        patched.setattr(opponents, "_replies", replies)
        many = [SEATS[0]._replace(seed=seed) for seed in range(64)]
        found = pool.replies(many, greedy=False)
        pool.replies(many[::2], greedy=False)
    assert sorted(asked) == versions(pool), "each has games"
    assert sum(map(len, asked.values())) == 64, (
        "a game has one opponent, whichever others are asked with it"
    )
    assert all(f" to {seat.seed}" in reply for seat, reply in zip(many, found, strict=True))
    again = EarlierSelves(policy)
    again.restore(msgspec.to_builtins(pool.state()))
    assert versions(again) == versions(pool)
    assert again.replies(SEATS, greedy=False) == pool.replies(SEATS, greedy=False)


class FakeEndpoint:
    def __init__(self) -> None:
        self.asked: list[Any] = []
        self.temperatures: set[float] = set()

    def replies(
        self, conversations: Any, seeds: Any, *, max_tokens: int, temperature: float
    ) -> list[str]:
        self.asked += conversations
        self.temperatures.add(temperature)
        return [HARD] * len(conversations)


def test_an_endpoint_sees_its_own_words_and_the_last_turns_of_its_history():
    endpoint: Any = FakeEndpoint()
    generation = GenerationConfig(policy="score", temperature=0.5)
    opponent = ModelOpponent(EndpointPolicy(endpoint, generation, history=1), "Play.")
    turns = [PlayedTurn(f"Seen {at}.", None, f"Said {at}.", 0, 0.0) for at in range(2)]
    seats = [SEATS[0]._replace(turns=turns), SEATS[1]]
    assert opponent.replies(seats, greedy=False) == [HARD, HARD]
    opponent.replies(seats, greedy=True)
    later, first = ([message["content"] for message in each] for each in endpoint.asked[:2])
    assert later == ["Play.", "Seen 1.", "Said 1.", "The rope is at 0."]
    assert first == ["Play.", "The rope is at 1."]
    assert endpoint.temperatures == {0.5, 0.0}


def test_an_earlier_self_that_is_damaged_is_refused(make_policy):
    selves = EarlierSelves(make_policy(policy="score"))
    (saved,) = selves.state()
    damaged = replace(saved, weights=saved.weights[: len(saved.weights) // 2])
    with pytest.raises(ValueError, match="the weights of update 0"):
        selves.restore([damaged])


def test_another_model_plays_by_its_own_settings_and_words_whatever_the_prompt_of_the_run(
    bundled, monkeypatch
):
    monkeypatch.setattr("llamagym_tui.trainer.builders.Endpoint", str)
    game = catalog.find_agent("tic_tac_toe")
    monkeypatch.setattr(game, "get_system_prompt", lambda self: "Play.")
    config = RunConfig(
        agent="tic_tac_toe",
        run_dir="",
        generation=GenerationConfig(temperature=0.1, max_new_tokens=99),
    )
    builders = Builders(config)
    for name in (str(bundled), "http://localhost:1/v1"):
        agent = Builders(replace(config, env={"opponent": name})).agent()
        made: Any = builders.opponent(agent, None)
        assert made is builders.opponent(agent, None), "it is loaded once"
        assert made.policy.generation.temperature == 1.0
        assert made.policy.generation.max_new_tokens != 99
        assert made._system_prompt == "Play."
