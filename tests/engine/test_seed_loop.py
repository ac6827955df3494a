"""LlamaGym's own loop: act, assign_reward, terminate_episode, on the same engine."""

from __future__ import annotations

import re

import gymnasium
import pytest

from llamagym_tui import Agent, load_model_and_tokenizer
from llamagym_tui.agents.blackjack import BlackjackAgent
from llamagym_tui.engine.seed_loop import generation_settings, ppo_settings
from llamagym_tui.errors import ConfigError, NoModelError


class SeedStyleAgent(Agent):
    """Written as LlamaGym's example is: a pattern, and a plain int."""

    def get_system_prompt(self) -> str:
        return "You are an expert blackjack player. Reply with Action: 0 or Action: 1."

    def format_observation(self, observation) -> str:
        return f"You: {observation[0]}. Dealer: {observation[1]}. You have {'an' if observation[2] else 'no'} ace."

    def extract_action(self, response: str):
        match = re.search(r"(?:Action|action\"): (\d)", response)
        return int(match.group(1)) if match and match.group(1) in "01" else None


@pytest.mark.parametrize("kind", [BlackjackAgent, SeedStyleAgent])
def test_the_loop_plays_and_updates_when_a_batch_is_full(kind):
    loaded = load_model_and_tokenizer("bundled", "cpu")
    agent = kind(
        loaded.model,
        loaded.tokenizer,
        "cpu",
        {"max_new_tokens": 8, "do_sample": True, "top_p": 0.6, "top_k": 0, "temperature": 0.9},
        {"batch_size": 16, "mini_batch_size": 16},
    )
    env = gymnasium.make("Blackjack-v1", natural=False, sab=False)
    updates = []
    for episode in range(16):
        observation, _ = env.reset(seed=episode)
        done = False
        while not done:
            action = agent.act(observation)
            assert action in (0, 1)
            observation, reward, terminated, truncated, _ = env.step(action)
            agent.assign_reward(reward)
            done = terminated or truncated
        updates.append(agent.terminate_episode())
    full = [stats for stats in updates if stats]
    assert len(full) in (1, 2)
    assert full[0]["first_ratio"] < 1e-3
    assert full[0]["turns"] >= 16


def test_in_eval_nothing_is_collected():
    loaded = load_model_and_tokenizer("bundled", "cpu")
    agent = BlackjackAgent(loaded.model, loaded.tokenizer, None, None, {"batch_size": 1})
    agent.eval()
    agent.act((12, 5, 0))
    assert agent.terminate_episode() == {}
    agent.train()
    agent.act((12, 5, 0))
    assert agent.terminate_episode(train=False) == {}
    agent.act((12, 5, 0))
    assert agent.terminate_episode()["episodes"] == 1


class MuteAgent(BlackjackAgent):
    """Reads nothing into any reply."""

    fallback_action = 1

    def extract_action(self, response: str):
        return None


def test_an_episode_of_several_turns_is_one_conversation_with_its_rewards_failures_and_end():
    loaded = load_model_and_tokenizer("bundled", "cpu")
    agent = MuteAgent(loaded.model, loaded.tokenizer, None, None, {"batch_size": 100})
    for reward in (0.25, -1.0):
        assert agent.act((12, 5, 0)) == 1
        agent.assign_reward(reward)
    with pytest.raises(ConfigError, match="needs its final_observation"):
        agent.terminate_episode(truncated=True)
    agent.terminate_episode(truncated=True, final_observation=(20, 5, 0))
    assert agent._loop is not None
    (trajectory,) = agent._loop._batch
    assert [(turn.reward, turn.parse_failed) for turn in trajectory.turns] == [(0.25, True), (-1.0, True)]
    assert (trajectory.end, len(trajectory.segments)) == ("truncated", 1)
    assert trajectory.final_prompt is not None
    assert "Your total: 20." in loaded.tokenizer.decode(trajectory.final_prompt.ids)


def test_an_agent_without_a_model_formats_and_refuses_to_act():
    agent = BlackjackAgent()
    assert agent.format_observation((15, 1, 1)) == "Your total: 15. Usable ace: yes. Dealer shows: ace."
    with pytest.raises(NoModelError, match="without a model"):
        agent.act((12, 5, 0))


def test_a_reward_before_an_action_is_refused():
    loaded = load_model_and_tokenizer("bundled", "cpu")
    with pytest.raises(ConfigError, match="before act"):
        BlackjackAgent(loaded.model, loaded.tokenizer).assign_reward(1.0)


def test_seed_style_settings_are_taken_and_unknown_ones_named():
    assert generation_settings({"top_p": 0.6, "temperature": 0.9}).temperature == 0.9
    settings = ppo_settings({"batch_size": 16, "learning_rate": 1e-4}, use_target_kl=True)
    assert (settings.batch_size, settings.mini_batch_size, settings.lr, settings.target_kl) == (16, 16, 1e-4, 0.02)
    with pytest.raises(ConfigError, match="bogus"):
        ppo_settings({"bogus": 1}, use_target_kl=False)
