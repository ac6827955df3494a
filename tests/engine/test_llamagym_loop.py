"""LlamaGym's own loop: act, assign_reward, terminate_episode, on the same engine."""

from __future__ import annotations

import gymnasium
import numpy as np
import peft
import pytest
import torch
from transformers import AutoTokenizer

from llamagym_tui import Agent, AutoModelForCausalLMWithValueHead, load_model_and_tokenizer
from llamagym_tui.agents.blackjack import BlackjackAgent
from llamagym_tui.engine.llamagym_loop import generation_settings, ppo_settings
from llamagym_tui.engine.model.sources import bundled_model_path
from llamagym_tui.errors import ConfigError, NoModelError, PromptTooLongError
from llamagym_tui.settings import LoraConfig
from tests.engine.conftest import loop_of, tiny_llama
from tests.llamagym_agent import SeedAgent
from tests.text_env import ChestEnv, CommandAgent


@pytest.mark.filterwarnings("ignore:top_p")
@pytest.mark.parametrize("kind", [BlackjackAgent, SeedAgent])
def test_llamagyms_loop_plays_logs_and_updates_when_a_batch_is_full(kind):
    settings = {
        "batch_size": 8,
        "lora/r": 4,
        "generate/max_new_tokens": 8,
        "generate/do_sample": True,
    }
    settings |= {"generate/top_p": 0.6, "generate/top_k": 0, "generate/temperature": 0.9}
    loaded = load_model_and_tokenizer("bundled", "cpu")
    agent = kind(
        loaded.model,
        loaded.tokenizer,
        "cpu",
        {name: value for name, value in settings.items() if name.startswith("generate/")},
        {"batch_size": settings["batch_size"], "mini_batch_size": settings["batch_size"]},
    )
    before = [weight.clone() for weight in agent.model.parameters()]
    env = gymnasium.make("Blackjack-v1", natural=False, sab=False)
    logged = []
    for episode in range(20):
        observation, _ = env.reset(seed=episode)
        done = False
        while not done:
            action = agent.act(observation)
            assert action in (0, 1)
            observation, reward, terminated, truncated, _ = env.step(action)
            agent.assign_reward(reward)
            done = terminated or truncated
        stats = {
            "episode": episode,
            "total_return": sum(agent.current_episode_rewards),
            "message_ct": len(agent.current_episode_messages),
            "episode_messages": agent.current_episode_messages,
        }
        stats.update(agent.terminate_episode())
        logged.append(stats)
    assert [stats["total_return"] in (-1, 0, 1) for stats in logged] == [True] * 20
    assert all(stats["message_ct"] % 2 == 1 for stats in logged)
    updates = [stats for stats in logged if "mean_return" in stats]
    assert len(updates) >= 2
    assert updates[0]["first_ratio"] < 1e-3
    assert updates[0]["turns"] >= 8
    assert all(
        isinstance(value, int | float)
        for value in updates[0].values()
        if not isinstance(value, list)
    )
    assert not all(torch.equal(a, b) for a, b in zip(before, agent.model.parameters(), strict=True))


def test_a_greedy_or_evaluated_turn_keeps_its_episode_out_of_the_batch():
    loaded = load_model_and_tokenizer("bundled", "cpu")
    agent = BlackjackAgent(loaded.model, loaded.tokenizer, None, None, {"batch_size": 1})
    agent.act((12, 5, 0))
    agent.act((13, 5, 0), greedy=True)
    assert agent.terminate_episode() == {}
    agent.eval()
    agent.act((12, 5, 0))
    agent.train()
    agent.act((13, 5, 0))
    assert agent.terminate_episode(truncated=True) == {}, (
        "no bootstrap is needed for what is not trained"
    )
    chosen = set()
    for _ in range(8):
        chosen.add(agent.act((12, 5, 0), greedy=True))
        agent.terminate_episode()
    assert len(chosen) == 1


