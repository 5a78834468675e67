"""The part that the synchronous and the async consumer share: fetch messages, return them to the caller, finish them,
and follow rebalances.

Messages move from `_fresh` (fetched) to `_ready` (may be returned) to `_handed` (in work: returned, not finished). Only
`fill` waits. Rebalances happen inside `fill`, so never while the caller processes a message.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Collection, Iterable, Sequence

from confluent_kafka import (
    OFFSET_BEGINNING,
    OFFSET_END,
    Consumer,
    KafkaError,
    KafkaException,
    TopicPartition,
)
from confluent_kafka import Message as KafkaMessage

from penstock.client.consumer_options import ConsumerOptions, consumer_config, delivery_of
from penstock.client.errors import (
    CorruptRecords,
    InvalidSetting,
    damage_of,
    from_kafka,
    translated,
)
from penstock.client.joining import finish_joining, has_member_epoch
from penstock.client.key_order import LOOK_AT_HELD_S, key_order
from penstock.client.message import Message, take_live
from penstock.client.partitions import named, wait_for_fetch
from penstock.client.progress import progress_of
from penstock.client.retry_topic import find_retry_topic, from_start
from penstock.client.serializers import deserializer
from penstock.client.shared_views import topics_to_read

FILL_MESSAGES = 500
REQUEST_S = 30.0
SERVE_EVERY_S = 1.0
"""Longest time between two polls while messages are returned from memory, so that rebalances make progress."""
LOOK_FOR_TOPIC_EVERY_S = 1.0
"""Interval at which a consumer without a group looks for topics that do not exist yet."""

Place = tuple[str, int]
_MISSING = (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC)
_NO_LONGER_OURS = (
    KafkaError.ILLEGAL_GENERATION,
    KafkaError.UNKNOWN_MEMBER_ID,
    KafkaError.REBALANCE_IN_PROGRESS,
    KafkaError.STALE_MEMBER_EPOCH,
    KafkaError._STATE,
)

logger = logging.getLogger("penstock.client")


class MessageReader:
    def __init__(self, topics: Sequence[str], options: ConsumerOptions) -> None:
        if not topics or any(not topic or ":" in topic for topic in topics):
            raise InvalidSetting(
                "name the topics to read, and the broker with bootstrap=: Consumer('orders', group='billing')"
            )
        config = consumer_config(options)
        topics = topics_to_read(topics, options)
        with translated("invalid combination of settings"):
            self.consumer = Consumer(config | {"on_commit": _on_commit})
        self._fresh: list[KafkaMessage] = []
        self._ready: deque[KafkaMessage] = deque()
        self._handed: list[KafkaMessage] = []
        self._damage: dict[Place, CorruptRecords] = {}
        """Damage reported by librdkafka, by partition; raised after the messages before the damage were returned."""
        self._served_at = time.monotonic()
        self._start = OFFSET_BEGINNING if config["auto.offset.reset"] == "earliest" else OFFSET_END
        self._missing: list[str] = []
        """Topics that do not exist yet, for a consumer without a group; librdkafka waits for those of a group."""
        self._looked_at = 0.0
        self._awaited: set[str] = set()
        """Missing topics that have been logged."""
        self._key_deserializer = deserializer(options.get("key_deserializer"))
        self._value_deserializer = deserializer(options.get("value_deserializer"))
        self._on_assigned = options.get("on_assigned")
        self._on_revoked = options.get("on_revoked")
        strategy = config.get("partition.assignment.strategy", "cooperative-sticky")
        self._cooperative = "cooperative" in strategy
        self._is_new_protocol = config["group.protocol"] == "consumer"
        self._was_assigned = False
        self._progress = progress_of(self.consumer, options.get("group"), delivery_of(options))
        self._group = options.get("group")
        self._order = key_order(self.consumer, options)
        self.retry_topic = find_retry_topic(self.consumer, self._group, config)
        """Retry topic of the group, which the consumer also reads; None if it does not exist."""
        self._begin(topics)

    def _begin(self, topics: Sequence[str]) -> None:
        """Join the group, or assign all partitions to a consumer without a group."""
        if not self._group:
            self._missing = list(topics)
            self._assign_found()
            return
        for topic in topics:
            if not topic.startswith("^"):
                self._partitions_of(topic)
        self._subscribed = list(topics)
        self._subscribe()

    def _subscribe(self) -> None:
        also = [self.retry_topic] if self.retry_topic and self.retry_topic not in self._subscribed else []
        self.consumer.subscribe(
            self._subscribed + also, on_assign=self._assigned, on_revoke=self._revoked, on_lost=self._lost
        )

    def read_retries(self, topic: str) -> None:
        """Read the retry topic of the group from now on."""
        if self.retry_topic is None:
            self.retry_topic = topic
            self._subscribe()

    @property
    def ready(self) -> bool:
        """True if a message can be returned without waiting, and no poll is due."""
        return bool(self._ready) and time.monotonic() < self._served_at + SERVE_EVERY_S

    def fill(self, timeout_s: float) -> None:
        """Poll librdkafka: wait for messages unless some are buffered, and serve rebalances."""
        self._served_at = time.monotonic()
        if self._missing and self._served_at >= self._looked_at + LOOK_FOR_TOPIC_EVERY_S:
            self._assign_found()
        if self._order is not None and self._order.held:
            timeout_s = min(timeout_s, LOOK_AT_HELD_S)
        first = self.consumer.poll(0 if self._ready or self._fresh else timeout_s)
        if first is not None:
            self._take([first])
        if self._ready:
            return
        if first is not None:
            self._take(self.consumer.consume(FILL_MESSAGES - 1, 0))
        if self._order is not None and (self._fresh or self._order.held):
            self._fresh = self._order.admit(self._fresh, self._handed)
        if self._fresh:
            self._admit()
        if self._damage and not self._ready:
            raise self._damage.pop(next(iter(self._damage)))

    def hand_over(self, count: int) -> list[Message]:
        """Return up to `count` buffered messages. The previous messages must be finished. Expired messages are skipped;
        they are finished together with the returned ones.
        """
        return take_live(self._ready, self._handed, count, self._message)

    def finish(self) -> None:
        """Mark the messages in work as finished."""
        last = {(message.topic(), message.partition()): message for message in self._handed}
        self._handed = []
        self._progress.finished(list(last.values()))

    def handed_offsets(self) -> list[TopicPartition]:
        """Return the offset to commit after the messages in work, for each partition."""
        ends = {(message.topic(), message.partition()): message.offset() + 1 for message in self._handed}
        return [TopicPartition(*place, offset) for place, offset in ends.items()]

    def is_in_work(self, place: Place, offset: int) -> bool:
        return any(
            each.offset() == offset and (each.topic(), each.partition()) == place for each in self._handed
        )

    def settle_commits(self) -> bool:
        """Wait for commits in progress. Return True if the offsets of the messages in work are committed already."""
        with translated("offsets were not committed"):
            return self._progress.settle_commits()

    def committed(self, offsets: list[TopicPartition]) -> None:
        """Record offsets that a transaction has committed."""
        self._progress.committed(offsets)

    def rewind(self) -> None:
        """Read the messages in work again, for partitions that are still assigned."""
        assigned = {_place(each) for each in self.consumer.assignment()}
        first = self._first_handed()
        self.seek(TopicPartition(*place, offset) for place, offset in first.items() if place in assigned)
        self._handed = []

    def resume_committed(self) -> None:
        """Continue from the group's committed offsets. A partition without a committed offset continues from its first
        message in work, which is the first that the group has read.
        """
        assigned = self.consumer.assignment()
        with translated("cannot look up committed offsets"):
            committed = self.consumer.committed(assigned, timeout=REQUEST_S)
        places = self._first_handed() | {_place(each): each.offset for each in committed if each.offset >= 0}
        self.seek(
            TopicPartition(*_place(each), places[_place(each)])
            for each in committed
            if _place(each) in places
        )
        self._handed = []

    def _first_handed(self) -> dict[Place, int]:
        return {
            (message.topic(), message.partition()): message.offset() for message in reversed(self._handed)
        }

    def start_over(self) -> None:
        """Start a new iteration: with at-least-once or exactly-once delivery, unfinished messages are returned
        again.
        """
        if self._progress.hands_over_again:
            self._ready.extendleft(reversed(self._handed))
            self._handed = []

    def commit(self) -> None:
        """Finish the messages in work and commit."""
        self.finish()
        with translated("offsets were not committed"):
            self._progress.commit()

    def seek(self, targets: Iterable[TopicPartition]) -> None:
        """Continue from these positions. Buffered messages of the partitions are dropped, and those in work do not
        count as finished.
        """
        for target in targets:
            place = {(target.topic, target.partition)}
            self._drop(place)
            self._handed = _outside(self._handed, place)
            self._move(target)

    def unread(self, places: Collection[Place]) -> None:
        """Drop the buffered messages of these partitions; fetch them again where still assigned."""
        assigned = {_place(each) for each in self.consumer.assignment()}
        for target in self._drop(places):
            if _place(target) in assigned:
                self._move(target)

    def next_offset(self, place: Place) -> int | None:
        """Return the offset of the next message of a partition; None if it is not known."""
        held = () if self._order is None else self._order.held
        for message in (*self._ready, *held, *self._fresh):
            if (message.topic(), message.partition()) == place:
                return int(message.offset())
        (position,) = self.consumer.position([TopicPartition(*place)])
        return int(position.offset) if position.offset >= 0 else None

    def close(self) -> None:
        """Leave the group after committing finished messages. Messages in work do not count as finished."""
        self._handed = []
        if self._group:
            finish_joining(self.consumer, self._has_joined)
        if self._order is not None:
            self._order.close()
        self.consumer.close()

    def _has_joined(self) -> bool:
        return self._was_assigned or (self._is_new_protocol and has_member_epoch(self.consumer))

    def _assign_found(self) -> None:
        """Assign all partitions of the topics that exist now; keep the others in `_missing`."""
        self._looked_at = time.monotonic()
        missing, self._missing = self._missing, []
        for topic in missing:
            partitions = self._partitions_of(topic)
            if partitions:
                self.consumer.incremental_assign(partitions)
            else:
                self._missing.append(topic)

    def _partitions_of(self, topic: str) -> list[TopicPartition]:
        """Return the partitions of a topic at the start position; if the topic does not exist, log it and return
        none.
        """
        with translated(f"cannot look up {topic}"):
            found = self.consumer.list_topics(topic, timeout=REQUEST_S).topics[topic]
        if not found.partitions:
            self._log_absence(topic)
        return [TopicPartition(topic, number, self._start) for number in found.partitions]

    def _log_absence(self, topic: str) -> None:
        if topic not in self._awaited:
            self._awaited.add(topic)
            logger.warning(
                "topic %r does not exist; waiting for it (`penstock topic create %s` creates it)",
                topic,
                topic,
            )

    def _take(self, messages: Sequence[KafkaMessage]) -> None:
        problem = None
        for message in messages:
            error = message.error()
            damage = damage_of(message)
            if error is None:
                self._fresh.append(message)
            elif damage is not None:
                self._damage[damage.topic, damage.partition] = damage
            elif error.code() in _MISSING:
                self._log_absence(message.topic())
            elif error.fatal() or error.code() == KafkaError._AUTHENTICATION:
                problem = problem or from_kafka(error, f"cannot read {message.topic() or 'messages'}")
            elif error.code() != KafkaError._PARTITION_EOF:
                logger.warning("%s", from_kafka(error, "the consumer continues after an error"))
        if problem is not None:
            raise problem

    def _admit(self) -> None:
        try:
            self._progress.arrived(self._fresh)
        except KafkaException as error:
            self.unread({(message.topic(), message.partition()) for message in self._fresh})
            failure = from_kafka(error, "offsets were not committed; the messages were not handed over")
            if error.args[0].code() not in _NO_LONGER_OURS:
                raise failure from None
            logger.warning("%s", failure)
        self._ready.extend(self._fresh)
        self._fresh.clear()

    def _message(self, source: KafkaMessage) -> Message:
        return Message(
            source.topic(),
            source.partition(),
            source.offset(),
            source.timestamp()[1],
            source.key(),
            source.value(),
            tuple(source.headers() or ()),
            self._key_deserializer,
            self._value_deserializer,
        )

    def _move(self, target: TopicPartition) -> None:
        """Seek one partition, after librdkafka has a fetch position for it.

        librdkafka refuses a seek until it knows the position of a partition, and overrides a seek made during its own
        offset lookup, which it repeats after half a second. Therefore this method waits for the first fetch response,
        and looks up the end offset itself.
        """
        if not any(_place(each) == _place(target) for each in self.consumer.assignment()):
            raise InvalidSetting(f"{target.topic}-{target.partition} is not assigned to this consumer")
        with translated(f"cannot seek in {target.topic}"):
            wait_for_fetch(self.consumer, target)
            if target.offset == OFFSET_END:
                _, end = self.consumer.get_watermark_offsets(target, timeout=REQUEST_S)
                target = TopicPartition(*_place(target), end)
            self.consumer.seek(target)

    def _assigned(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self._was_assigned = True
        if self.retry_topic is not None and self._start == OFFSET_END:
            from_start(consumer, self.retry_topic, partitions)
        if self._cooperative:
            consumer.incremental_assign(partitions)
        else:
            consumer.assign(partitions)
        if self._on_assigned is not None:
            self._on_assigned(named(partitions))

    def _revoked(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        unread = self._drop({_place(each) for each in partitions})
        if self._on_revoked is not None:
            self._on_revoked(named(partitions))
        self._progress.released(unread)

    def _lost(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        """Drop partitions that other members may already own; their offsets can no longer be committed."""
        self._drop({_place(each) for each in partitions})
        if self._on_revoked is not None:
            self._on_revoked(named(partitions))

    def _drop(self, places: Collection[Place]) -> list[TopicPartition]:
        """Drop the buffered messages of these partitions; return the first dropped offset of each partition."""
        for place in places:
            self._damage.pop(place, None)
        first: dict[Place, int] = {}
        held = () if self._order is None else self._order.drop(places)
        for message in (*self._ready, *held, *self._fresh):
            place = (message.topic(), message.partition())
            if place in places:
                first.setdefault(place, message.offset())
        self._ready = deque(_outside(self._ready, places))
        self._fresh = _outside(self._fresh, places)
        return [TopicPartition(*place, offset) for place, offset in first.items()]


def _outside(messages: Iterable[KafkaMessage], places: Collection[Place]) -> list[KafkaMessage]:
    return [message for message in messages if (message.topic(), message.partition()) not in places]


def _place(partition: TopicPartition) -> Place:
    return partition.topic, partition.partition


def _on_commit(error: KafkaError | None, partitions: list[TopicPartition]) -> None:
    if error is not None and error.code() != KafkaError._NO_OFFSET:
        logger.warning("%s", from_kafka(error, "offsets were not committed; messages may be delivered again"))
