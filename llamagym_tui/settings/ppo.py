"""The settings of PPO and of the learners that share its objective."""

from typing import Annotated, Literal

from msgspec import Meta, Struct

from llamagym_tui.settings.fields import Count, Fraction, NonNegative, Option, Positive

LearnerName = Literal["ppo", "reinforce", "rebn", "rloo", "grpo", "gigpo"]
"""Ways to estimate advantages; each is a function in `engine/learning/estimators.py`."""
Grouping = Literal["seed", "observation"]
"""The common property of compared episodes or turns."""
SCHEDULED = ("lr", "kl_coef", "entropy_coef")
"""Settings that move along a line to the setting of their name with `_final`; figures of updates have the present
values."""

UNUSED_BY_HEAD = (
    "mini_batch_size", "epochs", "lr", "lr_final", "value_lr", "value_coef", "max_grad_norm", "target_kl",
    "critic_warmup_updates",
)  # fmt: skip
"""Settings without effect on an adapter on the LM head alone: its steps are on whole batches and follow the KL that
they make, and its critic is fitted in closed form."""


class LearnerFacts(Struct, frozen=True, kw_only=True):
    """Facts of a learner for settings, rollout and screens."""

    title: str
    """For people."""
    has_critic: bool = False
    """True if a value head predicts returns."""
    groups: Grouping | None = None
    """The common property of compared episodes or turns; None if nothing is compared."""
    formula: str = ""
    """The formula from a comparison to an advantage, for people."""


LEARNERS: dict[LearnerName, LearnerFacts] = {
    "ppo": LearnerFacts(title="PPO", has_critic=True),
    "reinforce": LearnerFacts(title="REINFORCE"),
    "rebn": LearnerFacts(title="ReBN", formula="(return − mean) ÷ spread"),
    "rloo": LearnerFacts(
        title="RLOO",
        groups="seed",
        formula="return − mean, times members ÷ (members − 1), less its KL",
    ),
    "grpo": LearnerFacts(
        title="GRPO",
        groups="seed",
        formula="(return − mean) ÷ spread, less its KL, times mean turns of an episode ÷ turns of this one",
    ),
    "gigpo": LearnerFacts(
        title="GiGPO",
        groups="observation",
        formula="sum of (return − mean) ÷ spread, less its KL",
    ),
}
"""By name, simplest first after PPO."""


