"""The evaluations of a session: of the present policy, of two prompts, and before and after a warm start.

They are played apart from the run, which then goes on where it was.
"""

import logging
import math

from msgspec.structs import replace

from llamagym_tui.protocol import commands, events
from llamagym_tui.state.returns import counted, left_text
from llamagym_tui.trainer.builders import EVALUATION_SEED
from llamagym_tui.trainer.event_sinks import TimeLeft, session_failed
from llamagym_tui.trainer.rollout.episode_counts import EpisodeCounts
from llamagym_tui.trainer.rollout.evaluation import compared, enough_for, played
from llamagym_tui.trainer.session_base import SessionBase

PATIENCE = 3
"""Times its limit that an evaluation may take until its last episodes have ended."""
WARM_START_S = 10.0
"""Seconds after which the evaluations before and after a warm start begin no more episodes."""
log = logging.getLogger(__name__)


def evaluate(session: SessionBase, command: commands.Evaluate) -> None:
    """Evaluate the present policy under the present prompt, and emit the result."""
    found = _play(session, command)
    if found is not None:
        session.emit(found)


def around_warm_start(session: SessionBase, episodes: int) -> events.EvaluationFinished | None:
    """Sampled episodes, before a warm start or after it; None: there is no result."""
    if not episodes:
        return None
    command = commands.Evaluate(episodes=episodes, greedy=False, limit_s=WARM_START_S)
    return _play(session, command)


def compare(session: SessionBase, command: commands.ComparePrompts) -> None:
    """Evaluate two prompts on the same seeds until the interval of their difference is narrow enough."""
    began_at = session.clock()
    enough = command.half_width or enough_for(session.agent.baselines)
    prompts = list(zip(command.system_prompts, command.versions, strict=True))

    def play(side: int, episodes: int, seed: int, ended: list[EpisodeCounts]) -> bool:
        seed_of_round = seed + EVALUATION_SEED + session.config.seed
        evaluate = commands.Evaluate(episodes=episodes, seed=seed_of_round)
        return _play(session, evaluate, prompts[side], ended) is not None

    pairs = played(play, enough)
    if pairs is None:
        return
    update = session.learner.updates
    played_by = []
    maps = []
    for system_prompt, version in prompts:
        played_by.append(
            {"update": update, "prompt_version": version, "system_prompt": system_prompt}
        )
        with session.learner.under_prompt(system_prompt):
            maps += session.policy_map.under(system_prompt, version, update)
    session.emit(
        compared(
            pairs,
            played_by,
            elapsed_s=session.clock() - began_at,
            greedy=True,
            enough=enough,
            maps=maps,
        )
    )


def _play(
    session: SessionBase,
    command: commands.Evaluate,
    prompt: tuple[str, int] | None = None,
    ended: list[EpisodeCounts] | None = None,
) -> events.EvaluationFinished | None:
    """Play apart from the run; None: there is no result, and an event has the reason.

    Past the limit of the command, episodes under way have `PATIENCE` times as long in all: without the longest of them
    the mean would be another one.

    Args:
        prompt: a system prompt with its version. None: the present one.
        ended: receives the episodes.
    """
    rollout = session.rollout
    system_prompt, version = prompt or (rollout.system_prompt, rollout.prompt_version)
    ended = [] if ended is None else ended
    session.report_episodes()
    before = session.enter("evaluating", _progress(0, command))
    result = None
    why = ""
    try:
        with session.learner.under_prompt(system_prompt):
            found = _played(session, command, system_prompt, ended)
    except Exception as error:
        # Its environments are not the run's, and memory may be short for it alone.
        log.error("the evaluation failed", exc_info=error)
        why = f"No evaluation: {session_failed(error, session.log_path).message}"
        ended.clear()
    else:
        is_stopped = session.should_end_evaluation()
        is_complete = len(ended) == command.episodes
        if found is not None and (is_complete or (ended and not is_stopped)):
            result = replace(
                found,
                update=session.learner.updates,
                prompt_version=version,
                system_prompt=system_prompt,
            )
        elif not is_stopped:
            why = "An evaluation was out of time with episodes under way; `llamagym-tui eval` makes one."
    session.inbox.take(commands.CancelEvaluation)
    if result is None:
        session.emit(
            events.EvaluationCancelled(played=len(ended), episodes=command.episodes, why=why)
        )
    session.enter(before)
    return result


def _played(
    session: SessionBase,
    command: commands.Evaluate,
    system_prompt: str,
    ended: list[EpisodeCounts],
) -> events.EvaluationFinished | None:
    """The figures of the episodes; None: it was stopped, or out of time, with episodes under way."""
    limit_s = command.limit_s
    until = math.inf if limit_s is None else session.clock() + PATIENCE * limit_s
    emit_now_and_then = session.emitter.throttled()
    time_left = TimeLeft(session.clock)

    def progress(done: int) -> None:
        left_s = time_left.seconds(done, command.episodes) if done < command.episodes else None
        detail = f"{_progress(done, command)}{left_text(left_s)}"
        emit = emit_now_and_then if done < command.episodes else session.emit
        emit(events.PhaseChanged(phase="evaluating", detail=detail))

    return session.builders.evaluate(
        session.agent,
        session.policy,
        episodes=command.episodes,
        greedy=command.greedy,
        system_prompt=system_prompt,
        should_stop=lambda: session.should_end_evaluation() or session.clock() >= until,
        progress=progress,
        warn=lambda sentence: session.emitter.warn(f"In the evaluation: {sentence}"),
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
