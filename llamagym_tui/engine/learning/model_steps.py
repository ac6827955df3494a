"""Steps on weights inside the model: all of them, or an adapter in its layers, by minibatches and AdamW.

A learning rate that suits one model ruins another: at the same rate a step moves a model of 135 M parameters by a
hundred times the KL of one of 1 M. So a factor on the scheduled rate follows the KL that steps make. The minibatch
behind a step shows how far it went: too far, and the next steps are smaller; much too far, and it is undone. Source of
the rule: the adaptive schedule of rsl_rl, arXiv:2109.11978.
"""

import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from llamagym_tui.engine.learning.losses import Made, Objective, UpdateSums
from llamagym_tui.engine.learning.packing import PackedRows, Row, forwards, minibatches, parts_of
from llamagym_tui.engine.model.forward import Encoded
from llamagym_tui.engine.model.shape import forward_limits
from llamagym_tui.engine.policy.earlier import EarlierSelf
from llamagym_tui.engine.policy.policy import Policy
from llamagym_tui.engine.ranks import Ranks
from llamagym_tui.settings import PPOConfig

MUCH_TOO_FAR = 3.0
"""Times the KL that an update should make, beyond which a step is undone."""
TOO_FAR = 2.0
"""Times that KL, beyond which steps become smaller."""
NEAR = 0.5
"""Times that KL, below which steps become larger again."""
CHANGE = 1.5
"""Factor by which they do."""
LEAST_PACE = 1e-4


