"""Exceptions of all layers in one class tree, and Kafka's error codes.

`BrokerError` is the error that a client may see: domain code raises it, and one place turns it into a
response. Each other exception belongs to one layer, and is converted before a client sees it.
"""

from __future__ import annotations

from kio.schema.errors import ErrorCode

__all__ = [
    "BrokerError",
    "ConfigError",
    "CorruptLog",
    "ErrorCode",
    "InvalidBatch",
    "PenstockError",
    "ProtocolError",
    "StorageError",
    "TornBatch",
    "UnknownOutcome",
    "WouldBlock",
]


class PenstockError(Exception):
    """Base class of all exceptions that Penstock raises."""


class BrokerError(PenstockError):
    """A request was refused. `code` and the message are sent to the client."""

    def __init__(self, code: ErrorCode, message: str = "") -> None:
        super().__init__(message or code.name)
        self.code = code


class DiskFull(BrokerError):
    """A write was refused because the disk is full, and nothing of it was stored.

    Kafka has no error code for this: the code is KAFKA_STORAGE_ERROR, and the message starts with
    `PREFIX`.
    """

    PREFIX = "disk full: "

    def __init__(self, message: str) -> None:
        text = message if message.startswith(self.PREFIX) else self.PREFIX + message
        super().__init__(ErrorCode.kafka_storage_error, text)

    @classmethod
    def matches(cls, code: int, message: str | None) -> bool:
        """True if a response with this code and message means that the disk of the broker is full."""
        return code == ErrorCode.kafka_storage_error and (message or "").startswith(cls.PREFIX)


class InvalidBatch(BrokerError):
    """A client sent an invalid record batch. Nothing of it was stored.

    `records` has the indexes of the invalid records in the batch; it is empty if the batch itself is invalid.
    """

    def __init__(self, code: ErrorCode, message: str = "", records: tuple[int, ...] = ()) -> None:
        super().__init__(code, message)
        self.records = records


class ProtocolError(PenstockError):
    """The peer sent bytes that violate the protocol. Only the connection to this peer is closed."""


class CutOff(PenstockError):
    """This leader can reach neither the coordination store nor enough followers, so another broker may be the
    leader now.

    The broker closes the client's connection instead of sending an error: after an error the client would ask
    the same broker for the leader again, while after a disconnect it asks other brokers.
    """

    def __init__(self) -> None:
        super().__init__("this broker has lost its connections; another broker may lead the partition now")


class StorageError(PenstockError):
    """A disk operation failed: the disk is full or broken, or holds other bytes than were written."""


class CorruptLog(StorageError):
    """Bytes in a segment differ from the record batches that were written. The bytes around them may be intact."""


class TornBatch(CorruptLog):
    """The bytes of a log end within a batch, because a write was not completed."""


class WouldBlock(PenstockError):
    """A read needs bytes that are not in memory. Repeat the call in a pool with `wait=True`."""


class ConfigError(PenstockError):
    """An option has an invalid value. The message names the option and the valid values."""


class UnknownOutcome(PenstockError):
    """A write to the coordination store may or may not have happened. The caller must read again to find out."""
