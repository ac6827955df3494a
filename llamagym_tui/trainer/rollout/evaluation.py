"""Evaluates the policy as it is: episodes in environments of their own, which count in no run."""

import time
from collections.abc import Callable
from contextlib import closing

from llamagym_tui.config import MAX_FAILURES, SEED_BITS, ParallelEnvs
from llamagym_tui.engine.policy.policy import Policy
from llamagym_tui.game.agent_base import AgentBase
from llamagym_tui.protocol.events import EvaluationFinished, Event, WarningRaised
from llamagym_tui.trainer.rollout.episode_counts import EpisodeCounts, evaluated
from llamagym_tui.trainer.rollout.opponents import Opponent
from llamagym_tui.trainer.rollout.rollout import Rollout


def evaluate(
    agent: AgentBase,
    policy: Policy,
    *,
    episodes: int,
    greedy: bool,
    seed: int,
    seed_bits: int = SEED_BITS,
    n_envs: int,
    system_prompt: str | None = None,
    limit_s: float | None = None,
    should_stop: Callable[[], bool] = lambda: False,
    warn: Callable[[str], None] = lambda sentence: None,
    progress: Callable[[int], None] = lambda done: None,
    ended: list[EpisodeCounts] | None = None,
    max_turns: int | None = None,
    max_failures: int = MAX_FAILURES,
    parallel: ParallelEnvs = "auto",
    opponent: Opponent | None = None,
) -> EvaluationFinished | None:
    """Play episodes in environments apart from any run; exactly `episodes` of them unless stopped or out of time.

    None: it was stopped with episodes under way; without the long ones, the mean is another one.

    Args:
        policy: chooses replies; its own random state is left as it was.
        seed: of environments and sampling.
        seed_bits: those of the seeds of episodes.
        system_prompt: None: the agent's own.
        limit_s: seconds after which no episode begins; those under way are played on. None: no limit.
        progress: called with the number of episodes that have ended.
        ended: receives the episodes; those of a number have the same seed in every evaluation with this one.
        max_turns: as of `Rollout`; so are the three after it.
    Raises:
        EnvError: an environment cannot be made, or too many episodes in a row failed.
        PromptTooLongError: the model cannot read a first prompt.
    """

    def emit(event: Event) -> None:
        if isinstance(event, WarningRaised):
            warn(event.message)

    began = time.perf_counter()
    rollout = Rollout(
        agent,
        policy,
        n_envs=min(n_envs, episodes),
        batch_turns=1,
        seed=seed,
        emit=emit,
        greedy=greedy,
        episode_limit=episodes,
        max_turns=max_turns,
        max_failures=max_failures,
        parallel=parallel,
        opponent=opponent,
    )
    rollout.shared.seed_bits = seed_bits
    rollout.mode = "inference"
    if system_prompt is not None:
        rollout.set_system_prompt(system_prompt, 0)
    if ended is None:
        ended = []
    with closing(rollout), policy.evaluation_seed(seed):
        while len(ended) < episodes and not should_stop():
            ended += rollout.step()
            progress(len(ended))
            if limit_s is not None and time.perf_counter() - began >= limit_s:
                episodes = rollout.episodes + rollout.live
                rollout.episode_limit = episodes
    if rollout.live:
        return None
    return evaluated(
        ended,
        greedy=greedy,
        elapsed_s=time.perf_counter() - began,
        dropped=rollout.failures.dropped,
    )
