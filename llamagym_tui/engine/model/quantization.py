"""Weights of 8 or 4 bits, through bitsandbytes (the extra ``[quant]``).

They are frozen; an adapter on top of them is trained.
"""

import importlib.util
import logging
from typing import Any

import torch

from llamagym_tui.config import Quantization
from llamagym_tui.errors import ModelLoadError


def quantization_arguments(kind: Quantization, device: str, dtype: torch.dtype) -> dict[str, Any]:
    """Arguments of transformers' ``from_pretrained`` for quantized weights on a device; none for ``"none"``.

    Args:
        kind: bits of the weights.
        device: resolved.
        dtype: of everything that is not quantized, and of 4-bit arithmetic.
    Raises:
        ModelLoadError: it does not work here.
    """
    if kind == "none":
        return {}
    if importlib.util.find_spec("bitsandbytes") is None:
        raise ModelLoadError(
            f"{kind} weights need bitsandbytes: pip install 'llamagym-tui[quant]', or use --quantization none."
        )
    if device.split(":")[0] not in ("cuda", "cpu"):
        raise ModelLoadError(f"{kind} weights work on cuda and cpu, not on {device}: use --quantization none.")
    # It warns at every 8-bit product on a CPU that inputs are rounded to 16 bits.
    logging.getLogger("bitsandbytes.autograd._functions").setLevel(logging.ERROR)
    from transformers import BitsAndBytesConfig

    if kind == "8bit":
        config = BitsAndBytesConfig(load_in_8bit=True)
    else:
        config = BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_compute_dtype=dtype)
    return {"quantization_config": config, "device_map": {"": device}}


def keep_gradients(model: Any) -> None:
    """Keep gradients through 4-bit layers.

    On processors with AVX512-BF16 bitsandbytes repacks them at the first inference in eval mode, for products without
    gradients; PPO samples and trains in eval mode.
    """
    for module in model.modules():
        if hasattr(module, "support_avx512bf16_for_cpu"):
            module.support_avx512bf16_for_cpu = False
