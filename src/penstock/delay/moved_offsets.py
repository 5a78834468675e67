"""Present offsets of delayed messages that were copied, in about four bytes each if many of them have close ids.

Message ids are divided into parts of `PART_IDS`. A part with few messages is a dict; a part with many is an array with
an element for each id, which is relative to the lowest offset in the part. Loop thread only.
"""

from __future__ import annotations

from array import array

PART_IDS = 1 << 16
"""Number of ids in a part."""
DENSE = PART_IDS // 16
"""Number of messages in a part at which it becomes an array."""
_SHORT, _LONG = "I", "q"
_MAX_SHORT = (1 << 32) - 1


class MovedOffsets:
    def __init__(self, part_ids: int = PART_IDS, dense: int = DENSE, max_short: int = _MAX_SHORT) -> None:
        self._part_ids = part_ids
        self._dense = dense
        self._max_short = max_short
        self._sparse: dict[int, dict[int, int]] = {}
        self._parts: dict[int, _Part] = {}

    def __bool__(self) -> bool:
        return bool(self._sparse or self._parts)

    def get(self, message: int, default: int) -> int:
        number, place = divmod(message, self._part_ids)
        part = self._parts.get(number)
        if part is not None:
            return part.get(place, default)
        sparse = self._sparse.get(number)
        return default if sparse is None else sparse.get(place, default)

    def put(self, message: int, offset: int) -> None:
        number, place = divmod(message, self._part_ids)
        part = self._parts.get(number)
        if part is not None:
            part.put(place, offset, self._max_short)
            return
        sparse = self._sparse.setdefault(number, {})
        sparse[place] = offset
        if len(sparse) >= self._dense:
            self._parts[number] = _Part(self._part_ids, sparse, self._max_short)
            del self._sparse[number]

    def discard(self, message: int) -> None:
        number, place = divmod(message, self._part_ids)
        part = self._parts.get(number)
        if part is not None:
            part.discard(place)
            if not part.count:
                del self._parts[number]
            return
        sparse = self._sparse.get(number)
        if sparse is not None and sparse.pop(place, None) is not None and not sparse:
            del self._sparse[number]


class _Part:
    """Array of offsets. An element is the offset minus the base plus one; 0 if there is no offset."""

    __slots__ = ("_base", "_values", "count")

    def __init__(self, places: int, offsets: dict[int, int], max_short: int) -> None:
        self.count = 0
        self._base = min(offsets.values())
        self._values = array(_SHORT, bytes(places * array(_SHORT).itemsize))
        for place, offset in offsets.items():
            self.put(place, offset, max_short)

    def get(self, place: int, default: int) -> int:
        value = self._values[place]
        return self._base + value - 1 if value else default

    def put(self, place: int, offset: int, max_short: int) -> None:
        value = offset - self._base + 1
        if not 0 < value <= max_short and self._values.typecode == _SHORT:
            self._widen()
            value = offset - self._base + 1
        self.count += not self._values[place]
        self._values[place] = value

    def discard(self, place: int) -> None:
        self.count -= bool(self._values[place])
        self._values[place] = 0

    def _widen(self) -> None:
        """Use elements of eight bytes, for offsets that do not fit into four."""
        base, self._base = self._base, 0
        self._values = array(_LONG, (value and base + value for value in self._values))
