"""When the policy is mapped: soon after the start, in slices, and later for no more than its share of the time."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import pytest

from llamagym_tui.game.pictures import Panel, PolicyMap
from llamagym_tui.protocol.events import (
    PolicyMapLaidOut,
    PolicyMapped,
    RunFinished,
    RunStarted,
    WarningRaised,
)
from llamagym_tui.settings import GenerationConfig
from llamagym_tui.trainer.probes.map_policy import AT_ONCE, FIRST_SLICE, PolicyMapper
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
        self,
        monkeypatch: pytest.MonkeyPatch,
        *,
        coins: int = 3,
        takes_s: float = 0.1,
        agent_class: type[MappedCoin] = MappedCoin,
    ) -> None:
        self.clock, self.policy, self.seen = Clock(), Policy(), list[Any]()
        self.calls: list[tuple[str, list[str]]] = []
        self.takes_s, self.stop = takes_s, False
        agent = agent_class()
        agent.coins = coins
        self.mapping_states = coins

        def ask(mapping: PolicyMapper, prompt: str, states: list[str]) -> list[list[float]]:
            self.clock.now += self.takes_s
            self.calls.append((prompt, list(states)))
            return [[0.25, 0.75] for _ in states]

        monkeypatch.setattr(PolicyMapper, "probabilities", ask)
        self.mapping = PolicyMapper(agent, self.policy, self.seen.append, self.clock, turns=9)
        self.mapping.lay_out()

    def map(self, *, prompt: str = "Call.", version: int = 0, **options: Any) -> int:
        """Whole maps emitted by now."""
        self.mapping.map(
            prompt, version, self.policy.version, should_stop=lambda: self.stop, **options
        )
        return sum(len(shares) == self.mapping_states for shares in self.shares())

    def shares(self) -> list[list[list[float]]]:
        return [event.shares for event in self.seen if isinstance(event, PolicyMapped)]


@pytest.fixture
def table(monkeypatch: pytest.MonkeyPatch) -> Table:
    return Table(monkeypatch)


def test_the_first_map_comes_at_once_and_asks_about_every_state(table: Table) -> None:
    assert table.map(prompt="Heads?") == 1
    assert table.calls == [("Heads?", ["0", "1", "2"])]
    assert table.seen[1].shares == [[0.25, 0.75]] * 3


class OneSided(MappedCoin):
    """The first coin can only fall on heads, and the others on either side."""

    def policy_map(self) -> PolicyMap:
        return super().policy_map()._replace(possible=lambda coin: [0] if coin == 0 else [0, 1])


def test_an_action_that_cannot_be_taken_has_no_share_where_actions_are_scored(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    table = Table(monkeypatch, agent_class=OneSided)
    table.map()
    assert table.shares() == [[[0.25, 0.75]] * 3], "it samples replies, which may name any action"
    table.policy.generation = GenerationConfig(policy="score")
    table.map()
    assert table.shares()[-1] == [[1.0, 0.0], [0.25, 0.75], [0.25, 0.75]]


def test_the_same_policy_is_not_mapped_twice(table: Table) -> None:
    table.map()
    table.clock.now += 1000
    assert table.map() == 1
    assert table.map(at_once=True) == 1


def test_every_update_of_the_first_minute_is_mapped_and_then_one_a_second(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    table = Table(monkeypatch, takes_s=0.02)

    def maps_in(seconds: int) -> int:
        before = len(table.calls)
        for _ in range(seconds * 4):  # four updates a second
            table.policy.version += 1
            table.map()
            table.clock.now += 0.23
        return len(table.calls) - before

    assert maps_in(50) == 200
    maps_in(20)
    assert 15 <= maps_in(20) <= 20
    table.map(prompt="Tails?", version=1)
    assert maps_in(10) == 40


def test_maps_of_the_first_minute_take_a_tenth_of_it_at_most(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    table = Table(monkeypatch, takes_s=0.4)
    began = table.clock.now
    while table.clock.now < began + 60:
        table.policy.version += 1
        table.map()
        table.clock.now += 0.1
    assert 13 <= len(table.calls) <= 16


@pytest.mark.parametrize("takes_s", [0.001, 2.0])
@pytest.mark.parametrize("weights_move", [False, True])
def test_a_first_map_comes_in_as_many_slices_however_long_it_takes(
    monkeypatch: pytest.MonkeyPatch, weights_move: bool, takes_s: float
) -> None:
    table = Table(monkeypatch, coins=5 * FIRST_SLICE, takes_s=takes_s)
    pieces = 5 * FIRST_SLICE // AT_ONCE
    while not table.map():
        assert len(table.calls) <= pieces
        table.policy.version += int(weights_move)
    assert [len(shares) for shares in table.shares()] == [FIRST_SLICE * n for n in range(1, 6)]
    assert len(table.calls) == pieces
    table.clock.now += 1000.0
    table.map()
    # A map whose states are of several versions is followed by another one.
    assert (len(table.calls) > pieces) == weights_move


class Reckoning(MappedCoin):
    """Every second coin wins, by tails."""

    asked: ClassVar[list[Any]] = []

    def mean_return(self, shares: Mapping[Any, Sequence[float]], turns: int) -> float:
        self.asked.append((dict(shares), turns))
        return statistics.mean(row[1] for row in shares.values()) / 2


@pytest.fixture
def reckoning(monkeypatch: pytest.MonkeyPatch) -> Table:
    Reckoning.asked.clear()
    found = Table(monkeypatch, coins=FIRST_SLICE + AT_ONCE, agent_class=Reckoning)
    found.policy.history = 0
    return found


def values(table: Table) -> list[float | None]:
    return [event.value for event in table.seen if isinstance(event, PolicyMapped)]


def test_a_whole_map_comes_with_the_exact_mean_return(reckoning: Table) -> None:
    while not reckoning.map():
        pass
    assert values(reckoning) == [None, 0.375]
    [(shares, turns)] = Reckoning.asked
    assert (len(shares), shares[3], turns) == (FIRST_SLICE + AT_ONCE, [0.25, 0.75], 9)


def test_other_replies_count_as_the_fallback_and_many_of_them_leave_the_return_unknown(
    reckoning: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        PolicyMapper, "probabilities", lambda mapper, prompt, states: [[0.25, 0.745]] * len(states)
    )
    reckoning.map(at_once=True)
    assert Reckoning.asked[0][0][0] == pytest.approx([0.255, 0.745])
    monkeypatch.setattr(
        PolicyMapper, "probabilities", lambda mapper, prompt, states: [[0.25, 0.7]] * len(states)
    )
    reckoning.map(at_once=True, version=1)
    assert values(reckoning) == [pytest.approx(0.3725), None]


def test_a_policy_that_reads_earlier_turns_has_no_exact_return(reckoning: Table) -> None:
    reckoning.policy.history = 2
    reckoning.map(at_once=True)
    assert values(reckoning) == [None]


@pytest.mark.parametrize(
    "changed", [{"action_repeat": 2}, {"wrap_env": lambda agent, env: env}, {"fallback_action": 2}]
)
def test_an_agent_that_plays_otherwise_than_its_map_has_no_exact_return(
    monkeypatch: pytest.MonkeyPatch, changed: dict[str, Any]
) -> None:
    other = Table(monkeypatch, agent_class=type("Other", (Reckoning,), changed))
    other.policy.history = 0
    other.map()
    assert values(other) == [None]


def test_an_agent_whose_mean_return_fails_is_named_once_and_its_map_goes_on(
    reckoning: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Reckoning, "mean_return", lambda *_: 1 // 0)
    reckoning.map(at_once=True)
    reckoning.map(at_once=True, version=1)
    assert values(reckoning) == [None, None]
    [warning] = [event for event in reckoning.seen if isinstance(event, WarningRaised)]
    assert warning.message.startswith("Reckoning.mean_return failed: ZeroDivisionError")


def test_another_prompt_begins_another_map(monkeypatch: pytest.MonkeyPatch) -> None:
    table = Table(monkeypatch, coins=FIRST_SLICE + AT_ONCE)
    table.map()
    assert table.map(prompt="Tails?", version=1, at_once=True) == 1
    pieces = FIRST_SLICE // AT_ONCE
    assert [prompt for prompt, _ in table.calls] == ["Call."] * pieces + ["Tails?"] * (pieces + 1)
    assert table.seen[-1].prompt_version == 1


def test_maps_take_no_more_than_their_share_of_an_hour(monkeypatch: pytest.MonkeyPatch) -> None:
    table = Table(monkeypatch, takes_s=1.5)
    began = table.clock.now
    while table.clock.now < began + 3600:
        table.policy.version += 1
        table.map()
        table.clock.now += 0.5
    assert 100 < len(table.calls) <= 0.05 * 3540 / 1.5 + 0.1 * 60 / 1.5 + 1


def test_a_model_that_reads_slowly_is_told_from_one_whose_maps_are_slow(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    table = Table(monkeypatch, takes_s=3.0)
    table.policy.narrow = object()  # type: ignore[assignment]
    table.map()
    assert (table.mapping.is_cheap, table.mapping.reads_fast) == (False, False)
    table.takes_s = 0.1
    table.policy.version += 1
    assert table.map() == 2, "its prompts are read now, so the next map does not wait"
    assert (table.mapping.is_cheap, table.mapping.reads_fast) == (True, False)


def test_a_command_interrupts_a_map_between_two_pieces_and_what_was_scored_stays(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    table = Table(monkeypatch, coins=2 * AT_ONCE)
    table.stop = True
    assert (table.map(), table.calls) == (0, [])
    stop = iter([False, True])
    table.mapping.map("Call.", 0, 0, should_stop=lambda: next(stop), at_once=True)
    assert len(table.calls) == 1
    table.stop = False
    assert table.map(at_once=True) == 1
    assert len(table.calls) == 2
    assert table.mapping.is_cheap


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


def test_a_run_that_ends_before_its_first_map_is_whole_reports_one(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(CoinAgent, "coins", 20 * AT_ONCE)

    def ask(mapping: PolicyMapper, prompt: str, states: list[str]) -> list[list[float]]:
        stage.builders.clock.now += 0.9
        return [[0.25, 0.75] for _ in states]

    monkeypatch.setattr(PolicyMapper, "probabilities", ask)
    stage.session.run()
    assert len(stage.of(PolicyMapped)[-1].shares) == 20 * AT_ONCE
