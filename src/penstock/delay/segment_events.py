"""Summary of the events of a segment, in the format of its file. A new leader applies it without reading the segment.

A message that was delivered or cancelled never becomes pending again, so the order of these events does not matter.
Only the order of transactions matters: `ends` are the ends of transactions that may have records in earlier segments,
`open` are the records of transactions that do not end in this segment. Pure.

    head      blocks 4 | copies 4 | settled 4 | ends 4 | open 4
    blocks    pending messages of this segment, see `due_blocks`
    copies    message 8 | offset 8 | due time 8     messages of earlier segments that were copied to this segment
    settled   message 8                             delivered or cancelled messages of earlier segments
    ends      producer 8 | is commit 1              the first end of a transaction of each producer
    open      producer 8 | message 8 | offset 8 | due time 8
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from dataclasses import dataclass, field
from struct import Struct

from penstock.delay.due_blocks import Block, unpack_blocks
from penstock.delay.due_queue import BLOCK_IDS, HEAP_MESSAGES
from penstock.delay.events import Delayed, Ended, EventState
from penstock.delay.marking import clear_bits
from penstock.delay.packing import PAIR, pack_blocks, pack_pairs

_HEAD = Struct("=5I")
_COPY = Struct("=3q")
_END = Struct("=q?")
_OPEN = Struct("=4q")


@dataclass(slots=True)
class SegmentEvents(EventState):
    blocks: list[Block] = field(default_factory=list)
    """Messages of this segment that are neither delivered nor cancelled in it. `pack` moves `pairs` to blocks."""
    pairs: bytearray = field(default_factory=bytearray)
    """Packed new messages of this segment, including settled messages (delivered or cancelled)."""
    copies: dict[int, Delayed] = field(default_factory=dict)
    settled: array[int] = field(default_factory=lambda: array("q"))
    """Ids of messages that were settled in this segment, in any order; `pack` keeps those of earlier segments."""
    ends: dict[int, bool] = field(default_factory=dict)
    open: dict[int, list[Delayed]] = field(default_factory=dict)

    def _add_run(self, pairs: bytes) -> None:
        self.pairs += pairs

    def _add(self, event: Delayed) -> None:
        if event.offset == event.message:
            self.pairs += PAIR.pack(event.due_ms, event.message)
        else:
            self.copies[event.message] = event

    def _settle(self, message: int) -> None:
        self.copies.pop(message, None)
        self.settled.append(message)

    def _end(self, event: Ended) -> None:
        self.ends.setdefault(event.producer_id, event.is_commit)
        EventState._end(self, event)  # not super(): `dataclass(slots=True)` replaces the class

    def _fold(self) -> None:
        """Move new messages to blocks, and remove settled messages from the blocks."""
        self.blocks += unpack_blocks(pack_blocks(self.pairs, BLOCK_IDS, HEAP_MESSAGES))
        self.pairs.clear()
        self.settled = settled = array("q", sorted(self.settled))
        kept: list[Block] = []
        for block in self.blocks:
            first, end = bisect_left(settled, block.first_id), bisect_left(settled, block.end_id)
            block.count -= clear_bits(block.bits, block.first_id, settled[first:end].tobytes())
            if block.count * 4 >= block.room:
                kept.append(block)
            elif block.count:
                kept += unpack_blocks(pack_blocks(pack_pairs(block), BLOCK_IDS, HEAP_MESSAGES))
        if self.blocks:
            self.settled = settled[: bisect_left(settled, min(block.first_id for block in self.blocks))]
        self.blocks = kept

    # --- files

    def pack(self) -> bytes:
        self._fold()
        blocks = [block.pack() for block in self.blocks]
        copies = [_COPY.pack(each.message, each.offset, each.due_ms) for each in self.copies.values()]
        ends = [_END.pack(*each) for each in self.ends.items()]
        left = [
            _OPEN.pack(each.producer_id, each.message, each.offset, each.due_ms)
            for events in self.open.values()
            for each in events
        ]
        head = _HEAD.pack(len(blocks), len(copies), len(self.settled), len(ends), len(left))
        return b"".join((head, *blocks, *copies, self.settled, *ends, *left))

    @classmethod
    def unpack(cls, content: memoryview) -> SegmentEvents:
        """Decode the content of a file, whose CRC was checked by the caller."""
        found = cls()
        blocks, copies, settled, ends, left = _HEAD.unpack_from(content)
        position = _HEAD.size
        for _ in range(blocks):
            block, position = Block.unpack(content, position)
            found.blocks.append(block)
        end = position + copies * _COPY.size
        for message, offset, due_ms in _COPY.iter_unpack(content[position:end]):
            found.copies[message] = Delayed(offset, due_ms, message)
        position, end = end, end + settled * 8
        found.settled.frombytes(content[position:end])
        position, end = end, end + ends * _END.size
        found.ends.update(_END.iter_unpack(content[position:end]))
        position, end = end, end + left * _OPEN.size
        for producer_id, message, offset, due_ms in _OPEN.iter_unpack(content[position:end]):
            found.open.setdefault(producer_id, []).append(Delayed(offset, due_ms, message, producer_id))
        return found
