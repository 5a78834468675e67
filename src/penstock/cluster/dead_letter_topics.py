"""Rules of dead-letter topics of share groups. Pure.

The dead-letter topic of a group must not be a topic that the group reads, and the chain of dead-letter topics
that starts there must not lead back to such a topic. The image names the topic of a queue. Topics of other
share groups are known to the group coordinator only, see `check_not_read`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from penstock.cluster.image import ClusterImage
from penstock.cluster.internal_topics import is_internal
from penstock.config import (
    DEAD_LETTER_GROUP_ENABLE,
    DEAD_LETTER_TOPIC_NAME,
    DEAD_LETTER_TOPIC_PREFIX,
    SHARE_QUEUE_TOPIC,
    BrokerConfig,
)
from penstock.errors import BrokerError, ErrorCode

_OWN = (DEAD_LETTER_TOPIC_NAME.name, SHARE_QUEUE_TOPIC.name)


def check_altered(
    image: ClusterImage, group: str, before: Mapping[str, str], after: Mapping[str, str], broker: BrokerConfig
) -> None:
    """Raise BrokerError INVALID_CONFIG if the changed configs of a group name an unusable dead-letter topic."""
    if all(before.get(name) == after.get(name) for name in _OWN):
        return
    topic = after.get(DEAD_LETTER_TOPIC_NAME.name, "")
    if not topic:
        return
    check_permitted(image, topic, broker)
    read = _source(image, after.get(SHARE_QUEUE_TOPIC.name, ""))
    leads_to = {
        _source(image, configs.values.get(SHARE_QUEUE_TOPIC.name, "")): configs.values[
            DEAD_LETTER_TOPIC_NAME.name
        ]
        for name, configs in image.group_configs.items()
        if name != group and configs.values.get(DEAD_LETTER_TOPIC_NAME.name)
    }
    seen, place = {read}, topic
    while read and place:
        if place in seen:
            what = "the group reads it" if place == topic else f"the dead letters of {place} return to {read}"
            raise _refusal(topic, f"{what}, so that records would circulate forever")
        seen.add(place)
        place = leads_to.get(place, "")


def check_not_read(image: ClusterImage, topic: str, read: Iterable[str]) -> None:
    """Raise BrokerError INVALID_CONFIG if the group reads the dead-letter topic, directly or through a view."""
    if _source(image, topic) in {_source(image, each) for each in read}:
        raise _refusal(topic, "the group reads it, so that records would circulate forever")


def check_subscription(image: ClusterImage, group: str, topics: Iterable[str]) -> None:
    """Raise BrokerError INVALID_REQUEST if a group subscribes to its own dead-letter topic."""
    configs = image.group_configs.get(group)
    dead_letter = "" if configs is None else configs.values.get(DEAD_LETTER_TOPIC_NAME.name, "")
    if dead_letter and dead_letter in {_source(image, each) for each in topics}:
        raise BrokerError(
            ErrorCode.invalid_request,
            f"group {group} cannot read {dead_letter}: it is its dead-letter topic; read it with another group, or "
            f"change {DEAD_LETTER_TOPIC_NAME.name}",
        )


def check_permitted(image: ClusterImage, topic: str, broker: BrokerConfig) -> None:
    """Raise BrokerError INVALID_CONFIG if no group may use the topic as its dead-letter topic."""
    prefix = broker[DEAD_LETTER_TOPIC_PREFIX]
    known = image.topic(topic)
    if is_internal(topic):
        raise _refusal(topic, "it is internal")
    if not topic.startswith(prefix):
        raise _refusal(topic, f"its name does not begin with {prefix!r} ({DEAD_LETTER_TOPIC_PREFIX.name})")
    if known is not None and known.view_of is not None:
        raise _refusal(topic, "it is a view")
    if known is not None and known.configs.get(DEAD_LETTER_GROUP_ENABLE.name, "true").lower() == "false":
        raise _refusal(topic, f"{DEAD_LETTER_GROUP_ENABLE.name} is false")


def _source(image: ClusterImage, name: str) -> str:
    """Name of the topic that stores the records of a topic or view."""
    known = image.topic(name) if name else None
    return name if known is None else known.view_of or name


def _refusal(topic: str, reason: str) -> BrokerError:
    return BrokerError(
        ErrorCode.invalid_config,
        f"{topic} cannot be the dead-letter topic: {reason}; name another topic",
    )
