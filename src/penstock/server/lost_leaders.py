"""What clients hear of leaders that are lost, or may be: so that they find the next one soon.

While a broker may have died, what it leads has no leader: nobody is sent there, and clients ask again in a moment. A
connection that has heard so hears who leads as soon as that is known. One that has not is shown the lost broker for
a while: librdkafka (2.10 and later) drops a broker that vanishes from the list with all that it led, takes even what
the same answer gives to another from that one, and asks again only a second later. Loop thread only.
"""

from __future__ import annotations

import asyncio
from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field

from penstock.cluster.image import ClusterImage, ImageChange, RegisteredBroker
from penstock.model import BrokerId, TopicPartition

SUSPECTED_SECONDS = 0.3
"""Longer than it takes to find out, and to elect others."""
CLEARED_SECONDS = 10.0
"""How long one that was suspected and lives is above suspicion: connections may end for other reasons, often."""
GONE_SECONDS = 3.0
"""Longer than clients that have lost a leader wait before they ask."""

_NONE: frozenset[TopicPartition] = frozenset()


@dataclass(slots=True, eq=False)
class _Lost:
    broker: RegisteredBroker
    led: frozenset[TopicPartition]
    is_gone: bool = False
    told: set[Hashable] = field(default_factory=set)
    """The connections that have heard of it."""
    forgetting: asyncio.TimerHandle | None = None


class LostLeaders:
    def __init__(self) -> None:
        self._lost: dict[BrokerId, _Lost] = {}
        self._cleared: set[BrokerId] = set()

    def suspect(self, image: ClusterImage, broker_id: BrokerId) -> None:
        """The connection to this broker has ended."""
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
                # It is back. Java's client takes no list that has a broker twice, and waits for another for minutes.
                assert lost.forgetting is not None
                lost.forgetting.cancel()
                self._forget(lost)

    def leaderless(self, connection: Hashable, topics: Iterable[str]) -> frozenset[TopicPartition]:
        """Of these topics, the partitions that this connection shall hear have no leader."""
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
        """Brokers that have gone, and of which this connection has not heard."""
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
