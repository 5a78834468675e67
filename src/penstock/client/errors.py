"""What the client raises: one tree, and each message says what to do.

An error of the underlying library becomes one of these in `from_kafka` and nowhere else.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from confluent_kafka import KafkaError, KafkaException, Message


class ClientError(Exception):
    """The root. `code` is Kafka's name of the reason, where there is one."""

    def __init__(self, message: str, code: str | None = None) -> None:
        super().__init__(message)
        self.code = code


class InvalidSetting(ClientError, ValueError):
    """An argument has a value it cannot have."""


class UnknownOption(InvalidSetting, TypeError):
    """There is no option of that name."""


class TransactionAborted(ClientError):
    """Nothing of the transaction will be read by anybody; it can be tried again with the same producer."""


class ProducerFenced(ClientError):
    """Another producer with the same transactional id has taken over; this one cannot go on."""


class BrokerUnreachable(ClientError, ConnectionError):
    """Nobody answers at the bootstrap addresses."""


class TopicUnknown(ClientError, LookupError):
    """There is no such topic or partition."""


class GroupUnknown(ClientError, LookupError):
    """There is no such consumer group."""


class MessageTooLarge(ClientError, ValueError):
    """The message is larger than the client or the topic takes."""


class NotSerializable(ClientError, TypeError):
    """A key or value is not what its serializer takes."""


class NotDeserializable(ClientError, ValueError):
    """Stored bytes are not what the deserializer expects; `Message.raw` has them as they are."""


class CorruptRecords(ClientError):
    """Stored records are damaged: the CRC of a batch does not match, or the broker knows of damage there.

    `topic`, `partition` and `offset` say where. Records before it were handed over. The consumer stays in front of the
    damage and reads on when a broker has repaired it; `seek` goes past it.
    """

    def __init__(self, topic: str, partition: int, offset: int, reason: str, code: str) -> None:
        super().__init__(
            f"records of {topic}-{partition} are damaged at offset {offset}: {reason} ({code}); "
            "`/health` of the brokers shows damaged ranges, seek goes past them",
            code,
        )
        self.topic = topic
        self.partition = partition
        self.offset = offset


class TimedOut(ClientError, TimeoutError):
    """No answer in time; what was asked for may still happen."""


@dataclass(frozen=True, slots=True)
class Undelivered:
    """A message that was not stored, as bytes, so that it can be kept or sent again."""

    topic: str
    partition: int | None
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    error: ClientError


class NotDelivered(ClientError):
    """Messages that were sent were not stored. `failed` has them, or the first of very many; `count` is all."""

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
        "make it smaller, or raise message.max.bytes of the producer and max.message.bytes of the topic",
    ),
    KafkaError.NON_EMPTY_GROUP: (ClientError, "stop its consumers first"),
    KafkaError.TOPIC_ALREADY_EXISTS: (ClientError, "Admin().topics.alter changes an existing one"),
    KafkaError._MSG_TIMED_OUT: (
        BrokerUnreachable,
        "no broker took it within delivery_timeout_s; is one running at the bootstrap address?",
    ),
    KafkaError._ALL_BROKERS_DOWN: (BrokerUnreachable, "is one running at the bootstrap address?"),
    KafkaError._TRANSPORT: (BrokerUnreachable, "is one running at the bootstrap address?"),
    KafkaError._RESOLVE: (BrokerUnreachable, "check the host name in the bootstrap address"),
    KafkaError._TIMED_OUT: (TimedOut, "is a broker running at the bootstrap address?"),
    KafkaError._MAX_POLL_EXCEEDED: (
        ClientError,
        "the next message was asked for too late; raise max.poll.interval.ms or do less for each message",
    ),
    KafkaError._INVALID_ARG: (InvalidSetting, ""),
}


_DAMAGE = frozenset(
    {
        KafkaError._BAD_MSG,  # a CRC that does not match
        KafkaError._BAD_COMPRESSION,
        KafkaError._NOT_IMPLEMENTED,  # a magic byte that does not exist
        KafkaError._UNDERFLOW,
        KafkaError.INVALID_MSG,  # CORRUPT_MESSAGE: the broker found the damage
    }
)


def damage_of(message: Message) -> CorruptRecords | None:
    """The error to raise for an error event of a consumer that tells of damaged records; None for any other event."""
    error = message.error()
    if error is None or error.code() not in _DAMAGE or message.topic() is None:
        return None
    return CorruptRecords(message.topic(), message.partition(), message.offset(), error.str(), error.name())


@contextmanager
def translated(what: str) -> Iterator[None]:
    """Errors of the library inside this block become ours: `what` went wrong, why, and what helps."""
    try:
        yield
    except KafkaException as error:
        raise from_kafka(error, what) from None


def from_kafka(error: KafkaError | KafkaException, what: str) -> ClientError:
    """What to raise in its place."""
    reason: KafkaError = error.args[0] if isinstance(error, KafkaException) else error
    kind, advice = _ADVICE.get(reason.code(), (ClientError, ""))
    text = f"{what}: {reason.str()} ({reason.name()})"
    return kind(f"{text}; {advice}" if advice else text, reason.name())
