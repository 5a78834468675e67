"""Metadata about leaders that are lost, or may be, which makes clients find the next leader soon.

While a broker may have died, its partitions are shown without a leader, so that clients send no requests
there and ask again in a moment. A connection that has received such metadata is shown the next leader as soon
as it is elected. Other connections are shown the lost broker for a while: librdkafka (2.10 and later) drops a
broker that vanishes from the list together with its partitions, even those that the same response gives to
another broker, and asks again only a second later. Loop thread only.
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
"""Time in seconds for which a broker that proved alive is not suspected again: connections end for other
reasons, often.
"""
GONE_SECONDS = 3.0
"""Time in seconds for which a lost broker is shown: longer than clients that lost a leader wait before they
ask.
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
                # The broker is back. Java's client rejects a list with a broker twice, and asks again only
                # minutes later.
                assert lost.forgetting is not None
                lost.forgetting.cancel()
                self._forget(lost)

    def leaderless(self, connection: Hashable, topics: Iterable[str]) -> frozenset[TopicPartition]:
        """Partitions of these topics that are shown to this connection without a leader."""
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
        """Lost brokers whose partitions this connection has not been shown without a leader."""
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
