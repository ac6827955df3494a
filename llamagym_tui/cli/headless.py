"""`train` and `eval` without a screen: the trainer's own session in this process, and one line at the end.

Stdout carries that line alone; progress goes to stderr, library prints to the run's log, or with `debug` to stderr.
"""

import math
import os
import queue
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO, Protocol, Self

import msgspec

from llamagym_tui import model_registry, run_store
from llamagym_tui.cli.progress import Progress
from llamagym_tui.cli.track import Tracker, following
from llamagym_tui.config import RunConfig, from_dict
from llamagym_tui.errors import LlamaGymError
from llamagym_tui.protocol import events
from llamagym_tui.protocol.commands import AnyCommand, Stop
from llamagym_tui.protocol.literal import echo, echo_json
from llamagym_tui.returns import (
    MeanReturn,
    counted,
    evaluated_return,
    margin,
    standard_error,
    with_unit,
)
from llamagym_tui.run_store import RunStore
from llamagym_tui.setup import catalog
from llamagym_tui.setup.branch import UPDATE_DIR
from llamagym_tui.setup.run_config import is_launched
from llamagym_tui.state.prompts import words
from llamagym_tui.trainer.descriptors import diverted

OF_THE_AGENT = (
    "env",
    "observation_ranges",
    "system_prompt",
    "history",
    "max_turns",
    "parallel_envs",
)
"""Settings of a run in which an evaluation follows it if it plays the same agent."""
EVALUATED = (
    "episodes",
    "mean_return",
    "return_stderr",
    "parse_failure_rate",
    "truncated",
    "dropped",
)
"""Figures of an evaluation in its line of JSON."""


class Report(Protocol):
    def take(self, event: events.Event) -> None: ...

    def figures(self) -> dict[str, Any]:
        """The line of JSON."""

    def sentence(self) -> str:
        """The same for people."""


def train(config: RunConfig, **options: Any) -> int:
    """Run a session to its end, or to ctrl+c, as `run_session` does by its options; or follow torchrun's first one."""
    if is_launched() and os.environ["RANK"] != "0":
        from llamagym_tui.trainer import ranks

        ranks.follow(int(os.environ["RANK"]) - 1, int(os.environ["WORLD_SIZE"]))
        with suppress(
            OSError
        ):  # a folder reserved for a new run, and empty: the run is in that of rank 0
            os.rmdir(config.run_dir)
        return 0
    options |= {"episodes": config.episodes, "minutes": config.minutes, "evaluates_end": True}
    code = run_session(config, summary := _Summary(), queue.SimpleQueue(), **options)
    if config.mode == "train" and not summary.figures()["updates"]:
        few = "The run ended before its first batch of turns was full, so PPO has learnt nothing"
        echo(f"warning: {few}; give it longer, or set a smaller ppo.batch_size.", to=sys.stderr)
    return code


def evaluate(
    config: RunConfig,
    *,
    episodes: int,
    greedy: bool,
    json_output: bool = False,
    debug: bool = False,
) -> int:
    """Measure the mean return of the model of an `evaluated_config`, and print it on stdout; the exit code, 0."""
    with quiet_progress(debug, episodes=episodes) as progress:
        player = Player(config, progress)
        found = player.play(episodes, greedy, progress.evaluated)
    assert found is not None, "nothing stops it"
    figures = {"agent": catalog.agent_name(config.agent), "model": config.model}
    figures |= {name: getattr(found, name) for name in EVALUATED} | {
        "elapsed_s": round(found.elapsed_s, 3)
    }
    echo_json(figures) if json_output else echo(_evaluation_sentence(found, player))
    return 0


@contextmanager
def quiet_progress(
    debug: bool, printed: BinaryIO | None = None, **limits: Any
) -> Iterator[Progress]:
    """Progress on stderr, while what libraries print goes into a log, or nowhere; to stderr too, if `debug`."""
    with (
        printed or tempfile.TemporaryFile() as log,
        diverted(log, stderr=not debug) as terminal,
        Progress(terminal, **limits) as progress,
    ):
        yield progress


