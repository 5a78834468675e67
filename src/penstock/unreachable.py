"""Errors of connections and of clusters that cannot be reached, with the one text for users.

The internal client, the command line and the Python client raise them. The module imports nothing but `model`, so that
a program that only uses the Python client does not load broker code.
"""

from __future__ import annotations

from collections.abc import Mapping

from penstock.model import Address


class ConnectionLost(ConnectionError):
    """The connection has ended; a request in flight may or may not have been served."""


class NotKafka(ConnectionLost):
    """The port belongs to another protocol. The message says which, and what to give instead."""


class LoginRefused(ConnectionError):
    """The broker refused the user of this client. The message says why."""


class Unreachable(ConnectionError):
    """No broker responded at any of the addresses.

    `problems` has the failure of each address. `is_wrong_port` says that a port belongs to another protocol or that
    a broker refused the user, which no retry can change; `timed_out` says that a broker was too slow.
    """

    def __init__(self, problems: Mapping[Address, OSError]) -> None:
        self.problems = dict(problems)
        self.is_wrong_port = any(isinstance(error, NotKafka | LoginRefused) for error in problems.values())
        self.timed_out = any(isinstance(error, TimeoutError) for error in problems.values())
        super().__init__(unreachable_text(self.problems))


def unreachable_text(problems: Mapping[Address, OSError]) -> str:
    """Return the sentence that names each address and why it could not be reached."""
    places = ", ".join(f"{address} ({reason_of(error)})" for address, error in problems.items())
    if any(isinstance(error, NotKafka) for error in problems.values()):
        return f"there is no Kafka broker at {places}"
    if any(isinstance(error, LoginRefused) for error in problems.values()):
        return f"cannot log in at {places}"
    return f"cannot reach a broker at {places or 'any address: none is known'}"


def reason_of(error: OSError) -> str:
    """Return why an address could not be reached, without the error number."""
    return error.strerror or str(error) or "no response"
