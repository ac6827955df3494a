"""Builds events from what other parts found: how the run began, an update, an evaluation, a failure."""

from pathlib import Path

from msgspec.structs import replace

from llamagym_tui.config import MOST_UNREAD, RunConfig, UpdateStats
from llamagym_tui.engine.learning.form import FormLearnt
from llamagym_tui.errors import LlamaGymError, described, located, user_place
from llamagym_tui.protocol.events import RunStarted, SessionFailed
from llamagym_tui.setup import catalog
from llamagym_tui.trainer.collapse import Verdict
from llamagym_tui.trainer.parts import Parts


def run_started(
    config: RunConfig, parts: Parts, trained: str, unread_share: float | None = None
) -> RunStarted:
    """How a session begins; `trained` and `unread_share` are as of the event."""
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
        unread_share=unread_share,
        trained=trained,
    )


def update_stats(figures: UpdateStats, rollout_s: float, known_prompts: float = 0.0) -> UpdateStats:
    """An update's figures, with those of the rollout that only the session knows."""
    return replace(
        figures,
        known_prompts=known_prompts,
        rollout_s=rollout_s,
        tokens_per_s=figures.tokens / rollout_s if rollout_s else 0.0,
        episodes_per_s=figures.episodes / (rollout_s + figures.update_s) if rollout_s else 0.0,
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


def training_template_taken(name: str) -> str:
    """Which of TRL's templates for training a model has now."""
    return (
        "The model's own chat template rewrites earlier replies, as by leaving out their thoughts, so TRL's "
        f"{name} is taken in its place, which keeps them; what is saved of this run has it, too."
    )


def form_warning(unread: float) -> str:
    """Why replies are chosen by score; `unread` is the share of the tried ones that name no action."""
    return (
        f"{unread:.0%} of the first replies of this model name no action, so they are chosen among the admissible "
        "ones by their scores (generation.policy = score; --form off leaves free text)."
    )


def form_learnt(form: FormLearnt) -> str:
    """What came of learning the form, measured on prompts that it was not learnt on."""
    if form.was_known:
        return (
            f"The form of replies is known already ({1 - form.before.named:.1%} of replies name no action in it), so "
            "it was not taught again."
        )
    before, after = (1 - each.named for each in (form.before, form.after))
    if after > MOST_UNREAD:
        return (
            f"The form is not learnt: after {form.elapsed_s:.0f} s {after:.0%} of replies name no action in it "
            f"({before:.0%} before); take a larger model, or --form score."
        )
    return (
        f"The form is learnt, in {form.elapsed_s:.0f} s: {after:.1%} of replies name no action in it ({before:.0%} "
        f"before), and the entropy of the action is {form.after.entropy:.2f} of its maximum: no play was taught."
    )
