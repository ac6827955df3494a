"""A person's table: what is shown, what is recorded, and that nothing recorded is lost."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, ClassVar

import gymnasium
import pytest
from gymnasium import spaces

from llamagym_tui.agent import Agent
from llamagym_tui.agents.blackjack import BlackjackAgent
from llamagym_tui.agents.tic_tac_toe import TicTacToeAgent
from llamagym_tui.demos import files as demo_files
from llamagym_tui.demos.demonstration import Demonstration
from llamagym_tui.demos.faults import check
from llamagym_tui.demos.files import DemoWriter
from llamagym_tui.demos.human_game import HumanGame, MatchAgainstModel
from llamagym_tui.errors import ActionParseError, EnvError
from llamagym_tui.game.agent_base import prompt_sha256
from llamagym_tui.game.choices import OfferedAction, choices
from llamagym_tui.game.environment import episode_seed
from llamagym_tui.game.game import Game
from llamagym_tui.protocol.events import EpisodeFinished, ObservationShown, TurnFinished
from llamagym_tui.state.transcript import Notice
from tests.text_env import ROOMS, CommandAgent
from tests.toy_env import made_by

NOON = datetime(2026, 1, 2, 12, 0, tzinfo=UTC)


class TwoStep(gymnasium.Env[int, int]):
    """Two turns: the first pays nothing, the second the action."""

    action_space = spaces.Discrete(2)
    observation_space = spaces.Discrete(3)

    def __init__(self, truncates: bool = False) -> None:
        self.truncates = truncates
        self.seeds: list[int | None] = []
        self.at = 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[int, dict[str, Any]]:
        self.seeds.append(seed)
        self.at = 0
        return 0, {}

    def step(self, action: int) -> tuple[int, float, bool, bool, dict[str, Any]]:
        self.at += 1
        over = self.at == 2
        return (
            self.at,
            float(action) if over else 0.0,
            over and not self.truncates,
            over and self.truncates,
            {},
        )


class StepAgent(Agent):
    env_id = "TwoStep-v0"
    env_kwargs: ClassVar[Mapping[str, Any]] = {}
    action_names = ("left", "right")

    def get_system_prompt(self) -> str:
        return "Go on."

    def format_observation(self, observation: Any) -> str:
        return f"You stand at {observation}."

    def extract_action(self, response: str) -> Any:
        return None


def table(
    tmp_path: Path, env: gymnasium.Env[Any, Any] | None = None, prompt: str = "Go on."
) -> HumanGame:
    env = env or TwoStep()
    game = HumanGame(
        StepAgent(),
        "two_step",
        DemoWriter(tmp_path / "demos" / "two_step.jsonl"),
        system_prompt=lambda: prompt,
        next_seed=lambda: 77,
        clock=lambda: NOON,
    )
    with made_by(lambda env_id, env_kwargs: env):
        game.open()
    game.deal()
    return game


def test_a_finished_episode_is_one_demonstration(tmp_path: Path):
    game = table(tmp_path)
    assert [game.act(0), game.act(1)] == [False, True]
    game.writer.save()
    assert demo_files.read(game.writer.path) == [
        Demonstration(
            messages=[
                {"role": "system", "content": "Go on."},
                {"role": "user", "content": "You stand at 0."},
                {"role": "assistant", "content": '{"action": 0}'},
                {"role": "user", "content": "You stand at 1."},
                {"role": "assistant", "content": '{"action": 1}'},
            ],
            agent="two_step",
            env_id="TwoStep-v0",
            env_kwargs={},
            seed=77,
            actions=[0, 1],
            rewards=[0.0, 1.0],
            episode_return=1.0,
            length=2,
            end="terminated",
            source="human",
            model=None,
            prompt_sha256=prompt_sha256("Go on."),
            recorded_at="2026-01-02T12:00:00Z",
        )
    ]
    assert (game.writer.saved, game.writer.waiting, game.writer.fault) == (1, 0, "")


def test_turns_are_marked_as_a_persons(tmp_path: Path):
    game = table(tmp_path)
    game.act(1)
    kinds = [type(entry.fact) for entry in game.transcript.entries]
    assert kinds[-3:] == [TurnFinished, Notice, ObservationShown]
    turn = game.transcript.entries[-3].fact
    assert (turn.how, turn.action_name) == ("human", "right")


def test_a_time_limit_is_recorded_as_truncated(tmp_path: Path):
    game = table(tmp_path, TwoStep(truncates=True))
    game.act(0)
    game.act(0)
    game.writer.save()
    assert demo_files.read(game.writer.path)[0].end == "truncated"
    finished = game.transcript.entries[-2].fact
    assert isinstance(finished, EpisodeFinished)
    assert finished.end == "truncated"


def test_a_step_is_told_with_its_reward_and_what_is_short_of_the_info(tmp_path: Path):
    class Tells(TwoStep):
        def step(self, action: int) -> Any:
            observation, reward, *ends, _ = super().step(action)
            info = {"score": 3, "why": "the door", "page": "x" * 100, "mask": [0] * 40}
            return observation, reward - 1.5, *ends, info

    game = table(tmp_path, Tells())
    game.act(0)
    game.act(1)
    told = [each.fact.text for each in game.transcript.entries if isinstance(each.fact, Notice)]
    assert told == [
        "observation 0",
        "reward −1.5 · return so far −1.5 · score 3 · why the door · observation 1",
        "reward −0.5 · return so far −2 · score 3 · why the door · observation 2",
    ]


def test_a_written_reply_is_read_as_a_models_and_recorded_as_it_was_written(tmp_path: Path):
    class Reads(StepAgent):
        def extract_action(self, response: str) -> Any:
            return int(response) if response != "?" else None

    writer = DemoWriter(tmp_path / "read.jsonl")
    options: dict[str, Any] = {"system_prompt": lambda: "", "next_seed": lambda: 1}
    game = HumanGame(Reads(), "read", writer, clock=lambda: NOON, **options)
    game._game = Game(Reads(), TwoStep)  # type: ignore[arg-type]
    game.deal()
    with pytest.raises(
        ActionParseError,
        match=r"names no action. Nothing was done. If a model wrote this, the environment would get left.",
    ):
        game.say("?")
    with pytest.raises(ActionParseError, match=r"ValueError: .*test_human_game.py, line \d+"):
        game.say("hit")
    assert [game.say(" 0"), game.say("1 ")] == [False, True]
    game.writer.save()
    (demo,) = demo_files.read(writer.path)
    assert (demo.replies, demo.actions, demo.rewards) == ([" 0", "1 "], [0, 1], [0.0, 1.0])
    turns = [each.fact for each in game.transcript.entries if isinstance(each.fact, TurnFinished)]
    assert {turn.how for turn in turns} == {"custom"}


def test_blackjacks_actions_are_on_its_own_keys():
    assert choices(BlackjackAgent(), spaces.Discrete(2)) == (
        OfferedAction("s", 0, "stick"),
        OfferedAction("h", 1, "hit"),
    )


def test_keys_are_never_given_twice():
    given = [choice.key for choice in choices(StepAgent(), spaces.Discrete(30))]
    assert len(set(given)) == 30
    assert given[:11] == ["0", "1", "2", "3", "4", "5", "6", "7", "8", "9", "a"]


@pytest.mark.parametrize(
    "space", [spaces.Box(0, 1, (3,)), spaces.MultiDiscrete([2, 2]), spaces.Discrete(37)]
)
def test_a_space_that_keys_cannot_play_is_refused_in_a_sentence(space: spaces.Space[Any]):
    with pytest.raises(EnvError, match="TwoStep-v0"):
        choices(StepAgent(), space)


@pytest.mark.parametrize("raised", [RuntimeError("the wheel came off"), SystemExit("no road")])
def test_an_environment_that_raises_is_an_env_error(tmp_path: Path, raised: BaseException):
    class Broken(TwoStep):
        def step(self, action: int) -> Any:
            raise raised

    game = table(tmp_path, Broken())
    with pytest.raises(EnvError, match=rf"{raised} .*test_human_game.py, line"):
        game.act(0)
    assert game.over


def test_an_agent_that_cannot_word_an_action_is_refused_with_its_line(tmp_path: Path):
    class Wordless(BlackjackAgent):
        def format_action(self, action: Any) -> str:
            return str(1 // 0)

    game = blackjack_table(tmp_path, Wordless())
    game.deal()
    with pytest.raises(ActionParseError, match=rf"^Zero.* \({__file__}, line \d+\)"):
        game.act(1)


def test_a_real_hand_of_blackjack_can_be_played(tmp_path: Path):
    game = HumanGame(
        BlackjackAgent(),
        "blackjack",
        DemoWriter(tmp_path / "blackjack.jsonl"),
        system_prompt=BlackjackAgent().get_system_prompt,
        next_seed=lambda: 5,
        clock=lambda: NOON,
    )
    game.open()
    game.deal()
    assert game.act(0)
    game.writer.save()
    game.close()
    assert demo_files.read(game.writer.path)[0].episode_return in (-1.0, 0.0, 1.0)


def blackjack_table(tmp_path: Path, agent: BlackjackAgent | None = None) -> HumanGame:
    agent = agent or BlackjackAgent()
    writer = DemoWriter(tmp_path / "blackjack.jsonl")
    game = HumanGame(
        agent,
        "blackjack",
        writer,
        system_prompt=agent.get_system_prompt,
        next_seed=lambda: 5,
        clock=lambda: NOON,
    )
    game.open()
    game.deal()
    return game


def chest_table(tmp_path: Path, agent: Agent | None = None) -> HumanGame:
    writer = DemoWriter(tmp_path / "chest.jsonl")
    game = HumanGame(
        agent or CommandAgent(),
        "chest",
        writer,
        system_prompt=lambda: "",
        next_seed=lambda: 1,
        clock=lambda: NOON,
    )
    game.open()
    game.deal()
    return game


def test_a_persons_keys_follow_the_actions_of_each_turn_which_are_recorded(tmp_path: Path):
    game = chest_table(tmp_path)
    played: list[list[str]] = []
    expert = ("take key", "go north", "open chest")
    for _ in expert:
        played.append([choice.name for choice in game.choices])
        assert game.messages[-1]["actions"] == played[-1]
        game.act(expert[len(played) - 1])
    assert game.over
    assert played == [ROOMS[room][1] for room in ("hall", "hall, with key", "attic, with key")]
    game.writer.save()
    (demo,) = demo_files.read(game.writer.path)
    assert (demo.actions, demo.admissible) == (["take key", "go north", "open chest"], played)
    assert all("actions" not in message for message in demo.messages)
    assert [
        message.get("actions") for message in demo.lesson if message["role"] == "user"
    ] == played
    assert check(game.writer.path, CommandAgent()) == []


def test_a_key_means_the_same_action_whatever_else_is_masked():
    class Taxi(StepAgent):
        action_names = ("south", "north", "east", "west", "pick up", "drop off")
        action_keys: ClassVar[Mapping[str, int]] = {"p": 4}

    found = choices(Taxi(), spaces.Discrete(6), ("north", "pick up", "drop off"))
    assert found == (
        OfferedAction("1", 1, "north"),
        OfferedAction("p", 4, "pick up"),
        OfferedAction("5", 5, "drop off"),
    )


def test_a_refused_action_is_shown_as_such_at_the_table(tmp_path: Path):
    game = chest_table(tmp_path)
    game.act("open chest")
    turn = next(
        entry.fact for entry in game.transcript.entries if isinstance(entry.fact, TurnFinished)
    )
    assert (turn.is_refused, turn.how) == (True, "human")


def test_the_episodes_of_a_match_are_those_of_the_evaluation_and_one_that_fails_is_dealt_again(
    tmp_path: Path,
):
    class FailsOnce(TwoStep):
        fails = False

        def step(self, action: int) -> Any:
            if self.fails:
                self.fails = False
                raise RuntimeError("once")
            return super().step(action)

    env = FailsOnce()
    game = table(tmp_path, env)
    game.act(0)
    game.act(1)
    game.match, env.fails = MatchAgainstModel(5, []), True
    game.deal()
    with pytest.raises(EnvError):
        game.act(0)
    for number in range(20):
        game.deal()
        game.act(0)
        game.act(number % 2)
    game.deal()
    assert env.seeds == [77, *(episode_seed(5, number) for number in (0, *range(20))), 77]
    assert game.match.returns == [0.0, 1.0] * 10


def test_in_a_game_for_two_the_model_moves_in_between_and_its_line_is_the_persons_loss(
    tmp_path: Path,
):
    seeds = iter(range(100))
    game = HumanGame(
        TicTacToeAgent(),
        "tic_tac_toe",
        DemoWriter(tmp_path / "demos" / "tic_tac_toe.jsonl"),
        system_prompt=lambda: "Play.",
        next_seed=lambda: next(seeds),
        clock=lambda: NOON,
        against_model=True,
    )
    begun = []
    while len(set(begun)) < 2:
        game.deal()
        begun.append(game.awaits_model)
    if not game.awaits_model:
        game.deal()
        while not game.awaits_model:
            game.deal()
    assert game.choices == ()
    assert game.messages[-1] == {"role": "user", "content": "0 1 2\n3 4 5\n6 7 8"}
    places = {game.place}
    game.let_model_act("top left")
    for own, its in ((3, "top middle"), (4, "top right")):
        assert len(game.choices) == 9 - 2 * len(game._turns) - 1
        places.add(game.place)
        game.act(own)
        places.add(game.place)
        assert game.awaits_model
        # It sees its own mark, and its own replies; they are in no turn of the person's.
        assert "X" in game.messages[-1]["content"].splitlines()[0]
        assert game.messages[2]["content"] == '{"action": 0}'
        game.let_model_act(its)
    assert len(places) == 5
    assert game.over
    assert game.returns == [-1.0]
    game.writer.save()
    [demo] = demo_files.read(game.writer.path)
    assert (demo.episode_return, demo.rewards) == (-1.0, [0.0, -1.0])
    replies = [each["content"] for each in demo.messages if each["role"] == "assistant"]
    assert replies == ['{"action": 3}', '{"action": 4}']
