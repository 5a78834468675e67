"""Planted bugs in the store that serves the broker processes of one machine."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any
from unittest.mock import patch

from planting import planted_in_cluster

from penstock.cluster import store_messages as messages
from penstock.cluster.store_server import StoreSession
from simulation.faults.cluster_traits import SOCKET_STORE


@planted_in_cluster("I13", needs={SOCKET_STORE})
def registrations_outlive_their_session() -> AbstractContextManager[Any]:
    """The registration of a dead broker stays in the store."""

    async def keep(self: StoreSession) -> None:
        pass

    return patch.object(StoreSession, "_remove_ephemeral_nodes", keep)


@planted_in_cluster("I13", needs={SOCKET_STORE})
def changes_are_not_sent_to_watchers() -> AbstractContextManager[Any]:
    """A broker is not notified of the changes that others make."""
    send = StoreSession._send

    def send_others(self: StoreSession, response: messages.Response) -> None:
        if not isinstance(response, messages.Changed):
            send(self, response)

    return patch.object(StoreSession, "_send", send_others)
