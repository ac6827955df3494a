"""Many environments, one batch: what is collected, what is shown, and what is kept out."""

from __future__ import annotations

from collections import Counter

import gymnasium
import pytest
import torch

from llamagym_tui.game.environment import episode_seed
from llamagym_tui.protocol import events
from llamagym_tui.settings import RunConfig
from llamagym_tui.trainer.builders import Builders
from llamagym_tui.trainer.rollout.rollout import Rollout
from tests.toy_env import CountAgent, CountEnv, EndlessAgent, FaultyEnv


@pytest.fixture
def make_rollout(make_policy):
    def make(agent=None, **changes) -> tuple[Rollout, list[events.Event]]:
        emitted: list[events.Event] = []
        settings = {"n_envs": 4, "max_turns": 9, "batch_turns": 10, "seed": 1} | changes
        return Rollout(
            agent or CountAgent(), make_policy(), emit=emitted.append, **settings
        ), emitted

    return make


class Sized:
    """Of so many ranks the first one, as far as a rollout alone asks."""

    def __init__(self, size: int) -> None:
        self.size = size

    def part(self, whole: int) -> int:
        return whole // self.size


def fill(rollout: Rollout, limit: int = 50) -> int:
    for step in range(limit):
        if rollout.batch_ready:
            return step
        rollout.step()
    raise AssertionError("the batch never filled")


def test_a_batch_holds_every_episode_that_was_started_and_none_is_left_under_way(make_rollout):
    rollout, _ = make_rollout()
    fill(rollout)
    batch = rollout.take_batch()
    assert sum(len(trajectory.turns) for trajectory in batch) >= 10
    assert rollout.live == 0
    assert len(batch) == rollout.episodes
    assert {(t.end, len(t.turns), t.episode_return) for t in batch} == {("terminated", 2, 1.0)}
    assert rollout.env_steps == 2 * len(batch)


@pytest.mark.parametrize("ranks", [1, 2])
def test_episodes_of_a_group_are_reset_to_one_seed_and_are_in_one_batch(
    make_rollout, monkeypatch, ranks
):
    rollout, _ = make_rollout(n_envs=5, batch_turns=10 * ranks, group_size=3)
    monkeypatch.setattr(rollout, "ranks", Sized(ranks))
    rollout.step()  # of a batch that is dropped amid a group, as no other may be completed by it
    rollout.restart()
    reset = {slot.index: len(slot.game.env.unwrapped.seeds) for slot in rollout.slots}
    batches = []
    for _ in range(2):
        fill(rollout)
        batches.append(rollout.take_batch())
    seeds = [
        seed
        for slot in rollout.slots
        for seed in slot.game.env.unwrapped.seeds[reset[slot.index] :]
    ]
    for batch in batches:
        assert len(batch) % 3 == 0
        assert sum(len(trajectory.turns) for trajectory in batch) >= 10
        sizes = Counter(trajectory.group for trajectory in batch)
        assert set(sizes.values()) == {3}
    groups = [trajectory.group for batch in batches for trajectory in batch]
    assert Counter(seeds) == Counter(episode_seed(1, group) for group in groups)
    numbers = [trajectory.episode for batch in batches for trajectory in batch]
    assert len(set(numbers)) == len(numbers)
    assert {number % ranks for number in numbers} == {0}


def test_episodes_of_a_group_that_the_limit_of_a_run_leaves_out_are_not_awaited(make_rollout):
    rollout, _ = make_rollout(n_envs=4, batch_turns=8, group_size=3, episode_limit=5)
    fill(rollout)
    assert Counter(each.group for each in rollout.take_batch()) == {0: 3, 1: 2}


def test_an_episode_at_its_limit_is_truncated_and_keeps_its_true_final_observation(make_rollout):
    rollout, _ = make_rollout(EndlessAgent(), max_turns=3)
    fill(rollout)
    trajectory = rollout.take_batch()[0]
    assert (trajectory.end, len(trajectory.turns)) == ("truncated", 3)
    assert trajectory.final_prompt is not None
    assert "Steps: 3." in rollout.policy.chat.tokenizer.decode(trajectory.final_prompt.rest)


def test_in_inference_mode_no_sample_enters_a_batch(make_rollout):
    rollout, _ = make_rollout()
    rollout.mode = "inference"
    ended = [episode for _ in range(12) for episode in rollout.step()]
    assert len(ended) == 24
    assert all(episode.mode == "inference" for episode in ended)
    assert rollout.take_batch() == []


