"""A scripted expert's episodes as demonstrations, which needs no model and no torch.

Each episode has its own seed, one more than the episode before it, so that the same first seed gives the same episodes.
"""

from collections.abc import Callable, Iterator
from datetime import datetime

from llamagym_tui.demos.demonstration import Demonstration, PlayedTurn
from llamagym_tui.errors import RAISED, EnvError, UsageError, described
from llamagym_tui.game.agent_base import AgentBase
from llamagym_tui.game.environment import agent_env
from llamagym_tui.game.game import Game
from llamagym_tui.game.observed import expert_action

FIRST_SEED = 5_000_000
"""Default seed of the first episode, far from the seeds of runs and of evaluations."""
MAX_TURNS = 1000
"""Turns after which an episode is truncated."""


def expert_episodes(
    agent: AgentBase, agent_name: str, *, episodes: int, seed: int, clock: Callable[[], datetime]
) -> Iterator[Demonstration]:
    """Episodes that the agent's expert plays, the first one with `seed`, each later one with one more.

    Raises:
        UsageError: the agent has no expert.
        EnvError: the environment cannot be made, or refused a reset or a step.
    """
    game = Game(agent, lambda: agent_env(agent))
    try:
        for number in range(episodes):
            yield _episode(game, agent_name, seed + number, clock)
    except (UsageError, EnvError):
        raise
    except RAISED as error:  # an environment's code, or the expert's, may raise anything
        raise EnvError(
            f"The expert's play in {agent.env_id} failed: {described(error)}."
        ) from error
    finally:
        game.close()


def _episode(
    game: Game, agent_name: str, seed: int, clock: Callable[[], datetime]
) -> Demonstration:
    agent = game.agent
    prompt = agent.get_system_prompt()
    turns: list[PlayedTurn] = []
    game.reset(seed)
    while not game.outcome.is_over and len(turns) < MAX_TURNS:
        before = game.outcome
        action = expert_action(agent, before.observation, before.info, game.env)
        if action is None:
            raise UsageError(
                f"{type(agent).__name__} has no expert to play {agent.env_id}: "
                "define expert(observation), or play yourself (h in the playground)."
            )
        shown = game.look()
        reward = game.step(action).reward
        reply = agent.format_action(action)
        turns.append(PlayedTurn(shown.text, shown.actions, reply, action, reward))
    return Demonstration.of(
        agent,
        agent_name,
        prompt,
        turns,
        end="terminated" if game.outcome.terminated else "truncated",
        source="expert",
        recorded_at=clock(),
        seed=seed,
    )
