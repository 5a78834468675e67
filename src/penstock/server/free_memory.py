"""Return of memory to the operating system that the C library keeps although the process has freed it."""

from __future__ import annotations

import ctypes
from functools import cache
from typing import Any


@cache
def _malloc_trim() -> Any:
    return getattr(ctypes.CDLL(None), "malloc_trim", None)  # glibc alone has it


def return_free_memory() -> None:
    """Return free pages to the operating system. Takes milliseconds, so call it in a thread pool."""
    if (trim := _malloc_trim()) is not None:
        trim(0)