def test_episodes_that_ended_leave_the_batch_too_so_that_short_ones_are_not_favoured(make_rollout):
    rollout, _ = make_rollout()
    rollout.step()
    rollout.step()
    assert rollout.episodes == 4
    rollout.mode = "inference"
    assert rollout.take_batch() == []


def test_episodes_are_stamped_with_the_prompt_and_the_policy_of_their_reset(make_rollout):
    rollout, _ = make_rollout()
    rollout.policy.version = 3
    rollout.set_system_prompt("Count slowly.", 5)
    rollout.step()
    rollout.set_system_prompt("Count faster.", 6)
    ended = rollout.step()
    assert {episode.prompt_version for episode in ended} == {5}
    assert {trajectory.policy_version for trajectory in rollout.take_batch()} == {3}


def test_the_watched_environment_reports_its_episode_in_order(make_rollout):
    rollout, emitted = make_rollout(n_envs=2)
    rollout.step()
    rollout.step()
    kinds = [
        type(event).__name__ for event in emitted if not isinstance(event, events.TokensStreamed)
    ]
    turn = ["ObservationShown", "TurnFinished"]
    assert kinds == ["EpisodeStarted", *turn, *turn, "EpisodeFinished"]
    turns = [event for event in emitted if isinstance(event, events.TurnFinished)]
    assert [(event.turn, event.reward) for event in turns] == [(0, 0.0), (1, 1.0)]


def test_streamed_pieces_join_to_the_reply(make_rollout):
    rollout, emitted = make_rollout(n_envs=1)
    for _ in range(6):
        rollout.step()
    turns = [event for event in emitted if isinstance(event, events.TurnFinished)]
    assert len(turns) == 6
    for turn in turns:
        streamed = [
            event.text
            for event in emitted
            if isinstance(event, events.TokensStreamed)
            and (event.episode, event.turn) == (turn.episode, turn.turn)
        ]
        # A reply that was cut off may end within a character, which is not streamed.
        assert "".join(streamed) == turn.reply.rstrip("\N{REPLACEMENT CHARACTER}") != ""


def test_a_reply_that_names_no_action_stays_in_the_batch_with_the_fallback_action(make_rollout):
    rollout, emitted = make_rollout()
    ended = [episode for _ in range(2) for episode in rollout.step()]
    fill(rollout)
    batch = rollout.take_batch()
    failed = [turn for trajectory in batch for turn in trajectory.turns if turn.parse_failed]
    assert failed
    counted = [sum(turn.parse_failed for turn in trajectory.turns) for trajectory in batch]
    assert [episode.parse_failures for episode in ended] == counted[: len(ended)]
    shown = [
        event
        for event in emitted
        if isinstance(event, events.TurnFinished) and event.how == "failed"
    ]
    assert all(event.action == 0 for event in shown)


@pytest.mark.parametrize("n_envs", [1, 4])
def test_an_episodes_seed_follows_from_the_runs_seed_and_its_number_alone(make_rollout, n_envs):
    rollout, _ = make_rollout(n_envs=n_envs, seed=7)
    rollout.set_counters(episodes=3, env_steps=6)
    fill(rollout)
    seeds = {seed for slot in rollout.slots for seed in slot.game.env.unwrapped.seeds}
    assert seeds == {episode_seed(7, number) for number in range(3, rollout.episodes)}
    assert len(seeds) == rollout.episodes - 3
    assert not seeds & {episode_seed(8, number) for number in range(20)}


def evaluate(agent, policy, *, n_envs: int, max_turns: int, **asked):
    config = RunConfig(agent="count", run_dir="", n_envs=n_envs, max_turns=max_turns)
    return Builders(config).evaluate(agent, policy, **asked)


def test_an_evaluation_plays_exactly_the_episodes_asked_for_and_leaves_the_policy_alone(
    make_policy,
):
    policy = make_policy()
    state, everyones = policy.generator.get_state(), torch.get_rng_state()
    found = evaluate(CountAgent(), policy, episodes=7, greedy=False, seed=3, n_envs=4, max_turns=9)
    assert (found.episodes, found.mean_return, found.return_stderr) == (7, 1.0, 0.0)
    assert (policy.generator.get_state() == state).all()
    assert (torch.get_rng_state() == everyones).all()


