"""`train` and `eval` without a screen: the trainer's own session in this process, and one line at the end.

Stdout carries that line alone; progress goes to stderr, library prints to the run's log, or with `debug` to stderr.
"""

import math
import os
import queue
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager, suppress
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, BinaryIO, Protocol, Self

import msgspec

from llamagym_tui import model_registry
from llamagym_tui.cli.progress import Progress
from llamagym_tui.config import RunConfig
from llamagym_tui.demos.human_game import MATCH
from llamagym_tui.errors import LlamaGymError
from llamagym_tui.protocol import events
from llamagym_tui.protocol.commands import AnyCommand, Stop
from llamagym_tui.protocol.literal import echo, echo_json
from llamagym_tui.returns import (
    MeanReturn,
    counted,
    decimals,
    evaluated_return,
    margin,
    with_unit,
)
from llamagym_tui.run_store import RunStore
from llamagym_tui.screens.play.classroom import ClassRecord
from llamagym_tui.setup import catalog
from llamagym_tui.setup.run_config import is_launched
from llamagym_tui.state.prompts import words
from llamagym_tui.trainer.descriptors import diverted
from llamagym_tui.trainer.rollout.episode_counts import EpisodeCounts

if TYPE_CHECKING:  # imported by what runs one
    from llamagym_tui.trainer.endpoint_player import EndpointPlayer


class Report(Protocol):
    def take(self, event: events.Event) -> None: ...

    def figures(self) -> dict[str, Any]:
        """The line of JSON."""

    def sentence(self) -> str:
        """The same for people."""

    @property
    def is_kept(self) -> bool:
        """True if all that was learnt is on the disk, so ctrl+c may end the session at once."""


def train(
    config: RunConfig,
    *,
    json_output: bool = False,
    debug: bool = False,
) -> int:
    """Run a session to its end, or to ctrl+c, as `run_session` does; or follow torchrun's first process."""
    if is_launched() and os.environ["RANK"] != "0":
        from llamagym_tui.trainer import ranks

        ranks.follow(int(os.environ["RANK"]) - 1, int(os.environ["WORLD_SIZE"]))
        # A folder that was reserved for a new run stays empty: the run is in that of rank 0.
        with suppress(OSError):
            os.rmdir(config.run_dir)
        return 0
    summary = Summary()
    code = run_session(
        config,
        summary,
        queue.SimpleQueue(),
        json_output=json_output,
        debug=debug,
        evaluates_end=True,
        episodes=config.episodes,
        minutes=config.minutes,
    )
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
    """Measure the mean return of an `evaluated_config`'s model, and print it on stdout; returns the exit code, 0.

    Raises:
        LlamaGymError: agent or model do not load, or the environment or the endpoint failed.
    """
    with quiet_progress(debug, episodes=episodes) as progress, ExitStack() as stack:
        player: Player | EndpointPlayer
        if model_registry.is_endpoint(config.model):
            from llamagym_tui.trainer import endpoint_player

            player = stack.enter_context(
                closing(endpoint_player.EndpointPlayer(config, progress.notify))
            )
        else:
            player = stack.enter_context(closing(Player(config, progress)))
        found = player.play(episodes, greedy, progress.evaluated)
    assert found is not None, "nothing stops it"
    if not json_output:
        echo(_evaluation_sentence(found, player))
        return 0
    figures = {
        "agent": catalog.agent_name(config.agent),
        "model": config.model,
        "episodes": found.episodes,
        "mean_return": found.mean_return,
        "return_stderr": found.return_stderr,
        "parse_failure_rate": found.parse_failure_rate,
        "refusal_rate": found.refusal_rate,
        "truncated": found.truncated,
        "dropped": found.dropped,
        "elapsed_s": round(found.elapsed_s, 3),
    }
    echo_json(figures)
    return 0


def class_record(config: RunConfig, seats: int, *, debug: bool = False) -> ClassRecord:
    """Play the model's part of a class greedily, in the environment of training, as people do."""
    from llamagym_tui.trainer.builders import EVALUATION_SEED
    from llamagym_tui.trainer.evaluations import returns_by_number

    seed = EVALUATION_SEED + config.seed
    ended: list[EpisodeCounts] = []
    with quiet_progress(debug, episodes=MATCH) as progress:
        player = Player(config, progress)
        found = player.play(MATCH, True, progress.evaluated, seed=seed, ended=ended, held_out=False)
    assert found is not None, "nothing stops it"
    returns = returns_by_number(MATCH, ended)
    return ClassRecord(
        config=msgspec.structs.replace(config, system_prompt=player.prompt),
        match=events.MatchPlayed(seed=seed, returns=returns, played=found),
        seats=seats,
        return_unit=player.agent.return_unit,
    )


