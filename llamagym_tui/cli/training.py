"""`train`, `sft` and `dpo` without a screen: the trainer's own session in this process, and one line at the end.

Stdout carries that line alone. Progress goes to stderr; what libraries print goes to the run's log, or with ``--debug``
to stderr.
"""

import math
import os
import queue
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Literal

import msgspec

from llamagym_tui.cli.progress import Progress, quiet_progress
from llamagym_tui.errors import LlamaGymError
from llamagym_tui.protocol import events
from llamagym_tui.protocol.commands import AnyCommand, Evaluate, Pause, Stop, WarmStart
from llamagym_tui.protocol.literal import echo, echo_json
from llamagym_tui.runs.run_store import RunStore, has_checkpoint
from llamagym_tui.settings import RunConfig
from llamagym_tui.setup.run_config import is_launched
from llamagym_tui.state.returns import MeanReturn, counted, evaluated_return
from llamagym_tui.state.texts import warm_start_text

Commands = queue.SimpleQueue[AnyCommand]


class Outcome:
    """The last event of each kind of a session, which gets its commands one by one, each time that it pauses."""

    def __init__(self, script: Sequence[AnyCommand]) -> None:
        """No outcome yet; without a script the session goes on to its own end."""
        self.commands: Commands = queue.SimpleQueue()
        self._script = list(script)
        self._last: dict[type[events.Event], Any] = {}
        self.evaluated_before: events.EvaluationFinished | None = None
        """The evaluation before a warm start."""

    def take(self, event: events.Event) -> None:
        match event:
            case events.RunStarted() if self._script:
                self.commands.put(Pause())
            case events.PhaseChanged(phase="paused") if self._script:
                self.commands.put(self._script.pop(0))
            case events.WarmStartFinished():
                self.evaluated_before = self._last.pop(events.EvaluationFinished, None)
        self._last[type(event)] = event

    def last(self, kind: type[events.Event]) -> Any:
        """The last event of a kind; None if there was none."""
        return self._last.get(kind)


def train(config: RunConfig, *, json_output: bool = False) -> None:
    """Train to the end of a run, or to ctrl+c, and print the outcome.

    Under torchrun, every process but the first follows the first.

    Raises:
        LlamaGymError: the session failed.
    """
    if is_launched() and os.environ["RANK"] != "0":
        from llamagym_tui.trainer import ranks

        ranks.follow(int(os.environ["RANK"]) - 1, int(os.environ["WORLD_SIZE"]))
        # The folder that was reserved for this process stays empty: the run is in that of the first.
        with suppress(OSError):
            os.rmdir(config.run_dir)
        return
    outcome = run_session(config, evaluates_end=True)
    finished = outcome.last(events.RunFinished)
    updated = outcome.last(events.UpdateFinished)
    if json_output:
        figures = msgspec.to_builtins(finished)
        started = outcome.last(events.RunStarted)
        figures["agent"] = started.agent
        figures["model"] = started.model
        figures["seed"] = config.seed
        figures["run_dir"] = started.run_dir
        figures["evaluation"] = outcome.last(events.EvaluationFinished)
        figures["last_update"] = updated and updated.stats
        echo_json(msgspec.to_builtins(figures))
    else:
        echo(_trained_text(outcome))
    if config.mode == "train" and not finished.updates:
        few = "The run ended before its first batch of turns was full, so PPO has learnt nothing"
        echo(f"warning: {few}; give it longer, or set a smaller ppo.batch_size.", to=sys.stderr)


def _trained_text(outcome: Outcome) -> str:
    finished = outcome.last(events.RunFinished)
    found = outcome.last(events.EvaluationFinished)
    updated = outcome.last(events.UpdateFinished)
    counts = outcome.last(events.EpisodesCounted)
    seconds = f"{finished.elapsed_s:,.0f} s"
    place = f"The run is in {outcome.last(events.RunStarted).run_dir}"
    if not finished.episodes:
        return f"No episode ended in {seconds}; give it longer. {place}"
    played = counted(finished.episodes, "episode")
    texts = [f"{played} and {counted(finished.updates, 'update')} in {seconds}."]
    if found is not None:
        over = counted(found.episodes, "greedy episode" if found.greedy else "sampled episode")
        mean = evaluated_return(found).text
        texts.append(f"The policy now: mean return {mean} over {over} on other seeds.")
    if updated is not None and math.isfinite(updated.stats.mean_return):
        stats = updated.stats
        # The batch was played before the update.
        batch = MeanReturn(stats.mean_return, stats.return_stderr, stats.episodes)
        over = counted(batch.episodes, "episode")
        texts.append(f"Before its last update: {batch.text} over the {over} of that batch.")
    if counts is not None and counts.dropped:
        texts.append(f"Episodes that failed and were dropped: {counts.dropped:,}.")
    return " ".join([*texts, place])


