"""Builds events from what other parts found: how the run began, an update, an evaluation, a failure."""

from pathlib import Path

from llamagym_tui.config import RunConfig
from llamagym_tui.errors import LlamaGymError, described, located, user_place
from llamagym_tui.protocol.events import RunStarted, SessionFailed
from llamagym_tui.setup import catalog
from llamagym_tui.trainer.collapse import Verdict
from llamagym_tui.trainer.parts import Parts


def run_started(config: RunConfig, parts: Parts, trained: str) -> RunStarted:
    """The beginning of a session; `trained` is that of the event."""
    agent = parts.agent
    return RunStarted(
        agent=catalog.agent_name(config.agent),
        env_id=agent.env_id,
        model=parts.loaded.name,
        run_dir=config.run_dir,
        seed=config.seed,
        n_envs=config.n_envs,
        mode=config.mode,
        system_prompt=parts.rollout.system_prompt,
        prompt_version=parts.rollout.prompt_version,
        action_names=list(agent.action_names),
        baselines=dict(agent.baselines),
        return_unit=agent.return_unit,
        device=str(parts.loaded.device),
        draws=parts.rollout.draws,
        episodes=parts.start.episodes,
        updates=parts.learner.updates,
        trained=trained,
    )


def session_failed(error: Exception, log_path: Path) -> SessionFailed:
    """An error as one sentence for people, which says what to do."""
    if isinstance(error, LlamaGymError):
        return SessionFailed(message=str(error))
    # torch's own error of that name is no MemoryError.
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":
        return SessionFailed(
            message="There is not enough memory; take a smaller --model, or fewer --envs."
        )
    what = located(error)
    if not user_place(error):
        what = f"The session failed by {described(error)}"
    return SessionFailed(message=f"{what}; {log_path} has the traceback.")


def verdict_text(verdict: Verdict) -> str:
    how = "has collapsed" if verdict.level == "collapsed" else "may be about to collapse"
    return f"The policy {how}: {verdict.reason}"


COLLAPSE_ADVICE = "Roll back, and lower ppo.lr or raise ppo.kl_coef."
HISTORY_WARNING = (
    "The model's chat template rewrites earlier turns, so every turn is computed again from its beginning: "
    "long episodes take much longer than with other models."
)
