"""Whose settings a run has: given ones, else the agent's, else those that its first batch decides."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from llamagym_tui.errors import UsageError
from llamagym_tui.settings import MEASURED, PPOConfig, RunConfig
from llamagym_tui.settings.typed import assigned
from llamagym_tui.setup.run_config import run_config

OWN = """
from llamagym_tui import Agent

class Mine(Agent):
    env_id = "Taxi-v4"
    run_settings = {run_settings}
    def get_system_prompt(self): return ""
    def format_observation(self, observation): return ""
    def extract_action(self, response): return 0
"""


def of(agent: str, *assignments: str) -> RunConfig:
    return run_config(agent, {**assigned(assignments)})


def an_agent(folder: Path, run_settings: str) -> str:
    (folder / "mine.py").write_text(OWN.replace("{run_settings}", run_settings), encoding="utf-8")
    return str(folder / "mine.py")


def a_run(folder: Path, config: dict[str, Any]) -> None:
    (folder / "model").mkdir()
    (folder / "events.jsonl").write_bytes(b"")
    (folder / "config.json").write_bytes(msgspec.json.encode(config))


def test_a_head_alone_chooses_by_score_and_free_text_needs_all_layers():
    def kind(*assignments: str, **given: Any) -> tuple[str, str, bool | None]:
        found = run_config("blackjack", {**assigned(assignments), **given})
        return found.generation.policy, found.lora.layers, found.full_finetuning

    assert kind() == ("score", "head", False)
    assert kind("generation.policy=generate") == ("generate", "all", None)
    assert kind("full_finetuning=true") == ("generate", "all", True)
    # Other models answer in prose, so they choose unless they are told to write.
    assert kind("lora.layers=all", model="someone/tiny") == ("score", "all", None)
    of_text = ("lora.layers=all", "generation.policy=generate")
    assert kind(*of_text, model="someone/tiny") == ("generate", "all", None)
    with pytest.raises(UsageError) as refused:
        kind("full_finetuning=false", "lora.layers=head", "generation.policy=generate")
    assert str(refused.value) == (
        "An adapter on the LM head alone chooses among the legal replies: for free text add "
        "--set lora.layers=all or --set full_finetuning=true."
    )


def test_a_head_alone_learns_by_settings_of_its_own_where_none_are_given():
    def of_head(*assignments: str, agent: str = "blackjack", **more: Any) -> tuple[object, ...]:
        config = run_config(agent, {"model": "smollm2", **assigned(assignments), **more})
        ppo = config.ppo
        novelty = (ppo.entropy_coef, ppo.entropy_coef_final, ppo.novelty_coef)
        return config.lora.layers, config.lora.rank, novelty

    usual = PPOConfig()
    others = (usual.entropy_coef, usual.entropy_coef_final, usual.novelty_coef)
    assert of_head() == ("head", 64, (0.03, 0.01, 0.3))
    assert of_head("lora.r=8", agent="taxi")[:2] == ("head", 8)
    assert of_head("ppo.novelty_coef=0.5", "lora.r=8") == ("head", 8, (0.03, 0.01, 0.5))
    for given in (
        {"sft_data": "mine.jsonl"},
        {"ranks": 2},
        {"assignments": ["lora.layers=all"]},
        {"assignments": ["lora.target_modules=q_proj"]},
    ):
        assert of_head(*given.pop("assignments", ()), **given) == ("all", 16, others), given


def test_the_bundled_model_trains_its_head_alone_unless_a_setting_needs_more():
    def trained(agent: str, *assignments: str, **more: Any) -> tuple[object, ...]:
        config = run_config(agent, {**assigned(assignments), **more})
        return config.full_finetuning, config.lora.layers, config.ppo.novelty_coef

    head, whole = (False, "head", 0.3), (None, "all", 0.0)
    for agent in ("blackjack", "kitchen", "cart-pole", "acrobot", "frozen-lake-maps", "taxi"):
        assert trained(agent) == head, agent
    # What the head alone cannot obey trains all weights.
    for given in (
        "ppo.lr=1e-4",
        "ppo.epochs=2",
        "ppo.target_kl=0.01",
    ):
        assert trained("blackjack", given) == whole, given
    assert trained("blackjack", sft_data="mine.jsonl") == whole
    assert trained("blackjack", ranks=2) == whole
    assert trained("blackjack", "full_finetuning=true") == (True, "all", 0.0)
    assert trained("cart-pole", "full_finetuning=false") == head
    assert trained("blackjack", "lora.r=8") == head
    assert trained("cart-pole", "lora.r=8", "ppo.lr=1e-4") == (False, "all", 0.0)


def test_what_is_not_given_is_measured():
    assert of("blackjack").measured == dict.fromkeys([*MEASURED, "ppo.novelty_coef"], "")
    assert "ppo.novelty_coef" not in of("blackjack", "full_finetuning=true").measured
    given = of("blackjack", "ppo.gamma=1", "ppo.batch_size=64")
    assert set(MEASURED) - set(given.measured) == {"ppo.gamma", "ppo.batch_size"}
    assert (given.ppo.gamma, given.ppo.batch_size) == (1.0, 64)


def test_an_agents_own_settings_hold_unless_others_are_given(tmp_path: Path):
    agent = an_agent(tmp_path, "{'ppo.gamma': 0.9, 'ppo.lr': 1e-4, 'n_envs': 8}")
    config = of(agent, "ppo.lr=1e-3")
    assert (config.ppo.gamma, config.ppo.lr, config.n_envs) == (0.9, 1e-3, 8)
    assert "ppo.gamma" not in config.measured
    assert "ppo.lam" in config.measured
    assert run_config(agent, {"n_envs": 4}).n_envs == 4


def test_the_learner_is_the_one_of_its_option(tmp_path: Path):
    agent = an_agent(tmp_path, "{'ppo.learner': 'rloo', 'ppo.gamma': 0.9}")
    assert of(agent).ppo.learner == "rloo"
    named = run_config(agent, {"ppo.learner": "grpo"})
    assert (named.ppo.learner, named.ppo.gamma) == ("grpo", 0.9)


@pytest.mark.parametrize("name", ["ppo.gama", "agent", "gamma"])
def test_an_agents_own_setting_that_there_is_not_is_refused_by_its_name(tmp_path: Path, name: str):
    with pytest.raises(
        UsageError, match=f"Mine.run_settings has '{name}', which is no setting of a run"
    ):
        of(an_agent(tmp_path, f"{{'{name}': 1}}"))


def test_a_resumed_run_keeps_what_was_measured_but_for_what_is_given_now(tmp_path: Path):
    measured = {"ppo.gamma": "discount 0.99: long", "ppo.lam": "lambda 0.95: long"}
    earlier = RunConfig(
        agent="blackjack",
        run_dir=str(tmp_path),
        ppo=PPOConfig(gamma=0.99, lam=0.95),
        measured=measured,
    )
    a_run(tmp_path, msgspec.to_builtins(earlier))
    again = run_config(None, {"run_dir": str(tmp_path), "resume": True})
    assert (again.ppo, again.measured) == (earlier.ppo, measured)
    other = run_config(
        None, {"run_dir": str(tmp_path), "resume": True, **assigned(["ppo.gamma=0.5"])}
    )
    assert (other.ppo.gamma, other.ppo.lam, list(other.measured)) == (0.5, 0.95, ["ppo.lam"])


def test_a_resumed_run_has_its_checkpoints_prompt_unless_one_is_given_now(tmp_path: Path):
    a_run(
        tmp_path,
        msgspec.to_builtins(
            RunConfig(agent="blackjack", run_dir=str(tmp_path), system_prompt="Begun.")
        ),
    )
    assert run_config(None, {"run_dir": str(tmp_path), "resume": True}).system_prompt is None
    assert (
        run_config(
            None, {"run_dir": str(tmp_path), "resume": True, "system_prompt": "Now."}
        ).system_prompt
        == "Now."
    )


def test_a_run_of_an_older_version_measures_nothing(tmp_path: Path):
    values = msgspec.to_builtins(RunConfig(agent="blackjack", run_dir=str(tmp_path)))
    del values["measured"], values["ppo"]["whole_episodes"]
    a_run(tmp_path, values)
    again = run_config(None, {"run_dir": str(tmp_path), "resume": True})
    assert (again.measured, again.ppo) == ({}, PPOConfig())


def test_in_taxi_and_text_games_a_run_chooses_among_what_can_be_done():
    """A policy that generates learns in Taxi from -10 a refused action never to pick up: -200 after five minutes."""
    assert of("taxi").generation.policy == of("tw-simple").generation.policy == "score"
    assert of("taxi", "generation.policy=generate").generation.policy == "generate"
