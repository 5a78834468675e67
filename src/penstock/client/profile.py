"""The profile setting: high throughput or low latency.

A profile is a set of librdkafka settings. Without a profile librdkafka's defaults apply, which are a compromise between
the two. A setting that the caller gives explicitly overrides the profile.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any

from penstock.client.errors import InvalidSetting


class Profile(StrEnum):
    THROUGHPUT = "throughput"
    LATENCY = "latency"


_PRODUCER: dict[Profile, dict[str, Any]] = {
    Profile.THROUGHPUT: {"linger.ms": 20, "batch.size": 1_000_000, "compression.type": "lz4"},
    Profile.LATENCY: {"linger.ms": 0, "batch.size": 65_536, "compression.type": "none"},
}
_CONSUMER: dict[Profile, dict[str, Any]] = {
    Profile.THROUGHPUT: {
        "fetch.min.bytes": 65_536,
        "fetch.wait.max.ms": 100,
        "max.partition.fetch.bytes": 4_194_304,
        "queued.min.messages": 200_000,
        "fetch.queue.backoff.ms": 10,  # librdkafka waits a second by default before it refills a full queue
    },
    Profile.LATENCY: {
        "fetch.min.bytes": 1,
        "fetch.wait.max.ms": 500,
        "max.partition.fetch.bytes": 1_048_576,
        "fetch.queue.backoff.ms": 10,
    },
}


def producer_profile(chosen: str | None) -> dict[str, Any]:
    return {} if chosen is None else dict(_PRODUCER[_parse(chosen)])


def consumer_profile(chosen: str | None) -> dict[str, Any]:
    return {} if chosen is None else dict(_CONSUMER[_parse(chosen)])


def _parse(chosen: str) -> Profile:
    try:
        return Profile(chosen)
    except ValueError:
        raise InvalidSetting(f"{chosen!r} is not a profile; choose {' or '.join(Profile)}") from None
