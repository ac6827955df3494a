"""One PPO update, from trajectories to changed weights.

It differs from the textbook in three ways: an advantage belongs to a turn and is shared by the tokens of its reply,
unless `credit` is "token"; token terms are summed within a turn and averaged over turns, so that boilerplate
tokens of a reply neither earn nor dilute; and the entropy bonus is on the action distribution, where admissible
replies part, not on the vocabulary.
"""

import random
import time
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from msgspec import Struct
from torch import Tensor, nn

from llamagym_tui.config import PPOConfig, UpdateStats
from llamagym_tui.engine.allocator import return_freed_memory
from llamagym_tui.engine.learning.distinguished import Distinguished, distinguished
from llamagym_tui.engine.learning.inspection import UsedBatch, moved_most
from llamagym_tui.engine.learning.losses import clipped_policy_loss, reference_kl, value_loss
from llamagym_tui.engine.learning.packing import (
    PackedRows,
    Row,
    batch_rows,
    forwards,
    minibatches,
    parts_of,
)
from llamagym_tui.engine.learning.reference import Reference
from llamagym_tui.engine.learning.rewards import ReturnMoments, discounted_returns
from llamagym_tui.engine.learning.schedules import (
    adapted_kl_coef,
    along_line,
    learning_rate,
)
from llamagym_tui.engine.learning.targets import Targets, batch_targets
from llamagym_tui.engine.learning.update_stats import UpdateSums, update_stats
from llamagym_tui.engine.model.shape import ForwardLimits, forward_limits, shape_of
from llamagym_tui.engine.parallel import on_threads
from llamagym_tui.engine.policy.policy import Policy
from llamagym_tui.engine.policy.trajectory import Trajectory, Turn
from llamagym_tui.engine.ranks import ALONE, Ranks

KEPT_BATCHES = 2
"""Updates whose batches can be inspected: an episode that the UI shows is soon of the update before the last."""


RandomState = tuple[int, tuple[int, ...], float | None]
"""Of a `random.Random`."""


class PPOState(Struct, frozen=True, kw_only=True):
    """What a learner has become, apart from weights and the optimizer's moments; no settings."""

    updates: int
    random: RandomState
    return_moments: ReturnMoments
    adapted_kl_coef: float | None

    def __post_init__(self) -> None:
        """Raises ValueError: the state is of no `random.Random`."""
        random.Random().setstate(self.random)


