"""Seeds of episodes: every environment takes them, and a run that began with larger ones goes on with those."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import msgspec
import pytest

from llamagym_tui import run_store
from llamagym_tui.demos.human_game import MatchAgainstModel
from llamagym_tui.game.environment import episode_seed
from llamagym_tui.trainer import builders as trainer_builders
from llamagym_tui.trainer.builders import EVALUATION_SEED, Builders
from llamagym_tui.trainer.random_play import random_episodes
from tests import fakes
from tests.toy_env import CountAgent, CountEnv

LARGE = episode_seed(0, 0, 32)
"""The seed of 32 bits of the first episode of a run of seed 0."""


def old(folder: Path) -> Path:
    """A run folder as it was written when seeds had 32 bits."""
    settings = msgspec.to_builtins(fakes.config(folder))
    del settings["seed_bits"]
    folder.mkdir(exist_ok=True)
    (folder / run_store.CONFIG_FILE).write_text(json.dumps(settings))
    return folder


def test_seeds_of_episodes_are_below_2_to_the_31_and_else_as_they_were() -> None:
    large = [episode_seed(0, number, 32) for number in range(64)]
    assert max(large) >= 2**31
    assert [episode_seed(0, number) for number in range(64)] == [seed % 2**31 for seed in large]


def test_a_new_run_says_how_many_bits_and_an_old_one_that_says_nothing_has_32(
    tmp_path: Path,
) -> None:
    assert fakes.config(tmp_path).seed_bits == 31
    run_store.RunStore.create(fakes.config(tmp_path / "new")).close()
    assert run_store.read_config(tmp_path / "new").seed_bits == 31
    assert run_store.read_config(old(tmp_path / "old")).seed_bits == 32


@pytest.mark.parametrize("bits", [31, 32])
def test_a_run_resets_its_environments_to_seeds_of_its_own_bits(
    tmp_path: Path, make_policy, bits: int
) -> None:
    config = msgspec.structs.replace(fakes.config(tmp_path), seed_bits=bits, n_envs=1)
    agent = CountAgent()
    rollout = Builders(config).rollout(agent, make_policy(), seed=0, emit=lambda event: None)
    rollout.step()
    assert episode_seed(0, 0, bits) in rollout.slots[0].env.unwrapped.seeds


@pytest.mark.parametrize(("seed", "bits"), [(None, 32), (5, 31)])
def test_only_evaluations_of_an_old_runs_own_have_its_seeds(
    tmp_path: Path, monkeypatch, seed: int | None, bits: int
) -> None:
    found = SimpleNamespace()
    monkeypatch.setattr(
        trainer_builders, "evaluate", lambda agent, policy, **given: vars(found).update(given)
    )
    config = run_store.read_config(old(tmp_path / "old"))
    Builders(config).evaluate(CountAgent(), None, episodes=1, greedy=True, seed=seed)
    own = EVALUATION_SEED + config.seed
    assert (found.seed, found.seed_bits) == (own if seed is None else seed, bits)


def test_a_match_has_the_seeds_of_its_bits() -> None:
    assert MatchAgainstModel(0, []).next_seed == LARGE % 2**31
    assert MatchAgainstModel(0, [], 32).next_seed == LARGE


def test_random_play_takes_a_run_seed_beyond_31_bits(tmp_path: Path, monkeypatch) -> None:
    seeds = []
    reset = CountEnv.reset
    monkeypatch.setattr(
        CountEnv, "reset", lambda env, **given: seeds.append(given["seed"]) or reset(env, **given)
    )
    config = msgspec.structs.replace(fakes.config(tmp_path), seed=2**40 + 3)
    random_episodes(CountAgent(), config, turns=1, seconds=9)
    assert seeds[0] == 3
