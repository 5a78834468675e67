"""Options of a consumer, and their translation to librdkafka settings."""

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
from penstock.wire.apis import CONSUMER_GROUP_HEARTBEAT

COMMIT_INTERVAL_MS = 1000
NO_GROUP = "penstock-no-group"
"""Group id of consumers without a group: librdkafka requires one, but never sends a group request with it."""

PartitionsCallback = Callable[[Sequence[TopicPartition]], None]


class ConsumerOptions(TypedDict, total=False):
    group: str | None
    """Consumer group. Without one, the consumer reads all partitions and commits nothing."""
    bootstrap: str | None
    """`host:port`, several separated by commas; PENSTOCK_BOOTSTRAP or localhost:9092 by default."""
    filter: str
    """CEL expression over `key`, `headers`, `json` and more (docs/views.md): the broker sends only messages for which
    the expression is true. The consumer reads a view; messages and partitions have the view's name as their topic.
    """
    start: Literal["earliest", "latest"]
    """Start position of a partition without a committed offset; `earliest` by default."""
    key_deserializer: Format | Deserializer
    value_deserializer: Format | Deserializer
    delivery: Literal["at-most-once", "at-least-once", "exactly-once"]
    """Delivery guarantee; at least once by default."""
    profile: Literal["throughput", "latency"]
    ordered: bool
    """Keep the order of keys while the number of partitions of a topic is reduced: messages of the remaining partitions
    are held back until the draining partitions were read to their end. Costs a request for each batch of messages. Off
    by default.
    """
    idle_timeout_s: float
    """Time without messages after which iteration ends; without it, iteration never ends."""
    group_protocol: Literal["classic", "consumer"]
    """Group protocol; `consumer` (KIP-848) by default where the broker supports it, else `classic` with
    cooperative-sticky.
    """
    instance_id: str
    """`group.instance.id` of a static member: after a restart it rejoins the group without a rebalance."""
    on_assigned: PartitionsCallback
    on_revoked: PartitionsCallback
    commit_interval_ms: int
    """Interval between commits of finished messages, with at-least-once delivery."""
    fetch_min_bytes: int
    fetch_max_wait_ms: int
    fetch_max_bytes: int
    check_crcs: bool
    """Verify the CRC of every batch; on by default. A mismatch raises `CorruptRecords`."""
    connect_timeout_s: float
    """How long to wait for a broker when the client is created; 0 skips the check."""
    config: Mapping[str, Any]
    """Settings by librdkafka's names; they override all other options."""


_NAMES = {
    "fetch_min_bytes": "fetch.min.bytes",
    "fetch_max_wait_ms": "fetch.wait.max.ms",
    "fetch_max_bytes": "fetch.max.bytes",
    "instance_id": "group.instance.id",
}


_CLASSIC_SETTINGS = ("partition.assignment.strategy", "session.timeout.ms", "heartbeat.interval.ms")
"""librdkafka settings that only the classic protocol accepts."""


def consumer_config(options: ConsumerOptions) -> dict[str, Any]:
    """Return the librdkafka settings of a consumer; wait up to `connect_timeout_s` for a broker."""
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
        raise InvalidSetting(f"{protocol!r} is not a group protocol; choose classic or consumer")


def _group_settings(options: ConsumerOptions, api_keys: Collection[int]) -> dict[str, Any]:
    protocol = options.get("group_protocol")
    if protocol is None:
        is_classic = any(name in options.get("config", {}) for name in _CLASSIC_SETTINGS)
        can_be_new = CONSUMER_GROUP_HEARTBEAT in api_keys and not is_classic
        protocol = "consumer" if can_be_new else "classic"
    settings = {"group.id": options.get("group") or NO_GROUP, "group.protocol": protocol}
    if protocol == "classic":
        settings["partition.assignment.strategy"] = "cooperative-sticky"
    return settings


def _start(options: ConsumerOptions) -> str:
    start = options.get("start", "earliest")
    if start not in ("earliest", "latest"):
        raise InvalidSetting(f"{start!r} is not a valid start; choose earliest or latest")
    return start