def warm_start(
    config: RunConfig,
    *,
    episodes: int,
    method: Literal["sft", "dpo"] = "sft",
    json_output: bool = False,
) -> None:
    """Train a new run on `config.sft_data`, which was checked, and print the outcome.

    The evaluations before and after play this many greedy episodes, or `config.final_s` seconds each; 0 skips them.

    Raises:
        LlamaGymError: the session failed.
    """
    training = WarmStart(sft_data=config.sft_data, method=method)
    evaluation = Evaluate(episodes=episodes, greedy=True, limit_s=config.final_s)
    script: list[AnyCommand] = [training, Stop()]
    if episodes:
        script = [evaluation, training, evaluation, Stop()]
    outcome = run_session(config, script)
    trained = outcome.last(events.WarmStartFinished)
    before = outcome.evaluated_before
    after = outcome.last(events.EvaluationFinished)
    if trained is None:
        before, after = after, None
    if json_output:
        names = ("agent", "model", "seed", "sft_data", "run_dir")
        figures: dict[str, Any] = {name: getattr(config, name) for name in names}
        figures["method"] = method
        figures["facts"] = outcome.last(events.DemonstrationsRead)
        figures["trained"] = trained and trained.stats
        figures["before"] = before
        figures["after"] = after
        echo_json(msgspec.to_builtins(figures))
    elif trained is None:
        has_one = has_checkpoint(Path(config.run_dir))
        what = "has the model as it was" if has_one else "has no checkpoint"
        echo(f"Nothing was trained: the run in {config.run_dir} {what}.")
    else:
        texts = [f"{warm_start_text(trained)}."]
        if before is not None and after is not None:
            returns = (
                f"{evaluated_return(before).text} before, {evaluated_return(after).text} after"
            )
            failures = f"{before.parse_failure_rate:.1%} → {after.parse_failure_rate:.1%}"
            over = counted(after.episodes, "episode")
            texts.append(
                f"Greedy return {returns}, replies without an action {failures}, over {over}."
            )
        texts.append(f"Resume with `llamagym-tui train --resume --run-dir {config.run_dir}`.")
        echo(" ".join(texts))


def run_session(
    config: RunConfig,
    script: Sequence[AnyCommand] = (),
    *,
    evaluates_end: bool = False,
) -> Outcome:
    """Run a session in this process to its end; ctrl+c ends it with a checkpoint.

    Args:
        script: the commands of a session that plays nothing for the run.
        evaluates_end: evaluate the policy that it ends with.
    Raises:
        LlamaGymError: it failed.
    """
    outcome = Outcome(script)
    store = RunStore.create(config)
    with quiet_progress(
        store.open_log(), episodes=config.episodes, minutes=config.minutes
    ) as progress:
        from llamagym_tui.trainer.event_sinks import session_failed
        from llamagym_tui.trainer.session import Session

        session = Session(
            config,
            store,
            outcome.commands,
            sinks=[outcome.take, progress.take],
            evaluates_end=evaluates_end,
        )
        with _stopped_by_signals(outcome.commands, progress):
            session.run()
    if isinstance(session.error, LlamaGymError):
        raise session.error
    if session.error is not None:
        raise LlamaGymError(
            session_failed(session.error, store.log_path).message
        ) from session.error
    return outcome


@contextmanager
def _stopped_by_signals(commands: Commands, progress: Progress) -> Iterator[None]:
    """Take ctrl+c, a request to end, or a hang-up as a stop with a checkpoint; the second one ends at once."""

    def stop(number: int, frame: object) -> None:
        # Hang-ups come twice: from the shell, and from the system.
        is_hang_up = number == getattr(signal, "SIGHUP", None)
        again = before[signal.Signals(number)]
        # A script has ctrl+c ignored in what it starts in the background.
        if again is signal.SIG_IGN:
            again = signal.default_int_handler
        signal.signal(number, signal.SIG_IGN if is_hang_up else again)
        commands.put(Stop())
        with suppress(OSError):  # the terminal may be gone
            progress.notify("stopping; what was learnt is saved first")

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
