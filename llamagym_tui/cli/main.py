"""The commands. Options of settings are made in `llamagym_tui.cli.command_line`, and become a run's in
`llamagym_tui.setup`.

Nothing heavy is imported before a command runs.
"""

import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from llamagym_tui import __version__
from llamagym_tui.cli import command_line
from llamagym_tui.cli.command_line import EVALUATION, MODEL, RUN, Given, with_settings
from llamagym_tui.cli.demos import demos_app
from llamagym_tui.errors import UsageError, require_library
from llamagym_tui.game.environment import OPPONENT, SELF, outside_opponents
from llamagym_tui.protocol.literal import echo
from llamagym_tui.runs import model_registry, run_store
from llamagym_tui.settings import RunConfig, from_dict, in_sections
from llamagym_tui.setup import catalog, run_config, trust
from llamagym_tui.setup.play_config import typed_evaluation
from llamagym_tui.user_files import browser_session, runs_dir

app = typer.Typer(
    cls=command_line.AgentOrCommand,
    invoke_without_command=True,
    pretty_exceptions_enable=False,
    subcommand_metavar="AGENT | COMMAND [OPTIONS]",
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.add_typer(demos_app, name="demos")


@app.callback()
def home(
    ctx: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Show the version.")] = False,
    debug: Annotated[
        bool, typer.Option("--debug", help="Show the traceback of an error of any command.")
    ] = False,
) -> None:
    """Watch a language model learn, live, to play a Gymnasium environment.

    `llamagym-tui blackjack` opens the playground; any agent name, path.py[:Class] or Gymnasium id works, and
    `llamagym-tui blackjack --help` lists its options. Without a word, the home screen opens.
    """
    if version:
        echo(f"llamagym-tui {__version__}")
        raise typer.Exit
    if ctx.invoked_subcommand is None:
        _require_terminal("blackjack")
        from llamagym_tui.app.app import open_home

        raise typer.Exit(open_home())


@app.command(cls=command_line.PlayCommand, hidden=True)
@with_settings(*RUN)
def play(agent: command_line.Agent, given: Given) -> None:
    """Open the playground: watch the model play and learn, and play yourself."""
    config = run_config.run_config(agent, given)
    _require_terminal(agent)
    from llamagym_tui.app.app import open_playground

    raise typer.Exit(open_playground(run_config.with_run_dir(config)))


@app.command()
@with_settings("env", "seed")
def table(agent: command_line.Agent, given: Given) -> None:
    """Play an environment yourself: what a model would be told, and what each reply earns. No model is loaded."""
    from llamagym_tui.app.app import TableApp, run_app

    config = from_dict(RunConfig, in_sections(given, {"agent": agent, "run_dir": ""}))
    opened = TableApp(config)
    trust.remember_typed(agent)
    if not _is_shown():
        raise UsageError("A table needs a terminal.")
    raise typer.Exit(run_app(opened))


@app.command()
@with_settings(*RUN, "final_episodes", "sft_warm_start", "sft_data")
def train(
    given: Given,
    agent: command_line.AgentOrNone = None,
    json_output: command_line.Json = False,
    trust_agent: Annotated[
        bool,
        typer.Option(
            "--trust-agent",
            help="With --resume or --from: execute the agent file that the run names.",
        ),
    ] = False,
) -> None:
    """Train without a screen: progress on stderr, the outcome on stdout."""
    command_line.require_used(given, ("dpo",) if given.get("sft_warm_start") else ("sft", "dpo"))
    config = run_config.run_config(agent, given, trust_agent=trust_agent)
    from llamagym_tui.cli import training

    config = run_config.with_run_dir(config)
    training.train(config, json_output=json_output)


def _warm_start_by(method: Literal["sft", "dpo"]) -> Callable[..., Any]:
    """The command of a warm start."""

    @with_settings(*MODEL, "sft_data", "run_dir")
    def command(
        agent: command_line.Agent,
        given: Given,
        episodes: Annotated[
            int, typer.Option(min=0, help="Greedy episodes before and after; 0 skips them.")
        ] = 2000,
        json_output: command_line.Json = False,
    ) -> None:
        command_line.require_used(given, ("dpo",) if method == "sft" else ("sft",))
        agent_class = catalog.find_agent(agent, given.get("env"))
        given = {**given, "sft_data": run_config.sft_file(agent_class, given, method)}
        config = run_config.run_config(agent, given)
        from llamagym_tui.cli import training

        config = run_config.with_run_dir(config)
        training.warm_start(config, method=method, episodes=episodes, json_output=json_output)

    return command


app.command("sft", help="Train on demonstrations: a warm start for PPO.")(_warm_start_by("sft"))
app.command(
    "dpo",
    help="Train on corrections: learn to prefer a person's replies to those that they replaced.",
)(_warm_start_by("dpo"))


@app.command()
@with_settings("model", "system_prompt", "device", "threads")
def sort(
    items: Annotated[
        str,
        typer.Argument(
            metavar="FILE", help="A text file with a line for each item; or an agent with items."
        ),
    ],
    given: Given,
    actions: Annotated[
        str, typer.Option(help="What is done with an item of a file: names with commas between.")
    ] = "",
    reward: Annotated[
        Literal["me"] | None,
        typer.Option(help="Sort an agent's items: its words and actions, as in `sorting`."),
    ] = None,
) -> None:
    """Sort the lines of a text file: a model chooses an action, and learns from your judgements."""
    from llamagym_tui.cli import sorting

    prompt = given.pop("system_prompt", "")
    config = from_dict(RunConfig, in_sections(given, {"agent": "", "run_dir": ""}))
    if reward is not None and not actions:
        reading = sorting.reading_of_agent(items, prompt, config)
    else:
        reading = sorting.ReadingThread(Path(items), actions, prompt, config)
    if not _is_shown():
        raise UsageError("Sorting needs a terminal.")
    raise typer.Exit(sorting.sort(reading))


@app.command("eval")
@with_settings(*EVALUATION)
def evaluate(
    agent: command_line.Agent,
    given: Given,
    episodes: Annotated[int, typer.Option(min=1, help="Episodes to play.")] = 1000,
    greedy: command_line.Greedy = True,
    json_output: command_line.Json = False,
) -> None:
    """Evaluate a model: its mean return with its 95 % confidence interval (in JSON: its standard error)."""
    config = typed_evaluation(agent, given)
    from llamagym_tui.cli import evaluation

    evaluation.evaluate(config, episodes=episodes, greedy=greedy, json_output=json_output)


@app.command()
@with_settings("model", "n_envs", "seed", "device", "threads")
def match(
    agent: command_line.Agent,
    given: Given,
    b_model: Annotated[
        str,
        typer.Option(
            help="B: a model as --model, an endpoint, or an opponent that the game knows, as expert."
        ),
    ],
    episodes: Annotated[
        int, typer.Option(min=2, help="Games; each side begins half of them, on the same seeds.")
    ] = 400,
    greedy: Annotated[
        bool,
        typer.Option(
            "--greedy/--sampled",
            help="Play the most likely replies: two models then repeat one or two games.",
        ),
    ] = False,
    json_output: command_line.Json = False,
) -> None:
    """Let two models play a game for two against each other, with sides swapped."""
    if not catalog.find_agent(agent).opponents:
        having = [name for name, each in catalog.built_in().items() if each.opponents]
        raise UsageError(
            f"{catalog.agent_name(agent)} is no game for two; a match is played in {' or '.join(having)}, or in an "
            "agent of yours that names its opponents."
        )
    if model_registry.is_endpoint(given.get("model", "")):
        raise UsageError("A has to be a model that is loaded here: name the endpoint as --b-model.")
    if b_model == SELF:
        raise UsageError(
            "A match is against somebody else: name a run, a model or an endpoint as --b-model."
        )
    config = typed_evaluation(agent, {**given, "env": {OPPONENT: b_model}})
    from llamagym_tui.cli import evaluation

    evaluation.match(config, b_model, episodes=episodes, greedy=greedy, json_output=json_output)


@app.command()
@with_settings(*EVALUATION)
def compare(
    agent: command_line.Agent,
    given: Given,
    b_model: Annotated[str | None, typer.Option(help="B's model. Not given: A's.")] = None,
    b_prompt_file: Annotated[
        Path | None, typer.Option(help="B's system prompt. Not given: A's.")
    ] = None,
    b_temperature: Annotated[
        float | None, typer.Option(min=0.01, help="B's temperature; replies are sampled then.")
    ] = None,
    half_width: Annotated[
        float | None,
        typer.Option(
            min=1e-6,
            help="Half the interval that is enough. Not given: a tenth of the distance of the baselines.",
        ),
    ] = None,
    episodes: Annotated[int, typer.Option(min=2, help="Most episodes of each.")] = 20_000,
    greedy: command_line.Greedy = True,
    json_output: command_line.Json = False,
) -> None:
    """Compare two models, prompts or temperatures, A and B, on the same episodes."""
    of_b: Given = {}
    if b_model is not None:
        of_b["model"] = b_model
    if b_prompt_file is not None:
        of_b["system_prompt"] = run_config.read_prompt(b_prompt_file)
    if b_temperature is not None:
        of_b["generation.temperature"] = b_temperature
    configs = (typed_evaluation(agent, given), typed_evaluation(agent, given | of_b))
    from llamagym_tui.cli import evaluation

    evaluation.compare(
        configs,
        greedy=greedy and b_temperature is None,
        half_width=half_width,
        most=episodes,
        json_output=json_output,
    )


@app.command()
def lessons(
    name: Annotated[
        str | None, typer.Argument(metavar="NAME", help="Not given: list them.")
    ] = None,
) -> None:
    """List the lessons, short guided experiments, or open one."""
    from llamagym_tui.setup import lessons as known

    found = known.lessons()
    if name is None:
        for each, lesson in found.items():
            echo(f"{each:<20} {lesson.minutes:g} min  {lesson.title}")
        echo("Open one with `llamagym-tui lessons NAME`.", to=sys.stderr)
        return
    if name not in found:
        raise UsageError(f"There is no lesson {name!r}; there are {', '.join(found)}.")
    from llamagym_tui.screens.playground.playground import with_keys

    echo(f"{found[name].title}\n\n{with_keys(found[name].text)}", lines=True)
    if _is_shown():
        from llamagym_tui.app.app import open_playground

        raise typer.Exit(open_playground(known.begun(name), lesson=name))


@app.command()
def agents() -> None:
    """List the agents that ship."""
    for name, agent_class in catalog.built_in().items():
        words = agent_class.description
        if needed := catalog.missing(agent_class):
            words += f" Not installed: {needed}."
        env_id = agent_class.env_id.rpartition(":")[2]
        echo(f"{name:<20} {env_id:<30} {words}")
    echo(
        "Also: your own file (path.py[:Class]), or any Gymnasium id with discrete actions.",
        to=sys.stderr,
    )


@app.command()
def models() -> None:
    """List the models known by name, with size and licence, and those of your runs."""
    for entry in model_registry.ENTRIES:
        here = "here" if model_registry.is_here(entry.name) else "not here"
        terms = f"{entry.licence}, gated" if entry.gated else entry.licence
        size = model_registry.size_in_words(entry.parameters)
        echo(f"{entry.name:<36} {size:>6}  {here:<8}  {terms}")
    for run in run_store.list_runs():
        if (run.run_dir / run_store.MODEL_DIR).is_dir():
            echo(f"{run.run_dir}  {run.config.model} trained on {run.config.agent}")
    echo(
        "--model NAME downloads what is not here. Also: any causal language model, by hub id or local path.",
        to=sys.stderr,
    )


@app.command()
def runs() -> None:
    """List your runs, the latest first."""
    found = run_store.list_runs()
    for run in found:
        line = f"{run.started_at:%Y-%m-%d %H:%M}  {run.config.agent:<16} {run.standing:<15} {run.run_dir}"
        echo("  ".join(text for text in (line, run.config.origin, run.about) if text))
    if not found:
        echo("There is none yet; llamagym-tui blackjack begins the first.", to=sys.stderr)
    echo(f"Runs without --run-dir live in {runs_dir()}.", to=sys.stderr)


@app.command()
def report(
    run: command_line.Run = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", help="File to write; replaced if it is there. (NAME.html, here)"
        ),
    ] = None,
    film: Annotated[
        Path | None,
        typer.Option(
            "--film",
            help="Also write the policy maps as one animated SVG file.",
            metavar="FILE",
        ),
    ] = None,
    csv: Annotated[
        bool, typer.Option("--csv", help="Also write the figures of every update, next to it.")
    ] = False,
) -> None:
    """Write a run as one HTML file to share: curve, prompts, policy maps, episodes, settings."""
    from llamagym_tui.cli.report import write

    folder = run_store.find_run(run)
    for path in write(folder, output or Path(f"{folder.name}.html"), with_csv=csv, film=film):
        echo(str(path))


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
) -> None:
    """Write a run's model as a plain folder of transformers, with the run's sampling and a model card."""
    from llamagym_tui.cli.export import export

    folder = run_store.find_run(run)
    echo(export(folder, out, merge=merge, gguf=gguf))


