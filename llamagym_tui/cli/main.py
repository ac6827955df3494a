"""The command line: its commands and their options, of which ``options.json`` has those that several share.

Nothing heavy is imported before a command runs. Options become settings in `llamagym_tui.setup.run_config`.
"""

import inspect
import json
import os
import sys
from collections.abc import Callable, Collection, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal, NoReturn, TypeVar

import typer

from llamagym_tui import __version__, model_registry, run_store
from llamagym_tui.cli.demos import demos_app
from llamagym_tui.cli.group import AgentOrCommand, PlayCommand
from llamagym_tui.config import RunConfig
from llamagym_tui.errors import UsageError, require_library
from llamagym_tui.protocol.literal import echo
from llamagym_tui.setup import catalog, run_config
from llamagym_tui.user_files import browser_session, file_text, runs_dir

app = typer.Typer(
    cls=AgentOrCommand,
    invoke_without_command=True,
    pretty_exceptions_enable=False,
    subcommand_metavar="AGENT | COMMAND [OPTIONS]",
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.add_typer(demos_app, name="demos")

Command = TypeVar("Command", bound=Callable[..., None])
Agent = Annotated[
    str, typer.Argument(metavar="AGENT", help="Agent name, path.py[:Class] or Gymnasium id.")
]
AgentOrNone = Annotated[
    str | None,
    typer.Argument(
        metavar="AGENT",
        help="Agent name, path.py[:Class] or Gymnasium id; none on --resume or --from.",
    ),
]
Run = Annotated[
    str | None,
    typer.Argument(metavar="RUN", help="Folder of a run, or its name. Not given: the latest run."),
]
Greedy = Annotated[
    bool, typer.Option("--greedy/--sampled", help="Likeliest replies, or replies as in training.")
]
Envs = Annotated[int, typer.Option(min=1, help="Environments stepped together.")]
Seed = Annotated[int, typer.Option(min=0, help="Of environments and sampling.")]
Hands = Annotated[
    int, typer.Option("--episodes", min=0, help="Greedy episodes before and after. 0: none.")
]
Json = Annotated[bool, typer.Option("--json", help="End with one line of JSON on stdout.")]
Debug = Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")]


def _option(
    panel: str,
    *,
    kind: str = "text",
    choices: Sequence[str] = (),
    names: Sequence[str] = (),
    **more: Any,
) -> Any:
    """The type of a parameter as typer reads it; `more` is of `typer.Option`."""
    value: Any = Literal.__getitem__(tuple(choices)) if choices else KINDS[kind]
    value = value if kind == "flag" else value | None
    return Annotated[value, typer.Option(*names, rich_help_panel=panel, **more)]


KINDS = {
    "text": str,
    "texts": list[str],
    "path": Path,
    "number": int,
    "decimal": float,
    "flag": bool,
}
PANELS = json.loads(file_text(Path(__file__).with_name("options.json")))
OPTIONS = {
    name: _option(panel, **each)
    for panel, options in PANELS.items()
    for name, each in options.items()
}
"""Options that several commands share, by parameter name, in the order of the help."""
DEFAULTS = {"sft_warm_start": False, "resume": False, "trust_agent": False}
"""Of all other `OPTIONS`: None, which means not given."""
MODEL_OPTIONS = ("model", "env", "prompt_file", "history", "device", "threads")
SFT_OPTIONS = ("seed", "dtype", *MODEL_OPTIONS, "sft_data", "settings", "run_dir")


def takes(names: Collection[str]) -> Callable[[Command], Command]:
    """Give a command some of `OPTIONS`; it gets their values as keywords.

    Typer reads a command's options from its signature, so that is where they are put, instead of ``**options``.
    """

    def decorate(command: Command) -> Command:
        signature = inspect.signature(command, eval_str=True)
        own = [each for each in signature.parameters.values() if each.kind is not each.VAR_KEYWORD]
        shared = [
            inspect.Parameter(
                name, inspect.Parameter.KEYWORD_ONLY, default=DEFAULTS.get(name), annotation=kind
            )
            for name, kind in OPTIONS.items()
            if name in names
        ]
        command.__signature__ = signature.replace(parameters=[*own, *shared])  # type: ignore[attr-defined]
        return command

    return decorate


def _read(
    *,
    prompt_file: Path | None,
    threads: str | None,
    env: list[str] | None,
    history: str | None = None,
    **options: Any,
) -> dict[str, Any]:
    """Options by their names in `RunConfig`, in its types; None: not given."""
    count = run_config.word_or_number(threads, "auto", "--threads", least=1)
    options |= {"system_prompt": prompt_file and run_config.read_prompt(prompt_file).strip()}
    options |= {"threads": None if count == "auto" else count}
    options |= {"env": run_config.env_kwargs(env)}
    return options | {"history": run_config.word_or_number(history, "all", "--history", least=0)}


def _config(
    agent: str | None,
    *,
    settings: list[str] | None,
    resume: bool = False,
    envs: int | None = None,
    **options: Any,
) -> RunConfig:
    read = _read(**options)
    return run_config.run_config(
        agent=agent, resume=resume, n_envs=envs, assignments=settings or (), **read
    )


@app.callback()
def home(
    ctx: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Show the version and end.")] = False,
    debug: Debug = False,
) -> None:
    """Watch a language model learn, live, to play a Gymnasium environment.

    `llamagym-tui blackjack` opens the playground; any agent name, path.py[:Class] or Gymnasium id will do, and
    `llamagym-tui blackjack --help` has its options. Without a word, the home screen opens.
    """
    if version:
        echo(f"llamagym-tui {__version__}")
        raise typer.Exit
    if ctx.invoked_subcommand is None:
        _require_terminal("blackjack")
        from llamagym_tui.app.app import open_home

        raise typer.Exit(open_home())


@app.command(cls=PlayCommand, hidden=True)
@takes(OPTIONS.keys() - {"final_episodes", "sft_warm_start", "sft_data", "trust_agent"})
def play(agent: Agent, debug: Debug = False, **options: Any) -> None:
    """Open the playground: watch the agent play and learn, and play yourself."""
    if tracker := options.pop("track"):
        require_library(tracker, tracker)
    config = _config(agent, **options)
    _require_terminal(agent)
    from llamagym_tui.app.app import open_playground

    config = run_config.with_run_dir(config)
    if tracker is None:
        raise typer.Exit(open_playground(config))
    from llamagym_tui.cli.track import following

    raise typer.Exit(
        open_playground(config, beside=partial(following, Path(config.run_dir), tracker))
    )


@app.command()
@takes(OPTIONS)
def train(
    agent: AgentOrNone = None, json_output: Json = False, debug: Debug = False, **options: Any
) -> None:
    """Train without a screen: a progress bar on stderr, the outcome on stdout."""
    if tracker := options.pop("track"):
        require_library(tracker, tracker)
    sft_data, wanted = options.pop("sft_data"), options.pop("sft_warm_start")
    has_begun = bool(options["resume"] or options["branch_of"])
    start = run_config.warm_start(agent, sft_data, options["env"], wanted=wanted, resume=has_begun)
    config = _config(agent, **options, **start)
    from llamagym_tui.cli import headless

    config = run_config.with_run_dir(config)
    raise typer.Exit(headless.train(config, json_output=json_output, debug=debug, tracker=tracker))


@app.command()
@takes(SFT_OPTIONS)
def sft(
    agent: Agent,
    hands: Hands = 2000,
    json_output: Json = False,
    debug: Debug = False,
    **options: Any,
) -> None:
    """Train on demonstrations, as a start that PPO goes on from."""
    _warm_start("sft", agent, options, hands=hands, json_output=json_output, debug=debug)


@app.command()
@takes(SFT_OPTIONS)
def dpo(
    agent: Agent,
    hands: Hands = 2000,
    json_output: Json = False,
    debug: Debug = False,
    **options: Any,
) -> None:
    """Learn to prefer a person's replies over those of the model that they replaced, at the wheel."""
    _warm_start("dpo", agent, options, hands=hands, json_output=json_output, debug=debug)


def _warm_start(
    method: Literal["sft", "dpo"], agent: str, options: dict[str, Any], **how: Any
) -> NoReturn:
    options["sft_data"] = run_config.sft_file(agent, options["sft_data"], options["env"], method)
    config = _config(agent, **options)
    from llamagym_tui.cli import headless_sft

    raise typer.Exit(headless_sft.warm_start(run_config.with_run_dir(config), method=method, **how))


@app.command("eval")
@takes(MODEL_OPTIONS)
def evaluate(
    agent: Agent,
    episodes: Annotated[int, typer.Option(min=1, help="Episodes to play.")] = 1000,
    greedy: Greedy = True,
    envs: Envs = 128,
    seed: Seed = 0,
    json_output: Json = False,
    debug: Debug = False,
    **options: Any,
) -> None:
    """Measure a model's mean return, with its 95 % confidence interval (in JSON: its standard error)."""
    config = _evaluated(agent, **options, seed=seed, n_envs=envs)
    from llamagym_tui.cli import headless

    raise typer.Exit(
        headless.evaluate(
            config, episodes=episodes, greedy=greedy, json_output=json_output, debug=debug
        )
    )


def _evaluated(agent: str, *, model: str | None, device: str | None, **options: Any) -> RunConfig:
    """Settings of an evaluation."""
    from llamagym_tui.cli.headless import evaluated_config

    settings = _read(**options)
    spec, name = (
        catalog.absolute_spec(agent),
        run_config.checked_model(model or model_registry.BUNDLED),
    )
    own = run_config.with_own_settings(catalog.find_agent(agent, settings["env"]), {})
    return evaluated_config(spec, name, own=own, device=device or "auto", **settings)


@app.command()
@takes(MODEL_OPTIONS)
def compare(
    agent: Agent,
    b_model: Annotated[
        str | None, typer.Option(help="B's model, as --model. Not given: A's.")
    ] = None,
    b_prompt_file: Annotated[
        Path | None, typer.Option(help="B's system prompt. Not given: A's.")
    ] = None,
    b_temperature: Annotated[
        float | None, typer.Option(min=0.01, help="B's; replies are sampled then.")
    ] = None,
    half_width: Annotated[
        float | None,
        typer.Option(
            min=1e-6, help="Half the interval that is enough. (a tenth from baseline to baseline)"
        ),
    ] = None,
    episodes: Annotated[int, typer.Option(min=2, help="Episodes each, at most.")] = 20_000,
    greedy: Greedy = True,
    envs: Envs = 128,
    seed: Seed = 0,
    json_output: Json = False,
    debug: Debug = False,
    **options: Any,
) -> None:
    """Compare two models, prompts or temperatures, A and B, on the same episodes."""
    from llamagym_tui.cli.comparison import compare

    options |= {"seed": seed, "n_envs": envs}
    changes = {"model": b_model, "prompt_file": b_prompt_file, "temperature": b_temperature}
    b_options = options | {name: value for name, value in changes.items() if value is not None}
    code = compare(
        (_evaluated(agent, **options), _evaluated(agent, **b_options)),
        greedy=greedy and b_temperature is None,
        half_width=half_width,
        most=episodes,
        json_output=json_output,
        debug=debug,
    )
    raise typer.Exit(code)


@app.command()
def lessons(
    name: Annotated[
        str | None, typer.Argument(metavar="NAME", help="Name or number. Not given: list them.")
    ] = None,
    check: Annotated[
        bool, typer.Option("--check", help="Run it and its control, and measure its claims.")
    ] = False,
    debug: Debug = False,
) -> None:
    """List the lessons, short guided experiments; open one, or check what it claims."""
    from llamagym_tui.setup import lessons as known

    found = known.lessons()
    if name is None:
        for at, (each, lesson) in enumerate(found.items(), 1):
            echo(f"{at:>2}  {each:<20} {lesson.minutes:g} min  {lesson.title}")
        echo(
            "Open one with `llamagym-tui lessons NAME`; --check runs it and measures what it claims.",
            to=sys.stderr,
        )
        return
    name = {str(at): each for at, each in enumerate(found, 1)}.get(name, name)
    if name not in found:
        raise UsageError(f"There is no lesson {name!r}; there are {', '.join(found)}.")
    if check:
        from llamagym_tui.cli.lessons import check as checked

        raise typer.Exit(checked(name, found[name], debug=debug))
    echo(f"{found[name].title}\n\n{found[name].text()}", lines=True)
    if sys.stdin.isatty() and sys.stdout.isatty():
        from llamagym_tui.app.app import open_playground

        raise typer.Exit(open_playground(known.begun(name), lesson=name))


@app.command()
def agents() -> None:
    """List the agents that ship."""
    for name, agent_class in catalog.built_in().items():
        needed = catalog.missing(agent_class)
        words = (
            f"{agent_class.description} Not installed: {needed}."
            if needed
            else agent_class.description
        )
        echo(f"{name:<20} {agent_class.env_id.rpartition(':')[2]:<30} {words}")
    echo(
        "Also: your own file (path.py[:Class]), or any Gymnasium id with discrete actions.",
        to=sys.stderr,
    )


@app.command()
def models() -> None:
    """List the models known by name, and those of your runs."""
    for entry in model_registry.ENTRIES:
        size = model_registry.size_in_words(entry.parameters)
        here = "here" if model_registry.is_here(entry.name) else "not here"
        terms = f"{entry.licence}, gated" if entry.gated else entry.licence
        echo(f"{entry.name:<36} {size:>6}  {here:<8}  {terms}")
    for run in run_store.list_runs():
        if (run.run_dir / run_store.MODEL_DIR).is_dir():
            echo(f"{run.run_dir}  {run.config.model} trained on {run.config.agent}")
    echo("Also: any causal language model, by hub id or local path.", to=sys.stderr)


@app.command()
def runs() -> None:
    """List your runs, the latest first."""
    for run in run_store.list_runs():
        line = f"{run.started_at:%Y-%m-%d %H:%M}  {run.config.agent:<16} {run.standing:<15} {run.run_dir}"
        echo("  ".join(text for text in (line, run.config.origin, run.about) if text))
    echo(f"Runs without --run-dir live in {runs_dir()}.", to=sys.stderr)


@app.command()
def report(
    run: Run = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", help="File to write; replaced if it is there. (NAME.html, here)"
        ),
    ] = None,
    film: Annotated[
        Path | None,
        typer.Option(
            "--film", help="Also write the policy maps as one animated SVG file.", metavar="FILE"
        ),
    ] = None,
    csv: Annotated[
        bool, typer.Option("--csv", help="Also write the figures of every update, next to it.")
    ] = False,
    debug: Debug = False,
) -> None:
    """Write a run as one HTML file to share: curve, prompts, policy maps, episodes, settings."""
    from llamagym_tui.cli.report import write

    folder = run_store.find_run(run)
    for path in write(folder, output or Path(f"{folder.name}.html"), with_csv=csv, film=film):
        echo(str(path))


