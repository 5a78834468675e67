"""Rules of topics with delayed messages (`delivery.delay`). Pure.

`delivery.delay` is fixed when the topic is created, because readers of the log depend on it. Delays count
from the time at which the leader stored a record, so these topics use LogAppendTime. They cannot be
compacted, because compaction would remove pending records.
"""

from __future__ import annotations

from collections.abc import Mapping

from penstock.cluster.image import TopicImage
from penstock.config import (
    CLEANUP_POLICY,
    DELIVERY_DELAY,
    DELIVERY_DELAY_DEFAULT_MS,
    DELIVERY_DELAY_MAX_MS,
    MESSAGE_TIMESTAMP_TYPE,
    RETENTION_ACKNOWLEDGED,
    RETRY_GROUP,
    BrokerConfig,
    CleanupPolicy,
    MessageTimestampType,
    TopicConfig,
)
from penstock.errors import BrokerError, ErrorCode

_APPEND_TIME = MessageTimestampType.LOG_APPEND_TIME


def with_delay(configs: dict[str, str], settings: TopicConfig) -> dict[str, str]:
    """Configs of a new topic, with the configs that `delivery.delay` requires added. BrokerError if configs
    contradict each other.
    """
    if settings[RETENTION_ACKNOWLEDGED] and CleanupPolicy.COMPACT in settings[CLEANUP_POLICY]:
        raise _invalid(
            f"{RETENTION_ACKNOWLEDGED.name} needs {CLEANUP_POLICY.name}={CleanupPolicy.DELETE}: a compacted topic "
            "keeps the last record of each key"
        )
    if not settings[DELIVERY_DELAY]:
        if settings[DELIVERY_DELAY_DEFAULT_MS] >= 0:
            raise _invalid(f"{DELIVERY_DELAY_DEFAULT_MS.name} needs {DELIVERY_DELAY.name}=true")
        if settings[RETRY_GROUP]:
            raise _invalid(f"{RETRY_GROUP.name} needs {DELIVERY_DELAY.name}=true")
        return {name: value for name, value in configs.items() if name != DELIVERY_DELAY.name}
    if MESSAGE_TIMESTAMP_TYPE.name in configs and settings[MESSAGE_TIMESTAMP_TYPE] is not _APPEND_TIME:
        raise _invalid(
            f"{MESSAGE_TIMESTAMP_TYPE.name}={configs[MESSAGE_TIMESTAMP_TYPE.name]}: a topic with "
            f"{DELIVERY_DELAY.name} has {_APPEND_TIME}, because delays count from the time of the append"
        )
    if CleanupPolicy.COMPACT in settings[CLEANUP_POLICY]:
        raise _invalid(
            f"{CLEANUP_POLICY.name}: a topic with {DELIVERY_DELAY.name} cannot be compacted; give "
            f"{CLEANUP_POLICY.name}={CleanupPolicy.DELETE}"
        )
    if settings[DELIVERY_DELAY_DEFAULT_MS] > settings[DELIVERY_DELAY_MAX_MS]:
        raise _invalid(
            f"{DELIVERY_DELAY_DEFAULT_MS.name}={settings[DELIVERY_DELAY_DEFAULT_MS]} is more than "
            f"{DELIVERY_DELAY_MAX_MS.name} ({settings[DELIVERY_DELAY_MAX_MS]})"
        )
    return {**configs, DELIVERY_DELAY.name: "true", MESSAGE_TIMESTAMP_TYPE.name: str(_APPEND_TIME)}


def altered(topic: TopicImage, configs: Mapping[str, str], broker: BrokerConfig) -> dict[str, str]:
    """Changed configs of an existing topic. BrokerError if `delivery.delay` would change or configs
    contradict each other.
    """
    settings = TopicConfig(broker, configs)
    if settings[DELIVERY_DELAY] is not topic.is_delayed:
        raise _invalid(
            f"{DELIVERY_DELAY.name} cannot be changed after the topic was created; create another topic"
        )
    return with_delay(dict(configs), settings)


def _invalid(message: str) -> BrokerError:
    return BrokerError(ErrorCode.invalid_config, message)
