"""Commit strategies of a consumer, one for each delivery guarantee.

`arrived` is called before any of the messages is returned to the caller, `finished` when the caller has finished them,
`released` when partitions are revoked whose fetched messages were not all returned.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any, Protocol

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from penstock.client.delivery import Delivery
from penstock.client.errors import ClientError, from_kafka

logger = logging.getLogger("penstock.client")


class Progress(Protocol):
    hands_over_again: bool
    """True if the next iteration begins with the messages that the caller did not finish."""

    def arrived(self, messages: Sequence[Message]) -> None: ...

    def finished(self, messages: Sequence[Message]) -> None: ...

    def released(self, unread: list[TopicPartition]) -> None: ...

    def commit(self) -> None: ...

    def settle_commits(self) -> bool:
        """Wait for commits in progress. Return True if the offsets of the messages in work are committed already."""

    def committed(self, offsets: list[TopicPartition]) -> None:
        """Record offsets that a transaction has committed, so that a later commit does not move the group back."""


class AtLeastOnce:
    """Store the offsets of finished messages; librdkafka commits them at intervals and when the consumer
    closes.
    """

    hands_over_again = True

    def __init__(self, consumer: Consumer) -> None:
        self._consumer = consumer

    def arrived(self, messages: Sequence[Message]) -> None:
        pass

    def finished(self, messages: Sequence[Message]) -> None:
        for message in messages:
            self._store(message=message)

    def _store(self, **what: Any) -> None:
        try:
            self._consumer.store_offsets(**what)
        except KafkaException as error:
            # The partition belongs to another member now, which will process the message again.
            if error.args[0].code() != KafkaError._STATE:
                raise from_kafka(error, "cannot mark a message as done") from None

    def released(self, unread: list[TopicPartition]) -> None:
        try:
            self.commit()
        except KafkaException as error:
            logger.warning(
                "%s", from_kafka(error, "offsets were not committed; messages will be delivered again")
            )

    def commit(self) -> None:
        try:
            self._consumer.commit(asynchronous=False)
        except KafkaException as error:
            if error.args[0].code() != KafkaError._NO_OFFSET:
                raise

    def settle_commits(self) -> bool:
        self.commit()
        return False

    def committed(self, offsets: list[TopicPartition]) -> None:
        self._store(offsets=offsets)


class AtMostOnce:
    """Commit a batch before its first message is returned. On revocation, commit the first offset that was not
    returned.
    """

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
            logger.warning(
                "%s",
                from_kafka(
                    error,
                    "the group's offsets could not be set back to unread messages; the group skips these messages",
                ),
            )

    def commit(self) -> None:
        """Do nothing: the offsets of all returned messages are committed already."""

    def settle_commits(self) -> bool:
        return True

    def committed(self, offsets: list[TopicPartition]) -> None:
        pass

    def _commit(self, offsets: list[TopicPartition]) -> None:
        if offsets:
            for answer in self._consumer.commit(offsets=offsets, asynchronous=False):
                if answer.error is not None:
                    raise KafkaException(answer.error)


class CommitInTransactions:
    """Leave commits to the producer's transaction. Messages of an aborted transaction are returned again."""

    hands_over_again = True

    def arrived(self, messages: Sequence[Message]) -> None:
        pass

    def finished(self, messages: Sequence[Message]) -> None:
        pass

    def released(self, unread: list[TopicPartition]) -> None:
        pass

    def commit(self) -> None:
        raise ClientError(
            "a consumer with delivery='exactly-once' commits its offsets in a producer's transaction: "
            "transaction.commit_progress(consumer)"
        )

    def settle_commits(self) -> bool:
        return False

    def committed(self, offsets: list[TopicPartition]) -> None:
        pass


class NeverCommit:
    """Commit nothing: a consumer without a group has no committed offsets."""

    hands_over_again = False

    def arrived(self, messages: Sequence[Message]) -> None:
        pass

    def finished(self, messages: Sequence[Message]) -> None:
        pass

    def released(self, unread: list[TopicPartition]) -> None:
        pass

    def commit(self) -> None:
        pass

    def settle_commits(self) -> bool:
        return True

    def committed(self, offsets: list[TopicPartition]) -> None:
        pass


def progress_of(consumer: Consumer, group: str | None, delivery: Delivery) -> Progress:
    if group is None:
        return NeverCommit()
    if delivery is Delivery.EXACTLY_ONCE:
        return CommitInTransactions()
    return AtMostOnce(consumer) if delivery is Delivery.AT_MOST_ONCE else AtLeastOnce(consumer)
