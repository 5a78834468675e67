"""Values by key, each with the version of its last change, so that a reader gets only the changes since its last
version.

Pure. The entries are ordered by version: a change moves its entry to the end. A removed key leaves an entry without a
value, so that readers learn of the removal. Beyond `MAX_REMOVED` the oldest of these entries are dropped, and readers
with an older version have to start over.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from itertools import takewhile
from typing import Generic, NamedTuple, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")

MAX_REMOVED = 10_000


class JournalChange(NamedTuple, Generic[K, V]):
    key: K
    value: V | None
    """The new value; None for a removed key."""
    version: int


class ChangeJournal(Generic[K, V]):
    def __init__(self) -> None:
        self.version = 0
        """Version of the last change."""
        self.first_complete = 0
        """Oldest version from which a reader can continue. Readers with an older version may have missed a removal and
        have to start over.
        """
        self._entries: dict[K, JournalChange[K, V]] = {}
        self._removed: dict[K, int] = {}

    def __len__(self) -> int:
        """Number of keys that have a value."""
        return len(self._entries) - len(self._removed)

    def get(self, key: K) -> V | None:
        entry = self._entries.get(key)
        return None if entry is None else entry.value

    def keys(self) -> list[K]:
        """Keys that have a value."""
        return [key for key, entry in self._entries.items() if entry.value is not None]

    def put(self, key: K, value: V) -> None:
        """Set the value of a key. Setting an equal value is not a change."""
        known = self._entries.get(key)
        if known is None or known.value != value:
            self._removed.pop(key, None)
            self._change(key, value)

    def remove(self, key: K) -> None:
        known = self._entries.get(key)
        if known is None or known.value is None:
            return
        self._change(key, None)
        self._removed[key] = self.version
        if len(self._removed) > MAX_REMOVED:
            oldest = next(iter(self._removed))
            self.first_complete = self._removed.pop(oldest)
            del self._entries[oldest]

    def since(self, version: int, limit: int) -> tuple[list[JournalChange[K, V]], int]:
        """Return at most `limit` changes after a version, oldest first, and the version that a reader has reached with
        them.

        A reader has all changes when it has reached `version` of the journal.
        """
        newer = list(takewhile(lambda entry: entry.version > version, self._newest_first()))
        newer.reverse()
        if len(newer) <= limit:
            return newer, self.version
        return newer[:limit], newer[limit - 1].version

    def _newest_first(self) -> Iterator[JournalChange[K, V]]:
        return reversed(self._entries.values())

    def _change(self, key: K, value: V | None) -> None:
        self.version += 1
        self._entries.pop(key, None)
        self._entries[key] = JournalChange(key, value, self.version)