@app.command()
def replay(
    run: command_line.Run = None,
    follow: Annotated[
        bool,
        typer.Option(
            "--follow",
            help="Begin at the newest moment, and read on as the folder grows, a copy of another machine's too.",
        ),
    ] = False,
) -> None:
    """Replay a run, with a time slider; no model is loaded."""
    folder = run_store.find_run(run)
    if not _is_shown():
        raise UsageError(
            f"A replay needs a terminal; the events of the run are in {folder / run_store.EVENTS_FILE}."
        )
    from llamagym_tui.app.app import open_replay

    raise typer.Exit(open_replay(folder, follows=follow))


@app.command()
def view(
    path: Annotated[
        str, typer.Argument(metavar="PATH", help="A file, a folder, or a glob in quotes.")
    ],
    model: Annotated[
        str, typer.Option(help="The model whose token ids the files have, for their texts.")
    ] = "",
    words: Annotated[
        str, typer.Option("--search", help="List the rollouts with these words or this /regex/.")
    ] = "",
    json_output: Annotated[
        bool, typer.Option("--json", help="Print a line of JSON for each step, or what was found.")
    ] = False,
) -> None:
    """Read the rollouts of any trainer: verl, TRL, Trackio, verifiers, prime-rl, JSON Lines with messages, or a run."""
    from llamagym_tui.cli.view import print_rollouts, texts_of
    from llamagym_tui.rollouts.index import Rollouts

    rollouts = Rollouts(path, texts_of=texts_of(model) if model else None)
    if words or json_output or not _is_shown():
        print_rollouts(rollouts, words=words, as_json=json_output)
        return
    from llamagym_tui.app.app import ScreenApp, run_app
    from llamagym_tui.screens.rollouts.screen import RolloutsScreen

    raise typer.Exit(run_app(ScreenApp(partial(RolloutsScreen, rollouts))))


