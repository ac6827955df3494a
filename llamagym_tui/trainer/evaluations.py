"""The evaluations of a session: of the present policy, of two prompts, and before and after a warm start.

They are played apart from the run, which then goes on where it was. When one is made is up to the session, which also
says when it should end.
"""

import logging
import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from msgspec.structs import replace

from llamagym_tui.protocol import commands, events
from llamagym_tui.state.returns import counted, left_text
from llamagym_tui.trainer.builders import EVALUATION_SEED, Builders
from llamagym_tui.trainer.event_sinks import EventEmitter, TimeLeft, session_failed
from llamagym_tui.trainer.inbox import Inbox
from llamagym_tui.trainer.rollout.episode_counts import EpisodeCounts
from llamagym_tui.trainer.rollout.evaluation import compared, enough_for, played
from llamagym_tui.trainer.run import Run

PATIENCE = 3
"""Times its limit that an evaluation may take until its last episodes have ended."""
WARM_START_S = 10.0
"""Seconds after which the evaluations before and after a warm start begin no more episodes."""
log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class Evaluations:
    """Evaluates the policy of a run."""

    run: Run
    builders: Builders
    emitter: EventEmitter
    inbox: Inbox
    clock: Callable[[], float]
    log_path: Path
    """The log that has the traceback of an evaluation that fails."""
    enter: Callable[[events.Phase, str], events.Phase]
    """Enters a phase of the session, with a detail for people; returns the phase that it leaves."""
    should_stop: Callable[[], bool]
    """Asked while episodes are played: whether the evaluation should end without a result."""

    def evaluate(self, command: commands.Evaluate) -> None:
        """Evaluate the present policy under the present prompt, and emit the result."""
        found = self.play(command)
        if found is not None:
            self.emitter.emit(found)

    def around_warm_start(self, episodes: int) -> events.EvaluationFinished | None:
        """So many sampled episodes, before a warm start or after it; None: there is no result."""
        command = commands.Evaluate(episodes=episodes, greedy=False, limit_s=WARM_START_S)
        return self.play(command)

    def compare(self, command: commands.ComparePrompts) -> None:
        """Evaluate two prompts on the same seeds until the interval of their difference is narrow enough."""
        run = self.run
        began_at = self.clock()
        enough = command.half_width or enough_for(run.agent.baselines)
        prompts = list(zip(command.system_prompts, command.versions, strict=True))

        def play(side: int, episodes: int, seed: int, ended: list[EpisodeCounts]) -> bool:
            seed_of_round = seed + EVALUATION_SEED + run.config.seed
            evaluate = commands.Evaluate(episodes=episodes, seed=seed_of_round)
            return self.play(evaluate, prompt=prompts[side], ended=ended) is not None

        pairs = played(play, enough)
        if pairs is None:
            return
        update = run.learner.updates
        played_by = []
        maps = []
        for system_prompt, version in prompts:
            played_by.append(
                {"update": update, "prompt_version": version, "system_prompt": system_prompt}
            )
            with run.learner.under_prompt(system_prompt):
                maps += run.policy_map.under(system_prompt, version, update)
        found = compared(
            pairs,
            played_by,
            elapsed_s=self.clock() - began_at,
            greedy=True,
            enough=enough,
            maps=maps,
        )
        self.emitter.emit(found)

    def play(
        self,
        command: commands.Evaluate,
        *,
        prompt: tuple[str, int] | None = None,
        ended: list[EpisodeCounts] | None = None,
    ) -> events.EvaluationFinished | None:
        """Play apart from the run, then go on where it was; None: there is no result, and an event has the reason.

        Past the limit of the command, episodes under way have `PATIENCE` times as long in all, as without the longest
        of them the mean would be another one.

        Args:
            prompt: a prompt with its version. None: the present one.
            ended: receives the episodes.
        """
        run = self.run
        if ended is None:
            ended = []
        if prompt is None:
            prompt = (run.rollout.system_prompt, run.rollout.prompt_version)
        system_prompt, version = prompt
        run.report_episodes()
        before = self.enter("evaluating", _progress(0, command))
        result = None
        episodes_played = 0
        why = ""
        try:
            with run.learner.under_prompt(system_prompt):
                found = self._played(command, system_prompt, ended)
        except Exception as error:
            # Its environments are not the run's, and memory may be short for it alone.
            log.error("the evaluation failed", exc_info=error)
            message = session_failed(error, self.log_path).message
            why = f"No evaluation: {message}"
        else:
            episodes_played = len(ended)
            is_stopped = self.should_stop()
            is_complete = episodes_played == command.episodes
            if found is not None and (is_complete or (episodes_played > 0 and not is_stopped)):
                result = replace(
                    found,
                    update=run.learner.updates,
                    prompt_version=version,
                    system_prompt=system_prompt,
                )
            elif not is_stopped:
                why = "An evaluation was out of time with episodes under way; `llamagym-tui eval` makes one."
        self.inbox.take(commands.CancelEvaluation)
        if result is None:
            self.emitter.emit(
                events.EvaluationCancelled(
                    played=episodes_played, episodes=command.episodes, why=why
                )
            )
        self.enter(before, "")
        return result

    def _played(
        self,
        command: commands.Evaluate,
        system_prompt: str,
        ended: list[EpisodeCounts],
    ) -> events.EvaluationFinished | None:
        """The figures of the episodes; None: it was stopped, or out of time, with episodes under way."""
        limit_s = command.limit_s
        until = math.inf if limit_s is None else self.clock() + PATIENCE * limit_s
        emit_now_and_then = self.emitter.throttled()
        time_left = TimeLeft(self.clock)

        def should_stop() -> bool:
            return self.should_stop() or self.clock() >= until

        def progress(done: int) -> None:
            left_s = time_left.seconds(done, command.episodes) if done < command.episodes else None
            detail = f"{_progress(done, command)}{left_text(left_s)}"
            emit = emit_now_and_then if done < command.episodes else self.emitter.emit
            emit(events.PhaseChanged(phase="evaluating", detail=detail))

        def warn(sentence: str) -> None:
            self.emitter.warn(f"In the evaluation: {sentence}")

        return self.builders.evaluate(
            self.run.agent,
            self.run.policy,
            episodes=command.episodes,
            greedy=command.greedy,
            system_prompt=system_prompt,
            should_stop=should_stop,
            progress=progress,
            warn=warn,
            limit_s=limit_s,
            seed=command.seed,
            ended=ended,
        )


def _progress(done: int, command: commands.Evaluate) -> str:
    return f"{done:,} of {counted(command.episodes, 'episode')}"


def returns_by_number(episodes: int, ended: list[EpisodeCounts]) -> list[float | None]:
    """The return of each episode, in the order of their numbers."""
    returns = {episode.number: episode.episode_return for episode in ended}
    return [returns.get(number) for number in range(episodes)]
