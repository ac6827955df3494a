"""Episodes that fail: dropped, counted and reported by the user's own line; no other episode is the worse for it."""

from __future__ import annotations

import inspect
import json
import re
import sys
from collections.abc import Callable

import msgspec
import numpy as np
import pytest

from llamagym_tui.errors import ActionParseError, EnvError, PromptTooLongError
from llamagym_tui.protocol import events
from llamagym_tui.trainer.rollout.env_slot import shown_action
from llamagym_tui.trainer.rollout.environments import episode_seed
from llamagym_tui.trainer.rollout.evaluation import evaluate
from llamagym_tui.trainer.rollout.rollout import Rollout
from tests.toy_env import CountAgent, EndlessAgent, FaultyEnv

SEED = 7


@pytest.fixture
def make_rollout(make_policy):
    def make(agent: CountAgent, **changes) -> tuple[Rollout, list[str]]:
        warnings: list[str] = []

        def emit(event: events.Event) -> None:
            if isinstance(event, events.WarningRaised):
                warnings.append(event.message)

        settings = {"n_envs": 2, "max_turns": 9, "batch_turns": 8, "seed": SEED, "max_failures": 3} | changes
        return Rollout(agent, make_policy(), emit=emit, **settings), warnings

    return make


def faulty(fault: Callable[[FaultyEnv], float | None]) -> CountAgent:
    class Faulty(CountAgent):
        env_id = "LlamaFaulty-v0"
        env_kwargs = {"fault": fault}  # noqa: RUF012

    return Faulty()


def in_episode(number: int, env: FaultyEnv) -> bool:
    return env.seeds[-1] == episode_seed(SEED, number)


def line_of(function: Callable, text: str) -> int:
    lines, first = inspect.getsourcelines(function)
    return first + next(at for at, line in enumerate(lines) if text in line)


def fill(rollout: Rollout) -> list:
    for _ in range(50):
        if rollout.batch_ready:
            return rollout.take_batch()
        rollout.step()
    raise AssertionError("the batch never filled")


def left_out(batch: list) -> set[int]:
    numbers = {trajectory.episode for trajectory in batch}
    assert len(numbers) == len(batch) >= 4
    return set(range(max(numbers))) - numbers


def test_an_environment_that_raises_costs_its_episode_alone(make_rollout):
    def fault(env: FaultyEnv) -> None:
        if in_episode(1, env) and env.steps == 2:
            raise RuntimeError("the door is stuck.\nand more")

    rollout, warnings = make_rollout(faulty(fault))
    before, failed = FaultyEnv.made, rollout.slots[1].env.unwrapped
    batch = fill(rollout)
    assert left_out(batch) == {1}
    assert (rollout.failures.dropped, rollout.episodes, FaultyEnv.made - before) == (1, len(batch), 1)
    assert failed.is_closed
    assert episode_seed(SEED, 1) not in rollout.slots[1].env.unwrapped.seeds, "it was made anew"
    assert warnings == [
        "An episode was dropped. Environment 2, episode 1, step 2: LlamaFaulty-v0 failed on the fallback action: "
        f"RuntimeError: the door is stuck ({__file__}, line {line_of(fault, 'raise')})."
    ]


def test_a_watched_episode_that_is_dropped_ends_with_its_reason(make_policy):
    def fault(env: FaultyEnv) -> None:
        if in_episode(0, env) and env.steps == 2:
            raise RuntimeError("the door is stuck")

    emitted: list[events.Event] = []
    settings = {"n_envs": 2, "max_turns": 9, "batch_turns": 8, "seed": SEED}
    fill(Rollout(faulty(fault), make_policy(), emit=emitted.append, **settings))
    (dropped,) = (event for event in emitted if isinstance(event, events.EpisodeDropped))
    assert dropped.episode == 0
    assert "RuntimeError: the door is stuck" in dropped.reason


