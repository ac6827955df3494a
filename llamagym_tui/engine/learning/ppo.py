"""PPO: one update, from trajectories to changed weights.

Its advantages are those of the learner that the settings name: a critic's, or others (`estimators/`), for which no
value is computed. It differs from the textbook in three ways: an advantage belongs to a turn and is shared by the
tokens of its reply, unless `credit` is "token"; token terms are summed within a turn and averaged over turns, so that
boilerplate tokens of a reply neither earn nor dilute; and the entropy bonus is on the action distribution, where
admissible replies part, not on the vocabulary.

An update is `targets`, computed once, and then for each minibatch: `packed`, `score`, `loss`, the backward, and `step`.
These methods are where another estimator, or another way to compute this one, would differ.
"""

import random
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import NamedTuple

import msgspec
import torch
from torch import Tensor, nn

from llamagym_tui.config import PPOConfig, UpdateStats
from llamagym_tui.engine.allocator import return_freed_memory
from llamagym_tui.engine.learning.inspection import UsedBatch
from llamagym_tui.engine.learning.learner import LearnerState
from llamagym_tui.engine.learning.losses import (
    PolicyLoss,
    clipped_policy_loss,
    reference_kl,
    value_loss,
)
from llamagym_tui.engine.learning.movement import Marks, why_it_stood_still
from llamagym_tui.engine.learning.novelty import Novelty
from llamagym_tui.engine.learning.pace import Pace
from llamagym_tui.engine.learning.packing import (
    PackedRows,
    Row,
    batch_rows,
    forwards,
    minibatches,
    observation_ids,
    parts_of,
)
from llamagym_tui.engine.learning.reference import Reference
from llamagym_tui.engine.learning.rewards import ReturnMoments, discounted_returns
from llamagym_tui.engine.learning.schedules import adapted_kl_coef, along_line, learning_rate
from llamagym_tui.engine.learning.targets import Targets, batch_targets
from llamagym_tui.engine.learning.update_stats import UpdateSums, update_stats
from llamagym_tui.engine.model.forward import Encoded
from llamagym_tui.engine.model.shape import ForwardLimits, forward_limits, shape_of
from llamagym_tui.engine.own_torch import own_torch
from llamagym_tui.engine.parallel import on_threads
from llamagym_tui.engine.policy.decisions import Decisions
from llamagym_tui.engine.policy.policy import Policy
from llamagym_tui.engine.policy.trajectory import Trajectory, Turn
from llamagym_tui.engine.ranks import ALONE, Ranks
from llamagym_tui.errors import StoodStill

KEPT_BATCHES = 2
"""Updates whose batches can be inspected: an episode that the UI shows is soon of the update before the last."""


class PPOState(LearnerState, frozen=True, kw_only=True):
    return_moments: ReturnMoments
    adapted_kl_coef: float | None
    counts: dict[int, int] = msgspec.field(default_factory=dict)
    """How often a reply was given to a prompt, where there is a novelty bonus."""
    pace: float
    """Factor on the learning rate, which has followed the KL of the steps."""


class Scored(NamedTuple):
    """A part of a minibatch as the weights of now see it, with gradients."""

    part: PackedRows
    decisions: Decisions
    encoded: Encoded
    """The hidden states from which values are read."""


class Trained(NamedTuple):
    """What the steps of an update were."""

    sums: UpdateSums
    epochs: float
    """Passes over the batch; one that a stop ended counts by its share."""
    lr: float


