"""Delayed messages of a partition in the order of their due times, in about eight bytes each.

Messages that are added one by one are in a heap. When the heap is large its messages become *blocks* (`due_blocks`):
arrays that are sorted by due time, with due times and message ids relative to the block in four bytes each, and a
bitmap of the ids that were not removed. Removing a message clears its bit. A block covers a limited range of ids, so
that its bitmap is small, and is rebuilt when most of its messages were removed. Messages that are added as a run become
blocks at once; many blocks of short runs are merged. A message must not be added twice. Loop thread only.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterator
from heapq import heapify, heappop, heappush, merge, nsmallest
from itertools import islice

from penstock.delay.due_blocks import Block, DueRun, unpack_blocks
from penstock.delay.marking import clear_bits
from penstock.delay.packing import PAIR, DueMessage, pack_blocks, pack_pairs, unpack_pairs

HEAP_MESSAGES = 1 << 12
"""Number of messages in the heap, or in short runs, at which they become blocks. Also the maximum in one block."""
RUN_MESSAGES = 32
"""Minimum number of messages in a run for which it becomes a block; shorter runs are added to the heap."""
BLOCK_IDS = 1 << 16
"""Size of the ranges of ids: all ids of a block are in one range."""


class DueQueue:
    def __init__(
        self,
        heap_messages: int = HEAP_MESSAGES,
        block_ids: int = BLOCK_IDS,
        run_messages: int = RUN_MESSAGES,
    ) -> None:
        self._heap_messages = heap_messages
        self._run_messages = run_messages
        self._block_ids = block_ids
        self._heap: list[DueMessage] = []
        self._new: dict[int, int] = {}
        """Due times by id of the messages in the heap, without those that were removed but are still in the heap."""
        self._blocks: dict[int, list[Block]] = {}
        """Blocks by the number of their range of ids."""
        self._heads: list[tuple[DueMessage, int, Block, DueRun]] = []
        """Heap of the first message of each run, with its block and run; a counter is the tie-breaker."""
        self._numbers = 0
        self._in_blocks = 0
        self._short: list[tuple[list[Block], bytes]] = []
        """Blocks of short runs, with all messages that were added to them, in packed form."""
        self._in_short = 0

    def __len__(self) -> int:
        return len(self._new) + self._in_blocks

    def __contains__(self, message: int) -> bool:
        return message in self._new or self._block_of(message) is not None

    def __iter__(self) -> Iterator[DueMessage]:
        """All messages, in any order."""
        for message, due_ms in self._new.items():
            yield DueMessage(due_ms, message)
        for blocks in self._blocks.values():
            for block in blocks:
                yield from block

    def below(self, end: int) -> Iterator[DueMessage]:
        """Messages with lower ids than `end`, in any order."""
        yield from (DueMessage(due_ms, message) for message, due_ms in self._new.items() if message < end)
        for part, blocks in self._blocks.items():
            if part * self._block_ids < end:
                for block in blocks:
                    yield from (each for each in block if each.message < end)

    def add(self, due_ms: int, message: int) -> None:
        """Add a message, which must not be in the queue."""
        self._new[message] = due_ms
        heappush(self._heap, DueMessage(due_ms, message))
        if len(self._new) >= self._heap_messages:
            self.freeze()
        elif len(self._heap) > 2 * self._heap_messages:
            self._heap = [DueMessage(due_ms, message) for message, due_ms in self._new.items()]
            heapify(self._heap)

    def add_run(self, pairs: bytes) -> None:
        """Add packed messages, which must not be in the queue."""
        count = len(pairs) // PAIR.size
        if count < self._run_messages:
            for due_ms, message in unpack_pairs(pairs):
                self.add(due_ms, message)
            return
        blocks = self._add_blocks(pairs)
        if count < self._heap_messages:
            self._short.append((blocks, pairs))
            self._in_short += count
            if self._in_short >= self._heap_messages:
                self._merge()

    def discard(self, message: int) -> bool:
        """Remove a message; False if it is not in the queue."""
        if self._new.pop(message, None) is not None:
            return True
        block = self._block_of(message)
        if block is None:
            return False
        block.remove(message)
        self._in_blocks -= 1
        self._tidy([block])
        return True

    def discard_sorted(self, messages: array[int]) -> None:
        """Remove many messages, given as sorted ids; ids that are not in the queue are ignored."""
        for message in tuple(self._new):
            place = bisect_left(messages, message)
            if place < len(messages) and messages[place] == message:
                del self._new[message]
        ids = memoryview(messages).cast("B")
        start = 0
        while start < len(messages):
            part = messages[start] // self._block_ids
            end = bisect_left(messages, (part + 1) * self._block_ids, start)
            touched: list[Block] = []
            for block in self._blocks.get(part, ()):
                cleared = clear_bits(block.bits, block.first_id, ids[8 * start : 8 * end])
                block.count -= cleared
                self._in_blocks -= cleared
                if cleared:
                    touched.append(block)
            self._tidy(touched)
            start = end

    def discard_below(self, end: int) -> int:
        """Remove the messages with lower ids than `end`; return their number. Whole blocks are removed at once."""
        before = len(self)
        for message in [message for message in self._new if message < end]:
            del self._new[message]
        gone = [
            block
            for part, blocks in self._blocks.items()
            if part * self._block_ids < end
            for block in blocks
            if block.first_id < end
        ]
        left = [
            pack_pairs(each for each in block if each.message >= end) for block in gone if block.end_id > end
        ]
        self._drop(gone)
        for pairs in left:
            self.add_run(pairs)
        return before - len(self)

    def due_of(self, message: int) -> int | None:
        """Due time of a message; None if it is not in the queue."""
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
        """The next messages after the message `after`, in the order of due times; from the first if it is None."""
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
        """Move the messages of the heap to blocks."""
        pairs = pack_pairs((due_ms, message) for message, due_ms in self._new.items())
        self._heap.clear()
        self._new.clear()
        self._add_blocks(pairs)

    def _merge(self) -> None:
        """Merge the blocks of short runs."""
        short, self._short, self._in_short = self._short, [], 0
        parts: list[bytes] = []
        for blocks, pairs in short:
            is_whole = sum(block.count for block in blocks) * PAIR.size == len(pairs)
            parts.append(
                pairs if is_whole else pack_pairs(each for block in blocks if block.count for each in block)
            )
        self._drop([block for blocks, _ in short for block in blocks])
        self._add_blocks(b"".join(parts))

    def _add_blocks(self, pairs: bytes) -> list[Block]:
        blocks = list(unpack_blocks(pack_blocks(pairs, self._block_ids, self._heap_messages)))
        for block in blocks:
            self.add_block(block)
        return blocks

    def add_block(self, block: Block) -> None:
        """Add a block of messages, which must not be in the queue; all ids are in one range of `BLOCK_IDS`."""
        self._blocks.setdefault(block.first_id // self._block_ids, []).append(block)
        self._in_blocks += block.count
        for run in block.runs:
            self._push_head(block, run)

    def _tidy(self, blocks: list[Block]) -> None:
        """Rebuild blocks of which most messages were removed, to free memory."""
        sparse = [block for block in blocks if block.count * 4 < block.room]
        if sparse:
            left = pack_pairs(each for block in sparse if block.count for each in block)
            self._drop(sparse)
            self.add_run(left)

    def _drop(self, blocks: list[Block]) -> None:
        """Remove blocks with their messages; blocks that were removed before are ignored."""
        for block in blocks:
            part = block.first_id // self._block_ids
            others = self._blocks.get(part, [])
            if block in others:
                others.remove(block)
                self._in_blocks -= block.count
                block.count = 0
            if not others:
                self._blocks.pop(part, None)
        gone = set(blocks)
        self._heads = [head for head in self._heads if head[2] not in gone]
        heapify(self._heads)