@app.command(context_settings={"ignore_unknown_options": True})  # those of the agent
def serve(
    ctx: typer.Context,
    words: Annotated[
        list[str] | None,
        typer.Argument(metavar="[AGENT [OPTIONS]]", help="Not given: home."),
    ] = None,
    watch: Annotated[
        str | None, typer.Option(metavar="RUN", help="Only show this run, ended or under way.")
    ] = None,
    host: Annotated[
        str, typer.Option(help="Address or name of this machine to listen on.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=1, max=65535)] = 8000,
    sessions: Annotated[
        int | None, typer.Option(min=1, help="At the same time, at most. (2; with --watch 30)")
    ] = None,
    seats: Annotated[
        int | None,
        typer.Option(min=1, help="A class: at each seat the model's 20 episodes are played once."),
    ] = None,
) -> None:
    """Serve the app to browsers: each visitor trains a run, all watch one, or a class plays against the model."""
    require_library("textual_serve", "serve")
    from llamagym_tui.cli import serve as server

    words = words or []
    if seats is not None:
        if watch is not None or sessions is not None or not words:
            raise UsageError(
                "--seats takes an agent, and neither --watch nor --sessions: serve --seats 30 blackjack."
            )
        server.serve_class(_class_config(ctx, words), seats, host=host, port=port)
    elif watch is not None:
        if words:
            raise UsageError("--watch shows a run that is there; leave the agent out.")
        command = ["replay", str(run_store.find_run(watch)), "--follow"]
        server.serve(command, host=host, port=port, sessions=sessions or 30, allowed="watch")
    else:
        allowed = "play"
        if words:
            agent = _read_by("play", ctx, words)["agent"]
            catalog.find_agent(agent)
            allowed = f"play {catalog.absolute_spec(agent)}"
            words = ["play", *words]
        server.serve(words, host=host, port=port, sessions=sessions or 2, allowed=allowed)


def _read_by(command: str, ctx: typer.Context, words: list[str]) -> dict[str, Any]:
    """The arguments and options that a command reads from words."""
    group: Any = ctx.find_root().command
    return dict(group.get_command(ctx, command).make_context(command, list(words)).params)


def _class_config(ctx: typer.Context, words: list[str]) -> RunConfig:
    """The settings by which the model of a class plays: those of an evaluation.

    Raises:
        UsageError: an option has no use in a class, or the model's opponent is a policy.
    """
    read = _read_by("eval", ctx, words)
    for name, usual in {"episodes": 1000, "greedy": True, "json_output": False}.items():
        if read[name] != usual:
            raise UsageError(f"A class has no option for {name}; leave it out.")
    agent = read.pop("agent")
    config = typed_evaluation(agent, command_line.read_settings(read))
    opponent = config.env.get(OPPONENT)
    if opponent is not None and outside_opponents(catalog.find_agent(agent), str(opponent)):
        raise UsageError(
            f"A class plays against an opponent of the agent's own, and {opponent} is a policy; name another one."
        )
    trust.remember_typed(agent)
    return config


@app.command(hidden=True)
def seat(
    folder: Annotated[Path, typer.Argument(metavar="CLASS", help="Folder of a class.")],
    number: Annotated[int, typer.Argument(metavar="SEAT", min=1)],
) -> None:
    """Play at a seat of a class, as its visitors do."""
    if not _is_shown():
        raise UsageError("A seat needs a terminal.")
    from llamagym_tui.app.app import open_seat

    raise typer.Exit(open_seat(folder, number))


@app.command()
@with_settings("model", "env", "seed")
def doctor(
    given: Given,
    agent: Annotated[
        str | None,
        typer.Argument(metavar="AGENT", help="Whose episode is shown. (blackjack, with --model)"),
    ] = None,
) -> None:
    """Show versions, threads, memory, terminal, folders, and which extras are missing.

    With --model or an agent, show what is trained of that model instead:
    an episode's first turns by its own chat template, token by token,
    and what is wrong with the template. No weights are loaded.
    """
    if given or agent:
        from llamagym_tui.cli import trained_tokens

        config = typed_evaluation(agent or "blackjack", given, weights=False)
        trained_tokens.report(config)
    else:
        from llamagym_tui.cli.doctor import report

        raise typer.Exit(report())


def _is_shown() -> bool:
    return bool(browser_session()) or (sys.stdin.isatty() and sys.stdout.isatty())


def _require_terminal(agent: str) -> None:
    if not _is_shown():
        raise UsageError(
            f"The playground needs a terminal; without one, use `llamagym-tui train {agent}`."
        )