def test_a_saved_agent_loads_by_its_path_with_its_value_head(tmp_path):
    loaded = load_model_and_tokenizer("bundled", "cpu")
    agent = BlackjackAgent(loaded.model, loaded.tokenizer)
    torch.nn.init.normal_(agent.model.v_head.out.weight)
    agent.save(tmp_path / "mine")
    again = load_model_and_tokenizer(str(tmp_path / "mine"), "cpu")
    both = zip(agent.model.state_dict().values(), again.model.state_dict().values(), strict=True)
    assert all(torch.equal(a, b) for a, b in both)
    assert again.tokenizer.chat_template == loaded.tokenizer.chat_template


class MuteAgent(BlackjackAgent):
    """Reads nothing into any reply, and sees whole conversations."""

    fallback_action = 1
    history = None

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
    (trajectory,) = loop_of(agent).batch
    assert [(turn.reward, turn.parse_failed) for turn in trajectory.turns] == [
        (0.25, True),
        (-1.0, True),
    ]
    assert (trajectory.end, len(trajectory.segments)) == ("truncated", 1)
    assert trajectory.final_prompt is not None
    assert "Your total: 20." in loaded.tokenizer.decode(trajectory.final_prompt.rest)


def test_an_agent_without_a_model_formats_and_refuses_to_act():
    agent = BlackjackAgent()
    assert (
        agent.format_observation((15, 1, 1))
        == "Your total: 15. Usable ace: yes. Dealer shows: ace."
    )
    with pytest.raises(NoModelError, match="without a model"):
        agent.act((12, 5, 0))


def test_a_reward_before_an_action_is_refused():
    loaded = load_model_and_tokenizer("bundled", "cpu")
    with pytest.raises(ConfigError, match="before act"):
        BlackjackAgent(loaded.model, loaded.tokenizer).assign_reward(1.0)


def test_seed_style_settings_are_taken_and_unknown_ones_named():
    with pytest.warns(UserWarning, match="top_p"):
        assert (
            generation_settings({"generate/top_p": 0.6, "generate/temperature": 0.9}).temperature
            == 0.9
        )
    settings = ppo_settings({"batch_size": 16, "learning_rate": 1e-5}, use_target_kl=True)
    assert (settings.batch_size, settings.mini_batch_size, settings.lr, settings.target_kl) == (
        16,
        16,
        1e-5,
        0.02,
    )
    with pytest.raises(ConfigError, match="bogus"):
        ppo_settings({"bogus": 1}, use_target_kl=False)
    with pytest.raises(ConfigError, match="greedy=True"):
        generation_settings({"do_sample": False})


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"generate_config_dict": {"repetition_penalty": 1.1}}, "repetition_penalty"),
        ({"ppo_config_dict": {"learner": "grpo"}}, "grpo compares episodes of one seed"),
        ({"ppo_config_dict": {"adap_kl_ctrl": True}}, "adap_kl_ctrl"),
    ],
)
def test_every_name_of_the_dictionaries_is_obeyed_or_refused_by_name(tokenizer, given, said):
    with pytest.raises(ConfigError, match=said):
        BlackjackAgent(tiny_llama(len(tokenizer)), tokenizer, **given)


