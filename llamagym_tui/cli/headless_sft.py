"""`sft` without a screen: a session that plays nothing for the run, but evaluates, trains on demonstrations, evaluates.

It is the trainer's own session, steered by the same commands as the playground's; what it leaves is a run folder that
`train --resume` goes on from. Stdout carries one line, as `headless` has it.
"""

from __future__ import annotations

import json
import queue
from typing import Any

from llamagym_tui.cli import headless
from llamagym_tui.cli.progress import progress_on
from llamagym_tui.config import RunConfig
from llamagym_tui.protocol.commands import AnyCommand, Evaluate, Pause, Stop, WarmStart
from llamagym_tui.protocol.events import EvaluationFinished, Event, PhaseChanged, RunStarted, WarmStartFinished
from llamagym_tui.returns import evaluated_return
from llamagym_tui.run_store import RunStore
from llamagym_tui.state.reduce import warm_start_text


def warm_start(config: RunConfig, *, hands: int, json_output: bool = False, debug: bool = False) -> int:
    """Train the policy of a new run on `config.sft_data`, and say how it went, on stdout.

    Args:
        config: settings of the run; the file was checked.
        hands: greedy episodes of the evaluations before and after. 0: none.
        json_output: end with a line of JSON instead of a sentence.
        debug: leave stderr to the libraries too.
    Returns:
        The exit code, 0.
    Raises:
        LlamaGymError: the run failed.
    """
    from llamagym_tui.trainer.descriptors import diverted, quiet_libraries

    quiet_libraries()
    store = RunStore.create(config)
    asked: queue.SimpleQueue[AnyCommand] = queue.SimpleQueue()
    course = _Course(asked, config, hands)
    with (
        store.log_path.open("ab") as log,
        diverted(log, stderr=not debug) as terminal,
        progress_on(terminal, episodes=hands or None) as progress,
    ):
        headless.run_session(config, store, asked, [course.take, progress.take], progress)
    print(json.dumps(course.figures()) if json_output else course.sentence())
    return 0


class _Course:
    """What a session is asked in turn, each time that it holds still, and what it told."""

    def __init__(self, asked: queue.SimpleQueue[AnyCommand], config: RunConfig, hands: int) -> None:
        self._asked, self._config, self._hands = asked, config, hands
        evaluation: list[AnyCommand] = [Evaluate(episodes=hands, greedy=True)] if hands else []
        self._next: list[AnyCommand] = [*evaluation, WarmStart(sft_data=config.sft_data), *evaluation, Stop()]
        self._taught: WarmStartFinished | None = None
        self._before: EvaluationFinished | None = None
        self._after: EvaluationFinished | None = None

    def take(self, event: Event) -> None:
        """Keep what matters, and ask for what comes next."""
        match event:
            case RunStarted():
                self._asked.put(Pause())
            case PhaseChanged(phase="paused") if self._next:
                self._asked.put(self._next.pop(0))
            case WarmStartFinished():
                self._taught = event
            case EvaluationFinished() if self._taught is None:
                self._before = event
            case EvaluationFinished():
                self._after = event
            case _:
                pass

    def figures(self) -> dict[str, Any]:
        """The line of JSON."""
        taught = self._taught
        return {
            "agent": self._config.agent,
            "model": self._config.model,
            "seed": self._config.seed,
            "sft_data": self._config.sft_data,
            "demonstrations": taught.demonstrations if taught else 0,
            "tokens": taught.tokens if taught else 0,
            "steps": taught.steps if taught else 0,
            "first_loss": taught.first_loss if taught else None,
            "last_loss": taught.last_loss if taught else None,
            "elapsed_s": round(taught.elapsed_s, 3) if taught else 0.0,
            "cancelled": taught is None or taught.cancelled,
            "before": _played(self._before),
            "after": _played(self._after),
            "run_dir": self._config.run_dir,
        }

    def sentence(self) -> str:
        """The same for people."""
        if self._taught is None:
            return f"Nothing was trained. The run is in {self._config.run_dir}"
        played = ""
        if self._before is not None and self._after is not None:
            played = (
                f" Greedy return {_return(self._before)} before, {_return(self._after)} after, "
                f"over {self._hands:,} episodes."
            )
        go_on = f"llamagym-tui train --resume --run-dir {self._config.run_dir}"
        return f"{warm_start_text(self._taught)}.{played} Go on with `{go_on}`."


def _played(evaluation: EvaluationFinished | None) -> dict[str, float] | None:
    if evaluation is None:
        return None
    return {
        "episodes": evaluation.episodes,
        "mean_return": evaluation.mean_return,
        "return_stderr": evaluation.return_stderr,
        "parse_failure_rate": evaluation.parse_failure_rate,
    }


def _return(evaluation: EvaluationFinished) -> str:
    return headless.return_words(evaluated_return(evaluation), 3)
