"""`sft` and `dpo` without a screen: a session that evaluates, trains on demonstrations, evaluates."""

import queue
from pathlib import Path
from typing import Any, Literal

from llamagym_tui import run_store
from llamagym_tui.cli import headless
from llamagym_tui.config import RunConfig
from llamagym_tui.protocol import events
from llamagym_tui.protocol.commands import AnyCommand, Evaluate, Pause, Stop, WarmStart
from llamagym_tui.protocol.literal import echo, echo_json
from llamagym_tui.returns import evaluated_return
from llamagym_tui.state.texts import warm_start_text

FACTS = (
    "episodes",
    "turns",
    "actions",
    "under_present_prompt",
    "preferences",
)
"""Figures of the demonstrations in the line of JSON."""
TRAINED = ("demonstrations", "tokens", "steps", "first_loss", "last_loss")
"""Figures of the training in the line of JSON; null if nothing was trained."""


def warm_start(
    config: RunConfig,
    *,
    episodes: int,
    method: Literal["sft", "dpo"] = "sft",
    json_output: bool = False,
    debug: bool = False,
) -> int:
    """Train the policy of a new run on `config.sft_data`, which was checked, as `headless.run_session` does.

    The evaluations before and after take this many greedy episodes, or `config.final_s` seconds each; 0 skips them.
    """
    script = _Script(config, episodes, method)
    try:
        return headless.run_session(
            config,
            script,
            script.queue,
            json_output=json_output,
            debug=debug,
            episodes=episodes or None,
        )
    except KeyboardInterrupt:
        if not script.is_kept:  # the second one
            raise
    if json_output:
        echo_json(script.figures())
    else:
        echo(script.sentence())
    return 0


class _Script:
    """The commands of a session: evaluate, train, evaluate, stop; each is sent when the session pauses."""

    def __init__(self, config: RunConfig, episodes: int, method: Literal["sft", "dpo"]) -> None:
        self.queue: queue.SimpleQueue[AnyCommand] = queue.SimpleQueue()
        self._config = config
        self._method = method
        training = WarmStart(sft_data=config.sft_data, method=method)
        evaluation = Evaluate(episodes=episodes, greedy=True, limit_s=config.final_s)
        self._next: list[AnyCommand] = [training, Stop()]
        if episodes:
            self._next = [evaluation, training, evaluation, Stop()]
        self.is_kept = True
        self._read: events.DemonstrationsRead | None = None
        self._trained: events.WarmStartFinished | None = None
        self._before: events.EvaluationFinished | None = None
        self._after: events.EvaluationFinished | None = None

    def take(self, event: events.Event) -> None:
        match event:
            case events.RunStarted():
                self.queue.put(Pause())
            case events.PhaseChanged(phase="paused") if self._next:
                self.queue.put(self._next.pop(0))
            case events.DemonstrationsRead():
                self._read = event
            case events.WarmStartProgressed():
                self.is_kept = False
            case events.WarmStartFinished():
                self._trained = event
            case events.CheckpointSaved() if self._trained is not None:
                self.is_kept = True
            case events.EvaluationFinished() if self._trained is None:
                self._before = event
            case events.EvaluationFinished():
                self._after = event

    def figures(self) -> dict[str, Any]:
        trained = self._trained.stats if self._trained else None
        return {
            "agent": self._config.agent,
            "model": self._config.model,
            "seed": self._config.seed,
            "sft_data": self._config.sft_data,
            "method": self._method,
            "facts": {name: getattr(self._read, name, None) for name in FACTS},
            **{name: getattr(trained, name, None) for name in TRAINED},
            "elapsed_s": round(trained.elapsed_s, 3) if trained else 0.0,
            "cancelled": trained is None or trained.cancelled,
            "before": _figures_of(self._before),
            "after": _figures_of(self._after),
            "run_dir": self._config.run_dir,
        }

    def sentence(self) -> str:
        if self._trained is None:
            has_one = run_store.has_checkpoint(Path(self._config.run_dir))
            what = "has the model as it was" if has_one else "has no checkpoint"
            return f"Nothing was trained: the run in {self._config.run_dir} {what}."
        played = ""
        if self._before is not None and self._after is not None:
            both = (self._before, self._after)
            before, after = (headless.return_text(evaluated_return(each), 3) for each in both)
            unread = " → ".join(f"{each.parse_failure_rate:.1%}" for each in both)
            over = " and ".join(dict.fromkeys(f"{each.episodes:,}" for each in both))
            over = f"parse failures {unread}, over {over} episodes."
            played = f" Greedy return {before} before, {after} after, {over}"
        go_on = f"llamagym-tui train --resume --run-dir {self._config.run_dir}"
        return f"{warm_start_text(self._trained)}.{played} Continue with `{go_on}`."


def _figures_of(evaluation: events.EvaluationFinished | None) -> dict[str, float] | None:
    names = ("episodes", "mean_return", "return_stderr", "parse_failure_rate", "refusal_rate")
    return None if evaluation is None else {name: getattr(evaluation, name) for name in names}
