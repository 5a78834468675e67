"""Broker process under a supervisor: its place among the brokers of the machine, and the connection to the
supervisor.
"""

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
    """File descriptor of this process's end of the socket pair; its supervisor has the other end."""
    siblings: tuple[int, ...]
    """Node ids of all brokers of the machine."""
    sockets: str
    """Directory of the sockets of the metadata store and of the reports."""
    has_store: bool
    """True if the supervisor runs a metadata store; False for a machine in a cluster with ZooKeeper."""
    is_cordoned: bool

    def encode(self) -> str:
        return msgspec.json.encode(self).decode()


def decode_place(text: str) -> SupervisedOption:
    return msgspec.json.decode(text, type=SupervisedOption)


class SupervisorLink:
    """Connection to the supervisor. If it is closed, the supervisor has ended, and the broker must stop."""

    def __init__(self, place: SupervisedOption) -> None:
        self._place = place
        self._socket = socket.socket(fileno=place.descriptor)
        self._socket.setblocking(False)

    def on_lost(self, callback: Callable[[], None]) -> None:
        loop = asyncio.get_running_loop()

        def end() -> None:
            loop.remove_reader(self._socket.fileno())
            callback()

        # The supervisor sends no data, so the socket becomes readable only when the connection is closed.
        loop.add_reader(self._socket.fileno(), end)

    def share(self, node_id: int) -> MachineShare:
        """Return this broker's place on the machine, for its environment."""
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
