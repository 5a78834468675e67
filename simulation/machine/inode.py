"""The bytes of a simulated file, twice: as the page cache has them and as a power loss would leave them.

The writes between two syncs are kept in order, because the disk may have any of them: each block survives
a power loss in one of the versions that it had since the last sync, and the size changes independently of
the data.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

BLOCK_SIZES = (1, 16, 512, 4096)
"""The sizes of blocks that are written as a whole: sectors and pages, and smaller ones that tear harder than
most disks.
"""


@dataclass(frozen=True, slots=True)
class _Write:
    position: int
    data: bytes

    def size_after(self, size: int) -> int:
        return max(size, self.position + len(self.data))

    def extent(self, size: int) -> tuple[int, int]:
        return self.position, self.position + len(self.data)

    def content(self, start: int, end: int) -> bytes:
        return self.data[start - self.position : end - self.position]


@dataclass(frozen=True, slots=True)
class _Truncate:
    length: int

    def size_after(self, size: int) -> int:
        return self.length

    def extent(self, size: int) -> tuple[int, int]:
        return self.length, max(size, self.length)

    def content(self, start: int, end: int) -> bytes:
        return bytes(end - start)


_Change = _Write | _Truncate


class Stamp:
    """The number and the times of a simulated file or directory, all from one counter that never repeats a
    value.
    """

    __slots__ = ("_counter", "changed", "modified", "number")

    def __init__(self, counter: Iterator[int] | None = None) -> None:
        self._counter = itertools.count(1) if counter is None else counter
        self.number = self.changed = self.modified = next(self._counter)

    def modify(self) -> None:
        self.changed = self.modified = next(self._counter)

    def change(self) -> None:
        """Change the status only, as a rename or a change of owner, mode or times does."""
        self.changed = next(self._counter)

    def copy(self) -> Stamp:
        """Return the stamp of a copy with the modification time preserved, as `cp -a` makes it."""
        copied = Stamp(self._counter)
        copied.modified = self.modified
        return copied


class Inode:
    def __init__(self, stamp: Stamp | None = None) -> None:
        self.stamp = stamp or Stamp()
        self.cached = bytearray()
        self._durable = bytearray()
        self._unsynced: list[_Change] = []

    def copy(self) -> Inode:
        """Return a durable copy of the content that programs see."""
        copied = Inode(self.stamp.copy())
        copied.cached, copied._durable = bytearray(self.cached), bytearray(self.cached)
        return copied

    def write(self, position: int, data: bytes) -> None:
        change = _Write(position, data)
        _apply(self.cached, change)
        self._unsynced.append(change)
        self.stamp.modify()

    def truncate(self, length: int) -> None:
        change = _Truncate(length)
        _apply(self.cached, change)
        self._unsynced.append(change)
        self.stamp.modify()

    def damage(self, content: bytes) -> None:
        """Replace the bytes on the disk and in the cache."""
        self.cached = bytearray(content)
        self._durable = bytearray(content)
        self._unsynced.clear()

    def sync(self) -> None:
        for change in self._unsynced:
            _apply(self._durable, change)
        self._unsynced.clear()

    def fail_sync(self, random: random.Random) -> None:
        """Fail a sync: some blocks reach the disk, and the system takes all of them for clean."""
        self._durable = survivors(self._durable, self._unsynced, random)
        self._unsynced.clear()

    def forget_clean_pages(self) -> None:
        """Evict clean pages and read them again; after a failed sync that shows other bytes."""
        if not self._unsynced:
            self.cached = bytearray(self._durable)

    def power_loss(self, random: random.Random) -> None:
        self._durable = survivors(self._durable, self._unsynced, random)
        self._unsynced.clear()
        self.cached = bytearray(self._durable)


def survivors(durable: bytearray, unsynced: Sequence[_Change], random: random.Random) -> bytearray:
    """Draw what the disk has of a file after a power loss: nothing, all, a prefix, or a mixture of blocks."""
    if not unsynced:
        return durable
    extent = random.choice(("nothing", "everything", "prefix", "prefix", "blocks", "blocks"))
    if extent == "nothing":
        return durable
    if extent == "everything":
        return _prefix(durable, unsynced)
    if extent == "prefix":
        return _torn_prefix(durable, unsynced, random)
    return _mixture(durable, unsynced, random)


def _prefix(durable: bytearray, changes: Sequence[_Change]) -> bytearray:
    image = bytearray(durable)
    for change in changes:
        _apply(image, change)
    return image


def _torn_prefix(durable: bytearray, changes: Sequence[_Change], random: random.Random) -> bytearray:
    """Apply the changes up to one of them, and the beginning of that one."""
    count = random.randrange(len(changes))
    image = _prefix(durable, changes[:count])
    last = changes[count]
    if isinstance(last, _Write) and last.data:
        _apply(image, _Write(last.position, last.data[: random.randrange(len(last.data) + 1)]))
    return image


def _mixture(durable: bytearray, changes: Sequence[_Change], random: random.Random) -> bytearray:
    """Draw each block in one of its versions, under the size after one of the changes."""
    block_bytes = random.choice(BLOCK_SIZES)
    sizes = [len(durable)]
    for change in changes:
        sizes.append(change.size_after(sizes[-1]))
    image = bytearray(durable) + _never_written(max(sizes) - len(durable), random)
    versions: dict[int, int] = {}
    for number, change in enumerate(changes):
        start, end = change.extent(sizes[number])
        for block in range(start // block_bytes, -(-end // block_bytes)):
            if block not in versions:
                versions[block] = random.choice((0, len(changes), random.randrange(len(changes) + 1)))
            if number < versions[block]:
                low, high = max(start, block * block_bytes), min(end, (block + 1) * block_bytes)
                image[low:high] = change.content(low, high)
    del image[random.choice(sizes) :]
    return image


def _never_written(length: int, random: random.Random) -> bytes:
    """Draw the content of blocks that were allocated but not written: zeros, or old bytes."""
    return random.randbytes(length) if random.random() < 0.3 else bytes(length)


def _apply(image: bytearray, change: _Change) -> None:
    if isinstance(change, _Truncate):
        del image[change.length :]
        image.extend(bytes(change.length - len(image)))
        return
    image.extend(bytes(max(0, change.position - len(image))))
    image[change.position : change.position + len(change.data)] = change.data
