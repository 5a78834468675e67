"""The scenarios of the performance table, by name.

`PAIRED` ones share one pair of running servers and end with their memory; `ALONE` ones start their own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from bench.comparison import Row
from bench.context import Context
from bench.scenarios import (
    connections,
    consume,
    durability,
    groups,
    heartbeats,
    isolation,
    partitions,
    produce,
    profiles,
    start,
    stored_bytes,
    synchronous,
)
from bench.servers import Server

PAIRED: dict[str, Callable[[Context, Sequence[Server]], list[Row]]] = {
    "produce-1k": produce.one_kilobyte,
    "produce-100b": produce.hundred_bytes,
    "produce-lz4": produce.lz4,
    "produce-idempotent": produce.idempotent,
    "one-record": produce.one_record_requests,
    "one-record-raw": produce.raw_one_record_requests,
    "consume-1k": consume.one_kilobyte,
    "synchronous": synchronous.one_at_a_time,
}
ALONE: dict[str, Callable[[Context], list[Row]]] = {
    "start": start.first_answer,
    "partitions": partitions.ten_thousand,
    "connections": connections.ten_thousand,
    "stored-bytes": stored_bytes.hundred_gigabytes,
    "durability": durability.default_durability,
    "isolation": isolation.noisy_neighbours,
    "groups-join": groups.joining,
    "groups-crash": groups.crashing,
    "groups-commit": groups.committing,
    "groups-heartbeat": heartbeats.ten_thousand_groups,
    "profiles": profiles.both,
}
