"""Every exception a caller may meet, in one tree, and the Kafka error codes they carry.

`BrokerError` is what a client may see: raised in the domain, turned into a response in one place. The others
belong to their layer and never cross the wire unmapped.
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
    """The root of everything Penstock raises on purpose."""


class BrokerError(PenstockError):
    """A request was refused; `code` and the message go to the client."""

    def __init__(self, code: ErrorCode, message: str = "") -> None:
        super().__init__(message or code.name)
        self.code = code


class DiskFull(BrokerError):
    """A write was refused because the disk is full, and nothing of it was stored.

    Kafka has no error code of its own for this: the code is KAFKA_STORAGE_ERROR, and the message begins with `PREFIX`.
    """

    PREFIX = "disk full: "

    def __init__(self, message: str) -> None:
        text = message if message.startswith(self.PREFIX) else self.PREFIX + message
        super().__init__(ErrorCode.kafka_storage_error, text)

    @classmethod
    def is_told_by(cls, code: int, message: str | None) -> bool:
        """Whether a broker has answered with this error."""
        return code == ErrorCode.kafka_storage_error and (message or "").startswith(cls.PREFIX)


class InvalidBatch(BrokerError):
    """A record batch a client sent is not acceptable; nothing of it was stored.

    `records` are those that are to blame, by their place in the batch, where it is not the batch itself.
    """

    def __init__(self, code: ErrorCode, message: str = "", records: tuple[int, ...] = ()) -> None:
        super().__init__(code, message)
        self.records = records


class ProtocolError(PenstockError):
    """The peer sent bytes that are not the protocol: its connection is closed, nobody else is touched."""


class CutOff(PenstockError):
    """Neither the store nor enough followers are in reach, and another may lead by now.

    A client that is told so asks the same broker for the leader, again and again: only when its connection ends does it
    ask others.
    """

    def __init__(self) -> None:
        super().__init__("this broker is cut off, and may not lead any more")


class StorageError(PenstockError):
    """The disk refused: full, broken, or holding bytes that are not what was written."""


class CorruptLog(StorageError):
    """Bytes in a segment are not the record batches that were written; what lies around them may be fine."""


class TornBatch(CorruptLog):
    """A batch begins, and its bytes end before it does: a write did not come to its end."""


class WouldBlock(PenstockError):
    """A read needs bytes that are not in memory: make the same call again in a pool, with `wait=True`."""


class ConfigError(PenstockError):
    """A setting has a value it cannot have; the message says which and what would do."""


class UnknownOutcome(PenstockError):
    """A write to the coordination store may or may not have happened: read again before deciding."""
