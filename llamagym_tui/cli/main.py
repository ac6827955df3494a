"""The command line: its commands. The options that several of them share are in `llamagym_tui.cli.options`.

Nothing heavy is imported before a command runs. Options become settings in `llamagym_tui.setup.run_config`.
"""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, NoReturn

import msgspec
import typer

from llamagym_tui import __version__, model_registry, run_store
from llamagym_tui.cli import options
from llamagym_tui.cli.demos import demos_app
from llamagym_tui.cli.group import AgentOrCommand, PlayCommand
from llamagym_tui.cli.options import RunOptions
from llamagym_tui.config import LearnerName, RunConfig
from llamagym_tui.errors import UsageError, require_library
from llamagym_tui.game.environment import OPPONENT, SELF, opponent_of, outside_opponents
from llamagym_tui.protocol.literal import echo
from llamagym_tui.setup import catalog, run_config, trust
from llamagym_tui.setup.assignments import evaluation_settings
from llamagym_tui.setup.play_config import evaluated_config
from llamagym_tui.user_files import browser_session, runs_dir

app = typer.Typer(
    cls=AgentOrCommand,
    invoke_without_command=True,
    pretty_exceptions_enable=False,
    subcommand_metavar="AGENT | COMMAND [OPTIONS]",
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.add_typer(demos_app, name="demos")


@app.callback()
def home(
    ctx: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Show the version and end.")] = False,
    debug: options.Debug = False,
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
def play(
    agent: options.Agent,
    debug: options.Debug = False,
    model: options.Model = None,
    base: options.Base = None,
    env: options.Env = None,
    prompt_file: options.PromptFile = None,
    history: options.History = None,
    learner: options.Learner = None,
    mode: options.Mode = None,
    envs: options.Envs = None,
    ranks: options.Ranks = None,
    parallel_envs: options.ParallelEnvs = None,
    seed: options.Seed = None,
    device: options.Device = None,
    dtype: options.Dtype = None,
    threads: options.Threads = None,
    episodes: options.Episodes = None,
    minutes: options.Minutes = None,
    max_failures: options.MaxFailures = None,
    on_collapse: options.OnCollapse = None,
    assignments: options.Assignments = None,
    run_dir: options.RunDir = None,
    resume: options.Resume = False,
    branch_of: options.BranchOf = None,
    track: options.Track = None,
) -> None:
    """Open the playground: watch the agent play and learn, and play yourself."""
    given = RunOptions(
        model=model,
        base=base,
        env=env,
        prompt_file=prompt_file,
        history=history,
        learner=learner,
        mode=mode,
        envs=envs,
        ranks=ranks,
        parallel_envs=parallel_envs,
        seed=seed,
        device=device,
        dtype=dtype,
        threads=threads,
        episodes=episodes,
        minutes=minutes,
        max_failures=max_failures,
        on_collapse=on_collapse,
        assignments=assignments,
        run_dir=run_dir,
        resume=resume,
        branch_of=branch_of,
        track=track,
    )
    config = given.settings_for(agent)
    _require_terminal(agent)
    from llamagym_tui.app.app import open_playground

    raise typer.Exit(open_playground(run_config.with_run_dir(config)))


@app.command()
def train(
    agent: options.AgentOrNone = None,
    json_output: options.Json = False,
    debug: options.Debug = False,
    model: options.Model = None,
    base: options.Base = None,
    env: options.Env = None,
    prompt_file: options.PromptFile = None,
    history: options.History = None,
    learner: options.Learner = None,
    mode: options.Mode = None,
    envs: options.Envs = None,
    ranks: options.Ranks = None,
    parallel_envs: options.ParallelEnvs = None,
    seed: options.Seed = None,
    device: options.Device = None,
    dtype: options.Dtype = None,
    threads: options.Threads = None,
    episodes: options.Episodes = None,
    minutes: options.Minutes = None,
    max_failures: options.MaxFailures = None,
    final_episodes: options.FinalEpisodes = None,
    on_collapse: options.OnCollapse = None,
    sft_warm_start: options.SftWarmStart = False,
    sft_data: options.SftData = None,
    assignments: options.Assignments = None,
    run_dir: options.RunDir = None,
    resume: options.Resume = False,
    branch_of: options.BranchOf = None,
    track: options.Track = None,
    trust_agent: options.TrustAgent = False,
) -> None:
    """Train without a screen: a progress bar on stderr, the outcome on stdout."""
    has_begun = resume or bool(branch_of)
    options.require_used(assignments, ("dpo",) if sft_warm_start else ("sft", "dpo"))
    given = RunOptions(
        model=model,
        base=base,
        env=env,
        prompt_file=prompt_file,
        history=history,
        learner=learner,
        mode=mode,
        envs=envs,
        ranks=ranks,
        parallel_envs=parallel_envs,
        seed=seed,
        device=device,
        dtype=dtype,
        threads=threads,
        episodes=episodes,
        minutes=minutes,
        max_failures=max_failures,
        final_episodes=final_episodes,
        on_collapse=on_collapse,
        sft_warm_start=sft_warm_start,
        sft_data=run_config.warm_start_file(
            agent, sft_data, env, wanted=sft_warm_start, resume=has_begun
        ),
        assignments=assignments,
        run_dir=run_dir,
        resume=resume,
        branch_of=branch_of,
        track=track,
        trust_agent=trust_agent,
    )
    config = given.settings_for(agent)
    from llamagym_tui.cli import headless

    config = run_config.with_run_dir(config)
    raise typer.Exit(headless.train(config, json_output=json_output, debug=debug))


@app.command()
def sft(
    agent: options.Agent,
    episodes: options.EvaluationEpisodes = 2000,
    json_output: options.Json = False,
    debug: options.Debug = False,
    model: options.Model = None,
    base: options.Base = None,
    env: options.Env = None,
    prompt_file: options.PromptFile = None,
    history: options.History = None,
    seed: options.Seed = None,
    device: options.Device = None,
    dtype: options.Dtype = None,
    threads: options.Threads = None,
    sft_data: options.SftData = None,
    assignments: options.Assignments = None,
    run_dir: options.RunDir = None,
) -> None:
    """Train on demonstrations, as a start that PPO goes on from."""
    given = RunOptions(
        model=model,
        base=base,
        env=env,
        prompt_file=prompt_file,
        history=history,
        seed=seed,
        device=device,
        dtype=dtype,
        threads=threads,
        sft_data=run_config.sft_file(agent, sft_data, env, "sft"),
        assignments=assignments,
        run_dir=run_dir,
    )
    _warm_start("sft", agent, given, episodes=episodes, json_output=json_output, debug=debug)


@app.command()
def dpo(
    agent: options.Agent,
    episodes: options.EvaluationEpisodes = 2000,
    json_output: options.Json = False,
    debug: options.Debug = False,
    model: options.Model = None,
    base: options.Base = None,
    env: options.Env = None,
    prompt_file: options.PromptFile = None,
    history: options.History = None,
    seed: options.Seed = None,
    device: options.Device = None,
    dtype: options.Dtype = None,
    threads: options.Threads = None,
    sft_data: options.SftData = None,
    assignments: options.Assignments = None,
    run_dir: options.RunDir = None,
) -> None:
    """Learn to prefer a person's replies over those of the model that they replaced, at the wheel."""
    given = RunOptions(
        model=model,
        base=base,
        env=env,
        prompt_file=prompt_file,
        history=history,
        seed=seed,
        device=device,
        dtype=dtype,
        threads=threads,
        sft_data=run_config.sft_file(agent, sft_data, env, "dpo"),
        assignments=assignments,
        run_dir=run_dir,
    )
    _warm_start("dpo", agent, given, episodes=episodes, json_output=json_output, debug=debug)


def _warm_start(
    method: Literal["sft", "dpo"],
    agent: str,
    given: RunOptions,
    *,
    episodes: int,
    json_output: bool,
    debug: bool,
) -> NoReturn:
    options.require_used(given.assignments, ("dpo",) if method == "sft" else ("sft",))
    config = given.settings_for(agent)
    from llamagym_tui.cli import headless_sft

    config = run_config.with_run_dir(config)
    raise typer.Exit(
        headless_sft.warm_start(
            config, method=method, episodes=episodes, json_output=json_output, debug=debug
        )
    )


@app.command("eval")
def evaluate(
    agent: options.Agent,
    episodes: Annotated[int, typer.Option(min=1, help="Episodes to play.")] = 1000,
    greedy: options.Greedy = True,
    envs: options.EvaluationEnvs = options.USUAL.n_envs,
    seed: options.EvaluationSeed = options.USUAL.seed,
    json_output: options.Json = False,
    debug: options.Debug = False,
    model: options.Model = None,
    base: options.Base = None,
    env: options.Env = None,
    prompt_file: options.PromptFile = None,
    history: options.History = None,
    device: options.Device = None,
    dtype: options.Dtype = None,
    threads: options.Threads = None,
    assignments: options.Assignments = None,
) -> None:
    """Measure a model's mean return, with its 95 % confidence interval (in JSON: its standard error)."""
    given = RunOptions(
        model=model,
        base=base,
        env=env,
        prompt_file=prompt_file,
        history=history,
        envs=envs,
        seed=seed,
        device=device,
        dtype=dtype,
        threads=threads,
        assignments=assignments,
    )
    config = _evaluated(agent, given)
    from llamagym_tui.cli import headless

    raise typer.Exit(
        headless.evaluate(
            config, episodes=episodes, greedy=greedy, json_output=json_output, debug=debug
        )
    )


def _evaluated(agent: str, given: RunOptions, temperature: float | None = None) -> RunConfig:
    """The settings of an evaluation; a temperature of None is the run's, or the model's."""
    threads = given.read_threads()
    text = given.read_prompt()
    history = given.read_history()
    env = run_config.env_kwargs(given.env)
    agent_class = catalog.find_agent(agent, env)
    env = run_config.with_opponent(agent_class, env)
    model = given.model or model_registry.BUNDLED
    if model_registry.is_endpoint(model):
        if opponent := opponent_of(agent_class):
            raise UsageError(
                f"An endpoint plays against a policy as its opponent alone: give {opponent} as --model, and "
                f"--env opponent={model}."
            )
    else:
        model = run_config.checked_model(model)
        model_registry.require_model(model)
    return evaluated_config(
        catalog.absolute_spec(agent),
        model,
        own=run_config.with_own_settings(agent_class, {}),
        env=env,
        assigned=evaluation_settings(given.assignments or ()),
        temperature=temperature,
        base=None if given.base is None else run_config.checked_model(given.base),
        system_prompt=text,
        history=history,
        n_envs=given.envs,
        seed=given.seed,
        device=given.device,
        dtype=given.dtype,
        threads=threads,
    )


@app.command()
def match(
    agent: options.Agent,
    b_model: Annotated[
        str,
        typer.Option(
            help="B: a model as --model, an endpoint, or an opponent that the game knows, as expert."
        ),
    ],
    episodes: Annotated[
        int, typer.Option(min=2, help="Games; each begins half of them, on the same seeds.")
    ] = 400,
    greedy: Annotated[
        bool,
        typer.Option(
            "--greedy/--sampled",
            help="Play the most probable replies: two models then repeat one or two games.",
        ),
    ] = False,
    envs: options.EvaluationEnvs = options.USUAL.n_envs,
    seed: options.EvaluationSeed = options.USUAL.seed,
    json_output: options.Json = False,
    debug: options.Debug = False,
    model: options.Model = None,
    device: options.Device = None,
    threads: options.Threads = None,
) -> None:
    """Let two models play a game for two against each other, with sides swapped."""
    names = (model or model_registry.BUNDLED, b_model)
    is_swapped = model_registry.is_endpoint(names[0])
    ours, other = reversed(names) if is_swapped else names
    agent_class = catalog.find_agent(agent)
    if not agent_class.opponents:
        having = [name for name, each in catalog.built_in().items() if each.opponents]
        raise UsageError(
            f"{catalog.agent_name(agent)} is no game for two; a match is played in {' or '.join(having)}, or in an "
            "agent of yours that names its opponents."
        )
    if is_swapped and (model_registry.is_endpoint(ours) or ours in agent_class.opponents):
        raise UsageError(
            "One of the two has to be a model that is loaded here: name a run, or a model, as --model."
        )
    if other == SELF:
        raise UsageError(
            "A match is against somebody else: name a run, a model or an endpoint as --b-model."
        )
    given = RunOptions(
        model=ours,
        env=[f"{OPPONENT}={other}"],
        envs=envs,
        seed=seed,
        device=device,
        threads=threads,
    )
    config = _evaluated(agent, given)
    from llamagym_tui.cli import match as matches

    raise typer.Exit(
        matches.match(
            config,
            names,
            episodes=episodes,
            greedy=greedy,
            is_swapped=is_swapped,
            json_output=json_output,
            debug=debug,
        )
    )


@app.command()
def compare(
    agent: options.Agent,
    b_model: Annotated[
        str | None, typer.Option(help="B's model, as --model. Not given: A's.")
    ] = None,
    b_prompt_file: Annotated[
        Path | None, typer.Option(help="B's system prompt. Not given: A's.")
    ] = None,
    b_temperature: Annotated[
        float | None, typer.Option(min=0.01, help="B's; replies are sampled then.")
    ] = None,
    b_learner: Annotated[
        LearnerName | None,
        typer.Option(help="B's, where A has a --learner: a run of each is trained first."),
    ] = None,
    minutes: Annotated[
        float,
        typer.Option(min=0.001, help="With --learner: minutes of a processor, for each of them."),
    ] = 2.0,
    half_width: Annotated[
        float | None,
        typer.Option(
            min=1e-6, help="Half the interval that is enough. (a tenth from baseline to baseline)"
        ),
    ] = None,
    episodes: Annotated[int, typer.Option(min=2, help="Episodes each, at most.")] = 20_000,
    greedy: options.Greedy = True,
    envs: options.EvaluationEnvs = options.USUAL.n_envs,
    seed: options.EvaluationSeed = options.USUAL.seed,
    json_output: options.Json = False,
    debug: options.Debug = False,
    model: options.Model = None,
    base: options.Base = None,
    env: options.Env = None,
    prompt_file: options.PromptFile = None,
    history: options.History = None,
    learner: options.Learner = None,
    device: options.Device = None,
    dtype: options.Dtype = None,
    threads: options.Threads = None,
    assignments: options.Assignments = None,
) -> None:
    """Compare two models, prompts, temperatures or learners, A and B, on the same episodes."""
    from llamagym_tui.cli.comparison import compare, train_sides

    a = RunOptions(
        model=model,
        base=base,
        env=env,
        prompt_file=prompt_file,
        history=history,
        envs=envs,
        seed=seed,
        device=device,
        dtype=dtype,
        threads=threads,
        assignments=assignments,
    )
    b = msgspec.structs.replace(
        a,
        model=model if b_model is None else b_model,
        prompt_file=prompt_file if b_prompt_file is None else b_prompt_file,
    )
    if learner or b_learner:
        if not (learner and b_learner) or learner == b_learner or (a, None) != (b, b_temperature):
            raise UsageError(
                "Two learners are compared, and nothing else: name both, with --learner and --b-learner, and leave "
                "the other --b- options out."
            )
        sides = _trained_by(agent, a, (learner, b_learner), minutes)
        if not train_sides(sides, debug=debug):
            raise typer.Abort
        # The prompt, the environment and the sampling of a run are its own from now on.
        a, b = (
            msgspec.structs.replace(a, model=side.run_dir, base=None, assignments=None)
            for side in sides
        )
    code = compare(
        (_evaluated(agent, a), _evaluated(agent, b, b_temperature)),
        greedy=greedy and b_temperature is None,
        half_width=half_width,
        most=episodes,
        json_output=json_output,
        debug=debug,
    )
    raise typer.Exit(code)


def _trained_by(
    agent: str, given: RunOptions, learners: Sequence[LearnerName], minutes: float
) -> tuple[RunConfig, RunConfig]:
    """The runs of two learners that differ in nothing else, each with a new folder."""
    # How many environments the evaluation has is no matter of training, where the first batch decides.
    shared = msgspec.structs.replace(given, envs=None, minutes=minutes, final_episodes=0)
    first, second = (
        run_config.with_run_dir(
            msgspec.structs.replace(shared, learner=learner).settings_for(agent)
        )
        for learner in learners
    )
    return first, second


@app.command()
def lessons(
    name: Annotated[
        str | None, typer.Argument(metavar="NAME", help="Name or number. Not given: list them.")
    ] = None,
) -> None:
    """List the lessons, short guided experiments, or open one."""
    from llamagym_tui.setup import lessons as known

    found = known.lessons()
    if name is None:
        for number, (each, lesson) in enumerate(found.items(), 1):
            echo(f"{number:>2}  {each:<20} {lesson.minutes:g} min  {lesson.title}")
        echo("Open one with `llamagym-tui lessons NAME`.", to=sys.stderr)
        return
    by_number = {str(number): each for number, each in enumerate(found, 1)}
    name = by_number.get(name, name)
    if name not in found:
        raise UsageError(f"There is no lesson {name!r}; there are {', '.join(found)}.")
    from llamagym_tui.screens.playground.named_keys import with_keys

    echo(f"{found[name].title}\n\n{with_keys(found[name].text)}", lines=True)
    if sys.stdin.isatty() and sys.stdout.isatty():
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
    """List the models known by name, with what of each fits in this machine's memory, and those of your runs."""
    from llamagym_tui.cli.models import list_models

    list_models()


@app.command()
def runs() -> None:
    """List your runs, the latest first."""
    found = run_store.list_runs()
    for run in found:
        line = f"{run.started_at:%Y-%m-%d %H:%M}  {run.config.agent:<16} {run.standing:<15} {run.run_dir}"
        echo("  ".join(text for text in (line, run.config.origin, run.about) if text))
    none = "" if found else "There is none yet; llamagym-tui blackjack begins the first. "
    echo(f"{none}Runs without --run-dir live in {runs_dir()}.", to=sys.stderr)


@app.command()
def report(
    run: options.Run = None,
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
    debug: options.Debug = False,
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
    push_to_hub: Annotated[
        str | None, typer.Option(metavar="NAME", help="Upload it under this name, too.")
    ] = None,
    base: options.Base = None,
    debug: options.Debug = False,
) -> None:
    """Write a run's model as a plain folder of transformers, with the run's sampling and a model card."""
    from llamagym_tui.cli.export import export

    folder = run_store.find_run(run)
    echo(export(folder, out, merge=merge, gguf=gguf, hub_name=push_to_hub, base=base))


@app.command()
def replay(run: options.Run = None, debug: options.Debug = False) -> None:
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
        list[str] | None,
        typer.Argument(
            metavar="[AGENT [OPTIONS]]",
            help="Not given: home. The folder of a class: that class goes on.",
        ),
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
    seats: Annotated[
        int | None,
        typer.Option(min=1, help="A class: at each seat the model's 20 episodes are played once."),
    ] = None,
    debug: options.Debug = False,
) -> None:
    """Serve the app to browsers: each visitor plays and trains, all watch one run, or a class plays the model."""
    require_library("textual_serve", "serve")
    from llamagym_tui.app.trainer_client import own_python
    from llamagym_tui.cli.serve import serve
    from llamagym_tui.screens.play.classroom import CLASS_FILE, Classroom

    if words and (Path(words[0]) / CLASS_FILE).is_file():
        if (watch, sessions, seats, *words[1:]) != (None, None, None):
            raise UsageError(
                f"{words[0]} is a class, which goes on as it began: give no more than --host and --port."
            )
        from llamagym_tui.cli import classroom

        classroom.serve(Classroom.read(Path(words[0]).absolute()), host=host, port=port)
        return

    if seats is not None:
        if watch is not None or sessions is not None or not words:
            raise UsageError(
                "--seats takes an agent, and neither --watch nor --sessions: serve --seats 30 blackjack."
            )
        _serve_class(ctx, words, seats, host=host, port=port, debug=debug)
        return

    command = own_python("llamagym_tui")
    allowed = "play"
    most_sessions = 2
    if watch is not None:
        if words:
            raise UsageError("--watch shows a run that is there; leave the agent out.")
        command += ["replay", str(run_store.find_run(watch))]
        allowed = "watch"
        most_sessions = 30
    elif words:
        group: Any = ctx.find_root().command
        read = group.get_command(ctx, "play").make_context("play", list(words))
        agent = read.params["agent"]
        catalog.find_agent(agent)
        command += ["play", *words]
        allowed = f"play {catalog.absolute_spec(agent)}"
    serve(command, host=host, port=port, sessions=sessions or most_sessions, allowed=allowed)


def _serve_class(
    ctx: typer.Context, words: list[str], seats: int, *, host: str, port: int, debug: bool
) -> None:
    """Let the model play, and serve a class; the words are an agent and the options that its evaluation has, too."""
    from llamagym_tui.cli import classroom
    from llamagym_tui.cli.headless import class_record

    group: Any = ctx.find_root().command
    read = group.get_command(ctx, "eval").make_context("serve", list(words)).params
    usual = {"episodes": 1000, "greedy": True, "json_output": False, "debug": False}
    for name, value in usual.items():
        if read.pop(name) != value:
            raise UsageError(f"A class has no option for {name}; leave it out.")
    agent = read.pop("agent")
    config = _evaluated(agent, RunOptions(**read))
    opponent = config.env.get(OPPONENT)
    if opponent is not None and outside_opponents(catalog.find_agent(agent), str(opponent)):
        raise UsageError(
            f"A class plays against an opponent of the agent's own, and {opponent} is a policy; name another one."
        )
    trust.remember_typed(agent)
    record = class_record(config, seats, debug=debug)
    classroom.serve(classroom.begun(record), host=host, port=port)


@app.command(hidden=True)
def seat(
    folder: Annotated[Path, typer.Argument(metavar="CLASS", help="Folder of a class.")],
    number: Annotated[int, typer.Argument(metavar="SEAT", min=1)],
    debug: options.Debug = False,
) -> None:
    """Play at a seat of a class, as its visitors do."""
    if not _is_shown():
        raise UsageError("A seat needs a terminal.")
    from llamagym_tui.app.seat import open_seat

    raise typer.Exit(open_seat(folder, number))


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
