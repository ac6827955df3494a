"""PPO: one update, from trajectories to changed weights.

The advantages are those of the learner that the settings name: a critic's, or others without a critic (`estimators`).
It differs from the textbook in three ways. An advantage belongs to a turn and is shared by the tokens of its reply.
Token terms are summed within a turn and averaged over turns, so that boilerplate tokens
neither earn nor dilute. The entropy bonus is on the action distribution, where admissible replies part, not on the
vocabulary.

`PPO` computes the targets once, before the first step, and leaves the steps to one of two: `ModelSteps` trains weights
inside the model by minibatches, `HeadSteps` an adapter on the LM head alone.
"""

import random
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import msgspec
import torch
from torch import Tensor

from llamagym_tui.engine.learning.figures import UsedBatch, update_stats
from llamagym_tui.engine.learning.head_steps import HeadState, HeadSteps
from llamagym_tui.engine.learning.losses import Objective
from llamagym_tui.engine.learning.model_steps import ModelSteps
from llamagym_tui.engine.learning.packing import batch_rows
from llamagym_tui.engine.learning.rewards import Novelty, ReturnMoments, discounted_returns
from llamagym_tui.engine.learning.targets import Targets, batch_targets
from llamagym_tui.engine.own_torch import own_torch
from llamagym_tui.engine.policy.earlier import EarlierSelf
from llamagym_tui.engine.policy.policy import Policy
from llamagym_tui.engine.policy.trajectory import Trajectory, Turn
from llamagym_tui.engine.ranks import ALONE, Ranks
from llamagym_tui.errors import ConfigError, StoodStill
from llamagym_tui.settings import PPOConfig, UpdateStats

KEPT_BATCHES = 8
"""Updates whose batches can be inspected: at two updates a second an episode that the UI shows is some updates old."""
RandomState = tuple[int, tuple[int, ...], float | None]
"""The state of a `random.Random`."""


class LearnerState(msgspec.Struct, frozen=True, kw_only=True):
    """The state of a learner, apart from its tensors and settings."""

    updates: int
    random: RandomState
    """From which minibatches are drawn."""
    return_moments: ReturnMoments
    counts: dict[int, int] = msgspec.field(default_factory=dict)
    """The number of times that a reply was given to a prompt, where there is a novelty bonus."""
    pace: float
    """Factor on the learning rate, which follows the KL of the steps."""
    head: HeadState | None = None
    """The prompts of an adapter on the head alone. None: other weights are trained."""

    def __post_init__(self) -> None:
        """Raises ValueError: `random` is no state of a `random.Random`."""
        random.Random().setstate(self.random)


def what_is_trained(policy: Policy) -> str:
    """The number of the policy's trained weights and their place in the model, without the critic's."""
    if policy.narrow is not None:
        tokens = len(policy.narrow.trained)
        of_token = len(policy.narrow.down)
        if not tokens:  # turns have actions of their own, which are not known yet
            return f"{of_token:,} weights of an adapter on the LM head alone for each token at which replies part"
        return f"{tokens * of_token:,} weights of an adapter on the LM head alone, for {tokens:,} tokens"
    model = policy.model
    weights = sum(
        each.numel() for each in model.pretrained_model.parameters() if each.requires_grad
    )
    if not model.is_adapted:
        return f"all {weights:,} weights of the model"
    layers = model.causal_lm.config.get_text_config().num_hidden_layers
    return f"{weights:,} weights of an adapter in all {layers:,} layers"


def unused_settings(names: Sequence[str]) -> str:
    """A sentence: settings of PPO have no effect where an adapter on the LM head alone is trained."""
    named = ", ".join(f"ppo.{name}" for name in names)
    have, them = ("has", "it") if len(names) == 1 else ("have", "them")
    return (
        f"{named} {have} no effect when an adapter on the LM head alone is trained: leave {them} out, or train all "
        "layers (--set lora.layers=all)."
    )