class _Summary:
    """What a run began as, and ended as; how well it plays is the evaluation of the policy that it ended with."""

    def __init__(self) -> None:
        self._last: dict[type[events.Event], Any] = {}

    def take(self, event: events.Event) -> None:
        self._last[type(event)] = event

    @property
    def _last_batch(self) -> MeanReturn | None:
        """Mean return of the last update's batch, which its own update came after."""
        if (updated := self._last.get(events.UpdateFinished)) is None:
            return None
        stats = updated.stats
        spread = stats.return_std**2 * stats.episodes
        return MeanReturn(stats.mean_return, standard_error(spread, stats.episodes), stats.episodes)

    def figures(self) -> dict[str, Any]:
        started, finished = (
            self._last[events.RunStarted],
            self._last[events.RunFinished],
        )  # it ended well
        counts, found = (
            self._last.get(events.EpisodesCounted),
            self._last.get(events.EvaluationFinished),
        )
        batch = self._last_batch
        return {
            **{name: getattr(started, name) for name in ("agent", "model", "seed")},
            **{name: getattr(finished, name) for name in ("episodes", "env_steps", "updates")},
            "elapsed_s": round(finished.elapsed_s, 3),
            "episodes_per_s": round(finished.episodes / finished.elapsed_s, 3)
            if finished.elapsed_s
            else 0.0,
            "dropped": counts.dropped if counts else 0,
            "evaluation": found
            and {
                **_figures_of(evaluated_return(found)),
                "policy": "greedy" if found.greedy else "sampled",
                "parse_failure_rate": found.parse_failure_rate,
                "truncated": found.truncated,
                "dropped": found.dropped,
            },
            "last_update": batch and {"update": finished.updates, **_figures_of(batch)},
            "run_dir": started.run_dir,
        }

    def sentence(self) -> str:
        figures, found, batch = (
            self.figures(),
            self._last.get(events.EvaluationFinished),
            self._last_batch,
        )
        if not figures["episodes"]:
            return "No episode ended in {elapsed_s:,.0f} s; give it longer. The run is in {run_dir}".format(
                **figures
            )
        played, updates = (
            counted(figures["episodes"], "episode"),
            counted(figures["updates"], "update"),
        )
        texts = [f"{played} and {updates} in {figures['elapsed_s']:,.0f} s."]
        if found:
            mean = return_text(evaluated_return(found), 3)
            over = counted(found.episodes, "greedy episode" if found.greedy else "sampled episode")
            texts.append(f"The policy now: mean return {mean} over {over} on other seeds.")
        if batch and math.isfinite(batch.mean):
            mean = return_text(batch, 3)
            texts.append(
                f"Before its last update: {mean} over the {counted(batch.episodes, 'episode')} of that batch."
            )
        if figures["dropped"]:
            texts.append(f"Episodes that failed and were dropped: {figures['dropped']:,}.")
        return " ".join([*texts, f"The run is in {figures['run_dir']}"])


def _figures_of(mean: MeanReturn) -> dict[str, Any]:
    """A mean return with its n and its 95 % interval for JSON; what is no finite number is null."""
    values = {
        "mean_return": mean.mean,
        "return_stderr": mean.stderr,
        "half_width_95": margin(mean.stderr),
    }
    finite = {name: value if math.isfinite(value) else None for name, value in values.items()}
    if mean.episodes < 2:
        finite |= {"return_stderr": None, "half_width_95": None}
    return {"episodes": mean.episodes, **finite}


def return_text(mean: MeanReturn, decimals: int) -> str:
    """A mean return with its 95 % confidence interval, which a single episode does not have."""
    half = f" ± {margin(mean.stderr):,.{decimals}f} (95 %)" if mean.episodes > 1 else ""
    return f"{mean.mean:,.{decimals}f}{half}"


def run_session(
    config: RunConfig,
    report: Report,
    command_queue: queue.SimpleQueue[AnyCommand],
    *,
    json_output: bool = False,
    debug: bool = False,
    evaluates_end: bool = False,
    tracker: Tracker | None = None,
    **limits: float | None,
) -> int:
    """Run a session in this process, and print its report; ctrl+c ends it with a checkpoint. The exit code, 0.

    Args:
        evaluates_end: evaluate the policy that it ends with.
        tracker: one that follows the run.
        limits: of `Progress`.
    Raises:
        LlamaGymError: it failed.
    """
    store = RunStore.create(config)
    with (
        quiet_progress(debug, store.open_log(), **limits) as progress,
        following(store.run_dir, tracker, progress.notify),
    ):
        from llamagym_tui.trainer.event_builders import session_failed
        from llamagym_tui.trainer.session import Session

        session = Session(
            config,
            store,
            command_queue,
            sinks=[report.take, progress.take],
            evaluates_end=evaluates_end,
        )
        with _stopped_by_signals(command_queue, progress):
            phase = session.run()
    if phase == "failed":
        assert session.error is not None
        failed = session_failed(session.error, store.log_path)
        if json_output:
            run = session.active_run  # None: it never began
            echo_json(
                {
                    "agent": catalog.agent_name(config.agent),
                    "model": config.model,
                    "seed": config.seed,
                    "episodes": run and run.rollout.episodes,
                    "env_steps": run and run.rollout.env_steps,
                    "updates": run and run.ppo.updates,
                    "run_dir": config.run_dir,
                    "error": failed.message,
                }
            )
        if isinstance(session.error, LlamaGymError):
            raise session.error
        raise LlamaGymError(failed.message) from session.error
    echo_json(report.figures()) if json_output else echo(report.sentence())
    return 0


