"""Broker process under a supervisor: its place on the machine, given on the command line, and their connection."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import msgspec

from penstock.cli.processes.sibling_reports import SocketSiblingReports
from penstock.cli.processes.supervisor import SERVING
from penstock.model import BrokerId
from penstock.server.environment import MachineShare

STORE_SOCKET = "store"
HEALTH_SOCKETS = "health"


class SupervisedOption(msgspec.Struct, frozen=True):
    """Value of the option `--supervised`, as JSON."""

    descriptor: int
    """End of the socket pair that belongs to this process; its supervisor holds the other end."""
    siblings: tuple[int, ...]
    """Node ids of all brokers of the machine."""
    sockets: str
    """Directory of the sockets."""
    has_store: bool
    """Whether the machine has a store of its own; it has none in a cluster with ZooKeeper."""
    is_cordoned: bool

    def encode(self) -> str:
        return msgspec.json.encode(self).decode()


def decode_place(text: str) -> SupervisedOption:
    return msgspec.json.decode(text, type=SupervisedOption)


class SupervisorLink:
    """Connection to the supervisor. Its end means that the supervisor has ended, and the broker must stop."""

    def __init__(self, place: SupervisedOption) -> None:
        self._place = place
        self._socket = socket.socket(fileno=place.descriptor)
        self._socket.setblocking(False)

    def on_lost(self, callback: Callable[[], None]) -> None:
        loop = asyncio.get_running_loop()

        def end() -> None:
            loop.remove_reader(self._socket.fileno())
            callback()

        # The supervisor sends nothing, so that the socket is readable only at its end.
        loop.add_reader(self._socket.fileno(), end)

    def share(self, node_id: int) -> MachineShare:
        """Return the place of the broker for its environment."""
        place, sockets = self._place, Path(self._place.sockets)
        return MachineShare(
            tuple(map(BrokerId, place.siblings)),
            SocketSiblingReports(sockets / HEALTH_SOCKETS / str(node_id)),
            str(sockets / STORE_SOCKET) if place.has_store else None,
            place.is_cordoned,
        )

    def report_serving(self) -> None:
        with suppress(OSError):
            self._socket.send(SERVING)
