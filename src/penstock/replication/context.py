"""Services of the broker that its replicas and fetchers use."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random  # noqa: TID251 - the type; the numbers come from the environment

from penstock.clock import Clock
from penstock.model import BrokerId
from penstock.net.network import Network
from penstock.observability.alarms import Alarms
from penstock.observability.logs import Logger
from penstock.replication.flusher import Flusher
from penstock.storage.log_manager import LogManager
from penstock.threads import Threads


@dataclass(frozen=True, slots=True)
class ReplicationContext:
    node_id: BrokerId
    logs: LogManager
    flusher: Flusher
    threads: Threads
    clock: Clock
    network: Network
    random: Random
    logger: Logger
    alarms: Alarms
    on_leader_lost: Callable[[BrokerId], None] = lambda _: None
    """Called with the broker id when the connection to a leader has ended."""
