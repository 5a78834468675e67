"""Order of keys while a topic gets fewer partitions: messages of a partition are held back until the partitions that
it may replace have been read to their end.

A key moves to another partition with a new number of partitions. When a message of an active partition has been
fetched, every earlier message of its key is below the present end of the draining partitions: their ends are looked up
after the fetch, and the message is handed over when this consumer, or the group, has passed them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from confluent_kafka import Consumer, KafkaException, Message, TopicPartition

from penstock.client.consumer_options import ConsumerOptions
from penstock.client.internal_connection import InternalConnection
from penstock.client.topic_watch import TopicWatch

REQUEST_S = 10.0
LOOK_AT_HELD_S = 0.2
"""Interval at which an ordered consumer checks whether messages may be handed over that it holds back."""
Place = tuple[str, int]


class KeyOrder:
    def __init__(self, consumer: Consumer, watch: TopicWatch, *, has_group: bool, is_latest: bool) -> None:
        """`is_latest`: partitions without a position are read from their end."""
        self.held: list[Message] = []
        self._consumer = consumer
        self._watch = watch
        self._has_group = has_group
        self._is_latest = is_latest
        self._first_ends: dict[Place, int] = {}
        self._paused: set[Place] = set()

    def close(self) -> None:
        self._watch.close()

    def admit(self, fresh: Sequence[Message], in_work: Sequence[Message]) -> list[Message]:
        """Messages that may be handed over, of held and newly fetched ones. `in_work` has messages that
        are not finished.
        """
        candidates = [*self.held, *fresh]
        going = self._going({message.topic() for message in candidates})
        if not going and not self.held:
            return candidates
        draining = {(topic, index) for topic, indexes in going.items() for index in indexes}
        behind = {topic for topic, _ in self._behind(draining, [*in_work, *candidates])}
        fetched = {_place(message) for message in candidates}
        blocked = {place for place in fetched - draining if place[0] in behind}
        self.held = [message for message in candidates if _place(message) in blocked]
        self._pause(blocked)
        return [message for message in candidates if _place(message) not in blocked]

    def drop(self, places: Collection[Place]) -> list[Message]:
        """Forget held messages of partitions; they are returned."""
        dropped = [message for message in self.held if _place(message) in places]
        self.held = [message for message in self.held if _place(message) not in places]
        self._paused -= set(places)
        return dropped

    def _going(self, topics: Iterable[str]) -> Mapping[str, range]:
        """Partitions that go, by topic; topics without any are left out."""
        found = {}
        for topic in topics:
            route = self._watch.look(topic)
            if route is not None and route.active_count < len(route.partitions):
                found[topic] = range(route.active_count, len(route.partitions))
        return found

    def _behind(self, places: Collection[Place], pending: Sequence[Message]) -> set[Place]:
        """Partitions that were not finished up to their present end. `pending` has unfinished messages."""
        unfinished = {_place(message) for message in pending}
        assigned = {(each.topic, each.partition) for each in self._consumer.assignment()}
        behind = {place for place in places if place in unfinished and place in assigned}
        for place in set(places) - behind:
            try:
                start, end = self._consumer.get_watermark_offsets(TopicPartition(*place), REQUEST_S)
                if end > start and self._position(place, assigned, end) < end:
                    behind.add(place)
            except KafkaException:
                behind.add(place)  # not known: look again
        return behind

    def _position(self, place: Place, assigned: Collection[Place], end: int) -> int:
        if place in assigned:
            (position,) = self._consumer.position([TopicPartition(*place)])
            if position.offset >= 0:
                return int(position.offset)
        if self._has_group:
            (committed,) = self._consumer.committed([TopicPartition(*place)], REQUEST_S)
            if committed.offset >= 0:
                return int(committed.offset)
        return self._first_ends.setdefault(place, end) if self._is_latest else -1

    def _pause(self, blocked: set[Place]) -> None:
        """Fetch nothing more of partitions whose messages are held."""
        resumed, paused = self._paused - blocked, blocked - self._paused
        assigned = {(each.topic, each.partition) for each in self._consumer.assignment()}
        if resumed & assigned:
            self._consumer.resume([TopicPartition(*place) for place in resumed & assigned])
        if paused & assigned:
            self._consumer.pause([TopicPartition(*place) for place in paused & assigned])
        self._paused = blocked & assigned


def key_order(consumer: Consumer, options: ConsumerOptions) -> KeyOrder | None:
    """Order of a consumer with the option `ordered`; None for others."""
    if not options.get("ordered"):
        return None
    return KeyOrder(
        consumer,
        TopicWatch(InternalConnection(options.get("bootstrap"), options.get("config") or {})),
        has_group=bool(options.get("group")),
        is_latest=options.get("start") == "latest",
    )


def _place(message: Message) -> Place:
    return message.topic(), message.partition()
