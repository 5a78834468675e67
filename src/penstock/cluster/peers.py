"""Failure detector: detects a dead broker by its closed connection and refused port, before its session
expires.

The controller keeps a connection to every broker, and every broker keeps one to the controller. A broker is
dead if it was connected before and its port refuses two connection attempts in a row after the connection
ended. It is then removed from the cluster (`BrokerRemoval`). A broker that is silent or was never connected
does not count as dead; its session expires instead. Loop thread only.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from penstock.clock import Clock
from penstock.cluster.broker_removal import BrokerRemoval
from penstock.cluster.image import ClusterImage, ImageChange, RegisteredBroker
from penstock.cluster.metadata import ClusterMetadata
from penstock.errors import PenstockError
from penstock.model import BrokerEpoch, BrokerId
from penstock.net.broker_connection import BrokerConnection
from penstock.net.network import Network
from penstock.observability.logs import Logger
from penstock.wire.apis import API_VERSIONS

REFUSALS = 2
CONFIRM_SECONDS = 0.02
"""Pause in seconds after the end of a connection, and between the attempts that show whether the port refuses."""
RETRY_SECONDS = 1.0
CONNECT_SECONDS = 3.0
PING_SECONDS = 5.0
"""Interval of pings in seconds, so that the connection is not closed as idle."""

Incarnation = tuple[BrokerId, BrokerEpoch]


def peers_of(image: ClusterImage, me: BrokerId) -> dict[Incarnation, RegisteredBroker]:
    """Brokers that broker `me` has to watch. A stopping broker is expected to disconnect and is not watched."""
    watched = [broker for broker in image.brokers.values() if image.controller_id in (me, broker.node_id)]
    return {
        (broker.node_id, broker.epoch): broker
        for broker in watched
        if me in image.brokers and broker.node_id != me and not broker.is_stopping
    }


@dataclass(frozen=True, slots=True)
class PeerContext:
    """Dependencies of the failure detector."""

    node_id: BrokerId
    network: Network
    clock: Clock
    log: Logger
    on_lost: Callable[[BrokerId], None]
    """Called when a connection has ended."""
    observe_failover: Callable[[float], None]
    """Called with the seconds from the end of the connection until the dead broker was no partition's leader."""


class Peers:
    def __init__(self, metadata: ClusterMetadata, removal: BrokerRemoval, context: PeerContext) -> None:
        self.found_dead = 0
        self._metadata = metadata
        self._removal = removal
        self._context = context
        self._watching: dict[Incarnation, asyncio.Task[None]] = {}
        self._removing: dict[Incarnation, asyncio.Task[None]] = {}
        self._is_stopped = False

    def start(self) -> None:
        self._metadata.subscribe(self._on_image)
        self._follow(self._metadata.image)

    async def stop(self) -> None:
        self._is_stopped = True
        tasks = [*self._watching.values(), *self._removing.values()]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    def _on_image(self, change: ImageChange) -> None:
        before, after = change.before, change.after
        is_same = before.brokers == after.brokers and before.controller_id == after.controller_id
        if not (is_same or self._is_stopped):
            self._follow(after)

    def _follow(self, image: ClusterImage) -> None:
        wanted = peers_of(image, self._context.node_id)
        for incarnation in self._watching.keys() - wanted.keys():
            self._watching.pop(incarnation).cancel()
        for incarnation in wanted.keys() - self._watching.keys():
            self._watching[incarnation] = asyncio.get_running_loop().create_task(
                self._watch(wanted[incarnation])
            )

    async def _watch(self, peer: RegisteredBroker) -> None:
        """Keep a connection to a broker until cancelled, and call `_on_dead` whenever its port keeps refusing
        connections.
        """
        since: float | None = None
        """Monotonic time at which the last connection ended. None while the broker was never connected: the
        network may be the reason for refused connections.
        """
        refusals = fleeting = 0
        while True:
            pause_seconds = CONFIRM_SECONDS
            try:
                async with asyncio.timeout(CONNECT_SECONDS):
                    client = await self._connect(peer)
            except ConnectionRefusedError:
                refusals += 1
                if refusals >= REFUSALS:
                    pause_seconds = RETRY_SECONDS
                    if since is not None:
                        self._on_dead(peer, since)
            except OSError:
                refusals, pause_seconds = 0, RETRY_SECONDS
            else:
                refusals = 0
                reached = self._context.clock.monotonic()
                await self._hold(client)
                since = self._context.clock.monotonic()
                # Back off if the broker accepts connections only to close them.
                fleeting = 0 if since - reached >= RETRY_SECONDS else fleeting + 1
                pause_seconds = min(CONFIRM_SECONDS * 2**fleeting, RETRY_SECONDS)
                self._context.on_lost(peer.node_id)
            await asyncio.sleep(pause_seconds)

    async def _connect(self, peer: RegisteredBroker) -> BrokerConnection:
        name = f"penstock-broker-{self._context.node_id}"
        return await BrokerConnection.connect(self._context.network, peer.host, peer.port, name)

    async def _hold(self, client: BrokerConnection) -> None:
        """Keep the connection alive until the broker closes it."""
        try:
            with suppress(OSError, PenstockError):
                while client.is_connected:
                    try:
                        async with asyncio.timeout(PING_SECONDS):
                            await client.until_lost()
                    except TimeoutError:
                        await client.request(API_VERSIONS, 0, {})
        finally:
            client.close()

    def _on_dead(self, peer: RegisteredBroker, since: float) -> None:
        incarnation = (peer.node_id, peer.epoch)
        if incarnation not in self._removing:
            # The removal is a task of its own, because the watch is cancelled when the registration is gone.
            task = asyncio.get_running_loop().create_task(self._remove(peer, since))
            self._removing[incarnation] = task
            task.add_done_callback(lambda _: self._removing.pop(incarnation))

    async def _remove(self, peer: RegisteredBroker, since: float) -> None:
        log, clock = self._context.log, self._context.clock
        try:
            if not await self._removal.remove(peer):
                return
        except PenstockError as error:
            log.error_rarely("cannot remove dead broker", error, broker=peer.node_id)
            return
        self.found_dead += 1
        log.warning(
            "dead broker removed, its port refuses connections", broker=peer.node_id, epoch=peer.epoch
        )
        await self._metadata.until(lambda image: peer.node_id in image.brokers or not _leads(image, peer))
        self._context.observe_failover(clock.monotonic() - since)


def _leads(image: ClusterImage, broker: RegisteredBroker) -> bool:
    return any(
        partition.leader == broker.node_id
        for topic in image.topics.values()
        for partition in topic.partitions
    )
