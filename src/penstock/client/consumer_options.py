"""What a consumer can be told, and the librdkafka settings that follow from it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Literal, TypedDict

from penstock.client.bootstrap import CONNECT_TIMEOUT_S, reach
from penstock.client.delivery import Delivery, consumer_settings, parse_delivery
from penstock.client.errors import InvalidSetting
from penstock.client.option_names import check_names
from penstock.client.profile import consumer_profile
from penstock.client.serializers import Deserializer, Format
from penstock.model import TopicPartition

COMMIT_INTERVAL_MS = 1000
NO_GROUP = "penstock-no-group"
"""librdkafka wants a group id of every consumer; nothing is ever asked of this one."""

PartitionsCallback = Callable[[Sequence[TopicPartition]], None]


class ConsumerOptions(TypedDict, total=False):
    group: str | None
    """The consumer group. Without one all partitions are read, and nothing is committed."""
    bootstrap: str | None
    """`host:port`, several with commas; without it PENSTOCK_BOOTSTRAP or localhost:9092."""
    start: Literal["earliest", "latest"]
    """Where to begin without a committed offset; earliest unless told otherwise."""
    key_deserializer: Format | Deserializer
    value_deserializer: Format | Deserializer
    delivery: Literal["at-most-once", "at-least-once", "exactly-once"]
    """At least once unless told otherwise."""
    profile: Literal["throughput", "latency"]
    idle_timeout_s: float
    """Iteration ends when nothing came for so long; without it, it never does."""
    group_protocol: Literal["classic", "consumer"]
    """`consumer` (KIP-848) where the broker has it, else `classic` with cooperative-sticky assignment."""
    instance_id: str
    """A name that is this member's own, to come back under after a restart without a rebalance."""
    on_assigned: PartitionsCallback
    on_revoked: PartitionsCallback
    commit_interval_ms: int
    """At least once: how often what is done is committed."""
    fetch_min_bytes: int
    fetch_max_wait_ms: int
    fetch_max_bytes: int
    check_crcs: bool
    """Verify the CRC of every batch that is read, on unless told otherwise. A mismatch raises `CorruptRecords`."""
    connect_timeout_s: float
    """How long to wait for a broker at the start; 0 does not look."""
    config: Mapping[str, Any]
    """Settings by librdkafka's names; they win over all others."""


_NAMES = {
    "fetch_min_bytes": "fetch.min.bytes",
    "fetch_max_wait_ms": "fetch.wait.max.ms",
    "fetch_max_bytes": "fetch.max.bytes",
    "instance_id": "group.instance.id",
}


_CONSUMER_GROUP_HEARTBEAT = 68
_CLASSIC_SETTINGS = ("partition.assignment.strategy", "session.timeout.ms", "heartbeat.interval.ms")
"""Settings of librdkafka that only the classic protocol takes."""


def consumer_config(options: ConsumerOptions) -> dict[str, Any]:
    """The librdkafka settings of a consumer; waits for a broker, as `connect_timeout_s` says."""
    check_names(options, ConsumerOptions.__annotations__)
    delivery = parse_delivery(options.get("delivery", "at-least-once"))
    group = options.get("group")
    own = options.get("config", {})
    start = _start(options)
    _check_protocol(options)
    reached = reach(options.get("bootstrap"), options.get("connect_timeout_s", CONNECT_TIMEOUT_S), own)
    return {
        **(consumer_settings(delivery) if group else {"enable.auto.commit": False}),
        **consumer_profile(options.get("profile")),
        **_group_settings(options, reached.api_keys),
        "auto.offset.reset": start,
        "check.crcs": options.get("check_crcs", True),
        "auto.commit.interval.ms": options.get("commit_interval_ms", COMMIT_INTERVAL_MS),
        **{name: value for option, name in _NAMES.items() if (value := options.get(option)) is not None},
        **reached.settings,
        **own,
    }


def delivery_of(options: ConsumerOptions) -> Delivery:
    return parse_delivery(options.get("delivery", "at-least-once"))


def _check_protocol(options: ConsumerOptions) -> None:
    protocol = options.get("group_protocol")
    if protocol not in (None, "classic", "consumer"):
        raise InvalidSetting(f"{protocol!r} is no group protocol; there are classic, consumer")


def _group_settings(options: ConsumerOptions, api_keys: Collection[int]) -> dict[str, Any]:
    protocol = options.get("group_protocol")
    if protocol is None:
        is_classic = any(name in options.get("config", {}) for name in _CLASSIC_SETTINGS)
        can_be_new = _CONSUMER_GROUP_HEARTBEAT in api_keys and not is_classic
        protocol = "consumer" if can_be_new else "classic"
    settings = {"group.id": options.get("group") or NO_GROUP, "group.protocol": protocol}
    if protocol == "classic":
        settings["partition.assignment.strategy"] = "cooperative-sticky"
    return settings


def _start(options: ConsumerOptions) -> str:
    start = options.get("start", "earliest")
    if start not in ("earliest", "latest"):
        raise InvalidSetting(f"{start!r} is no start; there are earliest, latest")
    return start
