"""Errors of connections and of unreachable clusters, and their message for users.

The internal client, the command line and the Python client raise these errors. The module imports nothing but `model`,
so that a program that only uses the Python client does not load broker code.
"""

from __future__ import annotations

from collections.abc import Mapping

from penstock.model import Address


class ConnectionLost(ConnectionError):
    """The connection has ended. A request that was in flight may or may not have been executed."""


class NotKafka(ConnectionLost):
    """The port speaks another protocol. The message names the protocol and says which port to use instead."""


class LoginRefused(ConnectionError):
    """The broker refused to authenticate this client. The message is the reason."""


class Unreachable(ConnectionError):
    """No broker responded at any of the addresses.

    `problems` has the error of each address. `is_wrong_port` is true if a port speaks another protocol or a broker
    refused the user: a retry would fail too. `timed_out` is true if at least one attempt timed out.
    """

    def __init__(self, problems: Mapping[Address, OSError]) -> None:
        self.problems = dict(problems)
        self.is_wrong_port = any(isinstance(error, NotKafka | LoginRefused) for error in problems.values())
        self.timed_out = any(isinstance(error, TimeoutError) for error in problems.values())
        super().__init__(unreachable_text(self.problems))


def unreachable_text(problems: Mapping[Address, OSError]) -> str:
    """Return a sentence that names each address and the reason why it could not be reached."""
    places = ", ".join(f"{address} ({reason_of(error)})" for address, error in problems.items())
    if any(isinstance(error, NotKafka) for error in problems.values()):
        return f"there is no Kafka broker at {places}"
    if any(isinstance(error, LoginRefused) for error in problems.values()):
        return f"cannot log in at {places}"
    return f"cannot reach a broker at {places or 'any address: none is known'}"


def reason_of(error: OSError) -> str:
    """Return the reason why an address could not be reached, without the error number."""
    return error.strerror or str(error) or "no response"
