"""A consumer: iterate over it for messages, with or without a group.

With at-least-once delivery, a message counts as finished when the next one is requested or the `with` block ends
without an exception. With at-most-once delivery, a message is committed before it is returned to the caller. A consumer
belongs to one thread.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import datetime
from types import TracebackType
from typing import TYPE_CHECKING, Self, Unpack

import confluent_kafka as kafka

from penstock.client.consumer_options import ConsumerOptions
from penstock.client.errors import ClientError, InvalidSetting, translated
from penstock.client.message import Message
from penstock.client.partitions import named, unnamed
from penstock.client.reader import REQUEST_S, MessageReader
from penstock.model import TopicPartition

if TYPE_CHECKING:
    from penstock.client.retries import Retries

WAIT_S = 0.2
"""Longest single wait, so that Ctrl-C is handled in time."""


class Consumer:
    def __init__(self, *topics: str, **options: Unpack[ConsumerOptions]) -> None:
        self._idle_timeout_s = options.get("idle_timeout_s")
        self._group = options.get("group")
        self.reader = MessageReader(topics, options)
        self._options = options
        self._retries: Retries | None = None
        self._closed = False

    def __iter__(self) -> Self:
        """Start a new iteration. With at-least-once or exactly-once delivery, it begins with the messages that the
        previous loop did not finish.
        """
        self.reader.start_over()
        return self

    def __next__(self) -> Message:
        message = self.poll(self._idle_timeout_s)
        if message is None:
            raise StopIteration
        return message

    def poll(self, timeout_s: float | None = None) -> Message | None:
        """Return the next message, or None if none arrived within `timeout_s`. Messages returned by earlier calls count
        as finished.
        """
        found = self.batch(1, timeout_s)
        return found[0] if found else None

    def batch(self, max_messages: int, timeout_s: float | None = None) -> list[Message]:
        """Return at least one message, and up to `max_messages` that are already fetched; an empty list after
        `timeout_s`. Messages returned by earlier calls count as finished.
        """
        self._check_open()
        self.reader.finish()
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        while True:
            left_s = WAIT_S if deadline is None else deadline - time.monotonic()
            if not self.reader.ready:
                self.reader.fill(max(0.0, min(WAIT_S, left_s)))
            if self.reader.ready or left_s <= 0:
                found = self.reader.hand_over(max_messages)
                if found or left_s <= 0:
                    return found

    def commit(self) -> None:
        """Finish all messages returned so far, commit their offsets, and wait for the commit."""
        self._check_open()
        self.reader.commit()

    def retry(self, message: Message, reason: str = "", *, delay_s: float | None = None) -> None:
        """Have a message that could not be processed delivered to the group again, after the delay of its retry policy.

        The message is written to the group's retry topic, or after the last attempt to the dead-letter topic; the same
        transaction commits its offset. Messages of the partition that were returned before it count as finished.
        """
        self._check_open()
        if not self._group:
            raise InvalidSetting(
                "retry needs a consumer with a group: the message is sent to the retry topic of the group"
            )
        if self._retries is None:
            from penstock.client.retries import Retries  # consumers that never retry do not import the module

            self._retries = Retries(self._group, self._options, self.reader)
        self._retries.retry(message, reason, delay_s)

    def assignment(self) -> list[TopicPartition]:
        """Return the partitions assigned to this consumer."""
        self._check_open()
        return named(self.reader.consumer.assignment())

    def seek(self, partition: TopicPartition, offset: int) -> None:
        """Continue reading a partition from an offset."""
        self._seek({partition: offset})

    def seek_to_start(self, *partitions: TopicPartition) -> None:
        """Continue from the first offset of these partitions, or of all assigned ones."""
        self._seek(dict.fromkeys(partitions or self.assignment(), kafka.OFFSET_BEGINNING))

    def seek_to_end(self, *partitions: TopicPartition) -> None:
        self._seek(dict.fromkeys(partitions or self.assignment(), kafka.OFFSET_END))

    def seek_to_time(self, moment: datetime | int, *partitions: TopicPartition) -> None:
        """Continue from the first message at or after a time (a datetime, or milliseconds since 1970); from the end if
        all messages are older.
        """
        self._check_open()
        asked_ms = round(moment.timestamp() * 1000) if isinstance(moment, datetime) else moment
        asked = [
            kafka.TopicPartition(each.topic, each.partition, asked_ms)
            for each in partitions or self.assignment()
        ]
        with translated("cannot look up the offsets of the time"):
            found = self.reader.consumer.offsets_for_times(asked, timeout=REQUEST_S)
        self.reader.seek(found)

    def pause(self, *partitions: TopicPartition) -> None:
        """Stop reading these partitions, or all assigned ones, until `resume`."""
        chosen = self._chosen(partitions)
        self.reader.unread({(each.topic, each.partition) for each in chosen})
        with translated("cannot pause"):
            self.reader.consumer.pause(chosen)

    def resume(self, *partitions: TopicPartition) -> None:
        chosen = self._chosen(partitions)
        with translated("cannot resume"):
            self.reader.consumer.resume(chosen)

    def position(self, partition: TopicPartition) -> int | None:
        """Return the offset of the next message; None before the first one."""
        self._check_open()
        return self.reader.next_offset((partition.topic, partition.partition))

    def committed(self, partition: TopicPartition) -> int | None:
        """Return the group's committed offset; None if there is none."""
        self._check_open()
        if self._group is None:
            return None
        with translated(f"cannot look up the committed offsets of {self._group}"):
            (found,) = self.reader.consumer.committed(unnamed([partition]), timeout=REQUEST_S)
        return found.offset if found.offset >= 0 else None

    def close(self) -> None:
        """Leave the group. With at-least-once delivery, the messages returned by the last call count as finished only
        if `commit` was called.
        """
        if not self._closed:
            self._closed = True
            if self._retries is not None:
                self._retries.close()
            self.reader.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None and not self._closed:
            self.reader.finish()
        self.close()

    def _seek(self, targets: dict[TopicPartition, int]) -> None:
        self._check_open()
        self.reader.seek(
            kafka.TopicPartition(each.topic, each.partition, offset) for each, offset in targets.items()
        )

    def _chosen(self, partitions: Sequence[TopicPartition]) -> list[kafka.TopicPartition]:
        """Return the given partitions, or all assigned ones if none is given. Raises InvalidSetting for a partition
        that is not assigned.
        """
        assigned = self.assignment()
        strange = set(partitions) - set(assigned)
        if strange:
            raise InvalidSetting(f"{min(strange)} is not assigned to this consumer")
        return unnamed(partitions or assigned)

    def _check_open(self) -> None:
        if self._closed:
            raise ClientError("the consumer is closed")