@pytest.mark.parametrize("raised", [AttributeError("no .wheel"), SystemExit(3), AssertionError()])
def test_a_reset_that_raises_costs_its_episode_alone_whatever_it_raises(make_rollout, raised):
    def fault(env: FaultyEnv) -> None:
        if in_episode(0, env):
            raise raised

    rollout, warnings = make_rollout(faulty(fault))
    assert left_out(fill(rollout)) == {0}
    (warning,) = warnings
    assert f"Environment 1, episode 0, step 1: LlamaFaulty-v0 failed to reset: {type(raised).__name__}" in warning
    assert f"({__file__}, line {line_of(fault, 'raise')})" in warning


def test_an_environment_that_cannot_be_made_anew_is_tried_again(make_rollout, monkeypatch):
    def fault(env: FaultyEnv) -> None:
        if in_episode(0, env):
            raise ValueError("once")

    rollout, warnings = make_rollout(faulty(fault))
    make, tries = rollout.shared.make_env, []

    def made():
        tries.append(1)
        if len(tries) == 1:
            raise EnvError("The environment cannot be made: no port is free.")
        return make()

    monkeypatch.setattr(rollout.shared, "make_env", made)
    assert left_out(fill(rollout)) == {0, 2}
    assert (rollout.failures.dropped, len(tries), len(warnings)) == (2, 2, 2)
    assert "no port is free" in warnings[1]


def test_an_agent_that_cannot_format_an_observation_is_named_with_its_line(make_rollout):
    class Forgetful(CountAgent):
        def format_observation(self, observation: int) -> str:
            if observation == 1 and not self.failed:
                self.failed = True
                return json.loads("{")  # its innermost line is of Python's own library
            return super().format_observation(observation)

    agent = Forgetful()
    agent.failed = False
    rollout, warnings = make_rollout(agent)
    assert left_out(fill(rollout)) == {0}
    (warning,) = warnings
    assert "episode 0, step 1: Forgetful.format_observation failed: JSONDecodeError" in warning
    assert f"({__file__}, line {line_of(Forgetful.format_observation, 'json')})" in warning


def test_what_is_no_text_is_no_observation(make_rollout):
    class Wordless(CountAgent):
        def format_observation(self, observation: int):
            return observation

    rollout, warnings = make_rollout(Wordless())
    with pytest.raises(EnvError, match=r"Wordless\.format_observation returned int, which is no text"):
        fill(rollout)
    assert len(warnings) == 1


def test_an_observation_with_half_a_character_is_played(make_rollout):
    class Halved(CountAgent):
        def format_observation(self, observation: int) -> str:
            return f"{observation}\udcff"

    rollout, warnings = make_rollout(Halved(), max_failures=1)
    fill(rollout)
    assert warnings == []
    assert rollout.slots[0].observation.endswith("?")


@pytest.mark.parametrize("action", [True, 10**30, 1e200, float("nan"), np.float64(0.5), np.int64(1)])
def test_whatever_an_action_is_its_event_is_read_back(action):
    turn = events.TurnFinished(
        episode=0, turn=0, reply="", action=shown_action(action), action_name="", how="json", reward=0.0
    )
    line = msgspec.json.encode(turn)
    assert msgspec.json.decode(line, type=events.AnyEvent).action == str(action)


def test_an_action_outside_its_space_is_named_and_one_inside_is_not_blamed(make_rollout):
    class Wrong(CountAgent):
        def extract_action(self, response: str) -> int:
            return 5

    rollout, warnings = make_rollout(Wrong(), max_failures=9)
    rollout.step()
    assert "LlamaCount-v0 failed on action 5, which is not in Discrete(2): AssertionError: action 5" in warnings[0]


