"""Delayed messages of a partition in the order of their due times, in about eight bytes each.

New messages are in a heap. When the heap is large its messages become *blocks* (`due_blocks`): arrays that are sorted
by due time, with due times and message ids relative to the block in four bytes each, and a bitmap of the ids that are
left. Removing a message clears its bit. A block covers a limited range of ids, so that its bitmap is small, and is made
again when most of its messages are gone. Not a set: a message is added once. Loop thread only.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterator
from heapq import heapify, heappop, heappush, merge, nsmallest
from itertools import islice

from penstock.delay.due_blocks import Block, DueMessage, DueRun
from penstock.delay.marking import clear_bits

HEAP_MESSAGES = 1 << 12
"""Number of messages in the heap from which on they become blocks, which takes about 5 ms."""
BLOCK_IDS = 1 << 16
"""Range of ids that a block lies in."""


class DueQueue:
    def __init__(self, heap_messages: int = HEAP_MESSAGES, block_ids: int = BLOCK_IDS) -> None:
        self._heap_messages = heap_messages
        self._block_ids = block_ids
        self._heap: list[DueMessage] = []
        self._new: dict[int, int] = {}
        """Due times by id of the messages in the heap; the heap has removed ones too."""
        self._blocks: dict[int, list[Block]] = {}
        """Blocks by the range that their ids are in."""
        self._heads: list[tuple[DueMessage, int, Block, DueRun]] = []
        """First message of each run, a heap."""
        self._numbers = 0
        self._in_blocks = 0

    def __len__(self) -> int:
        return len(self._new) + self._in_blocks

    def __contains__(self, message: int) -> bool:
        return message in self._new or self._block_of(message) is not None

    def __iter__(self) -> Iterator[DueMessage]:
        """All messages, in no order."""
        for message, due_ms in self._new.items():
            yield DueMessage(due_ms, message)
        for blocks in self._blocks.values():
            for block in blocks:
                yield from block

    def below(self, end: int) -> Iterator[DueMessage]:
        """Messages with lower ids than `end`, in no order."""
        yield from (DueMessage(due_ms, message) for message, due_ms in self._new.items() if message < end)
        for part, blocks in self._blocks.items():
            if part * self._block_ids < end:
                for block in blocks:
                    yield from (each for each in block if each.message < end)

    def add(self, due_ms: int, message: int) -> None:
        """Add a message that is not there."""
        self._new[message] = due_ms
        heappush(self._heap, DueMessage(due_ms, message))
        if len(self._new) >= self._heap_messages:
            self.freeze()
        elif len(self._heap) > 2 * self._heap_messages:
            self._heap = [DueMessage(due_ms, message) for message, due_ms in self._new.items()]
            heapify(self._heap)

    def discard(self, message: int) -> bool:
        """Remove a message; False if it is not there."""
        if self._new.pop(message, None) is not None:
            return True
        block = self._block_of(message)
        if block is None:
            return False
        block.remove(message)
        self._in_blocks -= 1
        self._tidy(block)
        return True

    def discard_sorted(self, messages: array[int]) -> None:
        """Remove those of many messages that are there; they are sorted."""
        for message in tuple(self._new):
            place = bisect_left(messages, message)
            if place < len(messages) and messages[place] == message:
                del self._new[message]
        ids = memoryview(messages).cast("B")
        start = 0
        while start < len(messages):
            part = messages[start] // self._block_ids
            end = bisect_left(messages, (part + 1) * self._block_ids, start)
            for block in tuple(self._blocks.get(part, ())):
                cleared = clear_bits(block.bits, block.first_id, ids[8 * start : 8 * end])
                block.count -= cleared
                self._in_blocks -= cleared
                if cleared:
                    self._tidy(block)
            start = end

    def discard_below(self, end: int) -> int:
        """Remove the messages with lower ids than `end`; returns their number. Whole blocks go at once."""
        before = len(self)
        for message in [message for message in self._new if message < end]:
            del self._new[message]
        parts = [part for part in self._blocks if part * self._block_ids < end]
        if not parts:
            return before - len(self)
        for part in parts:
            kept: list[Block] = []
            for block in self._blocks.pop(part):
                self._in_blocks -= block.count
                left = sorted(each for each in block if each.message >= end) if block.end_id > end else []
                if left:
                    kept.append(Block.of(left))
                    self._in_blocks += len(left)
            if kept:
                self._blocks[part] = kept
        self._heads.clear()
        for block in self.blocks():
            for run in block.runs:
                self._push_head(block, run)
        return before - len(self)

    def due_of(self, message: int) -> int | None:
        """Due time of a message; None if it is not there."""
        if message in self._new:
            return self._new[message]
        block = self._block_of(message)
        if block is None:
            return None
        return block.due_of(message)

    def first(self) -> DueMessage | None:
        """The message that is due first."""
        new, old = self._first_new(), self._first_old()
        if new is None or old is None:
            return old if new is None else new
        return min(new, old)

    def pop_due(self, now_ms: int, limit: int) -> list[DueMessage]:
        """Remove and return at most `limit` messages that are due, in order."""
        due: list[DueMessage] = []
        while len(due) < limit:
            first = self.first()
            if first is None or first.due_ms > now_ms:
                break
            self.discard(first.message)
            due.append(first)
        return due

    def page(self, after: DueMessage | None, limit: int) -> list[DueMessage]:
        """The next messages behind one in the order of due times."""
        new = [DueMessage(due_ms, message) for message, due_ms in self._new.items()]
        new = nsmallest(limit, new if after is None else (each for each in new if each > after))
        old = (
            block.messages(run, after)
            for blocks in self._blocks.values()
            for block in blocks
            for run in block.runs
        )
        return list(islice(merge(new, *old), limit))

    # --- the heap

    def _first_new(self) -> DueMessage | None:
        heap, new = self._heap, self._new
        while heap and new.get(heap[0].message) != heap[0].due_ms:
            heappop(heap)
        return heap[0] if heap else None

    # --- blocks

    def _block_of(self, message: int) -> Block | None:
        for block in self._blocks.get(message // self._block_ids, ()):
            if message in block:
                return block
        return None

    def _first_old(self) -> DueMessage | None:
        heads = self._heads
        while heads:
            first, _, block, run = heads[0]
            if first.message in block:
                return first
            heappop(heads)
            self._push_head(block, run)
        return None

    def _push_head(self, block: Block, run: DueRun) -> None:
        first = block.first_of(run)
        if first is not None:
            self._numbers += 1
            heappush(self._heads, (first, self._numbers, block, run))

    def freeze(self) -> None:
        """Make blocks of the messages in the heap."""
        messages = [DueMessage(due_ms, message) for message, due_ms in self._new.items()]
        self._heap.clear()
        self._new.clear()
        parts: dict[int, list[DueMessage]] = {}
        for each in messages:
            parts.setdefault(each.message // self._block_ids, []).append(each)
        for some in parts.values():
            self.add_block(Block.of(sorted(some)))

    def blocks(self) -> Iterator[Block]:
        return (block for blocks in self._blocks.values() for block in blocks)

    def add_block(self, block: Block) -> None:
        """Add messages that are not there; their ids lie in one range of `BLOCK_IDS`."""
        self._blocks.setdefault(block.first_id // self._block_ids, []).append(block)
        self._in_blocks += block.count
        for run in block.runs:
            self._push_head(block, run)

    def _tidy(self, block: Block) -> None:
        """Free the memory of messages that are gone."""
        if block.count == 0:
            self._drop(block)
        elif block.count * 4 < sum(len(run.ids) for run in block.runs):
            left = sorted(block)
            self._in_blocks -= block.count
            self._drop(block)
            self.add_block(Block.of(left))

    def _drop(self, block: Block) -> None:
        blocks = self._blocks[block.first_id // self._block_ids]
        blocks.remove(block)
        if not blocks:
            del self._blocks[block.first_id // self._block_ids]
        self._heads = [head for head in self._heads if head[2] is not block]
        heapify(self._heads)
