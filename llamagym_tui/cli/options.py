"""The options that several commands share, each with its type, help, panel and limits; and what they say of a run.

A command names those that it takes in its signature, in the order of the help, with None (a flag: False) for not given.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer
from msgspec import Struct

from llamagym_tui import config
from llamagym_tui.config import RunConfig
from llamagym_tui.errors import UsageError
from llamagym_tui.setup import run_config

USUAL = RunConfig(agent="", run_dir="")
"""The settings of a run for which nothing is given: the defaults that the help names."""
THE_RUN = "The run"
"""The panel of the help for what plays, and how."""
LIMITS_AND_PLACE = "Its limits and place"
"""The panel of the help for when a run ends, what it begins with, and where it lies."""

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
EvaluationEnvs = Annotated[int, typer.Option(min=1, help="Environments stepped together.")]
EvaluationSeed = Annotated[int, typer.Option(min=0, help="Of environments and sampling.")]
EvaluationEpisodes = Annotated[
    int,
    typer.Option(
        min=0, help=f"Greedy episodes before and after, in some {USUAL.final_s:g} s each. 0: none."
    ),
]
Json = Annotated[bool, typer.Option("--json", help="End with one line of JSON on stdout.")]
Debug = Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")]

Model = Annotated[
    str | None,
    typer.Option(
        rich_help_panel=THE_RUN,
        help="Model name, hub id, local path, or a run's folder, name or RUN@UPDATE. "
        "Not given: the bundled model.",
    ),
]
Base = Annotated[
    str | None,
    typer.Option(
        rich_help_panel=THE_RUN,
        help="Where the base model of an adapter is, as --model. (where the adapter's folder says)",
    ),
]
Env = Annotated[
    list[str] | None,
    typer.Option(
        "--env",
        rich_help_panel=THE_RUN,
        metavar="NAME=VALUE",
        help="Keyword argument of the environment, as --env size=8; may be repeated.",
    ),
]
PromptFile = Annotated[
    Path | None,
    typer.Option(
        rich_help_panel=THE_RUN, help="Text file that replaces the agent's system prompt."
    ),
]
History = Annotated[
    str | None,
    typer.Option(
        rich_help_panel=THE_RUN,
        metavar="all|N",
        help="Earlier turns that a prompt has; 0: only the observation. (the agent's)",
    ),
]
Learner = Annotated[
    config.LearnerName | None,
    typer.Option(
        rich_help_panel=THE_RUN,
        help="How it learns: by a critic (ppo), or without one. reinforce and rebn: from returns; rloo and grpo: by "
        "comparing episodes of one seed; gigpo: turns on one observation. (ppo)",
    ),
]
Mode = Annotated[
    config.Mode | None,
    typer.Option(rich_help_panel=THE_RUN, help=f"Train, or only play. ({USUAL.mode})"),
]
Envs = Annotated[
    int | None,
    typer.Option(
        rich_help_panel=THE_RUN, min=1, help=f"Environments stepped together. ({USUAL.n_envs})"
    ),
]
Ranks = Annotated[
    int | None,
    typer.Option(
        rich_help_panel=THE_RUN,
        min=1,
        help="Processes that play and train together, each with its share of the environments. "
        f"({USUAL.ranks})",
    ),
]
ParallelEnvs = Annotated[
    config.ParallelEnvs | None,
    typer.Option(
        rich_help_panel=THE_RUN,
        help="Step environments at the same time, each in a process of its own. "
        f"({USUAL.parallel_envs}: where a step takes over 5 ms)",
    ),
]
Seed = Annotated[
    int | None,
    typer.Option(
        rich_help_panel=THE_RUN,
        min=0,
        help=f"Of environments, sampling and minibatches. ({USUAL.seed})",
    ),
]
Device = Annotated[
    config.Device | None,
    typer.Option(rich_help_panel=THE_RUN, help=f"Where the model runs. ({USUAL.device})"),
]
Dtype = Annotated[
    config.Dtype | None,
    typer.Option(
        rich_help_panel=THE_RUN,
        help="Type of the weights; bfloat16 needs an adapter. (the model's)",
    ),
]
Threads = Annotated[
    str | None,
    typer.Option(
        rich_help_panel=THE_RUN,
        metavar="auto|N",
        help="Threads that compute. (auto: by a short measurement)",
    ),
]

Episodes = Annotated[
    int | None,
    typer.Option(
        rich_help_panel=LIMITS_AND_PLACE, min=1, help="End after so many episodes. (no limit)"
    ),
]
Minutes = Annotated[
    float | None,
    typer.Option(
        rich_help_panel=LIMITS_AND_PLACE,
        min=0.001,
        help="End after so many minutes of play and PPO; loading and a warm start do not count. (no limit)",
    ),
]
MaxFailures = Annotated[
    int | None,
    typer.Option(
        rich_help_panel=LIMITS_AND_PLACE,
        min=1,
        help="End after so many failed episodes in a row; others are dropped. "
        f"({USUAL.max_failures})",
    ),
]
FinalEpisodes = Annotated[
    int | None,
    typer.Option(
        rich_help_panel=LIMITS_AND_PLACE,
        min=0,
        help=f"Episodes of the evaluation at the end, in some {USUAL.final_s:g} s. 0: none. "
        f"({USUAL.final_episodes})",
    ),
]
OnCollapse = Annotated[
    config.OnCollapse | None,
    typer.Option(
        rich_help_panel=LIMITS_AND_PLACE,
        help="If the policy collapses: warn, or go back to its last good checkpoint. "
        f"({USUAL.on_collapse})",
    ),
]
SftWarmStart = Annotated[
    bool,
    typer.Option(
        "--sft-warm-start",
        rich_help_panel=LIMITS_AND_PLACE,
        help="Train on demonstrations before all episodes.",
    ),
]
SftData = Annotated[
    Path | None,
    typer.Option(
        rich_help_panel=LIMITS_AND_PLACE,
        help="File of demonstrations. Not given: the one that ships for the agent.",
    ),
]
Assignments = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        rich_help_panel=LIMITS_AND_PLACE,
        metavar="NAME=VALUE",
        help="Any other setting, as --set ppo.lr=1e-3 or --set generation.temperature=0.7; "
        "may be repeated.",
    ),
]
RunDir = Annotated[
    Path | None,
    typer.Option(rich_help_panel=LIMITS_AND_PLACE, help="Folder of the run. Not given: a new one."),
]
Resume = Annotated[
    bool,
    typer.Option(
        "--resume",
        rich_help_panel=LIMITS_AND_PLACE,
        help="Go on from the checkpoint in --run-dir.",
    ),
]
BranchOf = Annotated[
    str | None,
    typer.Option(
        "--from",
        rich_help_panel=LIMITS_AND_PLACE,
        metavar="RUN[@UPDATE]",
        help="Branch off from a checkpoint that a run has kept: its settings but for those given, "
        "a folder of its own; episodes and minutes count from that run's beginning.",
    ),
]
Track = Annotated[
    config.Tracker | None,
    typer.Option(
        rich_help_panel=LIMITS_AND_PLACE,
        help="Send the figures to a tracker too; needs the extra of that name.",
    ),
]
TrustAgent = Annotated[
    bool,
    typer.Option(
        "--trust-agent",
        rich_help_panel=LIMITS_AND_PLACE,
        help="On --resume and --from: execute the agent file that the run names.",
    ),
]


def require_used(assignments: Sequence[str] | None, unused: Sequence[str]) -> None:
    """Raises UsageError: ``--set`` names settings of a warm start, `unused`, that the command does not make."""
    for assignment in assignments or ():
        name = assignment.partition("=")[0]
        section = name.partition(".")[0]
        if section in unused:
            makes = (
                "--sft-warm-start, or the command sft" if section == "sft" else "the command dpo"
            )
            raise UsageError(f"{name} is about a training that is not made here but by {makes}.")


class RunOptions(Struct, frozen=True, kw_only=True):
    """What the options above say of a run, as they were typed; None, or False for a flag: not given."""

    model: str | None = None
    base: str | None = None
    env: list[str] | None = None
    prompt_file: Path | None = None
    history: str | None = None
    learner: config.LearnerName | None = None
    """The setting is called `ppo.learner`."""
    mode: config.Mode | None = None
    envs: int | None = None
    """The setting is called `n_envs`."""
    ranks: int | None = None
    parallel_envs: config.ParallelEnvs | None = None
    seed: int | None = None
    device: config.Device | None = None
    dtype: config.Dtype | None = None
    threads: str | None = None
    episodes: int | None = None
    minutes: float | None = None
    max_failures: int | None = None
    final_episodes: int | None = None
    on_collapse: config.OnCollapse | None = None
    sft_warm_start: bool = False
    sft_data: str | None = None
    """A file that was checked, by its absolute path."""
    assignments: list[str] | None = None
    run_dir: Path | None = None
    resume: bool = False
    branch_of: str | None = None
    track: config.Tracker | None = None
    trust_agent: bool = False

    def settings_for(self, agent: str | None) -> RunConfig:
        """The settings of a run of an agent; None: the options name a run, which has one."""
        return run_config.run_config(
            agent=agent,
            run_dir=self.run_dir,
            resume=self.resume,
            branch_of=self.branch_of,
            trust_agent=self.trust_agent,
            assignments=self.assignments or (),
            learner=self.learner,
            model=self.model,
            base=self.base,
            threads=self.read_threads(),
            system_prompt=self.read_prompt(),
            env=run_config.env_kwargs(self.env),
            history=self.read_history(),
            mode=self.mode,
            n_envs=self.envs,
            ranks=self.ranks,
            parallel_envs=self.parallel_envs,
            seed=self.seed,
            device=self.device,
            dtype=self.dtype,
            episodes=self.episodes,
            minutes=self.minutes,
            max_failures=self.max_failures,
            final_episodes=self.final_episodes,
            on_collapse=self.on_collapse,
            sft_warm_start=self.sft_warm_start or None,
            sft_data=self.sft_data,
            track=self.track,
        )

    def read_threads(self) -> int | None:
        """The number of threads; None: not given, or to be measured."""
        count = run_config.word_or_number(self.threads, "auto", "--threads", least=1)
        return count if isinstance(count, int) else None

    def read_prompt(self) -> str | None:
        """The system prompt in the file that was given."""
        if self.prompt_file is None:
            return None
        return run_config.read_prompt(self.prompt_file).strip()

    def read_history(self) -> str | int | None:
        """``all``, or a number of turns."""
        return run_config.word_or_number(self.history, "all", "--history", least=0)