class ModelSteps:
    state = None
    """There is nothing to keep beside the optimizer's tensors, the pace and the random state."""

    def __init__(
        self, policy: Policy, config: PPOConfig, generator: random.Random, ranks: Ranks
    ) -> None:
        self.policy = policy
        self.ranks = ranks
        self._random = generator
        self.reference: EarlierSelf | None = None
        self.pace = 1.0
        """Factor on the scheduled learning rate."""
        backbone = policy.model.backbone
        self.limits = forward_limits(
            backbone.lm.config,
            backbone.dtype.itemsize,
            flat=backbone.is_lean,
        )
        """The size of a forward; a larger minibatch accumulates gradients."""
        self.weights = [p for p in policy.model.pretrained_model.parameters() if p.requires_grad]
        """The policy's weights that are trained."""
        self._head = list(policy.model.v_head.parameters())
        groups = [
            {"params": self.weights, "lr": config.lr},
            {"params": self._head, "lr": config.value_lr},
        ]
        self.optimizer = torch.optim.AdamW(groups, betas=(0.9, 0.95), weight_decay=0.0)
        self._rows: Sequence[Row] = ()
        self._before: list[Tensor] = []
        """The weights before the last step. Empty: none can be undone."""
        self._has_moved = False
        """True if a step of the update under way has changed a weight of the policy."""

    def take(self, rows: Sequence[Row]) -> None:
        """Take the rows of the next update."""
        self._rows = rows

    def parts(self) -> Iterator[tuple[PackedRows, Encoded]]:
        """This rank's part of the batch, with what the model says of it."""
        return self.encoded(parts_of(self._rows, self.ranks.size)[self.ranks.rank])

    def encoded(self, rows: Iterable[Row]) -> Iterator[tuple[PackedRows, Encoded]]:
        """Rows in the parts that are computed at once, with what the model says of each."""
        backbone = self.policy.model.backbone
        for part in forwards(rows, self.limits, backbone.device):
            yield part, part.encode(backbone)

    def train(
        self,
        objective: Objective,
        lr: float,
        should_stop: Callable[[], bool],
        progress: Callable[[int, int], None],
    ) -> Made:
        """Make epochs of minibatches, until the KL is beyond its target, or a stop; `lr` is the scheduled rate."""
        config = objective.config
        policy_group, critic_group = self.optimizer.param_groups
        critic_group["lr"] = config.value_lr
        sums = UpdateSums()
        self._has_moved = False
        is_stopped = False
        for epoch in range(config.epochs):
            of_epoch = UpdateSums()
            drawn = list(minibatches(self._rows, config.mini_batch_size, self._random))
            for at, minibatch in enumerate(drawn):
                is_first = epoch == at == 0
                is_stopped = not is_first and self.ranks.first(should_stop())
                if is_stopped:
                    break
                progress(epoch * len(drawn) + at, config.epochs * len(drawn))
                turns = sum(turn.is_trained for row in minibatch for turn in row.segment.turns)
                found = self._gradients(minibatch, objective, turns, is_first=is_first)
                kl = self._kl_of(found)
                if self._before and kl > MUCH_TOO_FAR * config.update_kl:
                    # The step before went much too far, so gradients are of the weights before it.
                    self._undo()
                    found = self._gradients(minibatch, objective, turns, is_first=is_first)
                elif not (is_first or objective.is_warming_up):
                    self._follow(kl, config.update_kl)
                of_epoch.include(found)
                if turns:
                    policy_group["lr"] = lr * self.pace
                    self._step(objective, of_epoch)
            sums.include(of_epoch)
            kl_of_epoch = of_epoch.of_all(self.ranks).kl_of_decision
            if is_stopped or (config.target_kl is not None and kl_of_epoch > config.target_kl):
                break
        self._before = []  # what was kept of the last step is of no use to the next update
        return Made(sums, lr * self.pace, self._has_moved)

    def _gradients(
        self, minibatch: Sequence[Row], objective: Objective, turns: int, *, is_first: bool
    ) -> UpdateSums:
        """Set the gradients of a minibatch's loss, a mean over `turns`, to which this rank adds its part."""
        self.optimizer.zero_grad(set_to_none=True)
        sums = UpdateSums()
        for part, encoded in self.encoded(parts_of(minibatch, self.ranks.size)[self.ranks.rank]):
            # The mean over the turns of the whole step, so that it does not depend on how rows were packed.
            loss = objective.loss(part, encoded, sums, is_first=is_first) / turns
            loss.backward()
        return sums

    def _kl_of(self, minibatch: UpdateSums) -> float:
        """Nats a turn by which a minibatch's decisions have moved since they were made."""
        parts = self.ranks.gather((float(minibatch.approx_kl), minibatch.turns))
        return sum(kl for kl, _ in parts) / max(sum(turns for _, turns in parts), 1)

    def _step(self, objective: Objective, sums: UpdateSums) -> None:
        """Clip the gradients and make an optimizer step; one that is not finite is skipped and counted."""
        head = self._head if objective.config.has_critic else []
        self.ranks.add_gradients(head if objective.is_warming_up else [*self.weights, *head])
        # Apart, because the critic's gradient is often much larger: one norm for both would shrink the policy's step.
        trunk_norm = nn.utils.clip_grad_norm_(self.weights, objective.config.max_grad_norm)
        head_norm = nn.utils.clip_grad_norm_(head, objective.config.max_grad_norm)
        if not (trunk_norm + head_norm).isfinite():
            self.optimizer.zero_grad(set_to_none=True)
            sums.skipped += 1
            return
        sums.grad_norms.append(trunk_norm)
        if not objective.is_warming_up:
            self._before = [weight.detach().clone() for weight in self.weights]
        self.optimizer.step()
        if not self._has_moved:
            pairs = zip(self.weights, self._before, strict=False)
            self._has_moved = not all(torch.equal(weight, before) for weight, before in pairs)

    @torch.no_grad()
    def _undo(self) -> None:
        """Undo the last step, and halve those that follow."""
        for weight, before in zip(self.weights, self._before, strict=True):
            weight.copy_(before)
        self._before = []
        self._scale_pace(0.5)

    def _follow(self, kl: float, wanted: float) -> None:
        """Make the next step smaller where the policy has moved too far by now, larger where it has hardly moved."""
        if kl > TOO_FAR * wanted:
            self._scale_pace(1 / CHANGE)
        elif kl < NEAR * wanted:
            self._scale_pace(CHANGE)

    def _scale_pace(self, by: float) -> None:
        self.pace = min(max(self.pace * by, LEAST_PACE), 1.0)

    def why_it_stood_still(self, sums: UpdateSums, lr: float) -> str:
        """The cause for which an update has not moved the policy; empty: there was nothing to follow."""
        norms = [float(norm) for norm in sums.grad_norms]
        if sums.skipped and not norms:
            return f"none of its {sums.skipped} gradients was finite: look at the rewards, or take a lower ppo.lr"
        if norms and not lr:
            return "the learning rate has come to 0 (ppo.lr_final): set it above 0, or end the run before"
        if norms and all(weight.grad is None for weight in self.weights):
            return (
                "no gradient reaches any of them: they are frozen or have no part in what the model says, as those of "
                "a disabled adapter"
            )
        if not any(norms):
            return ""
        kind = str(self.weights[0].dtype).removeprefix("torch.")
        return (
            f"steps of a learning rate of {lr:.2g} are rounded away in weights of {kind}: raise ppo.lr, or hold them "
            "in float32"
        )

    @property
    def tensors(self) -> dict[str, Tensor]:
        """The optimizer's, by the number of their weight and their name."""
        moments: dict[int, dict[str, Tensor]] = self.optimizer.state_dict()["state"]
        return {
            f"{number}.{name}": value
            for number, of_weight in moments.items()
            for name, value in of_weight.items()
        }

    def takes(self, tensors: Mapping[str, Tensor]) -> bool:
        """True if an optimizer's tensors have the shapes of these weights."""
        trained = [*self.weights, *self._head]
        for number, name, value in _by_weight(tensors):
            # The number of steps is one number; moments have the shape of their weight.
            if number >= len(trained) or (name != "step" and value.shape != trained[number].shape):
                return False
        return True

    def restore(self, state: object, tensors: Mapping[str, Tensor]) -> None:
        moments: dict[int, dict[str, Tensor]] = {}
        for number, name, value in _by_weight(tensors):
            moments.setdefault(number, {})[name] = value
        # Rates are those of this learner's settings.
        groups = self.optimizer.state_dict()["param_groups"]
        self.optimizer.load_state_dict({"state": moments, "param_groups": groups})

    def use_prompt(self, prompt: str) -> bool:
        """The same weights play under every prompt."""
        return False

    @contextmanager
    def under_prompt(self, prompt: str) -> Iterator[bool]:
        yield False

    def begin_anew(self) -> bool:
        """Weights inside the model hold for prompts of any form, so they stay."""
        return False


def _by_weight(tensors: Mapping[str, Tensor]) -> Iterator[tuple[int, str, Tensor]]:
    """The number of each tensor's weight, its name, and the tensor."""
    for key, value in tensors.items():
        number, _, name = key.partition(".")
        yield int(number), name, value
