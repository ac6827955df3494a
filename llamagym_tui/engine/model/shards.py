"""A model whose weights lie in parts on all ranks: torch's FSDP2, and how ranks keep in step.

Each forward of such a model, and each backward, is made by all ranks at once. So before each of them, and before every
exchange, ranks agree on the highest of what they are about to do, and all go along with that: who waits makes a forward
of one token, which changes nothing. So rank 0 can evaluate, look at the policy or write a checkpoint meanwhile.
"""

import warnings
from typing import Any

import torch
from torch import Tensor
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.distributed.tensor import DTensor, distribute_tensor

from llamagym_tui.engine.ranks import Ranks
from llamagym_tui.errors import RankLost, RunStoreError

# What a rank is about to do: to wait for the others, or what all do at once. The highest of all ranks comes first.
WAITS = 0
FORWARD = 1
BACKWARD = 2
GATHER = 3
PUT = 4
Weights = dict[str, Tensor]
Moments = dict[int, dict[str, Tensor]]


class Shards:
    def __init__(self, lm: Any, ranks: Ranks) -> None:
        """Keep this rank's part of the weights that rank 0 has; those of the other ranks are dropped."""
        self._lm = lm
        self._ranks = ranks
        for weight in lm.parameters():
            ranks.take(weight.data)
        mesh = init_device_mesh(lm.device.type, (ranks.size,))
        for layer in [*lm.get_decoder().layers, lm]:
            fully_shard(layer, mesh=mesh, reshard_after_forward=True)
        for module in lm.modules():
            if isinstance(module, FSDPModule):
                # A loss is divided by the turns of all ranks already, and gloo has no product with a factor.
                module.set_gradient_divide_factor(1.0)
                module.set_force_sum_reduction_for_comms(enable=True)
        # What a module returns is indexed here, and never changed.
        warnings.filterwarnings("ignore", "FSDP2-wrapped module")
        ranks.meet = self.meet

    def meet(self, work: int = WAITS) -> None:
        """Agree on what comes next, and go along with the others until that is this rank's work, or all wait."""
        while True:
            agreed = self._ranks.largest(work)
            if agreed == work:
                return
            if agreed == GATHER:
                self._gathered()
            elif agreed == PUT:
                self._put()
            else:
                with torch.set_grad_enabled(agreed == BACKWARD):
                    ids = torch.zeros(1, 1, dtype=torch.long, device=self._lm.device)
                    output = self._lm(input_ids=ids, use_cache=False, output_hidden_states=True)
                    if agreed == BACKWARD:
                        (0 * output.logits.sum()).backward()

    def meet_forward(self) -> None:
        """Agree on a forward, and on the one backward that follows where gradients are on."""
        self.meet(BACKWARD if torch.is_grad_enabled() else FORWARD)

    def learns(self, model: Any, optimizer: Any) -> None:
        """What is gathered and put: a model with a value head, and its optimizer."""
        self._model = model
        self._optimizer = optimizer

    def gather(self) -> tuple[Weights, Moments]:
        """Weights by their names in the model, an adapter's alone where there is one, and moments; rank 0 calls it.

        Raises:
            RunStoreError: a rank has ended, and its part with it.
        """
        try:
            self.meet(GATHER)
        except RankLost as error:
            raise RunStoreError(
                "A checkpoint needs the parts of all ranks, and one has ended."
            ) from error
        return self._gathered()

    def put(self, weights: Weights, moments: Moments) -> None:
        """Divide weights, by their names in a saved folder, and moments among all ranks; rank 0 calls it."""
        self.meet(PUT)
        self._put(weights, moments)

    @torch.no_grad()
    def _gathered(self) -> tuple[Weights, Moments]:
        trained = self._model.pretrained_model
        names = {
            name
            for name, each in trained.named_parameters()
            if each.requires_grad or not self._model.is_adapted
        }
        weights = {
            name: self._for_first(each)
            for name, each in trained.state_dict().items()
            if name in names
        }
        moments = {
            index: {name: self._for_first(each) for name, each in kept.items()}
            for index, kept in self._optimizer.state_dict()["state"].items()
        }
        return weights, moments

    def _for_first(self, tensor: Tensor) -> Tensor:
        """A tensor whole, on rank 0; the others take part, and have their own."""
        full = self.whole(tensor)
        if self._ranks.rank != 0:
            return tensor
        return full.cpu()

    @torch.no_grad()
    def _put(self, weights: Weights | None = None, moments: Moments | None = None) -> None:
        weights = weights or {}
        moments = moments or {}
        own = self._model.named_weights()
        for name in self._ranks.first(list(weights)):
            own[name].copy_(self.part(weights.get(name), own[name]))
        trained = [weight for group in self._optimizer.param_groups for weight in group["params"]]
        kept_of = [(index, list(kept)) for index, kept in moments.items()]
        state = Moments()
        for index, names in self._ranks.first(kept_of):
            kept = moments.get(index, {})
            # Moments are divided as their weight is; the number of steps is one number.
            state[index] = {
                name: self.part(
                    kept.get(name), torch.empty(()) if name == "step" else trained[index]
                )
                for name in names
            }
        # Rates are those of this learner's settings.
        groups = self._optimizer.state_dict()["param_groups"]
        self._optimizer.load_state_dict({"state": state, "param_groups": groups})

    def whole(self, tensor: Tensor) -> Tensor:
        """A tensor of which each rank has a part, or as it is; all ranks call it."""
        return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor

    def part(self, full: Tensor | None, like: Any) -> Tensor:
        """This rank's part of a tensor that rank 0 has, divided as another; all ranks call it."""
        of_first = torch.empty(like.shape) if full is None else full
        of_first = of_first.to(like.device, like.dtype)
        if not isinstance(like, DTensor):
            self._ranks.take(of_first)
            return of_first
        return distribute_tensor(
            of_first.contiguous(), like.device_mesh, like.placements, src_data_rank=0
        )