class PPO:
    @own_torch()
    def __init__(
        self, policy: Policy, config: PPOConfig, seed: int = 0, ranks: Ranks = ALONE
    ) -> None:
        """The reference is the policy as it is now; all `ranks` update together, with the batches of each.

        Raises:
            ConfigError: no weight is trained, or they are of a type that small steps do not change.
        """
        trained = [
            each for each in policy.model.pretrained_model.parameters() if each.requires_grad
        ]
        if not trained:
            raise ConfigError(
                "Nothing of the model would be trained: requires_grad is off for all its weights. Set it for those "
                "that are meant, or load an adapter with is_trainable=True."
            )
        is_coarse = any(weight.element_size() < torch.float32.itemsize for weight in trained)
        if is_coarse and not policy.model.is_adapted:
            raise ConfigError(
                f"Weights of {str(trained[0].dtype).removeprefix('torch.')} are too coarse for the small steps of full "
                "fine-tuning: load them in float32, or give an adapter (peft_config)."
            )
        self.policy = policy
        self.ranks = ranks
        self.steps: ModelSteps | HeadSteps
        """Makes the steps of an update."""
        self.random = random.Random(seed)
        """Minibatches are drawn from it."""
        if policy.narrow is None:
            self.steps = ModelSteps(policy, config, self.random, ranks)
        else:
            self.steps = HeadSteps(policy, policy.narrow)
        if config.kl_coef or config.kl_coef_final:
            self.reference = EarlierSelf.of(policy)
        self.config = config
        self.updates = 0
        """Updates made so far; a roll back takes some away."""
        self.return_moments = ReturnMoments()
        """Moments of the discounted returns in all episodes that the policy played alone."""
        self.novelty = Novelty()
        self.used: deque[UsedBatch] = deque(maxlen=KEPT_BATCHES)
        """The batches of the last updates, the newest last, for the inspector."""

    @property
    def config(self) -> PPOConfig:
        """Settings; others may be put in their place between two updates."""
        return self._config

    @config.setter
    def config(self, config: PPOConfig) -> None:
        self._config = config
        self.policy.has_critic = config.has_critic

    @property
    def reference(self) -> EarlierSelf | None:
        """The policy that the trained one is kept near to. None: there is none."""
        return self.steps.reference

    @reference.setter
    def reference(self, reference: EarlierSelf | None) -> None:
        self.steps.reference = reference

    @own_torch()
    def update(
        self,
        trajectories: Sequence[Trajectory],
        *,
        should_stop: Callable[[], bool] = lambda: False,
        progress: Callable[[int, int], None] = lambda steps, of: None,
    ) -> UpdateStats:
        """Change the policy by one batch of episodes; the figures of the update, without those of the rollout.

        Args:
            trajectories: the batch.
            should_stop: called between two optimizer steps; True ends the update, and the steps made stay.
            progress: called before each optimizer step with those made so far, and those of the whole update.
        Raises:
            StoodStill: there was something to follow, and no weight of the policy has moved.
        """
        self.config = self.ranks.first(self.config)
        began_s = time.perf_counter()
        trajectories = [each for part in self.ranks.gather(trajectories) for each in part]
        # 1. Targets, from what was sampled. Whatever comes from models (reference, values, bootstraps) is computed
        #    here, before the first step, and stays fixed over all epochs.
        targets = self.targets(trajectories)
        objective = Objective(
            self.config,
            targets,
            v_head=self.policy.model.v_head,
            temperature=self.policy.generation.temperature,
            entropy_coef=scheduled(self.config, "entropy_coef", self.updates),
            is_warming_up=self.is_warming_up,
        )
        # 2. Steps, until all are made, the KL to the sampling policy exceeds its target, or a stop.
        lr = 0.0 if self.is_warming_up else scheduled(self.config, "lr", self.updates)
        made = self.steps.train(objective, lr, should_stop, progress)
        sums = made.sums.of_all(self.ranks)
        # 3. Figures, and the state of the next update.
        stats = update_stats(
            trajectories,
            targets,
            sums,
            update_s=time.perf_counter() - began_s,
            lr=made.lr,
        )
        moves_policy = not self.is_warming_up
        self.updates += 1
        self.policy.version += 1
        self.used.append(
            UsedBatch(trajectories, targets, self.config, self.policy.generation.temperature)
        )
        if moves_policy and not made.has_moved:
            cause = self.steps.why_it_stood_still(sums, made.lr)
            if cause and targets.advantages.any():
                raise StoodStill(
                    f"Update {self.updates} has left every weight of the policy where it was: {cause}."
                )
        return stats

    def targets(self, trajectories: Sequence[Trajectory]) -> Targets:
        """Advantages, and returns for the critic."""
        config = self.config
        self.steps.take(batch_rows(trajectories))
        returns = [
            each
            for trajectory in trajectories
            if trajectory.is_own
            for each in discounted_returns(trajectory, config.gamma)
        ]
        self.return_moments = self.return_moments.with_returns(returns)
        turns = [turn for trajectory in trajectories for turn in trajectory.turns]
        reference_logprobs = None
        if self.reference:
            with self.reference.in_place():
                reference_logprobs = self._logprobs(turns)
        return batch_targets(
            trajectories,
            config,
            reference_logprobs=reference_logprobs,
            bootstraps=self.policy.bootstrap_values(trajectories),
            bonuses=self.novelty.bonuses(trajectories) if config.novelty_coef else None,
            reward_scale=self.reward_scale,
            kl_coef=scheduled(config, "kl_coef", self.updates),
            device=self.policy.model.backbone.device,
        )

    @torch.no_grad()
    def _logprobs(self, turns: Sequence[Turn]) -> Tensor:
        """(D,) log-probability of each decision of the batch; 0 of those that someone else made."""
        count = sum(len(turn.decision_logprobs) for turn in turns)
        found = torch.zeros(count, device=self.policy.model.backbone.device)
        for part, encoded in self.steps.parts():
            scored = part.score(encoded, self.policy.generation.temperature)
            found[part.decision_indices] = scored.logprobs
        # Each rank has computed its part, and left those of others 0.
        return torch.stack(self.ranks.gather(found)).sum(0)

    @property
    def reward_scale(self) -> float:
        """Factor on the environment's rewards."""
        if self.config.reward_scale is None:
            return self.return_moments.scale
        return self.config.reward_scale

    @property
    def is_warming_up(self) -> bool:
        """True while the critic alone is trained. That of a head alone is fitted in closed form, so it needs none."""
        is_model = isinstance(self.steps, ModelSteps)
        return is_model and self.config.trains_critic_alone(self.updates)

    @property
    def state(self) -> LearnerState:
        return LearnerState(
            updates=self.updates,
            random=self.random.getstate(),
            return_moments=self.return_moments,
            counts=dict(self.novelty.counts),
            pace=self.steps.pace,
            head=self.steps.state,
        )

    @property
    def tensors(self) -> dict[str, Tensor]:
        """The tensors of the optimizer and of an adapter on the head, which a checkpoint keeps beside the state."""
        return self.steps.tensors

    def takes(self, state: LearnerState, tensors: Mapping[str, Tensor]) -> bool:
        """True if a state and its tensors are of a learner of this kind, for weights of these shapes."""
        is_of_head = state.head is not None
        return is_of_head == isinstance(self.steps, HeadSteps) and self.steps.takes(tensors)

    def restore(self, state: LearnerState, tensors: Mapping[str, Tensor]) -> None:
        """Go on from a state; nothing is known of what the last updates used."""
        self.updates = state.updates
        self.return_moments = state.return_moments
        self.novelty.counts = dict(state.counts)
        self.random.setstate(state.random)
        self.steps.pace = state.pace
        self.steps.restore(state.head, tensors)
        self.used.clear()  # a roll back undid these updates

    def use_prompt(self, prompt: str) -> bool:
        """Go on under a system prompt; True if other weights play from now on."""
        if not self.steps.use_prompt(prompt):
            return False
        self._has_other_weights()
        return True

    @contextmanager
    def under_prompt(self, prompt: str) -> Iterator[None]:
        """Let the policy play under a system prompt for a while, by what was learnt under it or is carried to it."""
        used = list(self.used)
        version = self.policy.version
        with self.steps.under_prompt(prompt) as is_other:
            if is_other:
                self._has_other_weights()
            yield
        self.used.extend(used[len(self.used) :])
        self.policy.version = version

    def begin_anew(self) -> None:
        """Forget what an adapter on the head has learnt, before prompts of another form."""
        if self.steps.begin_anew():
            self._has_other_weights()

    def _has_other_weights(self) -> None:
        self.used.clear()  # of which an inspector asks what the present policy says
        self.policy.version += 1

    @torch.no_grad()
    def share(self) -> None:
        """Make the learners of all ranks equal to that of rank 0: weights, reference, moments, state."""
        reference = self.reference.weights if self.reference else {}
        weights = [*self.policy.model.parameters(), *reference.values()]
        own: Any = (weights, self.tensors, self.state, self.policy.version, self.config)
        first_weights, tensors, state, version, config = self.ranks.first(own)
        if self.ranks.rank == 0:
            return
        self.config = config
        for weight, first in zip(weights, first_weights, strict=True):
            weight.copy_(first)
        self.restore(state, tensors)
        self.policy.version = version


def scheduled(config: PPOConfig, name: str, updates: int) -> float:
    """A setting of `SCHEDULED` after this many updates: on a line to its final value, which it then keeps."""
    start: float = getattr(config, name)
    final: float = getattr(config, f"{name}_final")
    return start + (final - start) * min(1.0, updates / config.decay_updates)