@pytest.mark.parametrize("reward", [float("nan"), float("inf"), -1e31, 1e200, None, "much"])
def test_an_episode_with_a_reward_that_is_no_finite_number_is_left_out(make_rollout, reward):
    def fault(env: FaultyEnv):
        return (reward if reward is not None else object()) if in_episode(1, env) and env.steps == 1 else None

    rollout, warnings = make_rollout(faulty(fault))
    batch = fill(rollout)
    assert left_out(batch) == {1}
    assert {trajectory.episode_return for trajectory in batch} == {1.0}
    assert "Environment 2, episode 1, step 1: " in warnings[0]
    assert ("TypeError" if reward is None else "ValueError" if reward == "much" else "a finite number") in warnings[0]


@pytest.mark.parametrize("limit", [1, 3])
def test_as_many_failures_in_a_row_as_are_allowed_end_the_run(make_rollout, limit):
    def fault(env: FaultyEnv) -> None:
        raise KeyError("map")

    rollout, _ = make_rollout(faulty(fault), max_failures=limit)
    with pytest.raises(
        EnvError, match=rf"^{limit} episodes in a row failed.*KeyError: 'map' \(.*--resume, or start again\.$"
    ):
        fill(rollout)
    assert rollout.failures.dropped == limit


def test_an_episode_that_does_not_fail_interrupts_the_row(make_rollout):
    def fault(env: FaultyEnv) -> None:
        if not any(in_episode(number, env) for number in (2, 5, 8, 9, 10, 11, 12)):
            raise KeyError("map")

    rollout, warnings = make_rollout(faulty(fault))
    assert len(fill(rollout)) == 4
    assert rollout.failures.dropped == 6, "0, 1; 3, 4; 6, 7"
    assert len(warnings) == 1, "the same fault is reported at its 1st, 10th, 100th time"


def test_the_same_fault_is_reported_again_at_the_tenth_time(make_rollout):
    def fault(env: FaultyEnv) -> None:
        if len(env.seeds) % 2 and sys.intern("made anew each time"):
            raise KeyError("map")

    rollout, warnings = make_rollout(faulty(fault), max_failures=12, n_envs=1)
    with pytest.raises(EnvError):
        fill(rollout)
    assert [warning.split(".")[0] for warning in warnings] == [
        "An episode was dropped",
        "10 episodes were dropped by the same fault, the last one just now",
    ]


def test_an_environment_that_cannot_be_closed_keeps_none_of_the_others_open(make_rollout, caplog):
    def fault(env: FaultyEnv) -> None:
        env.close = lambda: 1 / 0  # type: ignore[assignment]

    rollout, _ = make_rollout(faulty(fault))
    rollout.step()
    last = rollout.slots[1].env.unwrapped
    del last.close
    rollout.close()
    assert last.is_closed
    assert "ZeroDivisionError" in caplog.text


class LongWinded(EndlessAgent):
    """Its observations are of 40 letters, which no conversation of 200 tokens holds many of."""

    def format_observation(self, observation: int) -> str:
        return "q" * 40


def test_a_conversation_that_the_model_cannot_read_further_ends_its_episode_as_truncated(make_rollout):
    rollout, warnings = make_rollout(LongWinded(), max_turns=50)
    rollout.policy.context = 200
    batch = fill(rollout)
    assert {trajectory.end for trajectory in batch} == {"truncated"}
    segments = [each for trajectory in batch for each in (*trajectory.segments, trajectory.final_prompt)]
    lengths = [len(each.prefix) + len(each.ids) for each in segments]
    assert 150 < max(lengths) <= 200
    for trajectory in batch:  # the nearest value that is known is that of the last prompt that was read
        (segment,) = trajectory.segments
        assert trajectory.final_prompt.ids == segment.ids[: segment.turns[-1].start]
    assert len(warnings) == 1
    assert re.match(
        r"Episodes of LlamaCount-v0 are cut off once a conversation is too long: a prompt of \d+ tokens and a reply "
        r"of up to 6 are more than the 200 that the model reads\. They count as truncated\.",
        warnings[0],
    )


