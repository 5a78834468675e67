"""Blocks of delayed messages, which are sorted by due time and take about eight bytes for each message.

The format in files:

    block     first id 8 | range of ids 4 | runs 4 | runs | bitmap of the ids that were not removed
    run       first due time 8 | messages 4 | due times 4 each, relative to the first | ids 4 each, relative to first id

Numbers are in the byte order of the machine. The mark in the head of a file shows if it has another byte order. Pure.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterator

from penstock.delay.packing import BLOCK_HEAD, RUN_HEAD, DueMessage


class DueRun:
    """Messages of a block whose due times are within 49 days, sorted by due time and id."""

    __slots__ = ("dues", "first_due", "ids", "place")

    def __init__(self, first_due: int, dues: array[int], ids: array[int]) -> None:
        self.first_due = first_due
        self.dues = dues
        self.ids = ids
        self.place = 0
        """Index of the first message that may not be removed yet."""


class Block:
    __slots__ = ("bits", "count", "first_id", "runs", "size")

    def __init__(self, first_id: int, size: int, runs: list[DueRun], bits: bytearray) -> None:
        self.first_id = first_id
        self.size = size
        """Size of the range of ids."""
        self.runs = runs
        self.bits = bits
        self.count = int.from_bytes(bits, "little").bit_count()
        """Number of messages that were not removed."""

    @property
    def room(self) -> int:
        """Number of messages including the removed ones."""
        return sum(len(run.ids) for run in self.runs)

    @property
    def end_id(self) -> int:
        """End of the range of ids, exclusive."""
        return self.first_id + self.size

    def __contains__(self, message: int) -> bool:
        relative = message - self.first_id
        return 0 <= relative < self.size and bool(self.bits[relative >> 3] >> (relative & 7) & 1)

    def remove(self, message: int) -> None:
        relative = message - self.first_id
        self.bits[relative >> 3] &= ~(1 << (relative & 7))
        self.count -= 1

    def first_of(self, run: DueRun) -> DueMessage | None:
        """The first message of a run that was not removed; None if all were."""
        bits, ids, place, end = self.bits, run.ids, run.place, len(run.ids)
        while place < end and not bits[ids[place] >> 3] >> (ids[place] & 7) & 1:
            place += 1
        run.place = place
        return None if place == end else self._at(run, place)

    def messages(self, run: DueRun, after: DueMessage | None) -> Iterator[DueMessage]:
        """The messages of a run after the message `after`, in order; all if it is None."""
        place = run.place
        if after is not None:
            place = max(place, bisect_left(run.dues, after.due_ms - run.first_due))
        for here in range(place, len(run.ids)):
            each = self._at(run, here)
            if each.message in self and (after is None or each > after):
                yield each

    def _at(self, run: DueRun, place: int) -> DueMessage:
        return DueMessage(run.first_due + run.dues[place], self.first_id + run.ids[place])

    def due_of(self, message: int) -> int | None:
        relative = message - self.first_id
        for run in self.runs:
            if relative in run.ids:
                return run.first_due + run.dues[run.ids.index(relative)]
        return None

    def __iter__(self) -> Iterator[DueMessage]:
        for run in self.runs:
            yield from self.messages(run, None)

    # --- files

    def pack(self) -> bytes:
        parts = [BLOCK_HEAD.pack(self.first_id, self.size, len(self.runs))]
        for run in self.runs:
            parts += (RUN_HEAD.pack(run.first_due, len(run.ids)), run.dues.tobytes(), run.ids.tobytes())
        return b"".join((*parts, self.bits))

    @classmethod
    def unpack(cls, content: memoryview, position: int) -> tuple[Block, int]:
        """Decode the block at a position of undamaged content; return it and the position after it."""
        first_id, size, runs_left = BLOCK_HEAD.unpack_from(content, position)
        position += BLOCK_HEAD.size
        runs: list[DueRun] = []
        for _ in range(runs_left):
            first_due, count = RUN_HEAD.unpack_from(content, position)
            position += RUN_HEAD.size
            dues = _numbers(content[position : position + 4 * count])
            position += 4 * count
            ids = _numbers(content[position : position + 4 * count])
            position += 4 * count
            runs.append(DueRun(first_due, dues, ids))
        end = position + ((size + 7) >> 3)
        return cls(first_id, size, runs, bytearray(content[position:end])), end


def _numbers(content: memoryview) -> array[int]:
    """Numbers of four bytes. `frombytes` would reserve a sixteenth more memory than they take."""
    numbers = array("I", (0,)) * (len(content) // 4)
    memoryview(numbers).cast("B")[:] = content
    return numbers


def unpack_blocks(content: bytes | memoryview) -> Iterator[Block]:
    """Decode a sequence of packed blocks."""
    view, position = memoryview(content), 0
    while position < len(view):
        block, position = Block.unpack(view, position)
        yield block
