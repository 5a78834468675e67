"""Delayed messages as packed pairs of due time and id, and packing of such pairs to blocks (`due_blocks`).

The marks of a batch with only delays are converted to pairs at once, without an object for each message. `plain_delays`
and `pack_blocks` are compiled C if a compiler was available at installation (`_marks.c`, which sorts without the GIL).
Pure.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator
from itertools import groupby
from struct import Struct
from typing import Final, NamedTuple

from penstock.delay.marking import DELAY_MS, DELIVER_AT, MARK

PAIR: Final = Struct("=2q")
_MAX_SPAN_MS = 2**32 - 1
BLOCK_HEAD: Final = Struct("=qII")
RUN_HEAD: Final = Struct("=qI")


class DueMessage(NamedTuple):
    due_ms: int
    message: int
    """Offset at which the message was first stored."""


def pack_pairs(messages: Iterable[tuple[int, int]]) -> bytes:
    return b"".join(PAIR.pack(due_ms, message) for due_ms, message in messages)


def unpack_pairs(pairs: bytes | bytearray) -> Iterator[DueMessage]:
    return map(DueMessage._make, PAIR.iter_unpack(pairs))


def plain_delays_in_python(
    marks: bytes, base_offset: int, time_ms: int, is_relative: bool, /
) -> bytes | None:
    """Packed pairs from the marks of a batch, in the order of ids; None if a mark is not a delay or has an origin.

    `time_ms` is the time at which the batch was stored, or the base timestamp if `is_relative`.
    """
    pairs = bytearray()
    for delta, time_delta, kind, value, origin, _, _, _ in MARK.iter_unpack(marks):
        if kind not in (DELAY_MS, DELIVER_AT) or origin >= 0:
            return None
        stored_ms = time_ms + time_delta if is_relative else time_ms
        pairs += PAIR.pack(stored_ms + value if kind == DELAY_MS else value, base_offset + delta)
    return bytes(pairs)


def pack_blocks_in_python(pairs: bytes | bytearray, block_ids: int, block_messages: int, /) -> bytes:
    """Pack messages in any order into blocks of at most `block_messages`; the ids of a block are in one range."""
    messages = sorted(unpack_pairs(pairs), key=lambda each: each.message)
    packed = bytearray()
    for _, group in groupby(messages, key=lambda each: each.message // block_ids):
        some = list(group)
        for start in range(0, len(some), block_messages):
            packed += _block(some[start : start + block_messages])
    return bytes(packed)


def _block(messages: list[DueMessage]) -> bytes:
    first_id = messages[0].message
    size = messages[-1].message - first_id + 1
    bits = bytearray((size + 7) >> 3)
    for _, message in messages:
        relative = message - first_id
        bits[relative >> 3] |= 1 << (relative & 7)
    runs = [_run(first_id, some) for some in _spans(sorted(messages))]
    return b"".join((BLOCK_HEAD.pack(first_id, size, len(runs)), *runs, bits))


def _run(first_id: int, messages: list[DueMessage]) -> bytes:
    first_due = messages[0].due_ms
    dues = array("I", (each.due_ms - first_due for each in messages))
    ids = array("I", (each.message - first_id for each in messages))
    return RUN_HEAD.pack(first_due, len(messages)) + dues.tobytes() + ids.tobytes()


def _spans(messages: list[DueMessage]) -> Iterator[list[DueMessage]]:
    """Split sorted messages into parts in which the relative due times fit into four bytes."""
    start = 0
    for place, each in enumerate(messages):
        if each.due_ms - messages[start].due_ms > _MAX_SPAN_MS:
            yield messages[start:place]
            start = place
    yield messages[start:]


try:
    from penstock.delay._marks import pack_blocks as pack_blocks
    from penstock.delay._marks import plain_delays as plain_delays
except ImportError:
    pack_blocks = pack_blocks_in_python
    plain_delays = plain_delays_in_python