class PPOConfig(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Proximal policy optimisation over turns. Source: arXiv:1707.06347."""

    lr: Annotated[
        Positive,
        Option(
            title="learning rate",
            help="Largest step size of the policy. A change ends its schedule.",
        ),
    ] = 5e-4
    """Adam's learning rate at the first update; smaller while an update moves the policy too far (`update_kl`)."""
    kl_coef: Annotated[
        NonNegative,
        Option(
            title="KL penalty",
            help="Weight of the penalty for moving away from the reference policy. A change ends its schedule.",
        ),
    ] = 0.02
    """Nats to reward; subtracted from the reward (k1)."""
    entropy_coef: Annotated[
        NonNegative,
        Option(
            title="entropy bonus",
            help="Weight of the bonus for the entropy of the actions. A change ends its schedule.",
        ),
    ] = 0.1
    """Weights the entropy of the *action* distribution: of the tokens where admissible replies part."""
    clip_range: Annotated[
        Positive,
        Option(
            title="clip range",
            help="How far an update may move a probability: ratio 1 ± this.",
        ),
    ] = 0.2
    target_kl: Annotated[
        Positive | None,
        Option(
            title="KL that stops an update",
            help="An update stops early once it has moved the policy this far, in nats per token.",
        ),
    ] = None
    """Never, if None."""
    update_kl: Annotated[
        Positive,
        Option(
            title="how far one update may move",
            help="How far an update should move the policy, in nats a turn; steps follow that.",
        ),
    ] = 0.02
    """Steps get smaller if the update moves further by far; one that moves it three times as far is undone."""
    value_lr: Annotated[
        Positive,
        Option(
            title="critic's learning rate",
            help="Step size of the value head.",
        ),
    ] = 3e-3
    learner: Annotated[
        LearnerName,
        Option(
            flag="--learner",
            title="learner",
            help="How advantages are estimated: ppo by a critic, the others without one. Drops the current batch.",
        ),
    ] = "ppo"
    """Objective, KL, entropy bonus and masks are PPO's in all. ``reinforce``: by returns; ``rebn``: by returns
    normalised over the batch; ``rloo``, ``grpo``: by comparing episodes of one seed; ``gigpo``: by comparing episodes,
    and turns, of one observation."""
    epochs: Annotated[
        Count,
        Option(
            title="epochs",
            help="Passes over each batch.",
        ),
    ] = 2
    batch_size: Annotated[
        Count,
        Option(
            title="batch size",
            help="Turns played for an update, at least.",
        ),
    ] = 1024
    mini_batch_size: Annotated[
        Count,
        Option(
            title="minibatch size",
            help="Turns of one optimizer step, about.",
        ),
    ] = 256
    """Episodes are kept whole, and a minibatch makes one step however little memory there is."""
    max_grad_norm: Annotated[
        Positive,
        Option(
            title="largest norm of gradients",
            help="Gradients are scaled down to this norm.",
        ),
    ] = 1.0
    gamma: Annotated[
        Fraction,
        Option(
            title="discount",
            help="Per step of the environment; 1: what comes late counts as much.",
        ),
    ] = 1.0
    """A step is a turn unless its action takes several; between the tokens of a reply there is no discount."""
    lam: Annotated[
        Fraction,
        Option(
            title="lambda",
            help="Of the advantages; 1: by returns alone, less: more by the critic's values.",
        ),
    ] = 1.0
    """GAE's lambda per turn; between the tokens of a reply it is 1."""
    reward_scale: Annotated[
        Positive | None,
        Option(
            title="reward scale",
            help="Factor on rewards; none: by the spread of returns so far.",
        ),
    ] = 1.0
    """If None, one over the standard deviation of the discounted returns, from each turn on, of all episodes so far.
    Penalties are not scaled."""
    parse_penalty: Annotated[
        NonNegative,
        Option(
            title="penalty for no action",
            help="Taken from the reward of a reply that names no action, or a refused one.",
        ),
    ] = 0.5
    novelty_coef: Annotated[
        NonNegative,
        Option(
            title="novelty bonus",
            help="Reward for a reply that was seldom given to its prompt: this over the root of how often.",
        ),
    ] = 0.0
    """Less the mean over the batch; not scaled. 0: nothing is counted."""
    lr_final: Annotated[
        NonNegative,
        Option(
            title="final learning rate",
            help="Learning rate at the end of its schedule.",
        ),
    ] = 1e-4
    """Reached along a line after `decay_updates` updates, and kept."""
    kl_coef_final: Annotated[
        NonNegative,
        Option(
            title="final KL penalty",
            help="KL penalty at the end of its schedule.",
        ),
    ] = 0.01
    entropy_coef_final: Annotated[
        NonNegative,
        Option(
            title="final entropy bonus",
            help="Entropy bonus at the end of its schedule.",
        ),
    ] = 0.02
    decay_updates: Count = 100
    """Updates over which `lr`, `kl_coef` and `entropy_coef` move to their final values."""
    group_size: Annotated[int, Meta(ge=2, le=1024)] = 8
    """Episodes that are reset to the same seed, with ``rloo`` and ``grpo``."""
    correct_spread: bool = False
    """With ``grpo`` and ``gigpo``: do not divide deviations by their group's spread (Dr. GRPO's first correction)."""
    correct_length: bool = False
    """With ``grpo``: weigh turns alike instead of episodes (Dr. GRPO's second correction)."""
    whole_episodes: bool = True
    """Finish episodes under way before an update. False: cut them off, complete them by the value of their next
    observation, and go on with them in the next batch; only where prompts have no earlier turns (`history` 0)."""
    value_coef: Fraction = 0.5
    """Weight of the value loss in the model's own gradient; the value head always sees all of it. 0: detached."""
    whiten_advantages: bool = True
    """Give the advantages of ``ppo`` mean 0 and standard deviation 1 over the batch; other learners normalise in their
    own ways."""
    critic_warmup_updates: Annotated[int, Meta(ge=0)] = 1
    """Updates at the start that train the value head alone, if there is one."""

    @property
    def facts(self) -> LearnerFacts:
        """The facts of the learner."""
        return LEARNERS[self.learner]

    @property
    def has_critic(self) -> bool:
        """True if a value head predicts returns."""
        return self.facts.has_critic

    def trains_critic_alone(self, updates: int) -> bool:
        """True if the policy stands still in the update after this many."""
        # An untrained critic would give the policy advantages of noise, so at first it learns alone.
        return self.has_critic and updates < self.critic_warmup_updates

    @property
    def episodes_of_a_seed(self) -> int:
        """Episodes that are reset to the same seed."""
        return self.group_size if self.facts.groups == "seed" else 1

    def unused_by_head(self, usual: "PPOConfig | None" = None) -> list[str]:
        """Names of the settings without effect on an adapter on the head alone that differ from the usual ones."""
        usual = usual or PPOConfig()
        unused = [name for name in UNUSED_BY_HEAD if getattr(self, name) != getattr(usual, name)]
        if "mini_batch_size" in unused and self.mini_batch_size >= self.batch_size:
            unused.remove("mini_batch_size")  # its steps are on whole batches
        return unused
