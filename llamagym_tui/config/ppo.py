"""The settings of PPO, frozen, with unit, range and default; `Live` marks those that may change while a run goes on."""

from typing import Annotated, Literal

from msgspec import Meta, Struct

from llamagym_tui.config.fields import Count, Fraction, Live, NonNegative, Positive
from llamagym_tui.config.learners import LEARNERS, LearnerFacts, LearnerName
from llamagym_tui.errors import ConfigError

Credit = Literal["turn", "token"]
"""What has a value and an advantage of its own: a turn, or each token of its reply."""
KlForm = Literal["reward", "loss"]
"""Where the KL to the reference is charged."""
SCHEDULED = ("lr", "kl_coef", "entropy_coef")
"""Settings that move along a line to the one of their name with `_final`. An update's figure of the same name has the
present value."""

UNUSED_BY_HEAD = (
    "mini_batch_size", "epochs", "lr", "lr_final", "value_lr", "value_coef", "max_grad_norm", "target_kl",
    "critic_warmup_updates",
)  # fmt: skip
"""Settings that an adapter on the LM head alone has no use for: its steps are on whole batches and follow the KL that
they make, and its critic is fitted in closed form."""


class PPOConfig(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Proximal policy optimisation over turns. Source: arXiv:1707.06347."""

    learner: Annotated[
        LearnerName,
        Live(
            place=125,
            title="learner",
            meaning="How advantages are estimated: ppo by a critic, the others without one. Drops the current batch.",
        ),
    ] = "ppo"
    """How advantages are estimated; objective, KL, entropy bonus and masks are PPO's in all. ``ppo``: by a critic;
    ``reinforce``: by returns; ``rebn``: by returns, normalised over the batch; ``rloo``, ``grpo``: by comparing
    episodes of one seed; ``gigpo``: by comparing episodes, and turns, of one observation."""
    group_size: Annotated[int, Meta(ge=2, le=1024)] = 8
    """Episodes that are reset to the same seed, with ``rloo`` and ``grpo``."""
    correct_spread: bool = False
    """With ``grpo`` and ``gigpo``: whether deviations are not divided by their group's spread, by which groups that
    nearly agree count as much as those that differ. Dr. GRPO's first correction."""
    correct_length: bool = False
    """With ``grpo``: whether turns weigh alike, and not episodes, by which each turn of a long episode counts less, in
    success and failure. Dr. GRPO's second correction."""
    batch_size: Annotated[
        Count,
        Live(
            place=140,
            title="batch size",
            meaning="Turns collected for an update, at least.",
        ),
    ] = 1024
    """Turns collected for an update, at least."""
    whole_episodes: bool = True
    """Whether episodes under way are finished before an update. False: they are cut off, completed by the value of
    their next observation, and go on in the next batch; only where prompts have no earlier turns (`history` 0)."""
    mini_batch_size: Annotated[
        Count,
        Live(
            place=150,
            title="minibatch size",
            meaning="Turns of one optimizer step, about.",
        ),
    ] = 256
    """Turns, about, of a minibatch, which makes one optimizer step however little memory there is; episodes are kept
    whole."""
    epochs: Annotated[
        Count,
        Live(
            place=130,
            title="epochs",
            meaning="Passes over each batch.",
        ),
    ] = 2
    """Passes over a batch."""
    lr: Annotated[
        Positive,
        Live(
            place=10,
            title="learning rate",
            meaning="Largest step size of the policy. A change ends its schedule.",
        ),
    ] = 5e-4
    """Adam's learning rate of the policy at the first update; less where an update moves it too far (`update_kl`)."""
    lr_final: Annotated[
        NonNegative,
        Live(
            place=210,
            title="final learning rate",
            meaning="Learning rate at the end of its schedule.",
        ),
    ] = 1e-4
    """Learning rate after `decay_updates` updates, reached along a line and kept."""
    value_lr: Annotated[
        Positive,
        Live(
            place=120,
            title="critic's learning rate",
            meaning="Step size of the value head.",
        ),
    ] = 3e-3
    """Learning rate of the value head."""
    decay_updates: Count = 100
    """Updates over which `lr`, `kl_coef` and `entropy_coef` move to their final values."""
    clip_range: Annotated[
        Positive,
        Live(
            place=40,
            title="clip range",
            meaning="How far an update may move a probability: ratio 1 ± this.",
        ),
    ] = 0.2
    """Bound on the ratio of new to old probability: 1 ± clip_range."""
    gamma: Annotated[
        Fraction,
        Live(
            place=170,
            title="discount",
            meaning="Per step of the environment; 1: what comes late counts as much.",
        ),
    ] = 1.0
    """Discount per environment step, a turn unless its action takes several; between the tokens of a reply there is
    none."""
    lam: Annotated[
        Fraction,
        Live(
            place=180,
            title="lambda",
            meaning="Of the advantages; 1: by returns alone, less: more by the critic's values.",
        ),
    ] = 1.0
    """Lambda of GAE per turn; between the tokens of a reply it is 1."""
    credit: Credit = "turn"
    """What has a value and an advantage of its own: a turn, or each sampled token of its reply. A reply that is chosen
    whole, by score, is a single decision under both."""
    value_coef: Fraction = 0.5
    """Weight of the value loss in the model's own gradient; the value head always sees all of it. 0: detached."""
    kl_coef: Annotated[
        NonNegative,
        Live(
            place=20,
            title="KL coefficient",
            meaning="Weight of the penalty for moving away from the reference policy. A change ends its schedule.",
        ),
    ] = 0.02
    """Nats to reward: weight of the KL to the reference, charged by `kl_form`."""
    kl_coef_final: Annotated[
        NonNegative,
        Live(
            place=220,
            title="final KL coefficient",
            meaning="KL coefficient at the end of its schedule.",
        ),
    ] = 0.01
    """`kl_coef` after `decay_updates` updates."""
    kl_form: KlForm = "reward"
    """``reward``: log(policy/reference) when sampled (k1) is subtracted from the reward; ``loss``: the k3 estimate of
    KL(policy||reference) at the sampled tokens is added to the loss, and has a gradient."""
    kl_target: Annotated[
        Positive | None,
        Live(
            place=100,
            title="KL target",
            meaning="KL to the reference, in nats per token, that the KL coefficient is adapted to.",
        ),
    ] = None
    """Nats per token at which the KL to the reference is held: `kl_coef` is where its weight begins, and each update
    adapts it. None: the weight goes from `kl_coef` to `kl_coef_final`, whatever the KL is."""
    entropy_coef: Annotated[
        NonNegative,
        Live(
            place=30,
            title="entropy coefficient",
            meaning="Weight of the bonus for the entropy of the actions. A change ends its schedule.",
        ),
    ] = 0.1
    """Weight of the entropy of the *action* distribution: where admissible replies part, over those tokens."""
    entropy_coef_final: Annotated[
        NonNegative,
        Live(
            place=230,
            title="final entropy coefficient",
            meaning="Entropy coefficient at the end of its schedule.",
        ),
    ] = 0.02
    """`entropy_coef` after `decay_updates` updates."""
    novelty_coef: Annotated[
        NonNegative,
        Live(
            place=205,
            title="novelty bonus",
            meaning="Reward for a reply that was seldom given to its prompt: this over the root of how often.",
        ),
    ] = 0.0
    """Weight of 1 / sqrt(n), n the times that a turn's reply was given to its prompt, less the mean over the batch, in
    the reward that is learnt from; not scaled. 0: nothing is counted."""
    reward_scale: Annotated[
        Positive | None,
        Live(
            place=190,
            title="reward scale",
            meaning="Factor on rewards; none: by the spread of returns so far.",
        ),
    ] = 1.0
    """Factor on the environment's reward. None: one over the standard deviation of the discounted returns, from each
    turn on, of all episodes trained on so far. Penalties are not scaled."""
    parse_penalty: Annotated[
        NonNegative,
        Live(
            place=200,
            title="parse penalty",
            meaning="Taken from the reward of a reply that names no action, or a refused one.",
        ),
    ] = 0.5
    """Subtracted from the reward of a turn whose reply names no action, or one that the environment refuses."""
    max_grad_norm: Annotated[
        Positive,
        Live(
            place=160,
            title="gradient clipping (largest norm)",
            meaning="Gradients are scaled down to this norm.",
        ),
    ] = 1.0
    """Gradients are scaled down to this norm."""
    target_kl: Annotated[
        Positive | None,
        Live(
            place=110,
            title="stop an update early at this KL",
            meaning="An update stops early once it has moved the policy this far, in nats per token.",
        ),
    ] = None
    """Nats; the epochs of an update end early once approximate KL passes it. None: never."""
    update_kl: Annotated[
        Positive,
        Live(
            place=115,
            title="KL of an update",
            meaning="How far an update should move the policy, in nats a turn; steps follow that.",
        ),
    ] = 0.02
    """Nats a turn that an update should move the policy. Steps are made smaller where it moves further by far, and
    one that moves it three times as far is undone; `lr` is the largest learning rate."""
    whiten_advantages: bool = True
    """Whether the advantages of ``ppo`` get mean 0 and standard deviation 1 over the whole batch; each of the other
    learners normalises in its own way, or not at all."""
    critic_warmup_updates: Annotated[int, Meta(ge=0)] = 1
    """Updates at the start that train the value head alone, where there is one."""

    def __post_init__(self) -> None:
        """Refuse what no single setting shows.

        Raises:
            ConfigError: a KL is to be held at a target by a weight of 0, which no factor changes, or tokens are to have
                values where there is no critic.
        """
        if self.kl_target is not None and not self.kl_coef:
            raise ConfigError(
                "kl_target needs a kl_coef above 0, from which the weight of the KL is adapted."
            )
        if self.credit == "token" and not self.has_critic:
            raise ConfigError(
                f"credit token needs a critic, which the learner {self.learner} has not: take the learner ppo, or "
                "leave the credit out."
            )

    @property
    def facts(self) -> LearnerFacts:
        """What the learner is."""
        return LEARNERS[self.learner]

    @property
    def has_critic(self) -> bool:
        """Whether a value head foresees returns."""
        return self.facts.has_critic

    def trains_critic_alone(self, updates: int) -> bool:
        """Whether the policy stands still in the update after so many."""
        # An untrained critic would give the policy advantages of noise, so at first it learns alone.
        return self.has_critic and updates < self.critic_warmup_updates

    @property
    def episodes_of_a_seed(self) -> int:
        """Episodes that are reset to the same seed."""
        return self.group_size if self.facts.groups == "seed" else 1

    def unused_by_head(self, usual: "PPOConfig | None" = None) -> list[str]:
        """Names of the settings which an adapter on the head alone does not use, and that are not as usual."""
        usual = usual or PPOConfig()
        unused = [name for name in UNUSED_BY_HEAD if getattr(self, name) != getattr(usual, name)]
        if "mini_batch_size" in unused and self.mini_batch_size >= self.batch_size:
            unused.remove("mini_batch_size")  # its steps are on whole batches
        return unused
