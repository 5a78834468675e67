"""Order of keys while the number of partitions of a topic is reduced: messages of active partitions are held back until
the draining partitions have been read to their end.

If the new number of partitions divides the old one, all keys of a draining partition move to one active partition. When
a message of an active partition has been fetched, all earlier messages of its key are below the current end offsets of
the draining partitions. These end offsets are looked up after the fetch; the message is returned to the caller once
this consumer, or its group, has passed them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from confluent_kafka import Consumer, KafkaException, Message, TopicPartition

from penstock.client.consumer_options import ConsumerOptions
from penstock.client.internal_connection import InternalConnection
from penstock.client.topic_watch import TopicWatch

REQUEST_S = 10.0
LOOK_AT_HELD_S = 0.2
"""Interval at which an ordered consumer checks whether it may return messages that it holds back, in seconds."""
Place = tuple[str, int]


class KeyOrder:
    def __init__(self, consumer: Consumer, watch: TopicWatch, *, has_group: bool, is_latest: bool) -> None:
        """`is_latest` is True if partitions without a position are read from their end."""
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
        """Return the messages that may be returned to the caller, of those held back and of `fresh`, which are newly
        fetched. `in_work` contains messages that the caller has not finished.
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
        """Remove the held messages of these partitions, and return them."""
        dropped = [message for message in self.held if _place(message) in places]
        self.held = [message for message in self.held if _place(message) not in places]
        self._paused -= set(places)
        return dropped

    def _going(self, topics: Iterable[str]) -> Mapping[str, range]:
        """Return the draining partitions by topic; topics without draining partitions are left out."""
        found = {}
        for topic in topics:
            route = self._watch.look(topic)
            if route is not None and route.active_count < len(route.partitions):
                found[topic] = range(route.active_count, len(route.partitions))
        return found

    def _behind(self, places: Collection[Place], pending: Sequence[Message]) -> set[Place]:
        """Return the partitions that were not finished up to their current end. `pending` contains unfinished
        messages.
        """
        unfinished = {_place(message) for message in pending}
        assigned = {(each.topic, each.partition) for each in self._consumer.assignment()}
        behind = {place for place in places if place in unfinished and place in assigned}
        for place in set(places) - behind:
            try:
                start, end = self._consumer.get_watermark_offsets(TopicPartition(*place), REQUEST_S)
                if end > start and self._position(place, assigned, end) < end:
                    behind.add(place)
            except KafkaException:
                behind.add(place)  # unknown: counts as behind until the next look
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
        """Pause the `blocked` partitions, whose messages are held back, and resume those that were blocked before."""
        resumed, paused = self._paused - blocked, blocked - self._paused
        assigned = {(each.topic, each.partition) for each in self._consumer.assignment()}
        if resumed & assigned:
            self._consumer.resume([TopicPartition(*place) for place in resumed & assigned])
        if paused & assigned:
            self._consumer.pause([TopicPartition(*place) for place in paused & assigned])
        self._paused = blocked & assigned


def key_order(consumer: Consumer, options: ConsumerOptions) -> KeyOrder | None:
    """Return the KeyOrder of a consumer with the option `ordered`; None for other consumers."""
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
