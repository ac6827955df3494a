"""Whether what is trained moves: nothing to train is refused before the first episode, a stand-still after an update.

A stand-still is an error only where there was something to follow: a batch whose advantages are all 0 has no gradient,
and an update on it that changes nothing is as it should be.
"""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from llamagym_tui.engine.policy.policy import Policy
from llamagym_tui.errors import ConfigError

BITS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
"""Whole numbers of as many bytes as a weight has."""


class Marks:
    """What weights were, in a number each: one that has changed in any bit has another number."""

    def __init__(self, weights: Sequence[Tensor]) -> None:
        self._weights = weights
        self._were = _digests(weights)

    def have_moved(self) -> bool:
        """Whether any of the weights has changed."""
        return _digests(self._weights) != self._were


@torch.no_grad()
def _digests(weights: Sequence[Tensor]) -> list[int]:
    """A number for each weight; those of an accelerator are read from it at once."""
    there: list[Tensor] = []
    here: list[int] = []
    for weight in weights:
        own = weight.to_local() if hasattr(weight, "to_local") else weight
        bits = own.contiguous().flatten().view(BITS[own.element_size()])
        if bits.device.type == "cpu":
            # torch's sum takes ten times as long there.
            here.append(int(np.bitwise_xor.reduce(np.from_dlpack(bits))))
        else:
            there.append(bits.sum(dtype=torch.int64))
    return here + (torch.stack(there).tolist() if there else [])


def require_trainable(policy: Policy) -> None:
    """Check that a learner would train what its user means.

    Raises:
        ConfigError: no weight is trained, none of them has a part in what the model says, or they are of a type that
            small steps do not change.
    """
    model = policy.model
    trained = [each for each in model.pretrained_model.parameters() if each.requires_grad]
    if not trained:
        raise ConfigError(f"Nothing of the model would be trained: {_why_nothing(policy)}.")
    if not model.is_adapted:
        if getattr(model.causal_lm, "is_quantized", False):
            raise ConfigError(
                "Quantized weights are not trained, so little of the model would be: give it an adapter (peft_config)."
            )
        if any(weight.element_size() < torch.float32.itemsize for weight in trained):
            raise ConfigError(
                f"Weights of {str(trained[0].dtype).removeprefix('torch.')} are too coarse for the small steps of full "
                "fine-tuning: load them in float32, or give an adapter (peft_config)."
            )
    if policy.narrow is None and not _is_reached(policy):
        raise ConfigError(
            "Nothing of the model would be trained: the weights with requires_grad have no part in what it says, as "
            "those of an adapter that is disabled."
        )


def _why_nothing(policy: Policy) -> str:
    if policy.model.is_adapted:
        return "its adapter was loaded to be used only (peft.PeftModel.from_pretrained(…, is_trainable=True) trains it)"
    return "requires_grad is off for all its weights, so set it for those that are meant, or give it an adapter"


def _is_reached(policy: Policy) -> bool:
    """Whether what the model says depends on a weight that is trained."""
    with torch.enable_grad():
        encoded = policy.model.backbone.encode_rows([[0, 0]])
        at = torch.tensor([0], device=encoded.hidden.device)
        return encoded.logits_at(at, at).requires_grad


def why_it_stood_still(
    weights: Sequence[Tensor], *, gradient_norms: Sequence[float], skipped: int, lr: float
) -> str:
    """The cause for which an update has not moved the weights; empty: there was nothing to follow.

    Args:
        gradient_norms: of the steps that were made.
        skipped: steps that were left out, as their gradient was not finite.
        lr: of the steps.
    """
    if skipped and not gradient_norms:
        return f"none of its {skipped} gradients was finite: look at the rewards, or take a lower ppo.lr"
    if not gradient_norms:
        return ""
    if not lr:
        return (
            "the learning rate has come to 0 (ppo.lr_final): set it above 0, or end the run before"
        )
    if all(weight.grad is None for weight in weights):
        return "no gradient reaches any of them, so they have been frozen or taken out of the model"
    largest = max(gradient_norms)
    if not largest:
        return ""
    kind = str(weights[0].dtype).removeprefix("torch.")
    return (
        f"steps of a learning rate of {lr:.2g} are rounded away in weights of {kind}: raise ppo.lr, or hold them in "
        "float32"
    )


def what_is_trained(policy: Policy) -> str:
    """The number of the policy's trained weights and where in the model they are, in words, without the critic's."""
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