@contextmanager
def quiet_progress(
    debug: bool,
    printed: BinaryIO | None = None,
    *,
    episodes: int | None = None,
    minutes: float | None = None,
) -> Iterator[Progress]:
    """Progress towards a limit on stderr, while what libraries print goes into `printed`, or nowhere.

    If `debug`, it goes to stderr too.
    """
    with (
        printed or tempfile.TemporaryFile() as log,
        diverted(log, stderr=not debug) as terminal,
        Progress(terminal, episodes=episodes, minutes=minutes) as progress,
    ):
        yield progress


class Summary:
    """The outcome of a run, with the evaluation of its last policy."""

    is_kept = False

    def __init__(self) -> None:
        self._last: dict[type[events.Event], Any] = {}

    def take(self, event: events.Event) -> None:
        self._last[type(event)] = event

    @property
    def _last_batch(self) -> MeanReturn | None:
        """The mean return of the last update's batch, which was played before that update."""
        updated = self._last.get(events.UpdateFinished)
        if updated is None:
            return None
        stats = updated.stats
        return MeanReturn(stats.mean_return, stats.return_stderr, stats.episodes)

    def figures(self) -> dict[str, Any]:
        started = self._last[events.RunStarted]
        finished = self._last[
            events.RunFinished
        ]  # figures are asked for where a run has ended well
        counts = self._last.get(events.EpisodesCounted)
        found = self._last.get(events.EvaluationFinished)
        batch = self._last_batch
        pace = finished.episodes / finished.elapsed_s if finished.elapsed_s else 0.0
        evaluation = None
        if found is not None:
            evaluation = {
                **_figures_of(evaluated_return(found)),
                "policy": "greedy" if found.greedy else "sampled",
                "parse_failure_rate": found.parse_failure_rate,
                "refusal_rate": found.refusal_rate,
                "truncated": found.truncated,
                "dropped": found.dropped,
            }
        last_update = None
        if batch is not None:
            last_update = {"update": finished.updates, **_figures_of(batch)}
        return {
            "agent": started.agent,
            "model": started.model,
            "seed": started.seed,
            "episodes": finished.episodes,
            "env_steps": finished.env_steps,
            "updates": finished.updates,
            "elapsed_s": round(finished.elapsed_s, 3),
            "episodes_per_s": round(pace, 3),
            "dropped": counts.dropped if counts else 0,
            "evaluation": evaluation,
            "last_update": last_update,
            "run_dir": started.run_dir,
        }

    def sentence(self) -> str:
        figures = self.figures()
        found = self._last.get(events.EvaluationFinished)
        batch = self._last_batch
        seconds = f"{figures['elapsed_s']:,.0f} s"
        place = f"The run is in {figures['run_dir']}"
        if not figures["episodes"]:
            return f"No episode ended in {seconds}; give it longer. {place}"
        played = counted(figures["episodes"], "episode")
        updates = counted(figures["updates"], "update")
        texts = [f"{played} and {updates} in {seconds}."]
        if found is not None:
            mean = return_text(evaluated_return(found), 3)
            over = counted(found.episodes, "greedy episode" if found.greedy else "sampled episode")
            texts.append(f"The policy now: mean return {mean} over {over} on other seeds.")
        if batch is not None and math.isfinite(batch.mean):
            mean = return_text(batch, 3)
            over = counted(batch.episodes, "episode")
            texts.append(f"Before its last update: {mean} over the {over} of that batch.")
        if figures["dropped"]:
            texts.append(f"Episodes that failed and were dropped: {figures['dropped']:,}.")
        return " ".join([*texts, place])


def _figures_of(mean: MeanReturn) -> dict[str, Any]:
    """A mean return for JSON, with its number of episodes and 95 % interval; a number that is not finite is null."""
    values = {
        "mean_return": mean.mean,
        "return_stderr": mean.stderr,
        "half_width_95": margin(mean.stderr),
    }
    finite = {name: value if math.isfinite(value) else None for name, value in values.items()}
    if mean.episodes < 2:
        finite |= {"return_stderr": None, "half_width_95": None}
    return {"episodes": mean.episodes, **finite}


def return_text(mean: MeanReturn, most: int) -> str:
    """A mean return with its 95 % confidence interval, which a single episode does not have; `most` decimals."""
    half = margin(mean.stderr)
    places = decimals(mean.mean, half, most)
    within = f" ± {half:,.{places}f} (95 %)" if mean.episodes > 1 else ""
    return f"{mean.mean:,.{places}f}{within}"


