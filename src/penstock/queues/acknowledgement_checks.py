"""Checks of acknowledgements, and their division into runs of one type. Pure.

These checks need no state of the share-partition; `SharePartition.acknowledge` makes the other checks. The work is
proportional to the number of types in the request, not to the offset ranges that it claims.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

from penstock.errors import BrokerError, ErrorCode
from penstock.queues.states import Acknowledgement, AcknowledgeType

_ACCEPT = bytes((AcknowledgeType.ACCEPT,))


def check(acknowledgements: Sequence[Acknowledgement], newest_type: AcknowledgeType) -> None:
    """Raise BrokerError INVALID_REQUEST if a range is reversed, ranges do not ascend, or types are not valid."""
    before = -1
    for first, last, types in acknowledgements:
        if first > last or first <= before:
            raise _invalid(f"offsets {first} to {last} after {before}: ranges must ascend and not overlap")
        if not types or len(types) not in (1, last - first + 1):
            raise _invalid(f"{len(types)} types for offsets {first} to {last}: give one, or one per offset")
        if max(types) > newest_type:
            raise _invalid(f"acknowledge type {max(types)} is not between 0 and {newest_type:d}")
        before = last


def has_renewals(acknowledgements: Sequence[Acknowledgement]) -> bool:
    return any(AcknowledgeType.RENEW in types for _, _, types in acknowledgements)


def joined(acknowledgements: Sequence[Acknowledgement], below: int) -> Sequence[Acknowledgement]:
    """Merge adjacent acknowledgements that accept records below `below`.

    A client that settles messages one by one sends a range for each offset, and each range costs the same.
    """
    found: list[Acknowledgement] = []
    for each in acknowledgements:
        first, last, types = each
        if types == _ACCEPT and last < below and found:
            before = found[-1]
            if before.last_offset + 1 == first and before.types == _ACCEPT:
                found[-1] = Acknowledgement(before.first_offset, last, _ACCEPT)
                continue
        found.append(each)
    return found


def runs(acknowledgement: Acknowledgement, start_offset: int) -> Iterator[tuple[int, int, int]]:
    """Split the part of an acknowledgement at or above `start_offset` by type: first and last offset, and the type."""
    first, last, types = acknowledgement
    if len(types) == 1:
        if last >= start_offset:
            yield max(first, start_offset), last, types[0]
        return
    offset = first
    for kind, equal in groupby(types):
        end = offset + sum(1 for _ in equal)
        if end > start_offset:
            yield max(offset, start_offset), end - 1, kind
        offset = end


def _invalid(message: str) -> BrokerError:
    return BrokerError(ErrorCode.invalid_request, message)