@app.command()
def track(
    run: Run = None,
    to: Annotated[
        Literal["tensorboard", "trackio", "wandb"],
        typer.Option(help="The tracker; needs the extra of that name."),
    ] = "tensorboard",
    follow: Annotated[
        bool, typer.Option("--follow", hidden=True, help="Until stdin ends.")
    ] = False,
    debug: Debug = False,
) -> None:
    """Export a run to a tracker, on this machine: figures, evaluations, sample conversations, prompts, changes."""
    from llamagym_tui.cli.track import track, until_closed

    if follow and run is not None:
        os.nice(10)
        echo(track(Path(run), to, until_closed))
    else:
        echo(track(run_store.find_run(run), to))


@app.command()
def export(
    run: Annotated[str, typer.Argument(metavar="RUN", help="Folder of a run, or its name.")],
    out: Annotated[Path, typer.Argument(metavar="OUT", help="New folder.")],
    merge: Annotated[
        bool, typer.Option("--merge", help="Merge an adapter into its base model.")
    ] = False,
    gguf: Annotated[
        bool, typer.Option("--gguf", help="Convert it by llama.cpp's converter, too.")
    ] = False,
    push_to_hub: Annotated[
        str | None, typer.Option(metavar="NAME", help="Upload it under this name, too.")
    ] = None,
    debug: Debug = False,
) -> None:
    """Write a run's model as a plain folder of transformers, with the run's sampling and a model card."""
    from llamagym_tui.cli.export import export

    echo(export(run_store.find_run(run), out, merge=merge, gguf=gguf, hub_name=push_to_hub))


