"""Newest connection that the current epoch of each transactional id has used, to recognise late requests.

Connections are numbered in the order of their acceptance. Used by `shard`.
"""

from __future__ import annotations

from typing import Final

_NO_CONNECTION: Final = -1


class ProducerConnections:
    def __init__(self, first_connection: int) -> None:
        """`first_connection` is the number of the first connection that was accepted after this broker became
        the leader of the shard's partition. A producer on an older connection may have used another
        coordinator meanwhile.
        """
        self._first_connection = first_connection
        self._newest: dict[str, int] = {}

    def reset(self, transactional_id: str) -> None:
        """Begin a new epoch of the id, for which no connection was used yet.

        The connection of the request for an epoch does not count: some clients send that request on another,
        perhaps older connection than their transactions. A late request of the previous epoch is recognised
        by its epoch.
        """
        self._newest[transactional_id] = _NO_CONNECTION

    def is_late(self, transactional_id: str, number: int) -> bool:
        """True if the producer has used a connection with a higher number. Otherwise record this one as the newest."""
        if number < self._newest.get(transactional_id, self._first_connection):
            return True
        self._newest[transactional_id] = number
        return False

    def forget(self, transactional_id: str) -> None:
        self._newest.pop(transactional_id, None)

    def clear(self) -> None:
        self._newest.clear()
