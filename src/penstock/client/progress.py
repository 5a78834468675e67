"""How far a consumer has come, and when that is committed: the consumer's half of the delivery setting.

`arrived` is called before any of these messages is handed over, `finished` when the reader is done with them,
`released` when partitions go away with messages that were fetched and not handed over.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Protocol

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from penstock.client.delivery import Delivery
from penstock.client.errors import ClientError, from_kafka

logger = logging.getLogger("penstock.client")


class Progress(Protocol):
    hands_over_again: bool
    """Whether a message that the reader did not finish is handed over again when it iterates anew."""

    def arrived(self, messages: Sequence[Message]) -> None: ...

    def finished(self, messages: Sequence[Message]) -> None: ...

    def released(self, unread: list[TopicPartition]) -> None: ...

    def commit(self) -> None: ...


class AtLeastOnce:
    """What is done is marked, and librdkafka commits the marks at intervals and when the consumer closes."""

    hands_over_again = True

    def __init__(self, consumer: Consumer) -> None:
        self._consumer = consumer

    def arrived(self, messages: Sequence[Message]) -> None:
        pass

    def finished(self, messages: Sequence[Message]) -> None:
        for message in messages:
            try:
                self._consumer.store_offsets(message=message)
            except KafkaException as error:
                # Another member has the partition by now, and will do the message again.
                if error.args[0].code() != KafkaError._STATE:
                    raise from_kafka(error, "cannot mark a message as done") from None

    def released(self, unread: list[TopicPartition]) -> None:
        try:
            self.commit()
        except KafkaException as error:
            logger.warning("%s", from_kafka(error, "not committed, so messages will come again"))

    def commit(self) -> None:
        try:
            self._consumer.commit(asynchronous=False)
        except KafkaException as error:
            if error.args[0].code() != KafkaError._NO_OFFSET:
                raise


class AtMostOnce:
    """A batch is committed before the first of it is handed over; what was not handed over is given back."""

    hands_over_again = False

    def __init__(self, consumer: Consumer) -> None:
        self._consumer = consumer

    def arrived(self, messages: Sequence[Message]) -> None:
        ends = {(message.topic(), message.partition()): message.offset() + 1 for message in messages}
        self._commit([TopicPartition(*place, offset) for place, offset in ends.items()])

    def finished(self, messages: Sequence[Message]) -> None:
        pass

    def released(self, unread: list[TopicPartition]) -> None:
        try:
            self._commit(unread)
        except KafkaException as error:
            logger.warning("%s", from_kafka(error, "not given back, so messages are skipped"))

    def commit(self) -> None:
        """Everything that was handed over is committed already."""

    def _commit(self, offsets: list[TopicPartition]) -> None:
        if offsets:
            for answer in self._consumer.commit(offsets=offsets, asynchronous=False):
                if answer.error is not None:
                    raise KafkaException(answer.error)


class InTransactions:
    """The producer commits, with what was written; what it could not commit is handed over again."""

    hands_over_again = True

    def arrived(self, messages: Sequence[Message]) -> None:
        pass

    def finished(self, messages: Sequence[Message]) -> None:
        pass

    def released(self, unread: list[TopicPartition]) -> None:
        pass

    def commit(self) -> None:
        raise ClientError("exactly once, a consumer's progress is committed by a producer's transaction")


class Uncommitted:
    """A reader without a group keeps no account."""

    hands_over_again = False

    def arrived(self, messages: Sequence[Message]) -> None:
        pass

    def finished(self, messages: Sequence[Message]) -> None:
        pass

    def released(self, unread: list[TopicPartition]) -> None:
        pass

    def commit(self) -> None:
        pass


def progress_of(consumer: Consumer, group: str | None, delivery: Delivery) -> Progress:
    if group is None:
        return Uncommitted()
    if delivery is Delivery.EXACTLY_ONCE:
        return InTransactions()
    return AtMostOnce(consumer) if delivery is Delivery.AT_MOST_ONCE else AtLeastOnce(consumer)