@pytest.mark.filterwarnings("ignore:top_p", "ignore:Setting `save_embedding_layers`")
def test_a_model_made_as_llamagyms_example_makes_it_plays_learns_and_is_saved(tmp_path):
    where = bundled_model_path()
    lora = peft.LoraConfig(
        r=4, lora_alpha=32, lora_dropout=0.05, bias="none", task_type="CAUSAL_LM"
    )
    model = AutoModelForCausalLMWithValueHead.from_pretrained(
        pretrained_model_name_or_path=where, peft_config=lora, load_in_8bit=False, token=None
    ).to("cpu")
    tokenizer = AutoTokenizer.from_pretrained(where, token=None)
    tokenizer.add_special_tokens({"pad_token": "<pad>"})
    model.pretrained_model.resize_token_embeddings(len(tokenizer))
    assert all(
        "lora" in name
        for name, weight in model.pretrained_model.named_parameters()
        if weight.requires_grad
    )
    agent = SeedAgent(
        model, tokenizer, "cpu", {"generate/top_p": 0.6}, {"batch_size": 2, "mini_batch_size": 2}
    )
    stats: list[dict[str, float]] = []
    for _ in range(4):
        agent.act((12, 5, 0))
        agent.assign_reward(1.0)
        stats.append(agent.terminate_episode())
    assert [bool(figures) for figures in stats] == [False, True, False, True]
    assert stats[1]["first_ratio"] < 1e-3
    agent.save(tmp_path)
    assert (tmp_path / "adapter_model.safetensors").is_file()
    again = load_model_and_tokenizer(str(tmp_path), "cpu")
    assert len(again.tokenizer) == again.model.causal_lm.config.vocab_size == len(tokenizer)


def mean_return(agent: Agent, env: gymnasium.Env, episodes: int) -> float:
    total = 0.0
    for _ in range(episodes):
        observation, _ = env.reset()
        done = False
        while not done:
            observation, reward, terminated, truncated, _ = env.step(agent.act(observation))
            agent.assign_reward(reward)
            done = terminated or truncated
        total += sum(agent.current_episode_rewards)
        agent.terminate_episode()
    return total / episodes


@pytest.mark.slow
def test_llamagyms_loop_learns():
    torch.manual_seed(0)
    loaded = load_model_and_tokenizer("bundled", "cpu")
    settings = {"batch_size": 128, "mini_batch_size": 32}
    agent = SeedAgent(loaded.model, loaded.tokenizer, "cpu", {"max_new_tokens": 8}, settings)
    env = gymnasium.make("Blackjack-v1", natural=False, sab=False)
    env.reset(seed=0)
    agent.eval()
    before = mean_return(agent, env, 700)
    agent.train()
    mean_return(agent, env, 1500)
    agent.eval()
    after = mean_return(agent, env, 700)
    standard_error = (2 * 0.95**2 / 700) ** 0.5  # one hand's standard deviation is about 0.95
    assert after - before > 2 * standard_error, (before, after)


def test_a_prompt_that_the_model_cannot_read_is_refused_before_anything_is_added():
    loaded = load_model_and_tokenizer("bundled", "cpu")
    agent = BlackjackAgent(loaded.model, loaded.tokenizer, None, None, {"batch_size": 1})
    loop = loop_of(agent)
    agent.act((12, 5, 0))
    agent.assign_reward(0.0)
    loop.policy.context = 60
    before = agent.current_episode_messages
    with pytest.raises(
        PromptTooLongError, match=r"environment 0, .* the 60 that the model reads; end the episode"
    ):
        agent.act((13, 5, 0))
    assert agent.current_episode_messages == before
    assert agent.terminate_episode(truncated=True, final_observation=(13, 5, 0))["turns"] == 1
    loop.policy.context = 20
    with pytest.raises(PromptTooLongError, match=r"shorten the prompt"):
        agent.act([(12, 5, 0), (13, 5, 0)])
    loop.policy.context = None
    assert len(agent.act([(12, 5, 0), (13, 5, 0), (4, 5, 0)])) == 3, (
        "no episode was begun by the refused call"
    )


def test_a_reward_that_is_no_number_changes_nothing_and_an_array_of_one_number_is_that_number(
    tokenizer,
):
    agent = BlackjackAgent(tiny_llama(len(tokenizer)), tokenizer, None, {"max_new_tokens": 4})
    agent.act([(12, 5, 0), None, (13, 5, 0)])
    with pytest.raises(ValueError, match="'x'"):
        agent.assign_reward([1.0, None, "x"])
    assert agent.current_episode_rewards == []
    agent.assign_reward([np.float64(1.0), None, torch.tensor([2.0])])
    assert [slot.rewards for slot in loop_of(agent).slots] == [[1.0], [], [2.0]]


