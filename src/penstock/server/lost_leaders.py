"""Contents of Metadata responses while leaders have failed or may have failed, so that clients soon find the next
leader.

While a broker may have died, its partitions are shown without a leader, so that clients send it no requests and soon
refresh their metadata. A connection that has received such metadata gets the next leader as soon as it is elected. For
other connections a failed broker stays in the list of brokers for a while: librdkafka (2.10 and later) drops a broker
that vanishes from the list together with its partitions, even partitions for which the same response names another
leader, and refreshes only a second later. Loop thread only.
"""

from __future__ import annotations

import asyncio
from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field

from penstock.cluster.image import ClusterImage, ImageChange, RegisteredBroker
from penstock.model import BrokerId, TopicPartition

SUSPECTED_SECONDS = 0.3
"""Time in seconds that a broker stays suspected: longer than failure detection and elections take."""
CLEARED_SECONDS = 10.0
"""Time in seconds for which a broker that turned out to be alive is not suspected again, because connections often end
for other reasons.
"""
GONE_SECONDS = 3.0
"""Time in seconds for which a failed broker is still shown: longer than clients wait before they refresh their metadata
after losing a leader.
"""

_NONE: frozenset[TopicPartition] = frozenset()


@dataclass(slots=True, eq=False)
class _Lost:
    broker: RegisteredBroker
    led: frozenset[TopicPartition]
    is_gone: bool = False
    told: set[Hashable] = field(default_factory=set)
    """Connections to which partitions of the broker were shown without a leader."""
    forgetting: asyncio.TimerHandle | None = None


class LostLeaders:
    def __init__(self) -> None:
        self._lost: dict[BrokerId, _Lost] = {}
        self._cleared: set[BrokerId] = set()

    def suspect(self, image: ClusterImage, broker_id: BrokerId) -> None:
        """Suspect a broker whose connection has ended."""
        broker = image.brokers.get(broker_id)
        if broker is not None and broker_id not in self._lost and broker_id not in self._cleared:
            self._lose(_Lost(broker, _led_by(image, broker_id)), SUSPECTED_SECONDS)

    def on_image(self, change: ImageChange) -> None:
        for broker_id, broker in change.before.brokers.items():
            now = change.after.brokers.get(broker_id)
            if now is None:
                suspected = self._lost.get(broker_id)
                told = set() if suspected is None else suspected.told
                self._lose(
                    _Lost(broker, _led_by(change.before, broker_id), True, told),
                    GONE_SECONDS,
                )
        for lost in tuple(self._lost.values()):
            if lost.is_gone and lost.broker.node_id in change.after.brokers:
                # The broker is back. Java's client rejects a list with a broker twice, and refreshes only
                # minutes later.
                assert lost.forgetting is not None
                lost.forgetting.cancel()
                self._forget(lost)

    def leaderless(self, connection: Hashable, topics: Iterable[str]) -> frozenset[TopicPartition]:
        """Partitions of the topics that Metadata shows to this connection without a leader."""
        if not self._lost:
            return _NONE
        asked, found = frozenset(topics), _NONE
        for lost in self._lost.values():
            led = frozenset(name for name in lost.led if name.topic in asked)
            if led and not lost.is_gone:
                lost.told.add(connection)
                found |= led
        return found

    def still_shown(self, connection: Hashable) -> list[RegisteredBroker]:
        """Failed brokers to keep in the list of brokers for this connection, because it was never shown their
        partitions without a leader.
        """
        return [lost.broker for lost in self._lost.values() if lost.is_gone and connection not in lost.told]

    def _lose(self, lost: _Lost, seconds: float) -> None:
        former = self._lost.get(lost.broker.node_id)
        if former is not None and former.forgetting is not None:
            former.forgetting.cancel()
        self._lost[lost.broker.node_id] = lost
        lost.forgetting = asyncio.get_running_loop().call_later(seconds, self._forget, lost)

    def _forget(self, lost: _Lost) -> None:
        broker_id = lost.broker.node_id
        del self._lost[broker_id]
        if not lost.is_gone:
            self._cleared.add(broker_id)
            asyncio.get_running_loop().call_later(CLEARED_SECONDS, self._cleared.discard, broker_id)


def _led_by(image: ClusterImage, broker_id: BrokerId) -> frozenset[TopicPartition]:
    return frozenset(
        TopicPartition(topic.name, index)
        for topic in image.topics.values()
        for index, partition in enumerate(topic.partitions)
        if partition.leader == broker_id
    )