def test_an_evaluation_out_of_time_begins_no_episode_and_plays_those_under_way(make_policy):
    class Alternating(CountEnv):
        def reset(self, **options):
            self.length = (9, 1)[len(self.seeds) % 2]
            return super().reset(**options)

    gymnasium.register("LlamaAlternating-v0", entry_point=Alternating)

    class Played(CountAgent):
        env_id = "LlamaAlternating-v0"

    settings = {"episodes": 50, "greedy": True, "seed": 3, "n_envs": 2, "max_turns": 9}
    found = evaluate(Played(), make_policy(), limit_s=0.0, **settings)
    assert (found.episodes, found.mean_return) == (2, 1.0)
    steps = iter(range(99))
    assert (
        evaluate(Played(), make_policy(), should_stop=lambda: next(steps) >= 3, **settings) is None
    )


def test_an_evaluation_counts_what_was_cut_off_or_failed_and_warns(make_policy):
    def fault(env: FaultyEnv) -> None:
        if len(env.seeds) == 1 and env.steps == 1 and not warned:
            raise ValueError("once")

    class Faulty(CountAgent):
        env_id = "LlamaFaulty-v0"
        env_kwargs = {"fault": fault, "length": 9}  # noqa: RUF012

    warned: list[str] = []
    settings = {"episodes": 3, "greedy": True, "seed": 3, "n_envs": 1, "max_turns": 4}
    found = evaluate(Faulty(), make_policy(), warn=warned.append, **settings)
    assert (found.episodes, found.truncated, found.dropped) == (3, 3, 1)
    assert ["ValueError: once" in warned[0], "cut off after 4 turns" in warned[1], len(warned)] == [
        True,
        True,
        2,
    ]


def test_an_evaluation_plays_on_seeds_that_its_run_does_not_see(make_policy, monkeypatch):
    seeds, reset = [], CountEnv.reset
    monkeypatch.setattr(
        CountEnv,
        "reset",
        lambda env, seed=None, **more: seeds.append(seed) or reset(env, seed=seed),
    )
    config = RunConfig(agent="count", run_dir="", seed=3, n_envs=8)
    builders, policy = Builders(config), make_policy()
    builders.rollout(CountAgent(), policy, seed=3, emit=lambda event: None).begin_episodes()
    trained = set(seeds)
    seeds.clear()
    options = {"episodes": 8, "greedy": True, "system_prompt": "Count."}
    ended: list[int] = []
    builders.evaluate(
        CountAgent(), policy, **options, should_stop=lambda: False, progress=ended.append
    )
    assert ended[-1] == 8
    assert len(trained) == len(set(seeds)) == 8
    assert not trained & set(seeds)


def test_an_evaluation_is_reproducible_and_can_be_stopped(make_policy):
    policy = make_policy()
    arguments = {"episodes": 40, "greedy": False, "n_envs": 8, "max_turns": 9}
    first, second = (evaluate(CountAgent(), policy, seed=3, **arguments) for _ in range(2))
    assert first.parse_failure_rate == second.parse_failure_rate
    stopped = evaluate(CountAgent(), policy, seed=3, should_stop=lambda: True, **arguments)
    assert stopped.episodes == 0


def test_a_restart_drops_the_batch_and_what_is_under_way(make_rollout):
    rollout, emitted = make_rollout(batch_turns=1000)
    for _ in range(3):
        rollout.step()
    assert (rollout.episodes, rollout.live) == (4, 4)
    rollout.restart()
    assert (rollout.take_batch(), rollout.live) == ([], 0)
    ended = [episode for _ in range(2) for episode in rollout.step()]
    assert [episode.length for episode in ended] == [2] * 4
    numbers = [event.episode for event in emitted if isinstance(event, events.EpisodeStarted)]
    assert numbers == sorted(set(numbers))  # a dropped episode's number is not given again


@pytest.mark.parametrize("n_envs", [2, 7])
def test_another_number_of_environments_plays_on_with_seeds_of_its_own(make_rollout, n_envs):
    rollout, _ = make_rollout()
    fill(rollout)
    seeds = {seed for seat in rollout.slots for seed in seat.game.env.unwrapped.seeds}
    closed: list[int] = []
    for number, seat in enumerate(rollout.slots):
        seat.game.env.close = lambda number=number: closed.append(number)
    rollout.resize(n_envs)
    assert closed == list(range(n_envs, 4))
    fill(rollout)
    assert len(rollout.slots) == n_envs
    more = {seat.game.env.unwrapped.seeds[0] for seat in rollout.slots[4:]}
    assert len(more - seeds) == max(0, n_envs - 4)