@pytest.mark.parametrize("is_loaded", [True, False])
def test_what_an_agent_learns_follows_its_seed_whatever_was_drawn_before(tokenizer, is_loaded):
    def learnt(seed: int) -> list[torch.Tensor]:
        torch.rand(3)
        before = torch.get_rng_state()
        model = (
            load_model_and_tokenizer(
                "bundled", "cpu", full_finetuning=False, lora=LoraConfig(layers="all")
            ).model
            if is_loaded
            else lm
        )
        agent = BlackjackAgent(
            model, tokenizer, None, {"max_new_tokens": 4}, {"batch_size": 1}, seed=seed
        )
        assert torch.equal(torch.get_rng_state(), before)
        for hand in ((12, 5, 0), (20, 10, 0)):
            agent.act(hand)
            agent.assign_reward(1.0)
            assert agent.terminate_episode()["turns"] == 1
        return [
            weight.detach().clone() for weight in agent.model.parameters() if weight.requires_grad
        ]

    lm = tiny_llama(len(tokenizer))
    start = {name: weight.clone() for name, weight in lm.state_dict().items()}
    found = []
    for seed in (1, 1, 2):
        lm.load_state_dict(start)
        found.append(learnt(seed))
    assert all(map(torch.equal, found[0], found[1]))
    assert not all(map(torch.equal, found[0], found[2]))


def test_the_score_policy_acts_by_what_each_turn_allows(tokenizer):
    model = tiny_llama(len(tokenizer))
    agent = CommandAgent(model, tokenizer, None, {"policy": "score"}, {"batch_size": 1000})
    env = ChestEnv()
    observation, info = env.reset()
    for _ in range(6):
        action = agent.act(observation, info)
        assert action in info["admissible_commands"]
        observation, reward, _, _, info = env.step(action)
        agent.assign_reward(reward, info)
    with pytest.raises(ConfigError, match="In environment 0, the score policy has no actions"):
        agent.act(observation, {"admissible_commands": []})


def test_a_default_adapter_becomes_one_on_the_head_where_replies_are_known(tokenizer):
    def trained(agent_class, *, is_default: bool, **given) -> dict[str, torch.Tensor]:
        """The trained weights by name; replies are chosen by score if and only if they are on the head alone."""
        model = AutoModelForCausalLMWithValueHead(tiny_llama(len(tokenizer)))
        model.adapt(LoraConfig())
        model.has_default_adapter = is_default
        agent = agent_class(model, tokenizer, "cpu", **given)
        kind = loop_of(agent).policy.generation.policy
        assert kind == ("score" if model.has_narrow_head else "generate")
        return {
            name: weight
            for name, weight in agent.model.pretrained_model.named_parameters()
            if weight.requires_grad
        }

    ((only, up),) = trained(BlackjackAgent, is_default=True).items()
    assert "lm_head.lora_B" in only
    assert up.shape == (len(tokenizer), 64)
    assert len(trained(BlackjackAgent, is_default=False)) > 2, "it was asked for"
    assert len(trained(SeedAgent, is_default=True)) > 2, "its actions have no names"
    text = {"generate_config_dict": {"policy": "generate"}}
    assert len(trained(BlackjackAgent, is_default=True, **text)) > 2, "it is to write"
    rate = {"ppo_config_dict": {"learning_rate": 1e-4}}
    assert len(trained(BlackjackAgent, is_default=True, **rate)) > 2, "it has no use for the rate"
    whole = {"ppo_config_dict": {"batch_size": 16, "mini_batch_size": 16}}
    assert len(trained(BlackjackAgent, is_default=True, **whole)) == 1, "its steps are on batches"
    model = AutoModelForCausalLMWithValueHead(tiny_llama(len(tokenizer)))
    model.adapt(LoraConfig(layers="head"))
    with pytest.raises(
        ConfigError, match=r"ppo\.target_kl has no effect when an adapter on the LM head alone"
    ):
        BlackjackAgent(model, tokenizer, use_target_kl=True)
