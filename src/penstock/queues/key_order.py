"""Order by key in a share-partition: the unsettled records of each key form a chain; only the first may be delivered.

When the settlement of a record is durable, the record is removed and the next one of its key may be delivered. Keys are
hashes: two keys with the same hash wait for each other, which delays records but never reorders them. Pure.
"""

from __future__ import annotations

from itertools import takewhile


class BlockedKeys:
    def __init__(self) -> None:
        self.blocked: set[int] = set()
        """Offsets of records that wait for an earlier unsettled record of their key."""
        self.blocked_keys = 0
        """Number of keys with blocked records."""
        self._keys: dict[int, int] = {}
        """Key by offset of each unsettled record, in the order of offsets."""
        self._lasts: dict[int, int] = {}
        """Offset of the last record of each key."""
        self._nexts: dict[int, int] = {}
        """Offset of the next record of the same key, by offset."""
        self._gone: set[int] = set()
        """Offsets of blocked records that are settled already, because they were acquired before the group had this
        order.
        """

    def __len__(self) -> int:
        return len(self._keys)

    def add(self, offset: int, key: int) -> None:
        """Add an unsettled record. Records must be added in the order of offsets."""
        self._keys[offset] = key
        before = self._lasts.get(key)
        self._lasts[key] = offset
        if before is not None:
            self._nexts[before] = offset
            if before not in self.blocked:
                self.blocked_keys += 1
            self.blocked.add(offset)

    def within(self, first: int, last: int) -> list[int]:
        """Offsets from `first` to `last` of unsettled records with a key."""
        keys = self._keys
        if last - first < len(keys):
            return [offset for offset in range(first, last + 1) if offset in keys]
        return [offset for offset in keys if first <= offset <= last]

    def below(self, offset: int) -> list[int]:
        return list(takewhile(lambda each: each < offset, self._keys))

    def free(self, offset: int) -> int | None:
        """Remove a settled record. Return the record of its key that may be delivered now; None without one."""
        key = self._keys.get(offset)
        if key is None:
            return None
        if offset in self.blocked:
            self._gone.add(offset)
            return None
        was_waited_for = offset in self._nexts
        following = self._remove(offset)
        while following is not None and following in self._gone:
            self._gone.discard(following)
            self.blocked.discard(following)
            following = self._remove(following)
        if following is None:
            del self._lasts[key]
        else:
            self.blocked.discard(following)
        if was_waited_for and following not in self._nexts:
            self.blocked_keys -= 1
        return following

    def _remove(self, offset: int) -> int | None:
        del self._keys[offset]
        return self._nexts.pop(offset, None)
