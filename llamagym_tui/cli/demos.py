"""``llamagym-tui demos``: generates, checks, lists, merges and exports files of demonstrations."""

import sys
from pathlib import Path
from typing import Annotated, Literal

import typer

from llamagym_tui.errors import UsageError
from llamagym_tui.game.environment import opponent_of
from llamagym_tui.protocol.literal import echo
from llamagym_tui.returns import counted
from llamagym_tui.run_store import utc_now
from llamagym_tui.setup import catalog
from llamagym_tui.setup.run_config import env_kwargs

demos_app = typer.Typer(
    no_args_is_help=True, help="Generate, check, list, merge and export demonstrations (SFT data)."
)
Files = Annotated[
    list[Path], typer.Argument(metavar="FILE", help="Files of demonstrations, JSON Lines.")
]
MOST_NAMED_LINES = 5
"""Unreadable lines of a file whose numbers are listed, at most."""


@demos_app.command("generate")
def generate(
    agent: Annotated[
        str, typer.Argument(metavar="AGENT", help="An agent that has an expert, as blackjack.")
    ],
    episodes: Annotated[int, typer.Option(min=1, help="Episodes to play.")] = 500,
    out: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", "--out", help="File to write, or replace. (one next to your own)"
        ),
    ] = None,
    seed: Annotated[
        int | None,
        typer.Option(min=0, max=2**30, help="Of the first; the next ones count up. (5000000)"),
    ] = None,
    env: Annotated[
        list[str] | None,
        typer.Option(
            "--env",
            metavar="NAME=VALUE",
            help="Keyword argument of the environment; may be repeated.",
        ),
    ] = None,
) -> None:
    """Let an agent's scripted expert play, and write its episodes."""
    from llamagym_tui.demos import files as demo_files
    from llamagym_tui.demos.expert_play import FIRST_SEED, expert_episodes

    name = catalog.agent_name(agent)
    path = out or demo_files.demos_dir() / f"{name}-expert.jsonl"
    first = FIRST_SEED if seed is None else seed
    player = catalog.player(catalog.find_agent(agent, env_kwargs(env)))
    if opponent_of(player):
        raise UsageError(
            "Demonstrations are of games that an environment plays by itself: let the expert play against one of "
            f"{', '.join(player.opponents)}."
        )
    found = list(expert_episodes(player, name, episodes=episodes, seed=first, clock=utc_now))
    demo_files.write(path, found)
    mean = sum(demo.episode_return for demo in found) / len(found)
    echo(f"{path}: {counted(len(found), 'episode')}, mean return {mean:.3f}")


@demos_app.command("check")
def check(
    files: Files,
    agent: Annotated[
        str | None, typer.Option(help="Agent by which the replies must read as the actions.")
    ] = None,
) -> None:
    """Find what is wrong with files, line by line; exit code 1 if anything is."""
    from llamagym_tui.demos import files as demo_files

    reader = catalog.player(catalog.find_agent(agent)) if agent else None
    count = 0
    for path in files:
        found = demo_files.check(path, reader)
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
    from llamagym_tui.demos import files as demo_files

    if place is not None and not place.exists():
        raise UsageError(f"There is no {place}; give a folder, or a file, of demonstrations.")
    place = place or demo_files.demos_dir()
    found = demo_files.summaries(place)
    for file in found:
        if file.fault:
            echo(file.fault)
            continue
        line = (
            f"{file.path}: {counted(file.episodes, 'episode')}, mean return {file.mean_return:,.3f}"
        )
        if count := len(file.unreadable):
            line += f", {counted(count, 'unreadable line')}: "
            line += ", ".join(str(number) for number in file.unreadable[:MOST_NAMED_LINES])
            if count > MOST_NAMED_LINES:
                line += ", …"
        echo(line)
    if not found:
        echo(
            f"There are no demonstrations in {place}; press h in the playground to play some, or let the expert of "
            "an agent play them by llamagym-tui demos generate AGENT.",
            to=sys.stderr,
        )