class PPO:
    def __init__(
        self, policy: Policy, config: PPOConfig, seed: int = 0, ranks: Ranks = ALONE
    ) -> None:
        """The reference is the policy as it is now; all `ranks` update together, with the batches of each."""
        self.policy = policy
        self._config = config
        self.config = config
        self.ranks = ranks
        self.reference = Reference(policy) if config.kl_coef or config.kl_coef_final else None
        self.updates = 0
        self.return_moments = ReturnMoments()
        """Moments of the discounted returns in all episodes that the policy played alone."""
        self.novelty = Novelty()
        self.used: deque[UsedBatch] = deque(maxlen=KEPT_BATCHES)
        """What the last updates trained on, the newest last, for the inspector."""
        self._adapted_kl_coef: float | None = None
        self._rng = random.Random(seed)
        backbone = policy.model.backbone
        self._limits = forward_limits(
            shape_of(backbone.lm.config),
            backbone.dtype.itemsize,
            scores_all=not backbone.is_split,
            flat=backbone.is_lean,
        )
        self._trunk = [p for p in policy.model.pretrained_model.parameters() if p.requires_grad]
        self._head = list(policy.model.v_head.parameters())
        self._pace = Pace(self._trunk)
        groups = [
            {"params": self._trunk, "lr": config.lr},
            {"params": self._head, "lr": config.value_lr},
        ]
        self.optimizer: torch.optim.Optimizer = torch.optim.AdamW(
            groups, betas=(0.9, 0.95), weight_decay=0.0
        )

    @property
    def config(self) -> PPOConfig:
        """Settings; others may be put in their place between two updates."""
        return self._config

    @config.setter
    def config(self, config: PPOConfig) -> None:
        self._config = config
        self.policy.has_critic = config.has_critic

    @own_torch()
    def update(
        self,
        trajectories: Sequence[Trajectory],
        *,
        should_stop: Callable[[], bool] = lambda: False,
        progress: Callable[[int, int], None] = lambda steps, of: None,
    ) -> UpdateStats:
        """Change the policy by one batch of episodes.

        Args:
            trajectories: the batch.
            should_stop: called between two optimizer steps; True ends the update, and the steps made stay.
            progress: called before each optimizer step with those made so far, and those of the whole update.
        Raises:
            StoodStill: there was something to follow, and no weight of the policy has moved.
        """
        self.config = self.ranks.first(self.config)
        marks = None if self.is_warming_up else Marks(self._trunk)
        began_s = time.perf_counter()
        waited_s = self.ranks.waited_s
        trajectories = [each for part in self.ranks.gather(trajectories) for each in part]
        # 1. Targets, from what was sampled. Whatever comes from models (reference, values, bootstraps) is computed
        #    here, before the first step, and stays fixed over all epochs.
        rows = batch_rows(trajectories)
        returns = [
            each
            for trajectory in trajectories
            if trajectory.is_own
            for each in discounted_returns(trajectory, self.config.gamma)
        ]
        self.return_moments = self.return_moments.with_returns(returns)
        targets = self.targets(trajectories, rows)
        # 2. Epochs of minibatches, until all are done, the KL to the sampling policy exceeds its target, or a stop.
        sums, epochs, lr = self.train(rows, targets, should_stop, progress)
        return_freed_memory()
        sums = sums.of_all(self.ranks)
        # 3. Figures, and the state of the next update.
        stats = update_stats(
            trajectories,
            targets,
            sums,
            epochs=epochs,
            update_s=time.perf_counter() - began_s,
            lr=lr,
            kl_coef=self.kl_coef,
            entropy_coef=self.entropy_coef,
            reward_scale=self.reward_scale,
        )
        self._adapt_kl_coef(stats.kl_ref)
        self.updates += 1
        self.policy.version += 1
        used = UsedBatch(
            trajectories,
            targets,
            self.config.credit,
            self.config.clip_range,
            self.policy.generation.temperature,
            self.config.learner,
        )
        self.used.append(used)
        waited_in_update_s = self.ranks.waited_s - waited_s
        self.ranks.waits = self.ranks.gather(waited_in_update_s / max(stats.update_s, 1e-9))
        if marks and not any(self.ranks.gather(marks.have_moved())):
            cause = self.why_it_stood_still(sums, lr, has_advantages=bool(targets.advantages.any()))
            if cause:
                raise StoodStill(
                    f"Update {self.updates} has left every weight of the policy where it was: {cause}."
                )
        return stats

    def why_it_stood_still(self, sums: UpdateSums, lr: float, *, has_advantages: bool) -> str:
        """The cause for which an update has not moved the policy; empty: there was nothing to follow."""
        norms = [float(norm) for norm in sums.grad_norms]
        return why_it_stood_still(self._trunk, gradient_norms=norms, skipped=sums.skipped, lr=lr)

    def train(
        self,
        rows: Sequence[Row],
        targets: Targets,
        should_stop: Callable[[], bool],
        progress: Callable[[int, int], None],
    ) -> Trained:
        """Make the steps of an update: epochs of minibatches."""
        of_head = self.optimizer.param_groups[1]
        of_head["lr"] = self.config.value_lr
        sums = UpdateSums()
        epochs = 0.0
        for epoch in range(1, self.config.epochs + 1):
            made = self._epoch(
                rows,
                targets,
                sums,
                is_first_epoch=epoch == 1,
                progress=partial(_progress_of_epoch, progress, epoch, self.config.epochs),
                should_stop=should_stop,
            )
            epochs += made
            if made < 1:  # a stop
                break
            target_kl = self.config.target_kl
            if target_kl is not None and sums.of_all(self.ranks).kl_of_epoch > target_kl:
                break
        self._pace.end()  # what was kept of the last step is of no use to the next update
        return Trained(sums, epochs, self.lr * self._pace.factor)

    def targets(self, trajectories: Sequence[Trajectory], rows: Sequence[Row]) -> Targets:
        """What the update aims at: advantages, and returns for the critic.

        Args:
            trajectories: the batch.
            rows: its segments.
        """
        turns = [turn for trajectory in trajectories for turn in trajectory.turns]
        reference_logprobs = None
        if self.reference:
            decisions = sum(len(turn.decision_logprobs) for turn in turns)
            reference_logprobs = self.reference_logprobs(rows, decisions)
        decision_values = None
        if self.config.credit == "token":
            decision_values = self._decision_values(turns, rows)
        return batch_targets(
            trajectories,
            self.config,
            reference_logprobs=reference_logprobs,
            decision_values=decision_values,
            bootstraps=(
                self.bootstraps(trajectories)
                if self.config.has_critic
                else [0.0] * len(trajectories)
            ),
            bonuses=self.novelty.bonuses(trajectories) if self.config.novelty_coef else None,
            observations=(
                self._observations(trajectories)
                if self.config.facts.groups == "observation"
                else ()
            ),
            reward_scale=self.reward_scale,
            kl_coef=self.kl_coef,
            device=self.policy.model.backbone.device,
        )

    def _observations(self, trajectories: Sequence[Trajectory]) -> list[int]:
        """(K,) a number for each turn's observation, the same for the same one under the same prompt."""
        numbers: dict[tuple[tuple[int, ...], tuple[int, ...]], int] = {}
        return [
            numbers.setdefault((segment.prefix, observation), len(numbers))
            for trajectory in trajectories
            for segment in trajectory.segments
            for observation in observation_ids(self.policy.chat, segment)
        ]

    def reference_logprobs(self, rows: Sequence[Row], decisions: int) -> Tensor:
        """(D,) log-probability of each decision of a batch under the reference."""
        assert self.reference is not None, "the caller has looked"
        # Each rank computes a part, and leaves those of others zero.
        own = parts_of(rows, self.ranks.size)[self.ranks.rank]
        parts = self.ranks.gather(self.reference.logprobs(own, decisions, self.limits))
        return torch.stack(parts).sum(0)

    def bootstraps(self, trajectories: Sequence[Trajectory]) -> list[float]:
        """The value after the last turn of each."""
        return self.policy.bootstrap_values(trajectories)

    def encoded(self, rows: Sequence[Row]) -> Iterator[tuple[PackedRows, Encoded]]:
        """Rows in the parts that are computed at once, with what the model says of each."""
        for part in self.packed(rows):
            yield part, part.encode(self.policy.model.backbone)

    @torch.no_grad()
    def _decision_values(self, turns: Sequence[Turn], rows: Sequence[Row]) -> Tensor:
        """(D,) V before each decision of a batch; of a turn that someone else chose, its stored value."""
        model = self.policy.model
        values = torch.tensor([turn.value for turn in turns for _ in turn.decision_logprobs])
        for part in self.packed(rows):
            hidden = part.encode(model.backbone).hidden[part.decisions.rows, part.decisions.columns]
            values[part.decisions.indices.cpu()] = model.v_head(hidden).cpu()
        return values

    def packed(self, rows: Sequence[Row]) -> Iterator[PackedRows]:
        """Rows in the parts that are computed at once; their gradients are added."""
        return forwards(rows, self.limits, self.policy.model.backbone.device)

    def score(self, part: PackedRows) -> Scored:
        """How probable the decisions are under the weights of now: by a forward."""
        encoded = part.encode(self.policy.model.backbone)
        decisions = part.score(encoded, self.policy.generation.temperature)
        return Scored(part, decisions, encoded)

    def loss(
        self, part: PackedRows, targets: Targets, sums: UpdateSums, *, is_first: bool
    ) -> Tensor:
        """() sum over turns of policy, value, entropy and KL loss.

        Args:
            part: of a minibatch.
            targets: of the batch.
            sums: where the figures are added.
            is_first: whether no step was made in this update.
        """
        scored = self.score(part)
        logprobs = scored.decisions.logprobs
        sums.log_ratios.append((part.decisions.indices, (logprobs - part.old_logprobs).detach()))
        sums.actions.append(part.action_shares(scored.decisions))
        policy = self.policy_loss(scored, targets)
        critic = self.critic_loss(scored, targets)
        loss = critic
        if not self.is_warming_up:
            entropy = scored.decisions.action_entropy.sum()
            loss = loss + policy.loss - self.entropy_coef * entropy
            if self.config.kl_form == "loss" and targets.reference_logprobs is not None:
                reference_logprobs = targets.reference_logprobs[part.decisions.indices]
                loss = loss + self.kl_coef * reference_kl(logprobs, reference_logprobs).sum()
        turns = len(part.turns.indices)
        sums.add(policy, critic, scored.decisions, turns, is_first=is_first)
        return loss

    def policy_loss(self, scored: Scored, targets: Targets) -> PolicyLoss:
        """PPO's clipped surrogate, summed over decisions."""
        # The first ratio is 1 up to rounding: sampling and scoring have the same temperature, no truncation, no
        # dropout. `first_ratio` in the figures shows it.
        part = scored.part
        advantages = targets.advantages[part.credited_to(self.config.credit)]  # (D,)
        return clipped_policy_loss(
            scored.decisions.logprobs,
            part.old_logprobs,
            advantages,
            self.config.clip_range,
        )

    def critic_loss(self, scored: Scored, targets: Targets) -> Tensor:
        """() half the squared error of the values, summed over turns; 0 without a critic."""
        if not self.config.has_critic:
            return targets.returns.new_zeros(())
        units = scored.part.credited(self.config.credit)
        hidden = scored.encoded.hidden[units.rows, units.columns]  # (U, D)
        # The value head gets the full gradient of its error. The trunk, which the policy shares, gets it times
        # `value_coef`, and none while the critic warms up.
        coef = 0.0 if self.is_warming_up else self.config.value_coef
        seen = hidden.detach()
        if coef:
            seen = coef * hidden + (1 - coef) * seen
        return value_loss(
            self.policy.model.v_head(seen),
            targets.returns[units.indices],
            targets.value_weights[units.indices],
        )

    def step(self, sums: UpdateSums) -> None:
        """Clip the gradients and make an optimizer step; one that is not finite is skipped and counted."""
        head_weights = self._head if self.config.has_critic else []
        if self.is_warming_up:
            self.ranks.add_gradients(head_weights)
        else:
            self.ranks.add_gradients([*self._trunk, *head_weights])
        # Apart, because the critic's gradient is often much larger: one norm for both would shrink the policy's step.
        trunk = nn.utils.clip_grad_norm_(self._trunk, self.config.max_grad_norm)
        head = nn.utils.clip_grad_norm_(head_weights, self.config.max_grad_norm)
        if not (trunk + head).isfinite():
            self.optimizer.zero_grad(set_to_none=True)
            sums.skipped += 1
            return
        sums.grad_norms.append(trunk)
        self.optimizer.param_groups[0]["lr"] = self.lr * self._pace.factor
        if not self.is_warming_up:
            self._pace.keep()
        self.optimizer.step()

    def _epoch(
        self,
        rows: Sequence[Row],
        targets: Targets,
        sums: UpdateSums,
        *,
        is_first_epoch: bool,
        progress: Callable[[int, int], None],
        should_stop: Callable[[], bool],
    ) -> float:
        """Train on all rows once, unless stopped; the share of the epoch that was made.

        `progress` is called before each step with those made in this epoch, and those of the whole epoch.
        """
        sums.begin_epoch()
        size = self.config.mini_batch_size
        drawn = list(minibatches(rows, size, self._rng))
        for at, minibatch in enumerate(drawn):
            is_first = is_first_epoch and at == 0
            if not is_first and self.ranks.first(should_stop()):
                return at / len(drawn)
            # The mean over the turns of the whole step, so that it does not depend on how rows were packed.
            turns = sum(turn.is_trained for row in minibatch for turn in row.segment.turns)
            self.optimizer.zero_grad(set_to_none=True)
            progress(at, len(drawn))
            own = parts_of(minibatch, self.ranks.size)[self.ranks.rank]
            found = self._add_gradients(own, targets, turns=turns, is_first=is_first)
            kl = self._kl_of(found)
            if self._pace.take_back(kl, self.config.update_kl):
                # The weights are those before the last step again, so gradients are of these.
                self.optimizer.zero_grad(set_to_none=True)
                found = self._add_gradients(own, targets, turns=turns, is_first=is_first)
            elif not (is_first or self.is_warming_up):
                self._pace.follow(kl, self.config.update_kl)
            sums.include(found)
            if turns:
                self.step(sums)
        return 1.0

    def _kl_of(self, minibatch: UpdateSums) -> float:
        """Nats a turn by which a minibatch's decisions have moved since they were made."""
        parts = self.ranks.gather((float(minibatch.approx_kl), minibatch.turns))
        return sum(kl for kl, _ in parts) / max(sum(turns for _, turns in parts), 1)

    def _add_gradients(
        self,
        rows: Sequence[Row],
        targets: Targets,
        *,
        turns: int,
        is_first: bool,
    ) -> UpdateSums:
        """Add the gradients of a minibatch's loss, a mean over so many turns; its figures."""
        sums = UpdateSums()
        threads = self.policy.threads
        if threads == 1:
            for part in self.packed(rows):
                mean = self.loss(part, targets, sums, is_first=is_first) / turns
                mean.backward()
            return sums

        # Threads compute parts of the rows side by side. Each has sums and gradients of its own, or they would be in
        # each other's way.
        weights = list(self._head) if self.config.has_critic else []
        if not self.is_warming_up:
            weights = [*self._trunk, *weights]

        def computed(some: Sequence[Row]) -> tuple[UpdateSums, list[Tensor]]:
            own = UpdateSums()
            gradients = [torch.zeros_like(weight) for weight in weights]
            for part in self.packed(some):
                mean = self.loss(part, targets, own, is_first=is_first) / turns
                added = torch.autograd.grad(
                    mean, weights, allow_unused=True, materialize_grads=True
                )
                torch._foreach_add_(gradients, added)
            return own, gradients

        # What they found is added in one order, so that a run gives the same bits again.
        for own, gradients in on_threads(computed, parts_of(rows, threads)):
            sums.include(own)
            for weight, gradient in zip(weights, gradients, strict=True):
                weight.grad = gradient if weight.grad is None else weight.grad + gradient
        return sums

    @property
    def limits(self) -> ForwardLimits:
        """What a forward may hold; a larger minibatch accumulates gradients, and threads compute some at once."""
        threads = self.policy.threads
        return ForwardLimits(
            tokens=self._limits.tokens // threads,
            scored=self._limits.scored / threads,
            flat=self._limits.flat,
        )

    @property
    def lr(self) -> float:
        """The policy's learning rate in the next update."""
        return learning_rate(self.config, self.updates)

    @property
    def kl_coef(self) -> float:
        """Weight of the KL to the reference in the next update."""
        if self.config.kl_target is None:
            return self._scheduled(self.config.kl_coef, self.config.kl_coef_final)
        if self._adapted_kl_coef is None:
            return self.config.kl_coef
        return self._adapted_kl_coef

    @property
    def entropy_coef(self) -> float:
        """Weight of the action distribution's entropy in the next update."""
        return self._scheduled(self.config.entropy_coef, self.config.entropy_coef_final)

    def _scheduled(self, start: float, final: float) -> float:
        return along_line(start, final, self.updates / self.config.decay_updates)

    @property
    def reward_scale(self) -> float:
        """Factor on the environment's rewards."""
        if self.config.reward_scale is None:
            return self.return_moments.scale
        return self.config.reward_scale

    @property
    def is_warming_up(self) -> bool:
        """Whether the critic alone is trained in the next update."""
        return self.config.trains_critic_alone(self.updates)

    def _adapt_kl_coef(self, kl: float) -> None:
        """Move the KL's weight if it has a target; not while the critic warms up, when the policy cannot follow."""
        target = self.config.kl_target
        if target is None:
            self._adapted_kl_coef = None
        elif not self.is_warming_up:
            self._adapted_kl_coef = adapted_kl_coef(self.kl_coef, kl, target=target)

    @property
    def state(self) -> PPOState:
        return PPOState(
            updates=self.updates,
            random=self._rng.getstate(),
            return_moments=self.return_moments,
            adapted_kl_coef=self._adapted_kl_coef,
            counts=dict(self.novelty.counts),
            pace=self._pace.factor,
        )

    def takes(self, moments: Mapping[int, Mapping[str, Tensor]]) -> bool:
        """Whether the tensors of an optimizer have the shapes of this one's weights."""
        trained = [weight for group in self.optimizer.param_groups for weight in group["params"]]
        for index, of_weight in moments.items():
            if not 0 <= index < len(trained):
                return False
            for name, value in of_weight.items():
                # The number of steps is one number; moments have the shape of their weight.
                if name != "step" and value.shape != trained[index].shape:
                    return False
        return True

    def restore(self, state: PPOState) -> None:
        """Go on from a state; what the last updates used is not known then."""
        self.updates = state.updates
        self.return_moments = state.return_moments
        self._rng.setstate(state.random)
        self._adapted_kl_coef = state.adapted_kl_coef
        self.novelty.counts = dict(state.counts)
        self._pace.factor = state.pace
        self.used.clear()  # a roll back undid these updates

    def use_prompt(self, prompt: str) -> bool:
        """Go on under a system prompt; False: by the same weights."""
        return False

    @contextmanager
    def under_prompt(self, prompt: str) -> Iterator[None]:
        """The policy plays under a system prompt meanwhile, by the same weights."""
        yield

    def begin_anew(self) -> None:
        """Weights of a whole model hold for prompts of any form, so they stay."""

    def reseed(self, seed: int) -> None:
        """Draw minibatches from another seed on."""
        self._rng = random.Random(seed)

    @torch.no_grad()
    def share(self) -> None:
        """Let the learners of all ranks be as that of rank 0: weights, reference, moments, state."""
        reference = [then for _, then in self.reference.start] if self.reference else []
        weights = [*self._trunk, *self._head, *reference]
        moments = self.optimizer.state_dict()
        own = (weights, moments, self.state, self.policy.version, self.config)
        first_weights, first_moments, first_state, first_version, config = self.ranks.first(own)
        if self.ranks.rank == 0:
            return
        self.config = config
        for weight, first in zip(weights, first_weights, strict=True):
            weight.copy_(first)
        self.optimizer.load_state_dict(first_moments)
        self.restore(first_state)
        self.policy.version = first_version


def _progress_of_epoch(
    progress: Callable[[int, int], None], epoch: int, epochs: int, made: int, of: int
) -> None:
    """Report the steps made in an epoch, from 1, as those of the whole update."""
    progress((epoch - 1) * of + made, epochs * of)
