"""Retries of a consumer group: failed messages are written to the group's retry topic, and after the last attempt to
the dead-letter topic.

One transaction writes the record and commits the offset of the message, so a message is never both in the retry topic
and unfinished. The leader of the retry topic counts the attempts and chooses the delay. Used by one thread.
"""

from __future__ import annotations

import time
import uuid
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from confluent_kafka import TopicPartition

from penstock.client.bootstrap import CONNECT_TIMEOUT_S
from penstock.client.cluster import REQUEST_TIMEOUT_S, Cluster
from penstock.client.consumer_options import ConsumerOptions
from penstock.client.delay import delay_header
from penstock.client.errors import ClientError, InvalidSetting, ProducerFenced, TimedOut
from penstock.client.message import Message
from penstock.client.producer import Producer
from penstock.client.shared_views import own_connection
from penstock.client.topics import Topics
from penstock.delay.headers import InvalidDelay, without_delay
from penstock.delay.retry_names import retry_topic
from penstock.delay.retry_policy import RetryPolicy, default_policy, read_policy
from penstock.delay.retrying import (
    RETRY_OFFSET,
    RETRY_PARTITION,
    RETRY_PREFIX,
    RETRY_REASON,
    RETRY_TOPIC,
    failed_attempts,
)
from penstock.queues.dead_letter_record import Origin, dead_letter
from penstock.queues.states import DeadReason, Reason
from penstock.records.expiry import EXPIRES_AT, TTL_MS, read_number
from penstock.records.iteration import Record

if TYPE_CHECKING:
    from penstock.client.reader import MessageReader

POLICY_SECONDS = 10.0
"""Time in seconds after which the retry policy is read again."""
MAX_REASON = 1_000
"""Maximum length of a reason in characters; longer reasons are truncated."""
_EXISTS = "TOPIC_ALREADY_EXISTS"
_EXHAUSTED = "POLICY_VIOLATION"


class RetriesExhausted(ClientError):
    """The message has used all attempts of its retry policy, and the policy has no dead-letter topic."""


