"""Slides the tiles of one of GEM's puzzles; which moves are possible is read off the board."""

import gymnasium

from llamagym_tui import Agent


class GemAgent(Agent):
    env_id = "Gem-v0"
    env_kwargs = {"name": "game:FifteenPuzzle-v0-easy"}
    history = 0
    run_settings = {"generation.policy": "score"}
    extract_action = str
    format_action = str

    def get_system_prompt(self):
        return "Slide tiles into the gap __ until they are in order. Reply with up, down, left or right."

    def format_observation(self, observation, info):
        return info["suffix"]

    def actions(self, observation, info):
        rows = [line.split() for line in info["suffix"].splitlines()[1:-2]]
        row = next(index for index, tiles in enumerate(rows) if "__" in tiles)
        last, column = len(rows) - 1, rows[row].index("__")
        can = {"up": row < last, "down": row > 0, "left": column < last, "right": column > 0}
        return [move for move, is_possible in can.items() if is_possible]


class Game(gymnasium.Env):
    action_space = observation_space = gymnasium.spaces.Text(10_000)

    def __init__(self, name):
        try:
            import gem
        except ImportError as error:
            advice = "pip install 'llamagym-tui[gem]' && pip install --no-deps gem-llm"
            raise ImportError(f"{error}; {advice}") from error
        self.game = gem.make(name)

    def reset(self, *, seed=None, options=None):
        return self.game.reset(seed)

    def step(self, move):
        return self.game.step(rf"\boxed{{{move}}}")


gymnasium.register("Gem-v0", Game)
