"""Cluster membership of this broker: registration, with a broker epoch that is never used again.

A broker that may have lost records leaves the in-sync sets before it registers (`rejoining.py`), and gets new
leader epochs for the partitions that it leads. The registration ends with the session.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from uuid import UUID

from penstock.cluster import leader_election, znodes
from penstock.cluster.change_list import Scope
from penstock.cluster.change_maker import MAX_ATTEMPTS, UNCLEAR, ChangeMaker
from penstock.cluster.coordination import (
    BadVersion,
    CoordinationStore,
    Create,
    Delete,
    Node,
    NodeExists,
    NoNode,
    Operation,
    Set,
)
from penstock.cluster.image import ClusterImage, RegisteredBroker
from penstock.cluster.loading import decode_broker, encode_broker
from penstock.cluster.metadata import ClusterMetadata
from penstock.cluster.metadata_change import MetadataChange
from penstock.cluster.rejoining import LogCondition, rejoin_rule
from penstock.cluster.topic_writes import Writes
from penstock.errors import BrokerError, ErrorCode, UnknownOutcome
from penstock.model import Address, BrokerEpoch, BrokerId, TopicPartition

REMOVAL_WAIT_SECONDS = 3.0
"""Seconds that a broker waits for other brokers to remove it from in-sync sets, after it may have lost records."""


@dataclass(frozen=True, slots=True)
class BrokerIdentity:
    """Data that a broker registers with."""

    host: str
    port: int
    machine_id: str
    directory_id: UUID
    """Id of the data directory. Another id means another disk."""
    clean_epoch: BrokerEpoch | None = None
    """Broker epoch of the last clean stop, if the broker stopped cleanly."""
    rack: str | None = None
    kept_epoch: BrokerEpoch | None = None
    """Broker epoch of the last registration, if the disk has every write since then although the broker did
    not stop cleanly; otherwise None.
    """
    siblings: tuple[BrokerId, ...] = ()
    is_cordoned: bool = False
    listeners: Mapping[str, Address] = field(default_factory=dict)
    """Advertised addresses by listener name."""

    def is_whole(self, last: znodes.DirectoryNode | None) -> bool:
        """True if the data directory is that of the last registration and has every write since then.

        A broker that was killed after its registration, but before the directory recorded the new epoch, has
        written nothing in between. The directory names the previous epoch in that case.
        """
        if last is None or last.directory_id != self.directory_id:
            return False
        return last.epoch == self.clean_epoch or self.kept_epoch in (last.epoch, last.kept_epoch)


class Membership:
    def __init__(
        self, store: CoordinationStore, metadata: ClusterMetadata, changes: ChangeMaker, node_id: BrokerId
    ) -> None:
        self._store = store
        self._metadata = metadata
        self._changes = changes
        self._node_id = node_id

    async def register(
        self,
        identity: BrokerIdentity,
        has_log: Callable[[TopicPartition], bool],
        has_vanished: Callable[[TopicPartition], bool] = lambda _: False,
    ) -> BrokerEpoch:
        """Register this broker. `has_log` returns True if the data directory has a log of the partition,
        `has_vanished` if it had a log that is lost.
        """
        await self._check_not_taken(identity)
        last = await self._last_registration()
        is_same_disk = last is None or last.directory_id == identity.directory_id
        is_whole = identity.is_whole(last)

        def log_condition_of(name: TopicPartition) -> LogCondition:
            if has_vanished(name):
                return LogCondition.PARTIAL if has_log(name) else LogCondition.VANISHED
            if is_whole:
                return LogCondition.COMPLETE
            if is_same_disk:
                return LogCondition.UNCERTAIN
            return LogCondition.PARTIAL if has_log(name) else LogCondition.MISSING

        rule = rejoin_rule(self._node_id, log_condition_of, self._metadata.config)
        if not is_whole or leader_election.affected(self._metadata.image, self._metadata.image.topics, rule):
            await self._invalidate_last_registration()
            await self._await_removal_from_in_sync_sets()
            await self._changes.rule(rule, self._metadata.image.topics)
        epoch = await self._register(identity, identity.kept_epoch if is_whole else None)
        await self._metadata.reread_members()
        return epoch

    async def take_leadership(self) -> None:
        """Become leader of the partitions that this broker led before, and of partitions without a leader
        that have it in their in-sync set.
        """
        await self._changes.rule(
            leader_election.resume_leadership(self._node_id), self._metadata.image.topics
        )

    async def leave(self) -> None:
        """Ask the controller to elect other leaders before this broker stops. Returns when they are elected."""
        path = znodes.broker_path(self._node_id)
        [node] = await self._store.get_many([path])
        own = self._metadata.image.brokers.get(self._node_id)
        if node is None or own is None or decode_broker(self._node_id, node) != own:
            return  # The registration belongs to another process.

        def decide(_: ClusterImage) -> MetadataChange[None]:
            data = encode_broker(replace(own, is_stopping=True))
            return MetadataChange(None, Writes((Set(path, data, node.version),)), Scope(members=True))

        await self._changes.make(decide)
        await self._metadata.until(
            lambda image: not leader_election.affected(image, image.topics, leader_election.elect)
        )

    async def _last_registration(self) -> znodes.DirectoryNode | None:
        [node] = await self._store.get_many([znodes.directory_path(self._node_id)])
        return znodes.decode(node.data, znodes.DirectoryNode) if node else None

    async def _check_not_taken(self, identity: BrokerIdentity) -> None:
        """Raise BrokerError before any write if an alive broker has this node id."""
        paths = [znodes.broker_path(self._node_id), znodes.directory_path(self._node_id)]
        registration, directory = await self._store.get_many(paths)
        if registration is not None:
            self._check_stale(directory.data if directory else b"", identity)

    async def _invalidate_last_registration(self) -> None:
        """Invalidate the last registration, so that leaders add this broker to no in-sync set until it has
        registered again.

        On return the image shows the in-sync sets that included it before.
        """
        path = znodes.directory_path(self._node_id)
        for _ in range(MAX_ATTEMPTS):
            [node] = await self._store.get_many([path])
            if node is None:
                return  # first registration of this broker
            try:
                await self._store.set(path, node.data, node.version)
            except (BadVersion, NoNode, UnknownOutcome):
                continue
            await self._metadata.catch_up()
            return
        raise BrokerError(ErrorCode.request_timed_out, UNCLEAR)

    async def _await_removal_from_in_sync_sets(self) -> None:
        """Wait until other alive members have removed this broker from the in-sync sets. They fsync before
        they do so.

        If this broker removed itself, the last machine in a set could lose power before its fsync.
        """
        path = znodes.broker_path(self._node_id)
        [stale] = await self._store.get_many([path])
        if stale is not None:
            with suppress(NoNode, BadVersion, UnknownOutcome):  # the session may have expired in the meantime
                await self._store.delete(path, stale.version)
        await self._metadata.reread_members()
        with suppress(TimeoutError):
            async with asyncio.timeout(REMOVAL_WAIT_SECONDS):
                await self._metadata.until(
                    lambda image: not leader_election.shares_in_sync_set(image, self._node_id)
                )

    async def _register(self, identity: BrokerIdentity, kept_epoch: BrokerEpoch | None) -> BrokerEpoch:
        for _ in range(MAX_ATTEMPTS):
            paths = [
                znodes.BROKER_EPOCH,
                znodes.broker_path(self._node_id),
                znodes.directory_path(self._node_id),
            ]
            counter, registration, directory = await self._store.get_many(paths)
            if counter is None:
                raise NoNode(znodes.BROKER_EPOCH)
            epoch = BrokerEpoch(znodes.decode(counter.data, znodes.BrokerEpochNode).epoch + 1)
            broker = self._registration(identity, epoch, directory)
            kept = -1 if kept_epoch is None else kept_epoch
            mine = znodes.encode(znodes.DirectoryNode(identity.directory_id, epoch, kept))
            operations: list[Operation] = [
                Set(znodes.BROKER_EPOCH, znodes.encode(znodes.BrokerEpochNode(epoch)), counter.version),
                Create(paths[2], mine) if directory is None else Set(paths[2], mine, directory.version),
            ]
            if registration is not None:
                self._check_stale(directory.data if directory else b"", identity)
                operations.append(Delete(paths[1], registration.version))
            operations.append(Create(paths[1], encode_broker(broker), ephemeral=True))
            try:
                await self._store.multi(operations)
            except (BadVersion, NoNode, NodeExists):
                continue
            except UnknownOutcome:
                [written] = await self._store.get_many([paths[2]])
                if written is None or written.data != mine:
                    continue
            return epoch
        raise BrokerError(ErrorCode.request_timed_out, UNCLEAR)

    def _registration(
        self, identity: BrokerIdentity, epoch: BrokerEpoch, directory: Node | None
    ) -> RegisteredBroker:
        return RegisteredBroker(
            self._node_id,
            identity.host,
            identity.port,
            epoch,
            identity.machine_id,
            identity.rack,
            directory_version=directory.version + 1 if directory else 0,
            siblings=identity.siblings,
            is_cordoned=identity.is_cordoned,
            listeners=identity.listeners,
        )

    def _check_stale(self, directory: bytes, identity: BrokerIdentity) -> None:
        """Raise BrokerError if the existing registration may belong to a running process. A registration with
        the data directory of this broker is stale: this process holds the lock of the directory.
        """
        if (
            not directory
            or znodes.decode(directory, znodes.DirectoryNode).directory_id != identity.directory_id
        ):
            raise BrokerError(
                ErrorCode.duplicate_broker_registration,
                f"broker {self._node_id} is already registered with another data directory; give each broker its "
                "own --node-id, or wait until the session of the dead broker has expired",
            )