def run_session(
    config: RunConfig,
    report: Report,
    command_queue: queue.SimpleQueue[AnyCommand],
    *,
    json_output: bool,
    debug: bool,
    evaluates_end: bool = False,
    episodes: int | None = None,
    minutes: float | None = None,
) -> int:
    """Run a session in this process to its end, and print its report; ctrl+c ends it with a checkpoint.

    Args:
        report: takes the events.
        evaluates_end: evaluate the policy that it ends with.
        episodes: the number that the progress bar counts up to.
        minutes: the minutes that it counts up to, where there is no limit of episodes.
    Returns:
        The exit code, 0.
    Raises:
        LlamaGymError: it failed.
    """
    store = RunStore.create(config)
    with quiet_progress(debug, store.open_log(), episodes=episodes, minutes=minutes) as progress:
        from llamagym_tui.trainer.event_sinks import session_failed
        from llamagym_tui.trainer.session import Session

        session = Session(
            config,
            store,
            command_queue,
            sinks=[report.take, progress.take],
            evaluates_end=evaluates_end,
        )
        with _stopped_by_signals(command_queue, progress, report):
            phase = session.run()
    if phase == "failed":
        assert session.error is not None
        if isinstance(session.error, LlamaGymError):
            error = session.error
        else:
            error = LlamaGymError(session_failed(session.error, store.log_path).message)
            error.__cause__ = session.error
        if json_output:
            failed = {"model": config.model, "seed": config.seed, "run_dir": config.run_dir}
            echo_json({"agent": catalog.agent_name(config.agent), **failed, "error": str(error)})
        raise error
    if json_output:
        echo_json(report.figures())
    else:
        echo(report.sentence())
    return 0


class Player:
    """A policy that plays under a prompt, to be evaluated; to be closed."""

    def __init__(self, config: RunConfig, progress: Progress, other: Self | None = None) -> None:
        """Load what a configuration names, but for a model that the `other` player has loaded."""
        from llamagym_tui.trainer.builders import Builders

        self._builders = Builders(config)
        self._progress = progress
        self.config = config
        self.agent = self._builders.agent()
        if other is None or other.config.model != config.model:
            self._builders.fetch_model(progress.show_stage)
            progress.show("loading the model")
            self._builders.require_memory(learns=False)
            loaded = self._builders.model()
            self.policy = self._builders.policy(self.agent, loaded)
            self._builders.threads(self.policy, loaded)
        else:
            self.policy = other.policy
        prompt = config.system_prompt
        self.prompt = self.agent.get_system_prompt() if prompt is None else prompt

    def close(self) -> None:
        self._builders.close()

    def play(
        self,
        episodes: int,
        greedy: bool,
        shown: Callable[[int], None] = lambda done: None,
        *,
        seed: int | None = None,
        ended: list[EpisodeCounts] | None = None,
        held_out: bool = True,
        env: Mapping[str, Any] = MappingProxyType({}),
    ) -> events.EvaluationFinished | None:
        """Play episodes and evaluate them.

        Args:
            shown: called with the number of episodes that have ended.
            seed: by default one that no training sees.
            ended: receives the episodes that have ended.
            held_out: play in the environment of the agent's evaluations, if it has one.
            env: further keyword arguments of the environment.
        """
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
            seed=seed,
            ended=ended,
            held_out=held_out,
            env=env,
        )


def _evaluation_sentence(
    found: events.EvaluationFinished, player: "Player | EndpointPlayer"
) -> str:
    mean = return_text(evaluated_return(found), 4)
    refused = ""
    if found.refusal_rate:
        refused = f"{found.refusal_rate:.1%} named an action that was refused; "
    return (
        f"Mean return {with_unit(mean, player.agent.return_unit)} over {counted(found.episodes, 'episode')}, "
        f"{'greedy' if found.greedy else 'sampled'}, prompt {words(player.prompt)}; "
        f"{found.parse_failure_rate:.1%} of replies named no action; {refused}"
        f"{found.elapsed_s:.0f} s."
    )


@contextmanager
def _stopped_by_signals(
    command_queue: queue.SimpleQueue[AnyCommand], progress: Progress, report: Report
) -> Iterator[None]:
    """Take ctrl+c, a request to end, or a hang-up as a stop with a checkpoint; the second one ends at once.

    So does the first ctrl+c where a stop has nothing to save.
    """

    def stop(number: int, frame: object) -> None:
        # Hang-ups come twice: from the shell, and from the system.
        is_hang_up = number == getattr(signal, "SIGHUP", None)
        again = before[signal.Signals(number)]
        # A script has ctrl+c ignored in what it starts in the background.
        if again is signal.SIG_IGN:
            again = signal.default_int_handler
        signal.signal(number, signal.SIG_IGN if is_hang_up else again)
        if number == signal.SIGINT and report.is_kept:
            raise KeyboardInterrupt
        command_queue.put(Stop())
        with suppress(OSError):  # the terminal may be gone
            progress.show("stopping; what was learnt is saved first")

    wanted = {signal.SIGINT, signal.SIGTERM}
    # Under nohup, hang-ups are ignored.
    if hasattr(signal, "SIGHUP") and signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        wanted.add(signal.SIGHUP)
    before = {number: signal.getsignal(number) for number in wanted}
    for number in wanted:
        signal.signal(number, stop)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
