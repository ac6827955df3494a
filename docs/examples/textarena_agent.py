"""Plays Connect Four of TextArena's: against one who draws, an earlier self, another run or an endpoint."""

import gymnasium

from llamagym_tui import Agent


class TextArenaAgent(Agent):
    env_id = "TextArena-v0"
    extra = "textarena"
    env_kwargs = {"opponent": "random"}
    opponents = ("random",)
    history = 0
    run_settings = {"generation.policy": "score"}
    action_names = tuple(f"[col {column}]" for column in range(7))

    def get_system_prompt(self):
        return 'You play Connect Four. Reply with a column from 0 to 6, as {"action": 3}.'

    def format_observation(self, observation):
        return observation


class Game(gymnasium.Env):
    action_space = gymnasium.spaces.Discrete(7)
    observation_space = gymnasium.spaces.Text(1000)

    def __init__(self, opponent="random", begins="either"):
        import textarena

        self.game = textarena.make("ConnectFour-v0-raw")
        self.opponent, self.begins = opponent, begins

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.game.reset(num_players=2, seed=seed)
        drawn = int(self.np_random.integers(2))
        self.own = {"player": 0, "opponent": 1}.get(self.begins, drawn)  # player 0 moves first
        return self.after(is_over=False)

    def step(self, column):
        is_over, _ = self.game.step(f"[col {column}]")
        observation, info = self.after(is_over)
        is_over = info.pop("is_over")
        reward = self.game.close()[0][self.own] if is_over else 0
        return observation, reward, is_over, False, info

    def after(self, is_over):
        """What whoever is to move sees, once an opponent that draws has moved."""
        state = self.game.state
        while not is_over and self.opponent == "random" and state.current_player_id != self.own:
            column = self.np_random.choice(self.free().nonzero()[0])
            is_over, _ = self.game.step(f"[col {column}]")
        mover = state.current_player_id
        board = "\n".join(" ".join(row) for row in state.game_state["board"])
        others = not is_over and mover != self.own
        info = {"action_mask": self.free(), "opponent_moves": others, "is_over": is_over}
        return f"You are {'XO'[mover]}.\n{board}", info

    def free(self):
        import numpy

        return numpy.array([sign == "." for sign in self.game.state.game_state["board"][0]])


gymnasium.register("TextArena-v0", Game)
