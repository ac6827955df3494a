"""Plays a server of OpenEnv's whose observations list the legal moves, as those of its chess_env do."""

import os

import gymnasium

from llamagym_tui import Agent


class OpenEnvAgent(Agent):
    env_id = "OpenEnv-v0"
    extra = "openenv"
    run_settings = {"generation.policy": "score"}
    extract_action = str
    format_action = str

    def get_system_prompt(self):
        return "You play a game. Reply with one of the legal moves, and nothing else."

    def format_observation(self, observation):
        shown = (name for name in observation if name != "metadata")
        return "\n".join(f"{name}: {observation[name]}" for name in shown)

    def actions(self, observation):
        return observation["legal_moves"]


class Server(gymnasium.Env):
    action_space = observation_space = gymnasium.spaces.Text(10_000)

    def __init__(self):
        from openenv import GenericEnvClient

        url = os.environ.get("OPENENV_URL", "http://localhost:8000")
        self.client = GenericEnvClient(url).sync()
        self.close = self.client.close
        try:
            self.client.connect()
        except ConnectionError as error:
            advice = "start the server, or set OPENENV_URL to where it is"
            raise ConnectionError(f"{error}; {advice}") from error

    def reset(self, *, seed=None, options=None):
        return self.client.reset(seed=seed).observation, {}

    def step(self, move):
        result = self.client.step({"move": move})
        return result.observation, result.reward or 0.0, result.done, False, {}


gymnasium.register("OpenEnv-v0", Server)