def test_a_first_prompt_that_the_model_cannot_read_ends_the_run_before_any_forward(make_rollout, make_policy):
    class Verbose(CountAgent):
        def format_observation(self, observation: int) -> str:
            return "q" * 50_000

    rollout, _ = make_rollout(Verbose())
    rollout.policy.model.backbone.encode = None
    with pytest.raises(
        PromptTooLongError, match=r"system prompt and one observation of LlamaCount-v0 are too long: .*"
    ):
        rollout.step()
    assert rollout.live == 0
    with pytest.raises(PromptTooLongError):
        evaluate(Verbose(), make_policy(), episodes=2, greedy=True, seed=1, n_envs=2, max_turns=9)


@pytest.mark.parametrize(("own_limit", "turns", "warned"), [(9, 4, True), (4, 4, False), (4, 9, False)])
def test_a_cut_before_the_environments_own_limit_is_reported_once(make_rollout, own_limit, turns, warned):
    class Limited(CountAgent):
        env_kwargs = {"endless": True, "max_episode_steps": own_limit}  # noqa: RUF012

    rollout, warnings = make_rollout(Limited(), max_turns=turns, batch_turns=20)
    ended = []
    while len(ended) < 6:
        ended += rollout.step()
    assert {(episode.length, episode.is_truncated) for episode in ended} == {(4, True)}
    expected = (
        "Episodes of LlamaCount-v0 are cut off after 4 turns; its own limit is 9: --set max_turns=N sets another "
        "number. They count as truncated."
    )
    assert warnings == [expected] * warned


def test_an_episode_that_its_environment_ends_is_not_truncated(make_rollout):
    rollout, warnings = make_rollout(CountAgent())
    ended = [*rollout.step(), *rollout.step()]
    assert [episode.is_truncated for episode in ended] == [False, False]
    assert warnings == []


class ReadsNumbers(CountAgent):
    """As users write it: a reply that is no number raises."""

    def extract_action(self, response: str) -> int:
        return int(response[:1] + "x" if self.fails else "1")

    fails = True


def test_the_first_error_of_an_agent_that_reads_a_reply_is_shown_once_with_its_line(make_rollout):
    rollout, warnings = make_rollout(ReadsNumbers())
    ended = fill(rollout)
    assert all(turn.parse_failed for trajectory in ended for turn in trajectory.turns), "it ended no episode"
    (warning,) = warnings
    assert re.match(r"ReadsNumbers\.extract_action failed on the reply '.*': ValueError: invalid literal", warning)
    line = line_of(ReadsNumbers.extract_action, "int(")
    assert warning.endswith(f"({__file__}, line {line}); such replies count as naming no action.")


@pytest.mark.parametrize("raised", [ZeroDivisionError("no"), SystemExit(2), AssertionError("no")])
def test_no_error_of_an_agent_that_reads_a_reply_ends_anything(raised):
    class Raises(CountAgent):
        def extract_action(self, response: str) -> int:
            raise raised

    agent = Raises()
    assert agent.read("go").failed
    assert f"{type(raised).__name__}: {raised} ({__file__}" in agent.reading_fault


def test_a_reply_that_names_no_action_by_the_documented_error_is_no_fault():
    class Strict(CountAgent):
        def extract_action(self, response: str) -> int:
            raise ActionParseError("none")

    agent = Strict()
    assert agent.read("go").failed
    assert agent.reading_fault == ""


@pytest.mark.parametrize(("named", "warned"), [(0, True), (12, True), (13, False), (25, False)])
def test_where_most_replies_name_no_action_one_warning_has_an_example(make_rollout, named, warned):
    class Reads(CountAgent):
        read_so_far = 0

        def extract_action(self, response: str) -> int | None:
            self.read_so_far += 1
            return 1 if self.read_so_far % 25 < named else None

    rollout, warnings = make_rollout(Reads(), batch_turns=60)
    fill(rollout)
    assert len(warnings) == warned
    if warned:
        share = round(100 * (1 - named / 25))
        assert re.match(
            rf"{share}% of the first 50 replies name no action, for example '.+'; see the system prompt and Reads\.",
            warnings[0],
        )
