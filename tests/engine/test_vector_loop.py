"""Gymnasium's vector environments: every reward at the turn that earned it, no turn where an environment resets."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from llamagym_tui import Agent, load_model_and_tokenizer
from llamagym_tui.agents.blackjack import BlackjackAgent
from llamagym_tui.errors import EnvError
from llamagym_tui.vector import EpisodeEnd, VectorEpisodes
from tests.engine.conftest import loop_of
from tests.text_env import ChestAgent, ChestEnv

MODES = list(AutoresetMode)


class LadderEnv(gymnasium.Env[Any, int]):
    """Shows its number and its steps, pays 10 times the one plus the other; over after `length` steps, or never."""

    def __init__(self, number: int, length: int | None) -> None:
        self.observation_space = spaces.Tuple((spaces.Discrete(100), spaces.Discrete(100)))
        self.action_space = spaces.Discrete(2)
        self.number, self.length, self.steps = number, length, 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.steps = 0
        return (self.number, 0), {}

    def step(self, action: int) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.steps += 1
        return (
            (self.number, self.steps),
            10.0 * self.number + self.steps,
            self.steps == self.length,
            False,
            {},
        )


class LadderAgent(Agent):
    """Reads no reply, so that every action is the fallback."""

    def get_system_prompt(self) -> str:
        return "Climb."

    def format_observation(self, observation: Any) -> str:
        return f"Ladder {observation[0]}, rung {observation[1]}."

    def extract_action(self, response: str) -> None:
        return None


def ladders(mode: AutoresetMode) -> SyncVectorEnv:
    """Three: over after two steps, over after three, cut off after two."""
    makers = [
        lambda: LadderEnv(1, 2),
        lambda: LadderEnv(2, 3),
        lambda: gymnasium.wrappers.TimeLimit(LadderEnv(3, None), 2),
    ]
    return SyncVectorEnv(makers, autoreset_mode=mode)


def agent_of(kind: type[Agent], batch_size: int = 1000) -> Agent:
    loaded = load_model_and_tokenizer("bundled", "cpu")
    return kind(
        loaded.model,
        loaded.tokenizer,
        None,
        {"max_new_tokens": 4},
        {"batch_size": batch_size, "lr": 0.01},
    )


def play(agent: Agent, envs: SyncVectorEnv, steps: int) -> list[EpisodeEnd]:
    episodes, ended = VectorEpisodes(envs), []
    observations, _ = envs.reset(seed=0)
    for _ in range(steps):
        actions = agent.act(episodes.turns(observations))
        step = envs.step(np.array(actions))
        observations = step[0]
        agent.assign_reward(step[1])
        for end in episodes.ends(*step):
            agent.terminate_episode(
                env=end.env, truncated=end.truncated, final_observation=end.final_observation
            )
            ended.append(end)
        done = step[2] | step[3]
        if envs.metadata["autoreset_mode"] is AutoresetMode.DISABLED and done.any():
            observations, _ = envs.reset(options={"reset_mask": done})
    return ended


@pytest.mark.parametrize("mode", MODES)
def test_rewards_ends_and_final_observations_reach_their_own_environments_episode(mode):
    agent = agent_of(LadderAgent)
    play(agent, ladders(mode), steps=9)
    found = {}
    for trajectory in loop_of(agent).batch:
        text = agent.tokenizer.decode([i for segment in trajectory.segments for i in segment.ids])
        number = int(text.split("Ladder ")[1][0])
        rungs = [int(part[0]) for part in text.split("rung ")[1:]]
        assert rungs == list(range(len(trajectory.turns))), (
            "one turn for each observation, the last one left out"
        )
        final = (
            trajectory.final_prompt
            and agent.tokenizer.decode(trajectory.final_prompt.ids).split("Ladder ")[-1]
        )
        rewards = tuple(turn.reward for turn in trajectory.turns)
        found.setdefault(number, []).append(
            (rewards, trajectory.end, final and final.split(".")[0])
        )
    times = (
        3 if mode is AutoresetMode.NEXT_STEP else 4
    )  # a step more for each episode after the first
    assert found[1] == [((11.0, 12.0), "terminated", None)] * times
    assert found[2] == [((21.0, 22.0, 23.0), "terminated", None)] * (
        2 if mode is AutoresetMode.NEXT_STEP else 3
    )
    assert found[3] == [((31.0, 32.0), "truncated", "3, rung 2")] * times


def test_a_reward_without_a_turn_is_left_out_also_while_an_episode_is_under_way():
    agent = agent_of(LadderAgent)
    agent.act([(1, 0), (2, 0)])
    agent.act([(1, 1), None])
    agent.assign_reward(np.array([1.0, 7.0]))
    assert [slot.rewards for slot in loop_of(agent).slots] == [[1.0], []]


def test_a_reset_in_the_same_step_without_a_final_observation_is_refused():
    episodes = VectorEpisodes(ladders(AutoresetMode.SAME_STEP))
    with pytest.raises(EnvError, match="final_obs"):
        episodes.ends(((1, 1, 1), (0, 0, 0)), [0, 0, 0], [True, False, False], [False] * 3, {})


def test_what_is_sampled_after_an_update_has_the_new_policys_logprobs():
    agent = agent_of(LadderAgent, batch_size=2)
    loop = loop_of(agent)
    policy, loop.learner.updates = loop.policy, 1
    agent.act([(1, 0), (2, 0)])
    agent.act([(1, 1), (2, 1)])
    agent.terminate_episode(env=0)
    agent.act([None, (2, 2)])
    episode = loop.slots[1].episode
    assert (policy.version, episode is not None) == (1, True)
    (segment,) = episode.finish("terminated").segments
    ids = torch.tensor([[*segment.prefix, *segment.ids]])
    logprobs = policy.model(ids).logits[0].log_softmax(-1)
    before, now = segment.turns[1], segment.turns[2]
    for turn, is_new in ((before, False), (now, True)):
        at = torch.arange(turn.start, turn.end) + len(segment.prefix)
        expected = logprobs[at - 1].gather(1, ids[0, at][:, None]).squeeze(1)
        assert torch.allclose(torch.tensor(turn.logprobs), expected, atol=1e-4) is is_new


def test_a_vector_of_blackjack_tables_is_played_and_trained():
    agent = agent_of(BlackjackAgent, batch_size=24)
    envs = gymnasium.make_vec("Blackjack-v1", num_envs=8, vectorization_mode="sync")
    ended = play(agent, envs, steps=12)
    assert loop_of(agent).policy.version >= 1
    assert len(ended) > 8


@pytest.mark.parametrize("mode", MODES)
def test_each_environments_info_reaches_its_prompt_and_its_turn(mode):
    envs = SyncVectorEnv(
        [lambda: gymnasium.wrappers.TimeLimit(ChestEnv(), 2)] * 2, autoreset_mode=mode
    )
    agent, episodes = agent_of(ChestAgent), VectorEpisodes(envs)
    observations, infos = envs.reset(seed=0)
    prompts = []
    for commands in (["go north", "open chest"], ["wait", "go south"]):
        agent.act(episodes.turns(observations), episodes.infos(infos))
        prompts = [slot.episode.conversation[-2]["content"] for slot in loop_of(agent).slots]
        step = envs.step(commands)
        observations, infos = step[0], step[4]
        agent.assign_reward(step[1], episodes.infos(infos))
    infos = episodes.infos(infos)
    assert prompts == [
        "There is a chest. You can: go south, look at chest, wait.",
        "You are in a hall. You can: take key, go north.",
    ]
    for env, truncated, final_observation in episodes.ends(*step):
        agent.terminate_episode(
            env=env, truncated=truncated, final_observation=final_observation, final_info=infos[env]
        )
    failed = [[turn.refused for turn in trajectory.turns] for trajectory in loop_of(agent).batch]
    assert failed == [[False, False], [True, True]]
    finals = [agent.tokenizer.decode(each.final_prompt.ids) for each in loop_of(agent).batch]
    assert ["wait" in text for text in finals] == [True, False], (
        "what the attic allows, not the hall after its reset"
    )