class Player:
    """A policy that is evaluated, under a prompt."""

    def __init__(self, config: RunConfig, progress: Progress, other: Self | None = None) -> None:
        """Load what a configuration names; of the `other` player the model, if it is the same."""
        from llamagym_tui.trainer.builders import Builders

        self._builders = builders = Builders(config)
        self.config, self._progress, self.agent = config, progress, builders.agent()
        if other is None or other.config.model != config.model:
            progress.show("loading the model")
            builders.preflight(self.agent, learns=False)
            loaded = builders.model()
            self.policy = builders.policy(self.agent, loaded)
            builders.threads(self.policy, loaded)
        else:
            self.policy = other.policy
        self.prompt = (
            self.agent.get_system_prompt() if config.system_prompt is None else config.system_prompt
        )

    def play(
        self,
        episodes: int,
        greedy: bool,
        shown: Callable[[int], None] = lambda done: None,
        **more: Any,
    ) -> events.EvaluationFinished | None:
        """Episodes; `more` is of ``Builders.evaluate``."""
        self.policy.generation = self.config.generation
        return self._builders.evaluate(
            self.agent,
            self.policy,
            episodes=episodes,
            greedy=greedy,
            system_prompt=self.prompt,
            should_stop=lambda: False,
            progress=shown,
            warn=lambda sentence: self._progress.notify(f"warning: {sentence}"),
            **more,
        )


def evaluated_config(
    agent_spec: str,
    model: str,
    *,
    env: dict[str, Any] | None = None,
    own: dict[str, Any] | None = None,
    temperature: float | None = None,
    **settings: Any,
) -> RunConfig:
    """Settings to evaluate a model by: those of a run, if it is the folder or model folder of one, else of a new run.

    Nothing is trained, so no adapter is wanted; one that a run has trained is part of its model.

    Args:
        model: registry name, hub id, local path, or a run folder.
        env: keyword arguments of the environment, on top of those of a run folder that has the same agent.
        own: settings that the agent names for its runs, where the model is of no run.
        temperature: of sampling. None: a run's, or the model's.
        settings: others of `RunConfig`; of a seed, no training run sees the same environments. None (the system prompt,
            `history`): of a run folder, as at its end if it has the same agent; else the agent's.
    """
    folder = Path(model).expanduser()
    if folder.name in (run_store.MODEL_DIR, run_store.GOOD_MODEL_DIR) or folder.name.startswith(
        UPDATE_DIR
    ):
        folder = folder.parent
    is_run = run_store.is_run(folder)
    defaults = model_registry.with_defaults(
        {**(own or {}), "agent": agent_spec, "run_dir": ""}, model
    )
    trained = run_store.last_settings(folder) if is_run else from_dict(RunConfig, defaults)
    entry = model_registry.find(model)
    dtype = trained.dtype or (entry.dtype if entry else "float32")
    is_same_agent = catalog.is_same_agent(trained.agent, agent_spec)
    kept = {name: getattr(trained, name) for name in OF_THE_AGENT} if is_same_agent else {}
    if is_run and kept.get("history") == "own":  # of an older version
        kept["history"] = "all"
    sampling = msgspec.to_builtins(trained.generation) | (
        {} if temperature is None else {"temperature": temperature}
    )
    found = {
        "agent": agent_spec,
        "model": model,
        "run_dir": "",
        "mode": "inference",
        "generation": sampling,
        **kept,
    }
    found |= {"dtype": dtype, "full_finetuning": True if dtype == "float32" else None}
    found |= {name: value for name, value in settings.items() if value is not None}
    return from_dict(RunConfig, found | {"env": {**kept.get("env", {}), **(env or {})}})


def _evaluation_sentence(found: events.EvaluationFinished, player: Player) -> str:
    mean = return_text(evaluated_return(found), 4)
    return (
        f"Mean return {with_unit(mean, player.agent.return_unit)} over {counted(found.episodes, 'episode')}, "
        f"{'greedy' if found.greedy else 'sampled'}, prompt {words(player.prompt)}; "
        f"{found.parse_failure_rate:.1%} of replies named no action; "
        f"{found.elapsed_s:.0f} s."
    )


@contextmanager
def _stopped_by_signals(
    command_queue: queue.SimpleQueue[AnyCommand], progress: Progress
) -> Iterator[None]:
    """Ctrl+c, a request to end, or a hang-up is a stop with a checkpoint; the second one ends at once."""

    def stop(number: int, frame: object) -> None:
        # Hang-ups come twice: from the shell, and from the system.
        is_hang_up = number == getattr(signal, "SIGHUP", None)
        again = before[signal.Signals(number)]
        if (
            again is signal.SIG_IGN
        ):  # as a script has it for ctrl+c in what it starts in the background
            again = signal.default_int_handler
        signal.signal(number, signal.SIG_IGN if is_hang_up else again)
        command_queue.put(Stop())
        with suppress(OSError):  # the terminal may be gone
            progress.show("stopping; the checkpoint comes first")

    wanted = {signal.SIGINT, signal.SIGTERM}
    if (
        hasattr(signal, "SIGHUP") and signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN
    ):  # as nohup has it
        wanted.add(signal.SIGHUP)
    before = {number: signal.getsignal(number) for number in wanted}
    for number in wanted:
        signal.signal(number, stop)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
