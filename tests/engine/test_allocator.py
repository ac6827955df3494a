"""Freed memory stays until it is given back, and then goes back to the system."""

from __future__ import annotations

import subprocess
import sys

import pytest


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="the C library is GNU's on Linux")
def test_freed_memory_stays_until_it_is_given_back_and_goes_where_it_lay_between_others() -> None:
    code = """
import ctypes
import torch
from llamagym_tui.engine.allocator import keep_freed_memory, return_freed_memory
from llamagym_tui.engine.memory import held_memory
keep_freed_memory()
held = [held_memory("cpu")]
large = torch.ones(64 * 2**20)
del large
held.append(held_memory("cpu"))
return_freed_memory()
held.append(held_memory("cpu"))
libc = ctypes.CDLL(None)
libc.malloc.restype, libc.malloc.argtypes, libc.free.argtypes = ctypes.c_void_p, [ctypes.c_size_t], [ctypes.c_void_p]
blocks = [libc.malloc(65_536) for _ in range(2_000)]
for block in blocks:
    ctypes.memset(block, 1, 65_536)
for block in blocks[:-1]:
    libc.free(block)  # the last one keeps all below it
before = held_memory("cpu")
return_freed_memory()
print(held[1] - held[0], held[2] - held[0], before - held_memory("cpu"))
"""
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    freed, returned, between = map(int, out.stdout.split())
    assert between > 100 * 2**20
    assert freed == pytest.approx(256 * 2**20, rel=0.05)
    assert returned < 16 * 2**20
