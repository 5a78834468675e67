"""Options of topics with delayed messages."""

from __future__ import annotations

from penstock.config.options import Option
from penstock.config.topic_declarations import own, topic
from penstock.config.types import LONG_MAX, Boolean, Integer

DELIVERY_DELAY: Option[bool] = own(
    "delivery.delay",
    Boolean(),
    False,
    "Whether the topic has delayed messages (docs/delay.md): records with the header `penstock-deliver-at` or "
    "`penstock-delay-ms` are shown to consumers when they are due. Set when the topic is created, and cannot be "
    "changed.",
)
MESSAGE_TTL_MS: Option[int] = own(
    "message.ttl.ms",
    Integer(-1, LONG_MAX),
    -1,
    "Time after which a message expires (docs/delay.md). The leader writes it into records that have no expiry of "
    "their own, so a change applies to later records. Views, share groups, HTTP, the Python `Consumer` and "
    "`penstock consume` do not show expired messages, other Kafka clients see them. -1: no limit.",
)
RETENTION_ACKNOWLEDGED: Option[bool] = own(
    "retention.acknowledged",
    Boolean(),
    False,
    "Whether records are deleted as soon as every queue and group of the topic has settled them, and not before, "
    "instead of by age and size (docs/message-queues.md). Without any queue or group nothing is deleted.",
)
DELIVERY_DELAY_DEFAULT_MS: Option[int] = own(
    "delivery.delay.default.ms",
    Integer(-1, LONG_MAX),
    -1,
    "Delay of records that have no header with a delay, in a topic with `delivery.delay`. -1: they are not delayed.",
)
DELIVERY_DELAY_MAX_MS: Option[int] = topic(
    "delivery.delay.max.ms",
    Integer(0, 3_155_760_000_000),
    31_536_000_000,
    "Maximum delay of a message. A record with a longer one is refused with INVALID_RECORD.",
    broker="delivery.delay.max.ms",
)
