"""``llamagym-tui demos``: generates, checks and lists files of demonstrations.

A scripted expert generates them, without a model and without torch.
"""

import sys
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import Annotated

import typer

from llamagym_tui.demos import faults
from llamagym_tui.demos import files as demo_files
from llamagym_tui.demos.demonstration import Demonstration, PlayedTurn
from llamagym_tui.errors import RAISED, DemoFileError, EnvError, UsageError, described
from llamagym_tui.game.agent_base import AgentBase
from llamagym_tui.game.environment import agent_env, opponent_of
from llamagym_tui.game.game import Game
from llamagym_tui.game.observed import expert_action
from llamagym_tui.protocol.literal import echo
from llamagym_tui.runs.run_store import utc_now
from llamagym_tui.setup import catalog
from llamagym_tui.setup.run_config import env_kwargs
from llamagym_tui.state.returns import counted

FIRST_SEED = 5_000_000
"""Default seed of the first episode, far from the seeds of runs and of evaluations."""
MAX_TURNS = 1000
"""Turns after which an episode is truncated."""

demos_app = typer.Typer(
    no_args_is_help=True, help="Generate, check and list demonstrations (SFT data)."
)


@demos_app.command("generate")
def generate(
    agent: Annotated[
        str, typer.Argument(metavar="AGENT", help="An agent that has an expert, as blackjack.")
    ],
    episodes: Annotated[int, typer.Option(min=1, help="Episodes to play.")] = 500,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="File to write. Not given: one next to your own."),
    ] = None,
    seed: Annotated[
        int, typer.Option(min=0, max=2**30, help="Seed of the first episode; others count up.")
    ] = FIRST_SEED,
    env: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=VALUE", help="Argument of the environment; may be repeated."),
    ] = None,
) -> None:
    """Let an agent's scripted expert play, and write its episodes."""
    name = catalog.agent_name(agent)
    path = output or demo_files.demos_dir() / f"{name}-expert.jsonl"
    player = catalog.player(catalog.find_agent(agent, env_kwargs(env or ())))
    if opponent_of(player):
        raise UsageError(
            "The expert cannot play against a policy; choose an opponent among "
            f"{', '.join(player.opponents)}."
        )
    found = list(expert_episodes(player, name, episodes=episodes, seed=seed))
    demo_files.write(path, found)
    echo(_summary(path, found))


def expert_episodes(
    agent: AgentBase,
    agent_name: str,
    *,
    episodes: int,
    seed: int,
    clock: Callable[[], datetime] = utc_now,
) -> Iterator[Demonstration]:
    """Episodes of an agent's expert; the first is reset to `seed`, and each later one to one more than the one before.

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


@demos_app.command("check")
def check(
    files: Annotated[list[Path], typer.Argument(metavar="FILE", help="Files of demonstrations.")],
    agent: Annotated[
        str | None, typer.Option(help="Agent by which the replies must read as the actions.")
    ] = None,
) -> None:
    """Find what is wrong with files, line by line; exit code 1 if anything is."""
    reader = catalog.player(catalog.find_agent(agent)) if agent else None
    count = 0
    for path in files:
        found = faults.check(path, reader)
        count += len(found)
        for fault in found:
            echo(f"{path}:{fault.line}: {fault.sentence}")
        if not found:
            echo(f"{path}: {counted(len(demo_files.read(path)), 'episode')}, nothing wrong")
    raise typer.Exit(1 if count else 0)


@demos_app.command("list")
def list_files(
    place: Annotated[
        Path | None,
        typer.Argument(
            metavar="PLACE", help="A folder or a file. Not given: your own demonstrations."
        ),
    ] = None,
) -> None:
    """List files of demonstrations with their episodes and mean return."""
    if place is not None and not place.exists():
        raise UsageError(f"There is no {place}; give a folder, or a file, of demonstrations.")
    place = place or demo_files.demos_dir()
    paths = [place] if place.is_file() else sorted(place.glob("*.jsonl"))
    for path in paths:
        try:
            echo(_summary(path, demo_files.read(path)))
        except DemoFileError as error:
            echo(str(error))
    if not paths:
        echo(
            f"There are no demonstrations in {place}; press h in the playground to play some, or run "
            "llamagym-tui demos generate AGENT.",
            to=sys.stderr,
        )


def _summary(path: Path, found: Sequence[Demonstration]) -> str:
    """A file of demonstrations in one line."""
    mean = sum(demo.episode_return for demo in found) / max(len(found), 1)
    return f"{path}: {counted(len(found), 'episode')}, mean return {mean:,.3f}"