class PPO:
    def __init__(
        self, policy: Policy, config: PPOConfig, seed: int = 0, ranks: Ranks = ALONE
    ) -> None:
        """The reference is the policy as it is now; all `ranks` update together, with the batches of each."""
        self.policy, self.config, self.ranks = policy, config, ranks
        self.reference = Reference(policy) if config.kl_coef or config.kl_coef_final else None
        backbone = policy.model.backbone
        shape, size = shape_of(backbone.lm.config), backbone.dtype.itemsize
        self._limits = forward_limits(
            shape, size, scores_all=not backbone.is_split, flat=backbone.is_lean
        )
        self.updates = 0
        self.return_moments = ReturnMoments()
        """Of the discounted returns in all episodes that the policy played alone."""
        self.used: deque[UsedBatch] = deque(maxlen=KEPT_BATCHES)
        """What the last updates trained on, the newest last, for the inspector."""
        self.moved: dict[str, Any] | None = None
        """The episode that the last update moved most, as `moved.moved_most` has it."""
        self._adapted_kl_coef: float | None = None
        self._rng = random.Random(seed)
        self._trunk = [p for p in policy.model.pretrained_model.parameters() if p.requires_grad]
        self._head = list(policy.model.v_head.parameters())
        groups = [
            {"params": self._trunk, "lr": config.lr},
            {"params": self._head, "lr": config.value_lr},
        ]
        self.optimizer = torch.optim.AdamW(groups, betas=(0.9, 0.95), weight_decay=0.0)
        self.shards = backbone.shards
        if self.shards:
            self.shards.learns(policy.model, self.optimizer)

    def update(
        self,
        trajectories: Sequence[Trajectory],
        *,
        should_stop: Callable[[], bool] = lambda: False,
        progress: Callable[[int, int], None] = lambda epoch, epochs: None,
    ) -> UpdateStats:
        """Change the policy by one batch of episodes.

        Args:
            trajectories: the batch.
            should_stop: called between two optimizer steps; True ends the update, and the steps made stay.
            progress: called before each minibatch with its epoch, from 1, and the number of epochs.
        """
        self.config = self.ranks.first(self.config)
        began, waited_s = time.perf_counter(), self.ranks.waited_s
        trajectories = [each for part in self.ranks.gather(trajectories) for each in part]
        # 1. Targets, from what was sampled. Whatever comes from models (reference, values, bootstraps) is computed
        #    here, before the first step, and stays fixed over all epochs.
        rows = batch_rows(trajectories)
        own = [trajectory for trajectory in trajectories if trajectory.is_own]
        returns = [
            each for trajectory in own for each in discounted_returns(trajectory, self.config.gamma)
        ]
        self.return_moments = self.return_moments.with_returns(returns)
        targets = self.targets(trajectories, rows)
        # 2. Epochs of minibatches, until all are done, the KL to the sampling policy exceeds its target, or a stop.
        lr = learning_rate(self.config, self.updates)
        for group, rate in zip(
            self.optimizer.param_groups, (lr, self.config.value_lr), strict=True
        ):
            group["lr"] = rate
        sums = UpdateSums()
        epochs = 0.0
        for epoch in range(1, self.config.epochs + 1):
            made = self._epoch(
                rows,
                targets,
                sums,
                first=epoch == 1,
                progress=partial(progress, epoch, self.config.epochs),
                should_stop=should_stop,
            )
            epochs += made
            target_kl = self.config.target_kl
            if made < 1 or (
                target_kl is not None and sums.of_all(self.ranks).kl_of_epoch > target_kl
            ):
                break
        return_freed_memory()
        sums = sums.of_all(self.ranks)
        # 3. Figures, and the state of the next update.
        stats = update_stats(
            trajectories,
            targets,
            sums,
            epochs=epochs,
            update_s=time.perf_counter() - began,
            lr=lr,
            kl_coef=self.kl_coef,
            entropy_coef=self.entropy_coef,
            reward_scale=self.reward_scale,
        )
        self._adapt_kl_coef(stats.kl_ref)
        was_warming_up = self.is_warming_up
        self.updates += 1
        self.policy.version += 1
        config, temperature = self.config, self.policy.generation.temperature
        used = UsedBatch(trajectories, targets, config.credit, config.clip_range, temperature)
        self.used.append(used)
        self.ranks.waits = self.ranks.gather(
            (self.ranks.waited_s - waited_s) / max(stats.update_s, 1e-9)
        )
        self.moved = None if was_warming_up else moved_most(self.policy.chat, used, sums.log_ratios)
        return stats

    def distinguished(self, trajectories: Sequence[Trajectory]) -> Distinguished | None:
        return distinguished(self.policy, trajectories, self.limits)

    def targets(self, trajectories: Sequence[Trajectory], rows: Sequence[Row]) -> Targets:
        turns = [turn for trajectory in trajectories for turn in trajectory.turns]
        decisions, reference = sum(len(turn.decision_logprobs) for turn in turns), None
        if self.reference:  # each rank computes a part, and leaves those of others zero
            own = parts_of(rows, self.ranks.size)[self.ranks.rank]
            parts = self.ranks.gather(self.reference.logprobs(own, decisions, self.limits))
            reference = torch.stack(parts).sum(0)
        return batch_targets(
            trajectories,
            self.config,
            reference_logprobs=reference,
            decision_values=self._decision_values(turns, rows)
            if self.config.credit == "token"
            else None,
            bootstraps=self.policy.bootstrap_values(trajectories),
            reward_scale=self.reward_scale,
            kl_coef=self.kl_coef,
            device=self.policy.model.backbone.device,
        )

    @torch.no_grad()
    def _decision_values(self, turns: Sequence[Turn], rows: Sequence[Row]) -> Tensor:
        """(D,) V before each decision of a batch; of a turn that someone else chose, its stored value."""
        model = self.policy.model
        values = torch.tensor([turn.value for turn in turns for _ in turn.decision_logprobs])
        for part in forwards(rows, self.limits, model.backbone.device):
            hidden = part.encode(model.backbone).hidden[part.decisions.rows, part.decisions.columns]
            values[part.decisions.indices.cpu()] = model.v_head(hidden).cpu()
        return values

    @property
    def limits(self) -> ForwardLimits:
        """Of one forward; a larger minibatch accumulates gradients over several, and threads compute some at once."""
        (tokens, scored, flat), threads = self._limits, self.policy.threads
        return ForwardLimits(tokens // threads, scored / threads, flat)

    @property
    def kl_coef(self) -> float:
        """Weight of the KL to the reference in the next update."""
        if self.config.kl_target is None:
            return self._scheduled(self.config.kl_coef, self.config.kl_coef_final)
        return self.config.kl_coef if self._adapted_kl_coef is None else self._adapted_kl_coef

    @property
    def entropy_coef(self) -> float:
        """Weight of the action distribution's entropy in the next update."""
        return self._scheduled(self.config.entropy_coef, self.config.entropy_coef_final)

    @property
    def reward_scale(self) -> float:
        return (
            self.return_moments.scale
            if self.config.reward_scale is None
            else self.config.reward_scale
        )

    @property
    def is_warming_up(self) -> bool:
        return self.updates < self.config.critic_warmup_updates

    @property
    def state(self) -> PPOState:
        return PPOState(
            updates=self.updates,
            random=self._rng.getstate(),
            return_moments=self.return_moments,
            adapted_kl_coef=self._adapted_kl_coef,
        )

    def reseed(self, seed: int) -> None:
        """Draw minibatches from another seed on."""
        self._rng = random.Random(seed)

    def restore(self, state: PPOState) -> None:
        """Go on from a state; what the last updates used is not known then."""
        self.updates, self.return_moments = state.updates, state.return_moments
        self._rng.setstate(state.random)
        self._adapted_kl_coef = state.adapted_kl_coef
        self.used.clear()  # a roll back undid these updates

    @torch.no_grad()
    def share(self) -> None:
        """Let the learners of all ranks be as that of rank 0: weights, reference, moments, state."""
        reference = [then for _, then in self.reference.start] if self.reference else []
        weights = self._head if self.shards else [*self._trunk, *self._head, *reference]
        learner = (
            weights,
            None if self.shards else self.optimizer.state_dict(),
            self.state,
            self.policy.version,
        )
        of_first, moments, state, version = self.ranks.first(learner)
        if self.ranks.rank:
            for weight, other in zip(weights, of_first, strict=True):
                weight.copy_(other)
            if moments:
                self.optimizer.load_state_dict(moments)
            self.restore(state)
            self.policy.version = version

    def _scheduled(self, start: float, final: float) -> float:
        return along_line(start, final, self.updates / self.config.decay_updates)

    def _adapt_kl_coef(self, kl: float) -> None:
        """Move the KL's weight if it has a target; not while the critic warms up, when the policy cannot follow."""
        target = self.config.kl_target
        if target is None:
            self._adapted_kl_coef = None
        elif not self.is_warming_up:
            self._adapted_kl_coef = adapted_kl_coef(
                self.kl_coef, kl, target=target, gain=self.config.kl_gain
            )

    def _epoch(
        self,
        rows: Sequence[Row],
        targets: Targets,
        sums: UpdateSums,
        *,
        first: bool,
        progress: Callable[[], None],
        should_stop: Callable[[], bool],
    ) -> float:
        """Train on all rows once, unless stopped; the share of the epoch that was made."""
        sums.log_ratios = []
        parts = list(minibatches(rows, self.config.mini_batch_size, self._rng))
        for at in range(0, len(parts), self.config.gradient_accumulation_steps):
            is_first = first and at == 0
            if not is_first and self.ranks.first(should_stop()):
                return at / len(parts)
            together = parts[at : at + self.config.gradient_accumulation_steps]
            # The mean over the turns of the whole step, so that it does not depend on how rows were packed.
            turns = sum(
                turn.is_trained for part in together for row in part for turn in row.segment.turns
            )
            self.optimizer.zero_grad(set_to_none=True)
            for minibatch in together:
                progress()
                own = parts_of(minibatch, self.ranks.size)[self.ranks.rank]
                self._add_gradients(
                    own, partial(self._loss, targets=targets, is_first=is_first), turns, sums
                )
            if turns:
                self._step(sums)
        return 1.0

    def _add_gradients(
        self, rows: Sequence[Row], loss: Callable[..., Tensor], turns: int, sums: UpdateSums
    ) -> None:
        """Add those of a loss over a number of turns, and its figures; parts of the rows are computed side by side."""
        threads, weights = (
            self.policy.threads,
            self._head if self.is_warming_up else [*self._trunk, *self._head],
        )

        def computed(some: Sequence[Row]) -> tuple[UpdateSums, list[Tensor]]:
            own, gradients = (
                UpdateSums(),
                [torch.zeros_like(weight) for weight in weights if threads > 1],
            )
            for part in forwards(some, self.limits, self.policy.model.backbone.device):
                mean = loss(part, sums=own) / turns
                if threads == 1:
                    mean.backward()
                    continue
                more = torch.autograd.grad(mean, weights, allow_unused=True, materialize_grads=True)
                torch._foreach_add_(gradients, more)
            return own, gradients

        for own, gradients in on_threads(
            computed, parts_of(rows, threads)
        ):  # in one order: the same bits again
            sums.include(own)
            for weight, gradient in zip(weights, gradients, strict=False):
                weight.grad = gradient if weight.grad is None else weight.grad + gradient

    def _loss(
        self, part: PackedRows, *, targets: Targets, sums: UpdateSums, is_first: bool
    ) -> Tensor:
        """() sum over turns of policy, value, entropy and KL loss."""
        config, model = self.config, self.policy.model
        with torch.set_grad_enabled(
            not (self.shards and self.is_warming_up)
        ):  # then none goes back into the trunk
            encoded = part.encode(model.backbone)
            scored = part.score(encoded, self.policy.generation.temperature)
        sums.log_ratios.append(
            (part.decisions.indices, (scored.logprobs - part.old_logprobs).detach())
        )
        credited, of_decisions = part.credited(config.credit)
        # The first ratio is 1 up to rounding: sampling and scoring have the same temperature, no truncation, no
        # dropout. `first_ratio` in the figures shows it.
        advantages = targets.advantages[of_decisions] * part.weights
        policy = clipped_policy_loss(
            scored.logprobs, part.old_logprobs, advantages, config.clip_range
        )
        hidden = encoded.hidden[credited.rows, credited.columns]
        # The value head gets the full gradient of its error. The trunk, which the policy shares, gets it times
        # `value_coef`, and none while the critic warms up.
        weight = 0.0 if self.is_warming_up else config.value_coef
        seen = weight * hidden + (1 - weight) * hidden.detach() if weight else hidden.detach()
        critic = value_loss(
            model.v_head(seen),
            targets.returns[credited.indices],
            targets.value_weights[credited.indices],
        )
        loss = critic
        if not self.is_warming_up:
            loss = loss + policy.loss - self.entropy_coef * scored.action_entropy.sum()
            if config.kl_form == "loss" and targets.reference_logprobs is not None:
                kl = reference_kl(
                    scored.logprobs, targets.reference_logprobs[part.decisions.indices]
                )
                loss = loss + self.kl_coef * kl.sum()
        sums.add(policy, critic, scored, len(part.turns.indices), is_first=is_first)
        return loss

    def _step(self, sums: UpdateSums) -> None:
        """Clip and step; a step with a non-finite gradient is skipped and counted."""
        trunk_here = (
            [] if self.is_warming_up or self.shards else self._trunk
        )  # shards have those of all already
        self.ranks.add_gradients([*trunk_here, *self._head])
        # Apart, because the critic's gradient is often much larger: one norm for both would shrink the policy's step.
        trunk = nn.utils.clip_grad_norm_(self._trunk, self.config.max_grad_norm)
        trunk = self.shards.whole(trunk) if self.shards else trunk
        head = nn.utils.clip_grad_norm_(self._head, self.config.max_grad_norm)
        if not (trunk + head).isfinite():
            self.optimizer.zero_grad(set_to_none=True)
            sums.skipped += 1
            return
        sums.grad_norms.append(trunk)
        self.optimizer.step()
