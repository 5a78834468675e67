"""Access to the states of share-partitions for partition leaders and group coordinators.

If this broker stores a state, the access is a direct call, else a request to the other broker. After an error in
`RETRIABLE` the caller may retry, but the change may have been made. Loop thread only.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from penstock.errors import BrokerError, ErrorCode, PenstockError
from penstock.internal_client.share_states import (
    SharePlace,
    delete_share_group_state,
    exchange_share_state,
    initialize_share_group_state,
    read_share_group_state_summary,
)
from penstock.model import BrokerId, ShareKey
from penstock.net.broker_connection import BrokerConnection
from penstock.queues.coordinator import ShareCoordinator
from penstock.queues.record_codec import decode_value, encode_value
from penstock.queues.records import SnapshotValue, UpdateValue
from penstock.queues.state_shard import ReadState, StateSummary, read_state
from penstock.queues.states import StateUpdate
from penstock.queues.write_turn import WriteTurn
from penstock.state_log.appender import Done
from penstock.transactions.links import BrokerLinks
from penstock.wire.share_state import ShareStateRequest

T = TypeVar("T")

RETRIABLE: Final = frozenset(
    {
        ErrorCode.not_coordinator,
        ErrorCode.coordinator_not_available,
        ErrorCode.coordinator_load_in_progress,
        ErrorCode.request_timed_out,
        ErrorCode.network_exception,
        ErrorCode.not_enough_replicas,
        ErrorCode.not_enough_replicas_after_append,
    }
)


class ShareStateClient:
    def __init__(self, node_id: BrokerId, coordinator: ShareCoordinator, links: BrokerLinks) -> None:
        self._node_id = node_id
        self._coordinator = coordinator
        self._turn = WriteTurn()
        self.links = links
        """Connections to other brokers, which are used for other share group requests too."""

    async def initialize(self, key: ShareKey, state_epoch: int, start_offset: int) -> None:
        """Create or reset a state. The internal topic is created if it does not exist."""
        leader = await self._coordinator.find(key.name)
        if leader == self._node_id:
            await self._coordinator.shard_of(key).initialize(key, state_epoch, start_offset)
        else:
            place = SharePlace(*key)
            await self._send(
                leader, lambda c: initialize_share_group_state(c, place, state_epoch, start_offset)
            )

    async def read(self, key: ShareKey, leader_epoch: int) -> ReadState:
        leader = self._coordinator.leader_of(key)
        if leader == self._node_id:
            return await self._coordinator.shard_of(key).read(key, leader_epoch)
        request = ShareStateRequest(*key, -1, leader_epoch, b"")
        snapshot = decode_value(await self._send(leader, lambda c: exchange_share_state(c, request)))
        if not isinstance(snapshot, SnapshotValue):
            raise BrokerError(ErrorCode.coordinator_not_available, f"broker {leader} sent no snapshot")
        return read_state(snapshot)

    async def write(self, key: ShareKey, epochs: tuple[int, int], update: StateUpdate) -> None:
        """Store changes; `epochs` are the state epoch and the leader epoch."""
        leader = self._coordinator.leader_of(key)
        if leader == self._node_id:
            await self._coordinator.shard_of(key).store(key, *epochs, update)
        else:
            start_offset, complete_count, batches, letters = update
            value = UpdateValue(0, epochs[1], start_offset, complete_count, tuple(batches), letters)
            request = ShareStateRequest(*key, *epochs, encode_value(value))
            await self._send(leader, lambda c: exchange_share_state(c, request))

    def store_here(
        self, key: ShareKey, name: str, epochs: tuple[int, int], update: StateUpdate, done: Done
    ) -> bool:
        """Store changes without a task if this broker stores the state; False if another broker does.

        `done` is called with the outcome. BrokerError if the changes are refused at once.
        """
        if not self._coordinator.leads(name):
            return False
        shard = self._coordinator.shard_named(name)
        shard.store_soon(key, *epochs, update, done)
        self._turn.note(shard.append_now)
        return True

    def write_soon(self, write: Callable[[], None]) -> None:
        """Call `write` in the next turn of the event loop. The records of all these calls are appended together."""
        self._turn.add(write)

    async def delete(self, key: ShareKey) -> None:
        leader = self._coordinator.leader_of(key)
        if leader == self._node_id:
            await self._coordinator.shard_of(key).delete(key)
        else:
            place = SharePlace(*key)
            await self._send(leader, lambda c: delete_share_group_state(c, place))

    async def summary(self, key: ShareKey) -> StateSummary:
        leader = self._coordinator.leader_of(key)
        if leader == self._node_id:
            return await self._coordinator.shard_of(key).summary(key)
        place = SharePlace(*key)
        return StateSummary(*await self._send(leader, lambda c: read_share_group_state_summary(c, place)))

    def close(self) -> None:
        self.links.close()

    async def _send(self, leader: BrokerId, request: Callable[[BrokerConnection], Awaitable[T]]) -> T:
        async def attempt(connection: BrokerConnection) -> T | BrokerError:
            try:
                return await request(connection)
            except BrokerError as error:
                return error  # the other broker refused the request, so the connection stays open

        try:
            result = await self.links.send(leader, attempt)
        except (OSError, TimeoutError, PenstockError) as error:
            raise BrokerError(
                ErrorCode.coordinator_not_available, f"broker {leader} did not respond: {error}"
            ) from error
        if isinstance(result, BrokerError):
            raise result
        return result
