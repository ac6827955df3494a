"""How greedy play fails: of the episodes that earn nothing, how many go round in circles.

    python -m benchmarks.greedy_loops BabyAI-GoToRedBallGrey-v0 --model RUN --episodes 60

Greedy play takes the same action on the same observation, so a policy that sees one observation at a time cannot leave
a circle of observations once it is in it.
"""

from __future__ import annotations

from collections import Counter
from typing import Annotated, Any

import torch
import typer

from llamagym_tui.engine.model.loading import load_model_and_tokenizer
from llamagym_tui.game.environment import agent_env
from llamagym_tui.setup.catalog import find_agent

FIRST_SEED = 5_000_000
REPEATS = 6
"""Times that a circle is gone round, at least, to count as one."""


def main(
    agent: Annotated[str, typer.Argument(help="As of `train`.")],
    model: Annotated[str, typer.Option(help="A run's folder, or as of `train`.")] = "bundled",
    episodes: Annotated[int, typer.Option(help="Of greedy play, on seeds of their own.")] = 60,
) -> None:
    torch.set_num_threads(1)
    loaded = load_model_and_tokenizer(model, "cpu")
    player = find_agent(agent)(loaded.model, loaded.tokenizer, "cpu")
    env, returns, circles = agent_env(player), [], Counter[str]()
    for episode in range(episodes):
        observation, info = env.reset(seed=FIRST_SEED + episode)
        turns: list[tuple[str, Any]] = []
        earned, ended = 0.0, False
        while not ended:
            action = player.act(observation, info, greedy=True)
            turns.append((player.current_episode_messages[-2]["content"], action))
            observation, reward, terminated, truncated, info = env.step(action)
            earned, ended = earned + float(reward), terminated or truncated
            player.assign_reward(reward)
        player.terminate_episode(train=False)
        returns.append(earned)
        if earned <= 0:
            circles[circle(turns)] += 1
    print(
        f"greedy return {sum(returns) / episodes:.3f}; {circles.total()} of {episodes} episodes earn nothing"
    )
    for kind, count in circles.most_common():
        print(f"{count} {kind}")


def circle(turns: list[tuple[str, Any]]) -> str:
    """Of how many turns the circle is in which an episode ends."""
    for length in range(1, len(turns) // REPEATS + 1):
        if turns[-length * REPEATS :] == turns[-length:] * REPEATS:
            return f"in a circle of {length} turns: actions {', '.join(str(action) for _, action in turns[-length:])}"
    return "in no circle"


if __name__ == "__main__":
    typer.run(main)