@demos_app.command("merge")
def merge(
    files: Files,
    output: Annotated[
        Path, typer.Option("--output", "-o", help="File to write; replaced if it is there.")
    ],
) -> None:
    """Write several files to one, equal episodes once."""
    from llamagym_tui.demos import files as demo_files

    merged = demo_files.merge(files, output)
    line = f"{output}: {counted(merged.episodes, 'episode')}"
    if merged.duplicates:
        line += f" ({counted(merged.duplicates, 'duplicate')} left out)"
    echo(line)


@demos_app.command("export")
def export(
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="File of demonstrations, JSON Lines.")
    ],
    to: Annotated[
        Literal["parquet", "pairs", "prompts", "dpo", "kto", "minari"],
        typer.Option(
            help="A Parquet table of the episodes, or JSON Lines for TRL: of each turn prompt and completion, or the "
            "prompt alone; of replies that a person replaced the chosen and the rejected (dpo), or labels (kto). Or a "
            "data set of Minari's, by its name in --output, for which the episodes are played again."
        ),
    ],
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            help="File to write; replaced if it is there. Not given: next to the input.",
        ),
    ] = None,
    agent: Annotated[str | None, typer.Option(help="Agent that played (minari).")] = None,
) -> None:
    """Write a file in another form."""
    from llamagym_tui.demos import export

    if to == "minari":
        from llamagym_tui.demos.minari_sets import to_set

        if agent is None or output is None:
            raise typer.BadParameter(
                "minari needs --agent, which played, and --output, as blackjack/mine-v0."
            )
        played = to_set(
            file, str(output), catalog.player(catalog.find_agent(agent)), catalog.agent_name(agent)
        )
        echo(f"{output}: {counted(played, 'episode')}")
        return
    if to == "parquet":
        path = output or file.with_suffix(".parquet")
        echo(f"{path}: {counted(export.to_parquet(file, path), 'episode')}")
    else:
        path = output or file.with_suffix(f".{to}.jsonl")
        echo(f"{path}: {counted(export.to_lines(file, path, to), 'line')}")


@demos_app.command("import")
def import_set(
    form: Annotated[
        Literal["minari", "openai", "sharegpt", "alpaca", "pairs"],
        typer.Argument(
            metavar="FORM",
            help="Whose form it has: Minari's; conversations as OpenAI's messages, ShareGPT or Alpaca; or pairs of "
            "prompt and completion.",
        ),
    ],
    name: Annotated[
        str,
        typer.Argument(
            metavar="SOURCE", help="A data set of Minari's, as blackjack/mine-v0; else a file."
        ),
    ],
    agent: Annotated[
        str,
        typer.Option(help="Agent that reads the replies, or puts Minari's observations in words."),
    ],
    output: Annotated[
        Path, typer.Option("--output", "-o", help="File to write; replaced if it is there.")
    ],
) -> None:
    """Write what another program has made as demonstrations; what is left out is told with its reason."""
    from llamagym_tui.demos import files as demo_files

    player = catalog.player(catalog.find_agent(agent))
    if form == "minari":
        from llamagym_tui.demos.minari_sets import from_set

        found = list(from_set(name, player, catalog.agent_name(agent), clock=utc_now))
        demo_files.write(output, found)
        echo(f"{output}: {counted(len(found), 'episode')}")
        return
    from llamagym_tui.demos.conversations import imported

    made = imported(Path(name), form, player, catalog.agent_name(agent), clock=utc_now)
    demo_files.write(output, made.demonstrations)
    echo(
        f"{output}: {counted(len(made.demonstrations), 'episode')}; rewards are not known and are 0"
    )
    if made.unanswered:
        echo(
            f"the last message of {counted(made.unanswered, 'conversation')}, without a reply, is left out"
        )
    if made.left_out:
        echo(f"{counted(len(made.left_out), 'conversation')} left out:")
    for fault in made.left_out[:MOST_NAMED_LINES]:
        echo(f"  line {fault.line}: {fault.sentence}")
    if len(made.left_out) > MOST_NAMED_LINES:
        echo(f"  and {len(made.left_out) - MOST_NAMED_LINES:,} more")
