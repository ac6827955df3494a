"""Attention over keys and values in fp32, in bf16, and stored in bf16 but computed in fp32.

    taskset -c 1 python -m benchmarks.keys_in_bf16

CPU time on one thread, so that other processes cost little; the three alternate, and the median of each is printed.
"""

import statistics
import time
from collections.abc import Callable

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

SECONDS, ROUNDS = 0.02, 9
HEADS = ((32, 2, 4), (64, 3, 3))
"""Size of a head, heads of keys, queries of each."""
NEW_TOKENS = 8


def seconds_of(call: Callable[[], object]) -> float:
    began, calls = time.process_time(), 0
    while time.process_time() - began < SECONDS:
        call()
        calls += 1
    return (time.process_time() - began) / calls


def compare(name: str, *calls: Callable[[], object]) -> None:
    for call in calls:
        call()
    rounds = [[seconds_of(call) for call in calls] for _ in range(ROUNDS)]
    exact, rounded, stored = map(statistics.median, zip(*rounds, strict=True))
    print(
        f"{name}: fp32 {1e3 * exact:.2f} ms, bf16 x{rounded / exact:.2f}, stored x{stored / exact:.2f}",
        flush=True,
    )


def decoding(rows: int, size: int, heads: int, group: int, width: int) -> None:
    query, key, value = (
        torch.randn(rows, heads, group, size),
        *torch.randn(2, rows, heads, width, size),
    )
    keys, values = key.bfloat16(), value.bfloat16()
    with torch.inference_mode():
        compare(
            f"rollout, {rows} rows, {width} keys of {size}",
            lambda: (query @ key.mT).softmax(-1) @ value,
            lambda: ((query.bfloat16() @ keys.mT).float().softmax(-1).bfloat16() @ values).float(),
            lambda: (query @ keys.float().mT).softmax(-1) @ values.float(),
        )


def update(rows: int, size: int, heads: int, group: int, width: int) -> None:
    shape = (rows, heads, width, size)
    query = torch.randn(rows, heads, group * NEW_TOKENS, size, requires_grad=True)
    key, value = torch.randn(shape, requires_grad=True), torch.randn(shape, requires_grad=True)
    mask = torch.zeros(rows, 1, group * NEW_TOKENS, width)

    def attend(compute: torch.dtype, store: torch.dtype) -> None:
        keys, values = (each.to(store).to(compute) for each in (key, value))
        mixed: Tensor = F.scaled_dot_product_attention(
            query.to(compute), keys, values, attn_mask=mask.to(compute)
        )
        mixed.float().sum().backward()

    compare(
        f"update, {rows} rows, {width} keys of {size}",
        lambda: attend(torch.float32, torch.float32),
        lambda: attend(torch.bfloat16, torch.bfloat16),
        lambda: attend(torch.float32, torch.bfloat16),
    )


def main() -> None:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    for measure in (decoding, update):
        for rows in (16, 128):
            for head in HEADS:
                for width in (140, 1000) if measure is decoding or rows == 16 else (140,):
                    measure(rows, *head, width)


if __name__ == "__main__":
    main()
