"""Start position of `penstock consume --from`: beginning, end, an offset, the last N records, or a time."""

from __future__ import annotations

from collections.abc import Callable

from penstock.cli.cluster_client import ClusterClient
from penstock.cli.times import parse_time_ms
from penstock.clock import SystemClock
from penstock.internal_client.records import EARLIEST, LATEST

Start = Callable[[ClusterClient, str, list[int]], dict[int, int]]
"""Function from a cluster, a topic and its partitions to the start offset of each partition."""

_MOST_OFFSET_DIGITS = 10


def parse_start(text: str) -> Start:
    """Parse a start position. Numbers of 11 digits or more are milliseconds since 1970, shorter numbers are offsets."""
    if text == "beginning":
        return lambda cluster, topic, partitions: cluster.offsets(topic, partitions, EARLIEST)
    if text == "end":
        return lambda cluster, topic, partitions: cluster.offsets(topic, partitions, LATEST)
    digits = text.removeprefix("-")
    if digits.isascii() and digits.isdigit() and len(digits) <= _MOST_OFFSET_DIGITS:
        return _from_last(int(digits)) if text.startswith("-") else _from_offset(int(digits))
    return _from_time(parse_time_ms(text, SystemClock().now_ms()))


def _from_offset(offset: int) -> Start:
    """Start at an offset, limited to the range of each partition."""
    return lambda cluster, topic, partitions: {
        held.partition: min(max(offset, held.start), held.end) for held in cluster.ranges(topic, partitions)
    }


def _from_last(count: int) -> Start:
    return lambda cluster, topic, partitions: {
        held.partition: max(held.end - count, held.start) for held in cluster.ranges(topic, partitions)
    }


def _from_time(time_ms: int) -> Start:
    return lambda cluster, topic, partitions: cluster.offsets(topic, partitions, time_ms)