class Retries:
    def __init__(self, group: str, options: ConsumerOptions, reader: MessageReader) -> None:
        self._group = group
        self._options = options
        self._reader = reader
        self._transactional_id = f"penstock-retry-{uuid.uuid4()}"
        self._producer: Producer | None = None
        self._policy: RetryPolicy | None = None
        self._read_at = 0.0
        self._ends: dict[tuple[str, int], int] = {}
        """Offsets of the last commit, by partition. The messages of a batch may be retried in any order, and a commit
        must not move the group back.
        """

    def retry(self, message: Message, reason: str, delay_s: float | None) -> None:
        """Send a message in work to the retry topic, or to the dead-letter topic if no attempt is left."""
        delay = delay_header(delay_s, None)
        offsets = self._offsets_after(message)
        try:
            self._send(message, reason, delay, offsets)
        except ClientError as error:
            if error.code != _EXHAUSTED:
                raise
            self._policy = None  # the policy has changed since it was read
            self._send(message, reason, delay, offsets)
        self._reader.committed(offsets)
        self._ends.update({(each.topic, each.partition): each.offset for each in offsets})
        self._reader.read_retries(retry_topic(self._group))

    def _offsets_after(self, message: Message) -> list[TopicPartition]:
        """Return the offset to commit together with the retry of a message; an empty list if it is committed
        already.
        """
        place = message.topic, message.partition
        if not self._reader.is_in_work(place, message.offset):
            raise ClientError(
                f"message {message.offset} of {message.topic_partition} cannot be retried: the consumer has returned "
                "later messages since, or its partition was revoked"
            )
        # A commit in progress must not arrive after the commit of the transaction, and move the group back.
        if self._reader.settle_commits():
            return []
        end = self._ends.get(place, 0)
        is_behind = end > message.offset and self._reader.is_in_work(place, end - 1)
        return [TopicPartition(*place, end if is_behind else message.offset + 1)]

    def _send(
        self, message: Message, reason: str, delay: tuple[str, bytes] | None, offsets: list[TopicPartition]
    ) -> None:
        policy = self._known_policy()
        try:
            failed = failed_attempts(message.headers) + 1
        except InvalidDelay as error:
            raise ClientError(f"message {message.offset} of {message.topic_partition}: {error}") from None
        reason = reason[:MAX_REASON]
        if failed < policy.max_attempts:
            headers = [*_retry_headers(message, reason), *([delay] if delay else [])]
            self._transact(policy.topic, message, headers, offsets)
            return
        if not policy.dead_letter:
            raise RetriesExhausted(
                f"message {message.offset} of {message.topic_partition} has failed {failed} times, and the retry "
                f"policy of {self._group} has no dead-letter topic; set one with `penstock retry-policy set`"
            )
        self._transact(policy.dead_letter, message, self._dead_headers(message, failed, reason), offsets)

    def _transact(
        self, topic: str, message: Message, headers: list[Any], offsets: list[TopicPartition]
    ) -> None:
        producer = self._open_producer()
        try:
            with producer.transaction() as transaction:
                producer.send(topic, message.raw, key=message.raw_key, headers=headers).result()
                if offsets:
                    metadata = self._reader.consumer.consumer_group_metadata()
                    transaction.commit_offsets(offsets, metadata)
        except (ProducerFenced, TimedOut):
            self.close()  # the next producer has the same id; its registration ends the open transaction
            raise

    def _open_producer(self) -> Producer:
        if self._producer is None:
            self._producer = Producer(
                self._options.get("bootstrap"),
                delivery="exactly-once",
                transactional_id=self._transactional_id,
                config=own_connection(self._options),
            )
        return self._producer

    def close(self) -> None:
        producer, self._producer = self._producer, None
        if producer is not None:
            with suppress(ClientError):
                producer.close()

    # --- policy

    def _known_policy(self) -> RetryPolicy:
        now = time.monotonic()
        if self._policy is None or now - self._read_at > POLICY_SECONDS:
            self._policy, self._read_at = self._find_policy(), now
        return self._policy

    def _find_policy(self) -> RetryPolicy:
        """Read the policy of the group. If the group has no retry topic, create it with the default policy."""
        cluster = Cluster(
            self._options.get("bootstrap"),
            self._options.get("connect_timeout_s", CONNECT_TIMEOUT_S),
            REQUEST_TIMEOUT_S,
            own_connection(self._options),
        )
        topics, name = Topics(cluster), retry_topic(self._group)
        policy = default_policy(self._group)
        if name not in cluster.metadata().topics:
            _create(topics, policy.dead_letter, {})
            _create(topics, name, policy.topic_configs)
        found = read_policy(self._group, topics.configs(name))
        if found is None:
            raise InvalidSetting(
                f"group {self._group!r} has no retry policy; set one with `penstock retry-policy set {self._group}`"
            )
        return found

    def _dead_headers(self, message: Message, failed: int, reason: str) -> list[tuple[str, bytes | None]]:
        topic, partition, offset = _origin(message)
        record = Record(offset, message.timestamp_ms, message.raw_key, message.raw, message.headers)
        letter = dead_letter(
            Origin(self._group, topic, partition, offset),
            record._replace(headers=without_delay(record.headers)),
            failed,
            Reason(DeadReason.ATTEMPTS, reason),
            time.time_ns() // 1_000_000,
            is_copied=True,
        )
        return [each for each in letter.headers if not each[0].startswith(RETRY_PREFIX)]


def _create(topics: Topics, name: str, config: dict[str, str]) -> None:
    try:
        topics.create(name, config=config)
    except ClientError as error:
        if error.code != _EXISTS:
            raise


def _retry_headers(message: Message, reason: str) -> list[tuple[str, bytes | None]]:
    """Headers of the record in the retry topic: the headers of the message, its original position, and the reason."""
    topic, partition, offset = _origin(message)
    own = {RETRY_TOPIC: topic, RETRY_PARTITION: str(partition), RETRY_OFFSET: str(offset)}
    if reason:
        own[RETRY_REASON] = reason
    replaced = {*own, RETRY_REASON}
    kept = [each for each in _with_fixed_expiry(message) if each[0] not in replaced]
    return [*kept, *((name, text.encode()) for name, text in own.items())]


def _with_fixed_expiry(message: Message) -> list[tuple[str, bytes | None]]:
    """Headers without a delay. A lifetime is replaced by the time of expiry, because a lifetime would start again with
    the retry.
    """
    found: list[tuple[str, bytes | None]] = []
    for name, value in without_delay(message.headers):
        ttl_ms = read_number(value) if name == TTL_MS else None
        if ttl_ms is not None and message.timestamp_ms >= 0:
            found.append((EXPIRES_AT, str(message.timestamp_ms + ttl_ms).encode()))
        else:
            found.append((name, value))
    return found


def _origin(message: Message) -> tuple[str, int, int]:
    """Topic, partition and offset of the message before its first retry."""
    topic, partition, offset = map(message.header, (RETRY_TOPIC, RETRY_PARTITION, RETRY_OFFSET))
    numbers = read_number(partition), read_number(offset)
    if topic is None or numbers[0] is None or numbers[1] is None:
        return message.topic, message.partition, message.offset
    return topic.decode(errors="replace"), numbers[0], numbers[1]
