"""A consumer: iterate over it for messages, with or without a group.

At least once, a message counts as done when the next one is asked for or the `with` block is left without an
exception. At most once, it is committed before it is handed over. One thread uses a consumer.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import datetime
from types import TracebackType
from typing import Self, Unpack

import confluent_kafka as kafka

from penstock.client.consumer_options import ConsumerOptions
from penstock.client.errors import ClientError, InvalidSetting, translated
from penstock.client.message import Message
from penstock.client.partitions import named, unnamed
from penstock.client.reader import REQUEST_S, Reader
from penstock.model import TopicPartition

WAIT_S = 0.2
"""Waits come in slices, so that Ctrl-C gets through."""


class Consumer:
    def __init__(self, *topics: str, **options: Unpack[ConsumerOptions]) -> None:
        self._idle_timeout_s = options.get("idle_timeout_s")
        self._group = options.get("group")
        self.reader = Reader(topics, options)
        self._closed = False

    def __iter__(self) -> Self:
        """At least once, a message that was not finished when the last loop ended comes again."""
        self.reader.start_over()
        return self

    def __next__(self) -> Message:
        message = self.poll(self._idle_timeout_s)
        if message is None:
            raise StopIteration
        return message

    def poll(self, timeout_s: float | None = None) -> Message | None:
        """The next message; None when none came in time. Those handed over before count as done."""
        found = self.batch(1, timeout_s)
        return found[0] if found else None

    def batch(self, max_messages: int, timeout_s: float | None = None) -> list[Message]:
        """At least one message, and those that are here already; none when none came in time."""
        self._check_open()
        self.reader.finish()
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        while not self.reader.ready:
            left_s = WAIT_S if deadline is None else deadline - time.monotonic()
            self.reader.fill(max(0.0, min(WAIT_S, left_s)))
            if left_s <= 0:
                break
        return self.reader.hand_over(max_messages)

    def commit(self) -> None:
        """All messages handed over are done: commit that now, and wait for it."""
        self._check_open()
        self.reader.commit()

    def assignment(self) -> list[TopicPartition]:
        """The partitions this consumer reads."""
        self._check_open()
        return named(self.reader.consumer.assignment())

    def seek(self, partition: TopicPartition, offset: int) -> None:
        """Go on from an offset."""
        self._seek({partition: offset})

    def seek_to_start(self, *partitions: TopicPartition) -> None:
        """Of those, or of all that are assigned."""
        self._seek(dict.fromkeys(partitions or self.assignment(), kafka.OFFSET_BEGINNING))

    def seek_to_end(self, *partitions: TopicPartition) -> None:
        self._seek(dict.fromkeys(partitions or self.assignment(), kafka.OFFSET_END))

    def seek_to_time(self, moment: datetime | int, *partitions: TopicPartition) -> None:
        """To the first message at or after a time (or milliseconds since 1970); to the end where all are older."""
        self._check_open()
        asked_ms = round(moment.timestamp() * 1000) if isinstance(moment, datetime) else moment
        asked = [
            kafka.TopicPartition(each.topic, each.partition, asked_ms)
            for each in partitions or self.assignment()
        ]
        with translated("cannot look up the time"):
            found = self.reader.consumer.offsets_for_times(asked, timeout=REQUEST_S)
        self.reader.seek(found)

    def pause(self, *partitions: TopicPartition) -> None:
        """Nothing comes from those, or from any that is assigned, until `resume`."""
        chosen = self._chosen(partitions)
        self.reader.unread({(each.topic, each.partition) for each in chosen})
        with translated("cannot pause"):
            self.reader.consumer.pause(chosen)

    def resume(self, *partitions: TopicPartition) -> None:
        chosen = self._chosen(partitions)
        with translated("cannot resume"):
            self.reader.consumer.resume(chosen)

    def position(self, partition: TopicPartition) -> int | None:
        """The offset of the next message; None before the first."""
        self._check_open()
        return self.reader.next_offset((partition.topic, partition.partition))

    def committed(self, partition: TopicPartition) -> int | None:
        """Where the group would go on; None where it has committed nothing."""
        self._check_open()
        if self._group is None:
            return None
        with translated(f"cannot look up what {self._group} has committed"):
            (found,) = self.reader.consumer.committed(unnamed([partition]), timeout=REQUEST_S)
        return found.offset if found.offset >= 0 else None

    def close(self) -> None:
        """Leave. At least once, the last messages handed over are not done unless `commit` said so."""
        if not self._closed:
            self._closed = True
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
        """Those, which must be assigned, or all that are."""
        assigned = self.assignment()
        strange = set(partitions) - set(assigned)
        if strange:
            raise InvalidSetting(f"{min(strange)} is not assigned to this consumer")
        return unnamed(partitions or assigned)

    def _check_open(self) -> None:
        if self._closed:
            raise ClientError("the consumer is closed")
