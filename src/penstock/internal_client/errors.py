"""The failures of a request that no broker has refused: no broker was reached, or its response was lost."""

from __future__ import annotations

from collections.abc import Mapping

from penstock.config import Address
from penstock.errors import PenstockError
from penstock.net.broker_connection import NotKafka


class Unreachable(ConnectionError):
    """No broker responded at any of the addresses.

    `problems` has the failure of each address. `is_wrong_port` says that a port belongs to another protocol,
    which no retry can change; `timed_out` says that a broker was too slow.
    """

    def __init__(self, problems: Mapping[Address, OSError]) -> None:
        self.problems = dict(problems)
        self.is_wrong_port = any(isinstance(error, NotKafka) for error in problems.values())
        self.timed_out = any(isinstance(error, TimeoutError) for error in problems.values())
        super().__init__(unreachable_text(self.problems))


class OutcomeUnknown(PenstockError):
    """A change was sent and its response was lost: the change may or may not have been made."""


def unreachable_text(problems: Mapping[Address, OSError]) -> str:
    """Return the sentence that names each address and why it could not be reached."""
    places = ", ".join(f"{address} ({reason_of(error)})" for address, error in problems.items())
    if any(isinstance(error, NotKafka) for error in problems.values()):
        return f"there is no Kafka broker at {places}"
    return f"cannot reach a broker at {places or 'any address: none is known'}"


def reason_of(error: OSError) -> str:
    """Return why an address could not be reached, without the error number."""
    return error.strerror or str(error) or "no response"
