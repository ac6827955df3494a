"""When the policy is mapped: at once if somebody looks, and never for more than its share of the time."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from llamagym_tui.config import GenerationConfig
from llamagym_tui.demos import files as demo_files
from llamagym_tui.demos.demonstration import Demonstration
from llamagym_tui.game.agent_base import prompt_sha256
from llamagym_tui.game.chat import assistant, system, user
from llamagym_tui.game.policy_map import Panel, PolicyMap
from llamagym_tui.protocol.commands import (
    Pause,
    Resume,
    SetMode,
    SetSystemPrompt,
    Stop,
    WarmStart,
    WatchPolicyMap,
)
from llamagym_tui.protocol.events import (
    PolicyMapLaidOut,
    PolicyMapped,
    PolicyMapWatched,
    Progressed,
    PromptChanged,
    RunFinished,
    RunStarted,
    WarmStartFinished,
)
from llamagym_tui.trainer.probes.map_policy import AT_ONCE, PolicyMapper
from tests.fake_parts import Clock, CoinAgent, Policy, Stage


class MappedCoin(CoinAgent):
    """Has a map of as many coins as a test wants."""

    coins = 3

    def policy_map(self) -> PolicyMap:
        labels = [str(number) for number in range(self.coins)]
        return PolicyMap([Panel("coins", ["1"], labels, [list(range(self.coins))])])

    def expert(self, observation: Any) -> int:
        return 1


class Table:
    """A mapping on fakes: asking about a piece of the states takes `takes_s`."""

    def __init__(
        self, monkeypatch: pytest.MonkeyPatch, *, coins: int = 3, takes_s: float = 0.1
    ) -> None:
        self.clock, self.policy, self.seen = Clock(), Policy(), list[Any]()
        self.calls: list[tuple[str, list[str]]] = []
        self.takes_s, self.stop = takes_s, False
        agent = MappedCoin()
        agent.coins = coins

        def ask(mapping: PolicyMapper, prompt: str, states: list[str]) -> list[list[float]]:
            self.clock.now += self.takes_s
            self.calls.append((prompt, list(states)))
            return [[0.25, 0.75] for _ in states]

        monkeypatch.setattr(PolicyMapper, "probabilities", ask)
        self.mapping = PolicyMapper(agent, self.policy, self.seen.append, self.clock)  # type: ignore[arg-type]
        self.mapping.lay_out()

    def map(self, *, prompt: str = "Call.", version: int = 0, **options: Any) -> int:
        """Maps emitted by now."""
        self.mapping.map(
            prompt, version, self.policy.version, should_stop=lambda: self.stop, **options
        )
        return sum(isinstance(event, PolicyMapped) for event in self.seen)


@pytest.fixture
def table(monkeypatch: pytest.MonkeyPatch) -> Table:
    return Table(monkeypatch)


def test_the_first_map_comes_at_once_and_asks_about_every_state(table: Table) -> None:
    assert table.map(prompt="Heads?") == 1
    assert table.calls == [("Heads?", ["0", "1", "2"])]
    assert table.seen[1].shares == [[0.25, 0.75]] * 3


def test_the_same_policy_is_not_mapped_twice(table: Table) -> None:
    table.map()
    table.clock.now += 1000
    assert table.map() == 1
    assert table.map(at_once=True) == 1


def test_while_nobody_looks_another_policy_is_mapped_after_ten_seconds(table: Table) -> None:
    table.map()
    table.policy.version = 1
    table.clock.now += 9.9
    assert table.map() == 1
    table.clock.now += 0.1
    assert table.map() == 2


def test_while_somebody_looks_it_is_mapped_after_a_second(table: Table) -> None:
    table.map()
    table.mapping.watch(on=True)
    table.policy.version = 1
    table.clock.now += 0.9
    assert table.map() == 1
    table.clock.now += 0.1
    assert table.map() == 2
    table.mapping.watch(on=False)
    table.policy.version = 2
    table.clock.now += 1.0
    assert table.map() == 2


def test_another_prompt_or_distribution_is_mapped_at_once(table: Table) -> None:
    table.map()
    assert table.map(prompt="Tails?", version=1) == 2
    assert (table.seen[-1].prompt_version, table.calls[-1][0]) == (1, "Tails?")
    table.policy.generation = GenerationConfig(temperature=0.5)
    assert table.map(prompt="Tails?", version=1) == 3


def test_the_first_map_under_another_prompt_comes_at_once_though_it_takes_long(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    table = Table(monkeypatch, coins=3 * AT_ONCE, takes_s=5.0)
    table.mapping.watch(on=True)
    assert table.map() == 1
    table.mapping.watch(on=False)
    assert table.map(prompt="Tails?", version=1) == 2
    table.policy.version = 1
    assert table.map(prompt="Tails?", version=1) == 2


def test_maps_take_no_more_than_their_share_of_an_hour(monkeypatch: pytest.MonkeyPatch) -> None:
    table = Table(monkeypatch, takes_s=1.5)
    began = table.clock.now
    while table.clock.now < began + 3600:
        table.policy.version += 1
        table.map()
        table.clock.now += 0.5
    assert 20 < len(table.calls) <= 0.03 * 3600 / 1.5 + 1


def test_a_map_that_takes_long_waits_until_its_share_has_come_unless_somebody_looks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    table = Table(monkeypatch, coins=3 * AT_ONCE, takes_s=5.0)
    assert table.map() == 0
    assert len(table.calls) == 1  # a piece showed how long all of it takes
    table.clock.now += 450
    assert table.map() == 0
    table.clock.now += 50
    assert table.map() == 1
    table.policy.version = 1
    table.mapping.watch(on=True)
    table.clock.now += 60
    assert table.map() == 2


def test_whoever_begins_to_look_gets_a_map_that_takes_long_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    table = Table(monkeypatch, coins=3 * AT_ONCE, takes_s=5.0)
    assert table.map() == 0
    table.mapping.watch(on=True)
    table.clock.now += 0.1
    assert table.map() == 1
    (begun,) = [event for event in table.seen if isinstance(event, Progressed)]
    assert (begun.done, begun.total) == (0, 3 * AT_ONCE)  # whoever looks sees that it is under way


def test_where_prompts_are_remembered_a_map_is_made_bit_by_bit_though_nobody_looks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    table = Table(monkeypatch, coins=3 * AT_ONCE, takes_s=5.0)
    table.policy.narrow = object()  # type: ignore[assignment]
    monkeypatch.setattr(PolicyMapper, "share_of_play", lambda mapping, prompt: 0.5)
    assert table.map() == 0
    table.clock.now += 10
    assert table.map() == 0
    assert len(table.calls) == 2  # given up after the first piece, both times
    table.takes_s = 0.1  # by now they were read
    table.clock.now += 9
    assert table.map() == 0
    table.clock.now += 1
    assert table.map() == 1


def test_states_that_are_met_in_play_are_read_at_once_where_they_are_remembered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    table = Table(monkeypatch, coins=3 * AT_ONCE, takes_s=5.0)
    monkeypatch.setattr(PolicyMapper, "share_of_play", lambda mapping, prompt: 0.6)
    assert table.map() == 0  # what is not remembered would be read for the map alone
    table.policy.narrow = object()  # type: ignore[assignment]
    table.clock.now += 1000
    assert table.map() == 1


def test_the_prompts_that_are_read_for_a_map_are_reported_as_its_progress_and_end_it_on_request(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    table = Table(monkeypatch, coins=2 * AT_ONCE)
    told: list[tuple[str, int, int]] = []
    mapping = PolicyMapper(
        table.mapping._agent,
        table.policy,
        table.seen.append,
        table.clock,
        lambda doing: lambda done, total: told.append((doing, done, total)),
    )
    mapping.lay_out()
    read: list[int] = []

    def ask(mapping: PolicyMapper, prompt: str, states: list[str]) -> list[list[float]]:
        for done in (16, 32):  # of 32 that are not remembered, half of the piece
            assert mapping.takes_reading(done, 32)
            read.append(done)
            if len(read) == 3:
                table.stop = True
        return [[0.25, 0.75] for _ in states]

    monkeypatch.setattr(PolicyMapper, "probabilities", ask)
    mapping.map("Call.", 0, 0, should_stop=lambda: table.stop)
    doing = "computing the policy map"
    whole = 2 * AT_ONCE
    assert told == [(doing, done, whole) for done in (32, 64, 64, 96)]
    assert read == [16, 32, 16]
    assert not any(isinstance(event, PolicyMapped) for event in table.seen)
    assert [event.why_not for event in table.seen] == ["", ""]  # it is not given up for good
    assert not mapping.takes_reading(1, 2)  # none is computed


def test_a_stop_gives_up_a_map_before_its_first_piece_and_between_two(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    table = Table(monkeypatch, coins=2 * AT_ONCE)
    table.stop = True
    assert (table.map(), table.calls) == (0, [])
    stop = iter([False, True])
    table.mapping.map("Call.", 0, 0, should_stop=lambda: next(stop))
    assert len(table.calls) == 1
    assert not table.mapping.is_known_as_cheap
    table.stop = False
    assert table.map() == 1
    assert table.mapping.is_known_as_cheap


def test_an_agent_without_a_map_is_never_mapped(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []
    mapping = PolicyMapper(CoinAgent(), Policy(), seen.append, Clock())
    mapping.lay_out()
    mapping.map("Call.", 0, 0, should_stop=lambda: False)
    assert seen == []


class Broken(CoinAgent):
    def policy_map(self) -> PolicyMap:
        raise KeyError("coin")


def test_a_map_that_fails_and_an_agent_without_actions_have_a_sentence() -> None:
    seen: list[Any] = []
    PolicyMapper(Broken(), Policy(), seen.append, Clock()).lay_out()
    PolicyMapper(MappedCoin(), Policy(trie=()), seen.append, Clock()).lay_out()
    line = Broken.policy_map.__code__.co_firstlineno + 1
    assert [event.why_not for event in seen] == [
        f"Broken.policy_map failed: KeyError: 'coin' ({__file__}, line {line}).",
        "This agent names no discrete actions, so none can be mapped.",
    ]


def test_a_map_that_the_model_cannot_make_is_given_up_with_a_sentence(
    table: Table, monkeypatch
) -> None:
    def fail(*_: Any) -> list[list[float]]:
        raise RuntimeError("out of memory")

    monkeypatch.setattr(PolicyMapper, "probabilities", fail)
    assert table.map() == 0
    assert table.map() == 0
    assert [event.why_not for event in table.seen] == [
        "",
        "The map is given up: RuntimeError: out of memory.",
    ]


# In a session


@pytest.fixture
def stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Stage:
    monkeypatch.setattr(CoinAgent, "policy_map", MappedCoin.policy_map)
    monkeypatch.setattr(CoinAgent, "coins", 3, raising=False)
    monkeypatch.setattr(
        PolicyMapper,
        "probabilities",
        lambda mapping, prompt, states: [[0.25, 0.75] for _ in states],
    )
    return Stage(tmp_path, episodes=200)


def test_a_run_reports_its_layout_after_its_start_and_a_map_of_its_last_policy_before_its_end(
    stage: Stage,
) -> None:
    stage.session.run()
    kinds = [type(event) for event in stage.events]
    assert kinds.index(PolicyMapLaidOut) == kinds.index(RunStarted) + 1
    first, *_, last = stage.of(PolicyMapped)
    assert (first.update, last.update) == (0, stage.learner.updates)
    assert kinds[-1] is RunFinished


def test_whoever_looks_gets_a_map_of_every_update(stage: Stage) -> None:
    stage.script = {2: [WatchPolicyMap(on=True)]}
    stage.session.run()
    assert stage.of(PolicyMapWatched) == [
        PolicyMapWatched(on=True, at_s=stage.of(PolicyMapWatched)[0].at_s)
    ]
    assert [event.update for event in stage.of(PolicyMapped)] == list(
        range(stage.learner.updates + 1)
    )


def test_a_look_during_a_pause_and_in_inference_mode_gets_the_present_policy_at_once(
    stage: Stage,
) -> None:
    stage.script = {
        5: [SetMode(mode="inference"), Pause(), WatchPolicyMap(on=True), Resume(), Stop()]
    }
    stage.session.run()
    watched = next(
        index for index, event in enumerate(stage.events) if isinstance(event, PolicyMapWatched)
    )
    update = stage.learner.updates
    assert update == 1
    assert [event.update for event in stage.of(PolicyMapped)] == [0, update]
    assert any(
        isinstance(event, PolicyMapped) and event.update == update
        for event in stage.events[: watched + 3]
    )


def test_another_prompt_gets_a_map_of_its_own(stage: Stage) -> None:
    stage.script = {3: [SetSystemPrompt(system_prompt="Call tails.")]}
    stage.session.run()
    kinds = [type(event) for event in stage.events]
    assert PolicyMapped in kinds[kinds.index(PromptChanged) :]
    assert [event.prompt_version for event in stage.of(PolicyMapped)][:2] == [0, 1]


def test_an_edit_is_mapped_right_after_it(stage: Stage) -> None:
    stage.script = {3: [SetSystemPrompt(system_prompt="Call tails.")]}
    stage.session.run()
    at = [type(event) for event in stage.events].index(PromptChanged)
    mapped = stage.events[at + 1]
    assert isinstance(mapped, PolicyMapped)
    assert mapped.prompt_version == 1


@pytest.fixture
def demonstrations(tmp_path: Path) -> Path:
    prompt = "Call the coin."
    called = Demonstration(
        messages=[system(prompt), user("Heads or tails?"), assistant("1")], agent="coin", env_id="Coin-v0",
        env_kwargs={}, seed=1, actions=[1], rewards=[1.0], episode_return=1.0, length=1, end="terminated",
        source="human", model=None, prompt_sha256=prompt_sha256(prompt), recorded_at="2026-01-31T12:00:00Z",
    )  # fmt: skip
    demo_files.write(tmp_path / "coin.jsonl", [called])
    return tmp_path / "coin.jsonl"


def test_a_warm_start_gets_a_map_right_after_it(stage: Stage, demonstrations: Path) -> None:
    stage.script = {2: [WarmStart(sft_data=str(demonstrations))]}
    stage.session.run()
    kinds = [type(event) for event in stage.events]
    assert (
        PolicyMapped in kinds[kinds.index(WarmStartFinished) : kinds.index(WarmStartFinished) + 8]
    )
