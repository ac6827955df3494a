"""The memory that tensors leave behind when they are freed: kept for the next ones, and given back at good moments.

Only GNU's C library, on Linux, is asked; with any other nothing happens.
"""

import ctypes
import sys
from typing import Any

# Of malloc.h.
M_TRIM_THRESHOLD = -1
M_MMAP_MAX = -4


def keep_freed_memory() -> None:
    """Let the C library hold freed tensors until `return_freed_memory`.

    Otherwise each large tensor would be memory that the system has to fill with zeros first.
    """
    set_option = _c_library_function("mallopt")
    if set_option is not None:
        set_option(M_MMAP_MAX, 0)
        set_option(M_TRIM_THRESHOLD, 2**31 - 1)


def return_freed_memory() -> None:
    """Give back to the system what the C library holds of freed tensors.

    Their sizes differ from batch to batch, and what is freed between others would pile up by hundreds of MiB an hour.
    """
    trim = _c_library_function("malloc_trim")
    if trim is not None:
        trim(0)


def _c_library_function(function: str) -> Any:
    """A function of GNU's C library; None where the process has another one."""
    if sys.platform != "linux":
        return None
    return getattr(ctypes.CDLL(None), function, None)