@app.command()
def sweep(
    spec: Annotated[
        Path,
        typer.Argument(metavar="SPEC", help="TOML file: agent, limit, seeds, settings to search."),
    ],
    jobs: Annotated[
        int, typer.Option(min=1, help="Runs at the same time, each in a process of its own.")
    ] = 1,
    show: Annotated[
        bool, typer.Option("--show", help="Only print the table of what there is.")
    ] = False,
    debug: Debug = False,
) -> None:
    """Search settings by trials of a few runs each; the same command goes on with a sweep that was interrupted."""
    from llamagym_tui.cli.sweep import Sweep

    found = Sweep(spec)
    if not show:
        found.run(jobs)
    for line in found.table():
        echo(line)


@app.command()
def replay(run: Run = None, debug: Debug = False) -> None:
    """Watch a recorded run again, with a time slider; no model is loaded."""
    folder = run_store.find_run(run)
    if not _is_shown():
        raise UsageError(
            f"A replay needs a terminal; the events of the run are in {folder / run_store.EVENTS_FILE}."
        )
    from llamagym_tui.app.app import open_replay

    raise typer.Exit(open_replay(folder))


@app.command(context_settings={"ignore_unknown_options": True})  # those of the agent
def serve(
    ctx: typer.Context,
    words: Annotated[
        list[str] | None, typer.Argument(metavar="[AGENT [OPTIONS]]", help="Not given: home.")
    ] = None,
    watch: Annotated[
        str | None, typer.Option(metavar="RUN", help="Only show this run, past or going on.")
    ] = None,
    host: Annotated[
        str, typer.Option(help="Address or name of this machine to listen on.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=1, max=65535)] = 8000,
    sessions: Annotated[
        int | None, typer.Option(min=1, help="At the same time, at most. (2; with --watch 30)")
    ] = None,
    debug: Debug = False,
) -> None:
    """Serve the app to browsers: each visitor plays and trains, or all watch one run."""
    require_library("textual_serve", "serve")
    from llamagym_tui.app.trainer_client import own_python
    from llamagym_tui.cli.serve import serve

    command, allowed = own_python("llamagym_tui"), "play"
    if watch is not None:
        if words:
            raise UsageError("--watch shows a run that is there; leave the agent out.")
        command, allowed = [*command, "replay", str(run_store.find_run(watch))], "watch"
    elif words:
        playground: Any = ctx.find_root().command
        agent = (
            playground.get_command(ctx, "play").make_context("play", list(words)).params["agent"]
        )
        catalog.find_agent(agent)
        command, allowed = [*command, "play", *words], f"play {catalog.absolute_spec(agent)}"
    serve(command, host=host, port=port, sessions=sessions or (30 if watch else 2), allowed=allowed)


@app.command()
def doctor() -> None:
    """Show versions, threads, memory, terminal, folders, and which extras are missing."""
    from llamagym_tui.cli.doctor import report

    raise typer.Exit(report())


def _is_shown() -> bool:
    return bool(browser_session()) or (sys.stdin.isatty() and sys.stdout.isatty())


def _require_terminal(agent: str) -> None:
    if not _is_shown():
        raise UsageError(
            f"The playground needs a terminal; without one, use `llamagym-tui train {agent}`."
        )
