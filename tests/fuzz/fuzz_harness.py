"""Harness of the fuzz targets: a few examples as ordinary tests, or FUZZ_SECONDS each if that is set.

A target takes an example of a strategy and must return, or raise only permitted exceptions. Time and memory are
limited: no input may cost more than a second of processor time or grow the process by more than 32 MiB.
"""

from __future__ import annotations

import os
import random
import resource
import sys
import time
from collections.abc import Callable
from typing import TypeVar

from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st

from support.hypothesis_profiles import limit

T = TypeVar("T")

FUZZ_SECONDS = float(os.environ.get("FUZZ_SECONDS", "0"))
SECONDS_PER_INPUT = 1.0
GROWTH_MIB_PER_INPUT = 32


def fuzz(target: Callable[[T], None], strategy: st.SearchStrategy[T], examples: int = 200) -> None:
    deadline = time.monotonic() + FUZZ_SECONDS
    _round(target, strategy, limit(examples), derandomize=True)
    while time.monotonic() < deadline:
        _round(target, strategy, examples * 10, derandomize=False)


def _round(
    target: Callable[[T], None], strategy: st.SearchStrategy[T], examples: int, derandomize: bool
) -> None:
    def run(value: T) -> None:
        start, peak_mib = time.thread_time(), _peak_mib()
        target(value)
        assert time.thread_time() - start < SECONDS_PER_INPUT
        assert _peak_mib() - peak_mib <= GROWTH_MIB_PER_INPUT

    checked = settings(
        max_examples=examples,
        deadline=None,
        database=None,
        derandomize=derandomize,
        suppress_health_check=list(HealthCheck),
    )(given(strategy)(run))
    if derandomize:
        checked()
    else:
        seed(random.randrange(2**63))(checked)()


def _peak_mib() -> int:
    unit = 2**20 if sys.platform == "darwin" else 2**10
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // unit


def mutations(samples: st.SearchStrategy[bytes]) -> st.SearchStrategy[bytes]:
    """Valid bytes with changes: some overwritten, truncated, repeated, or with numbers of the worst sizes put in."""
    return st.builds(_mutate, samples, st.lists(_EDITS, min_size=1, max_size=6))


_NASTY = [
    b"\x7f\xff\xff\xff",
    b"\x80\x00\x00\x00",
    b"\xff\xff\xff\xff",
    b"\xff\xff\xff\xff\x0f",
    b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
    b"\x80" * 12,
    b"\x00",
    b"\x00\x00\x00\x00",
    b"\x7f\xff",
    b"\xff\xfe",
]
_EDITS = st.tuples(
    st.sampled_from(["overwrite", "insert", "cut", "repeat", "end"]),
    st.floats(0, 1),
    st.sampled_from(_NASTY) | st.binary(min_size=1, max_size=8),
)


def _mutate(sample: bytes, edits: list[tuple[str, float, bytes]]) -> bytes:
    data = bytearray(sample)
    for kind, where, content in edits:
        position = int(where * len(data))
        stop = position + len(content)
        if kind == "overwrite":
            data[position:stop] = content
        elif kind == "insert":
            data[position:position] = content
        elif kind == "cut":
            del data[position:stop]
        elif kind == "repeat":
            data[position:position] = data[position : position + 64]
        else:
            del data[position:]
    return bytes(data)
