"""Exceptions of the client. All derive from ClientError; each message says what to do next.

`from_kafka` is the only place that translates errors of librdkafka into these exceptions.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from confluent_kafka import KafkaError, KafkaException, Message


class ClientError(Exception):
    """Base of all client errors. `code` is Kafka's error name, if there is one."""

    def __init__(self, message: str, code: str | None = None) -> None:
        super().__init__(message)
        self.code = code


class InvalidSetting(ClientError, ValueError):
    """An argument has an invalid value."""


class UnknownOption(InvalidSetting, TypeError):
    """An option has an unknown name."""


class TransactionAborted(ClientError):
    """The transaction was aborted: its messages will never be read. The producer can begin another one."""


class ProducerFenced(ClientError):
    """Another producer took over the transactional id; this producer cannot be used any more."""


class BrokerUnreachable(ClientError, ConnectionError):
    """No broker responds at the bootstrap addresses."""


class TopicUnknown(ClientError, LookupError):
    """The topic or partition does not exist."""


class GroupUnknown(ClientError, LookupError):
    """The consumer group does not exist."""


class QueueUnknown(ClientError, LookupError):
    """The queue does not exist."""


class MessageTooLarge(ClientError, ValueError):
    """The message is larger than the client or the topic allows."""


class NotSerializable(ClientError, TypeError):
    """The serializer does not accept this key or value."""


class NotDeserializable(ClientError, ValueError):
    """The deserializer does not accept the stored bytes; `Message.raw` has them unchanged."""


class CorruptRecords(ClientError):
    """Stored records are damaged: the CRC of a batch does not match, or the broker reports damage.

    `topic`, `partition` and `offset` are the position of the damage. The consumer has returned the records before it,
    and continues at this position once a broker has repaired the damage; `seek` skips it.
    """

    def __init__(self, topic: str, partition: int, offset: int, reason: str, code: str) -> None:
        super().__init__(
            f"records of {topic}-{partition} are damaged at offset {offset}: {reason} ({code}); "
            "`/health` of the brokers shows damaged ranges; seek skips them",
            code,
        )
        self.topic = topic
        self.partition = partition
        self.offset = offset


class TimedOut(ClientError, TimeoutError):
    """No response arrived in time; the operation may still take effect."""


@dataclass(frozen=True, slots=True)
class Undelivered:
    """A message that was not stored, with key and value as bytes, so that the caller can keep it or send it again."""

    topic: str
    partition: int | None
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    error: ClientError


class NotDelivered(ClientError):
    """Messages were not stored. `failed` contains the first `FAILURES_KEPT` of them; `count` is the number of all."""

    def __init__(self, failed: tuple[Undelivered, ...], count: int) -> None:
        first = failed[0]
        number = "a message was" if count == 1 else f"{count} messages were"
        super().__init__(f"{number} not delivered to {first.topic}: {first.error}", first.error.code)
        self.failed = failed
        self.count = count


_ADVICE: dict[int, tuple[type[ClientError], str]] = {
    KafkaError.UNKNOWN_TOPIC_OR_PART: (TopicUnknown, "create it with `penstock topic create` or Admin"),
    KafkaError._UNKNOWN_TOPIC: (TopicUnknown, "create it with `penstock topic create` or Admin"),
    KafkaError._UNKNOWN_PARTITION: (TopicUnknown, "`penstock topic describe` shows the partitions"),
    KafkaError.GROUP_ID_NOT_FOUND: (GroupUnknown, "`penstock group list` shows the groups"),
    KafkaError.MSG_SIZE_TOO_LARGE: (
        MessageTooLarge,
        "send a smaller message, or raise message.max.bytes of the producer and max.message.bytes of the topic",
    ),
    KafkaError.INVALID_RECORD: (
        ClientError,
        "a message to a topic with delivery.delay has at most one of the headers penstock-delay-ms, "
        "penstock-deliver-at and penstock-cancel, with a valid value; one to a compacted topic has a key",
    ),
    KafkaError.NON_EMPTY_GROUP: (ClientError, "stop its consumers first"),
    KafkaError.TOPIC_ALREADY_EXISTS: (ClientError, "change the existing topic with Admin().topics.alter"),
    KafkaError._MSG_TIMED_OUT: (
        BrokerUnreachable,
        "no broker stored the message within delivery_timeout_s; is one running at the bootstrap address, and is "
        "space left on its disk (`disk_full` in /health)?",
    ),
    KafkaError._ALL_BROKERS_DOWN: (BrokerUnreachable, "is one running at the bootstrap address?"),
    KafkaError._TRANSPORT: (BrokerUnreachable, "is one running at the bootstrap address?"),
    KafkaError._RESOLVE: (BrokerUnreachable, "check the host name in the bootstrap address"),
    KafkaError._TIMED_OUT: (TimedOut, "is a broker running at the bootstrap address?"),
    KafkaError._MAX_POLL_EXCEEDED: (
        ClientError,
        "the next message was requested too late; raise max.poll.interval.ms or process each message faster",
    ),
    KafkaError._INVALID_ARG: (InvalidSetting, ""),
}


_DAMAGE = frozenset(
    {
        KafkaError._BAD_MSG,  # CRC mismatch
        KafkaError._BAD_COMPRESSION,
        KafkaError._NOT_IMPLEMENTED,  # unknown magic byte
        KafkaError._UNDERFLOW,
        KafkaError.INVALID_MSG,  # CORRUPT_MESSAGE: the broker detected the damage
    }
)


def damage_of(message: Message) -> CorruptRecords | None:
    """Return the error to raise for a consumer event that reports damaged records; None for any other event."""
    error = message.error()
    if error is None or error.code() not in _DAMAGE or message.topic() is None:
        return None
    return CorruptRecords(message.topic(), message.partition(), message.offset(), error.str(), error.name())


@contextmanager
def translated(what: str) -> Iterator[None]:
    """Translate librdkafka's errors inside this block; `what` is the start of the error message, such as "cannot list
    the groups".
    """
    try:
        yield
    except KafkaException as error:
        raise from_kafka(error, what) from None


def from_kafka(error: KafkaError | KafkaException, what: str) -> ClientError:
    """Return the client error for a librdkafka error, with advice for common errors. `what` is the start of the
    message.
    """
    reason: KafkaError = error.args[0] if isinstance(error, KafkaException) else error
    kind, advice = _ADVICE.get(reason.code(), (ClientError, ""))
    text = f"{what}: {reason.str()} ({reason.name()})"
    return kind(f"{text}; {advice}" if advice else text, reason.name())
