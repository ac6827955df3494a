"""``llamagym-tui demos``: the files of demonstrations on disk, checked, listed and merged."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

demos_app = typer.Typer(no_args_is_help=True, help="Check, list and merge demonstrations (SFT data).")
Files = Annotated[list[Path], typer.Argument(help="Files of demonstrations, JSON Lines.")]


@demos_app.command("check")
def check(
    files: Files,
    agent: Annotated[str | None, typer.Option(help="Agent by which the replies must read as the actions.")] = None,
) -> None:
    """Find what is wrong with files, line by line; exit code 1 if anything is."""
    from llamagym_tui import catalog, demos

    reader = catalog.find_agent(agent)() if agent else None
    count = 0
    for path in files:
        found = demos.check(path, reader)
        count += len(found)
        for fault in found:
            typer.echo(f"{path}:{fault.line}: {fault.sentence}")
        if not found:
            typer.echo(f"{path}: {len(demos.read(path))} episodes, nothing wrong")
    raise typer.Exit(1 if count else 0)


@demos_app.command("list")
def list_files(
    folder: Annotated[Path | None, typer.Argument(help="Not said: your own demonstrations.")] = None,
) -> None:
    """List files of demonstrations with their episodes and mean return."""
    from llamagym_tui import demos

    place = folder or demos.demos_dir()
    for file in demos.summaries(place):
        faulty = f", {file.unreadable} unreadable lines" if file.unreadable else ""
        typer.echo(f"{file.path}: {file.episodes} episodes, mean return {file.mean_return:.3f}{faulty}")
    if not demos.summaries(place):
        typer.echo(f"There are no demonstrations in {place}; press h in the playground to make some.", err=True)


@demos_app.command("merge")
def merge(
    files: Files,
    output: Annotated[Path, typer.Option("--output", "-o", help="File to write; replaced if it is there.")],
) -> None:
    """Write several files to one, equal episodes once."""
    from llamagym_tui import demos

    merged = demos.merge(files, output)
    left_out = f" ({merged.duplicates} duplicates left out)" if merged.duplicates else ""
    typer.echo(f"{output}: {merged.episodes} episodes{left_out}")
