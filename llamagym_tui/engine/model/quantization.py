"""Weights of 8 or 4 bits, through bitsandbytes (the extra ``[quant]``).

They are frozen: an adapter learns beside them, and the reference policy is the model with the adapter disabled.
"""

from __future__ import annotations

import importlib.util
import logging
from typing import Any

import torch

from llamagym_tui.config import Quantization
from llamagym_tui.errors import ModelLoadError


def quantization_config(kind: Quantization, device: str, dtype: torch.dtype) -> Any:
    """What transformers wants to know to load quantised weights; None: they stay as they are.

    Args:
        kind: bits of the weights.
        device: where they go, resolved.
        dtype: of everything that is not quantised, and of 4-bit arithmetic.
    Raises:
        ModelLoadError: it does not work here.
    """
    if kind == "none":
        return None
    if importlib.util.find_spec("bitsandbytes") is None:
        raise ModelLoadError(
            f"{kind} weights need bitsandbytes: pip install 'llamagym-tui[quant]', or use --quantization none."
        )
    if device.split(":")[0] not in ("cuda", "cpu"):
        raise ModelLoadError(f"{kind} weights work on cuda and cpu, not on {device}: use --quantization none.")
    # It says at every 8-bit product on a CPU that inputs are rounded to 16 bits.
    logging.getLogger("bitsandbytes.autograd._functions").setLevel(logging.ERROR)
    from transformers import BitsAndBytesConfig

    if kind == "8bit":
        return BitsAndBytesConfig(load_in_8bit=True)
    return BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_compute_dtype=dtype)


def keep_gradients(model: Any) -> None:
    """Keep 4-bit layers on the way that has gradients, whatever they did in between.

    On processors with AVX512-BF16 bitsandbytes repacks them at the first inference in eval mode, for products that
    pass no gradient on; PPO samples and trains in eval mode.
    """
    for module in model.modules():
        if hasattr(module, "support_avx512bf16_for_cpu"):
            module.support_avx512bf16_for_cpu = False
