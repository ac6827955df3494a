"""The command line: what can be asked for, and by which options.

Nothing heavy is imported before a command runs, so that ``--help`` answers at once. Errors and exit codes are
`cli_group`'s matter; options become settings in `run_options`.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Literal

import typer

from llamagym_tui.cli.demos import demos_app
from llamagym_tui.cli.group import AgentOrCommand, PlayCommand
from llamagym_tui.errors import UsageError

app = typer.Typer(
    cls=AgentOrCommand,
    invoke_without_command=True,
    pretty_exceptions_enable=False,
    add_completion=False,
    subcommand_metavar="AGENT | COMMAND [OPTIONS]",
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.add_typer(demos_app, name="demos")

RUN = "The run"
TRAINING = "Its limits and place"
Agent = Annotated[str, typer.Argument(metavar="AGENT", help="Agent name, path.py[:Class] or Gymnasium id.")]
AgentOrNone = Annotated[
    str | None,
    typer.Argument(metavar="AGENT", help="Agent name, path.py[:Class] or Gymnasium id; may be left out on --resume."),
]
Model = Annotated[
    str | None,
    typer.Option(
        help="Model name, hub id, local path or run folder. Not said: the bundled model.", rich_help_panel=RUN
    ),
]
PromptFile = Annotated[
    Path | None, typer.Option(help="Text file that replaces the agent's system prompt.", rich_help_panel=RUN)
]
Mode = Annotated[
    Literal["train", "inference"] | None, typer.Option(help="Train, or only play. (train)", rich_help_panel=RUN)
]
Envs = Annotated[int | None, typer.Option(min=1, help="Environments stepped together. (128)", rich_help_panel=RUN)]
Seed = Annotated[
    int | None, typer.Option(min=0, help="Of environments, sampling and minibatches. (0)", rich_help_panel=RUN)
]
Device = Annotated[
    Literal["auto", "cpu", "cuda", "mps"] | None,
    typer.Option(help="Where the model runs. (auto)", rich_help_panel=RUN),
]
Dtype = Annotated[
    Literal["float32", "bfloat16"] | None,
    typer.Option(help="Type of the weights; bfloat16 wants an adapter. (the model's)", rich_help_panel=RUN),
]
Quantization = Annotated[
    Literal["none", "8bit", "4bit"] | None,
    typer.Option(help="Bits of the weights; an adapter learns beside them. Needs [quant]. (none)", rich_help_panel=RUN),
]
Threads = Annotated[
    str | None,
    typer.Option(metavar="auto|N", help="Threads of torch. (auto: by a short measurement)", rich_help_panel=RUN),
]
Episodes = Annotated[
    int | None, typer.Option(min=1, help="End after so many episodes. (no limit)", rich_help_panel=TRAINING)
]
Minutes = Annotated[
    float | None,
    typer.Option(help="End after so many minutes, loading excluded. (no limit)", rich_help_panel=TRAINING),
]
Settings = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="NAME=VALUE",
        help="Any other setting, as --set ppo.lr=1e-3 or --set generation.temperature=0.7; may be repeated.",
        rich_help_panel=TRAINING,
    ),
]
OnCollapse = Annotated[
    Literal["warn", "rollback"] | None,
    typer.Option(
        help="If the policy collapses: say so, or go back to its last good state. (warn)", rich_help_panel=TRAINING
    ),
]
SftWarmStart = Annotated[
    bool,
    typer.Option("--sft-warm-start", help="Train on demonstrations before all episodes.", rich_help_panel=TRAINING),
]
SftData = Annotated[
    Path | None,
    typer.Option(help="File of demonstrations. Not said: the one that ships for the agent.", rich_help_panel=TRAINING),
]
RunDir = Annotated[Path | None, typer.Option(help="Folder of the run. Not said: a new one.", rich_help_panel=TRAINING)]
ResumeRun = Annotated[
    bool, typer.Option("--resume", help="Go on from the checkpoint in --run-dir.", rich_help_panel=TRAINING)
]
Json = Annotated[bool, typer.Option("--json", help="End with one line of JSON on stdout.")]
Debug = Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")]


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
        from llamagym_tui import __version__

        typer.echo(f"llamagym-tui {__version__}")
        raise typer.Exit
    if ctx.invoked_subcommand is None:
        _require_terminal("blackjack")
        from llamagym_tui.app.app import open_home

        raise typer.Exit(open_home())


@app.command(cls=PlayCommand, hidden=True)
def play(
    agent: Agent,
    model: Model = None,
    prompt_file: PromptFile = None,
    mode: Mode = None,
    envs: Envs = None,
    seed: Seed = None,
    device: Device = None,
    dtype: Dtype = None,
    quantization: Quantization = None,
    threads: Threads = None,
    episodes: Episodes = None,
    minutes: Minutes = None,
    on_collapse: OnCollapse = None,
    settings: Settings = None,
    run_dir: RunDir = None,
    resume: ResumeRun = False,
    debug: Debug = False,
) -> None:
    """Open the playground: watch the agent play and learn, and play yourself."""
    from llamagym_tui.setup.run_config import prompt_text, run_config, thread_count, with_run_dir

    config = run_config(
        agent=agent,
        run_dir=run_dir,
        resume=resume,
        model=model,
        system_prompt=prompt_text(prompt_file),
        mode=mode,
        n_envs=envs,
        seed=seed,
        device=device,
        dtype=dtype,
        quantization=quantization,
        threads=thread_count(threads),
        episodes=episodes,
        minutes=minutes,
        on_collapse=on_collapse,
        assignments=settings or (),
    )
    _require_terminal(agent)
    from llamagym_tui.app.app import open_playground

    raise typer.Exit(open_playground(with_run_dir(config)))


@app.command()
def train(
    agent: AgentOrNone = None,
    model: Model = None,
    prompt_file: PromptFile = None,
    mode: Mode = None,
    envs: Envs = None,
    seed: Seed = None,
    device: Device = None,
    dtype: Dtype = None,
    quantization: Quantization = None,
    threads: Threads = None,
    episodes: Episodes = None,
    minutes: Minutes = None,
    on_collapse: OnCollapse = None,
    sft_warm_start: SftWarmStart = False,
    sft_data: SftData = None,
    settings: Settings = None,
    run_dir: RunDir = None,
    resume: ResumeRun = False,
    json_output: Json = False,
    debug: Debug = False,
) -> None:
    """Train without a screen: a progress bar on stderr, the outcome on stdout."""
    from llamagym_tui.setup.run_config import prompt_text, run_config, thread_count, warm_start, with_run_dir

    config = run_config(
        agent=agent,
        run_dir=run_dir,
        resume=resume,
        model=model,
        system_prompt=prompt_text(prompt_file),
        mode=mode,
        n_envs=envs,
        seed=seed,
        device=device,
        dtype=dtype,
        quantization=quantization,
        threads=thread_count(threads),
        episodes=episodes,
        minutes=minutes,
        on_collapse=on_collapse,
        **warm_start(agent, sft_data, wanted=sft_warm_start, resume=resume),
        assignments=settings or (),
    )
    from llamagym_tui.cli import headless

    raise typer.Exit(headless.train(with_run_dir(config), json_output=json_output, debug=debug))


@app.command()
def sft(
    agent: Agent,
    sft_data: SftData = None,
    model: Model = None,
    prompt_file: PromptFile = None,
    hands: Annotated[
        int, typer.Option(min=0, help="Greedy episodes to play before and after. 0: none.", rich_help_panel=TRAINING)
    ] = 2000,
    seed: Seed = None,
    device: Device = None,
    dtype: Dtype = None,
    quantization: Quantization = None,
    threads: Threads = None,
    settings: Settings = None,
    run_dir: RunDir = None,
    json_output: Json = False,
    debug: Debug = False,
) -> None:
    """Train on demonstrations, as a start that PPO goes on from."""
    from llamagym_tui.setup.run_config import prompt_text, run_config, sft_file, thread_count, with_run_dir

    config = run_config(
        agent=agent,
        run_dir=run_dir,
        resume=False,
        model=model,
        system_prompt=prompt_text(prompt_file),
        seed=seed,
        device=device,
        dtype=dtype,
        quantization=quantization,
        threads=thread_count(threads),
        sft_data=sft_file(agent, sft_data),
        assignments=settings or (),
    )
    from llamagym_tui.cli import headless_sft

    raise typer.Exit(headless_sft.warm_start(with_run_dir(config), hands=hands, json_output=json_output, debug=debug))


@app.command("eval")
def evaluate(
    agent: Agent,
    model: Model = None,
    prompt_file: PromptFile = None,
    episodes: Annotated[int, typer.Option(min=1, help="Episodes to play.")] = 1000,
    greedy: Annotated[
        bool, typer.Option("--greedy/--sampled", help="Likeliest replies, or replies as in training.")
    ] = True,
    envs: Annotated[int, typer.Option(min=1, help="Environments stepped together.")] = 128,
    seed: Annotated[int, typer.Option(min=0, help="Of environments and sampling.")] = 0,
    device: Device = None,
    quantization: Quantization = None,
    threads: Threads = None,
    json_output: Json = False,
    debug: Debug = False,
) -> None:
    """Measure a model's mean return, with its 95 % confidence interval (in JSON: its standard error)."""
    from llamagym_tui.model_registry import BUNDLED
    from llamagym_tui.setup import catalog
    from llamagym_tui.setup.run_config import checked_model, prompt_text, thread_count

    catalog.find_agent(agent)
    name = checked_model(model or BUNDLED)
    system_prompt = prompt_text(prompt_file)
    n_threads = thread_count(threads)
    from llamagym_tui.cli import headless

    code = headless.evaluate(
        catalog.absolute_spec(agent),
        name,
        episodes=episodes,
        greedy=greedy,
        seed=seed,
        n_envs=envs,
        device=device or "auto",
        quantization=quantization,
        threads=n_threads,
        system_prompt=system_prompt,
        json_output=json_output,
        debug=debug,
    )
    raise typer.Exit(code)


@app.command()
def agents() -> None:
    """List the agents that ship."""
    from llamagym_tui.setup import catalog

    for name, agent_class in catalog.built_in().items():
        typer.echo(f"{name:<16} {agent_class.env_id:<20} {agent_class.description}")
    typer.echo("Also: your own file (path.py[:Class]), or any Gymnasium id with discrete actions.", err=True)


@app.command()
def models() -> None:
    """List the models known by name, and those of your runs."""
    from llamagym_tui import model_registry, run_store

    for entry in model_registry.ENTRIES:
        size = model_registry.size_in_words(entry.parameters)
        here = "here" if model_registry.is_here(entry.name) else "not here"
        terms = f"{entry.licence}, gated" if entry.gated else entry.licence
        typer.echo(f"{entry.name:<36} {size:>6}  {here:<8}  {terms}")
    for run in run_store.list_runs():
        if (run.run_dir / run_store.MODEL_DIR).is_dir():
            typer.echo(f"{run.run_dir}  {run.config.model} trained on {run.config.agent}")
    typer.echo("Also: any causal language model, by hub id or local path.", err=True)


@app.command()
def runs() -> None:
    """List your runs, the latest first."""
    from llamagym_tui import run_store, user_files

    for run in run_store.list_runs():
        resumable = "can be resumed" if run.has_checkpoint else "no checkpoint"
        typer.echo(f"{run.started_at:%Y-%m-%d %H:%M}  {run.config.agent:<16} {resumable:<15} {run.run_dir}")
    typer.echo(f"Runs without --run-dir live in {user_files.runs_dir()}.", err=True)


@app.command()
def replay(
    run: Annotated[
        str | None, typer.Argument(metavar="RUN", help="Folder of a run, or its name. Not said: the latest run.")
    ] = None,
    debug: Debug = False,
) -> None:
    """Watch a recorded run again, with a time slider; no model is loaded."""
    from llamagym_tui import run_store

    folder = run_store.find_run(run)
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise UsageError(f"A replay needs a terminal; the events of the run are in {folder / run_store.EVENTS_FILE}.")
    from llamagym_tui.app.app import open_replay

    raise typer.Exit(open_replay(folder))


def _require_terminal(agent: str) -> None:
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise UsageError(f"The playground needs a terminal; without one, use `llamagym-tui train {agent}`.")
