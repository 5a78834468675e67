"""Writer of metadata changes: decides a change from the image, writes it on condition that the nodes are as
in that image, and retries on conflict.

All changes of topics, leaders and configs go through it. A broker makes one change at a time. If another
broker writes in between, a condition fails and the change is decided again from the new image.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from functools import partial
from typing import TypeVar

from penstock.cluster import leader_election
from penstock.cluster.change_list import ChangeList, Scope
from penstock.cluster.coordination import Check, CoordinationStore, SessionExpired, StoreUnreachable
from penstock.cluster.image import ClusterImage
from penstock.cluster.loading import UnfinishedChange, read_unfinished
from penstock.cluster.metadata import ClusterMetadata
from penstock.cluster.metadata_change import MetadataChange, Rule
from penstock.cluster.topic_writes import Writes, chunks, claim, cleanup
from penstock.errors import BrokerError, ErrorCode, StorageError, UnknownOutcome
from penstock.model import BrokerId

MAX_ATTEMPTS = 10
UNCLEAR = "the outcome in the coordination store is unknown; try again"

R = TypeVar("R")


class ChangeMaker:
    def __init__(
        self, store: CoordinationStore, metadata: ClusterMetadata, node_id: BrokerId, change_list: ChangeList
    ) -> None:
        self._store = store
        self._metadata = metadata
        self._node_id = node_id
        self._change_list = change_list
        self._changing = asyncio.Lock()
        self._is_closed = False

    async def close(self) -> None:
        """Wait for the change in progress, and refuse new ones."""
        async with self._changing:
            self._is_closed = True

    @property
    def writer(self) -> str:
        """Name of this broker in its current broker epoch, which owns the unfinished changes that it writes."""
        broker = self._metadata.image.brokers.get(self._node_id)
        return f"{self._node_id}-{broker.epoch if broker else -1}"

    async def make(
        self, decide: Callable[[ClusterImage], MetadataChange[R]], fence: Check | None = None
    ) -> R:
        """Make the change that `decide` returns for the current image, and wait until the image shows it.

        Raises BrokerError: NOT_CONTROLLER if the fence fails or the session has expired, KAFKA_STORAGE_ERROR
        if the disk refuses the write, REQUEST_TIMED_OUT if the outcome is not known.
        """
        async with self._changing:
            if self._is_closed:
                raise BrokerError(ErrorCode.not_controller, "this broker is stopping")
            try:
                return await self._make(decide, fence)
            except SessionExpired as error:
                raise BrokerError(
                    ErrorCode.not_controller, "the session of this broker has expired"
                ) from error
            except StoreUnreachable as error:
                raise BrokerError(ErrorCode.request_timed_out, UNCLEAR) from error
            except StorageError as error:
                raise BrokerError(ErrorCode.kafka_storage_error, str(error)) from error

    async def confirm(self) -> None:
        """Wait until the image shows every change that any broker has acknowledged, so that a decision does
        not rest on outdated state. Raises BrokerError as `make` does.
        """
        try:
            await self._metadata.confirm()
        except (SessionExpired, StoreUnreachable, UnknownOutcome) as error:
            raise BrokerError(ErrorCode.request_timed_out, UNCLEAR) from error
        except StorageError as error:
            raise BrokerError(ErrorCode.kafka_storage_error, str(error)) from error

    async def rule(self, rule: Rule, topics: Iterable[str], fence: Check | None = None) -> None:
        """Apply a rule to the partitions of these topics, with hundreds of partitions in one write."""
        for names in chunks(leader_election.affected(self._metadata.image, topics, rule)):
            await self.make(partial(leader_election.decide, names=names, rule=rule), fence)

    async def clean_up(self, names: Collection[str]) -> None:
        """Remove the nodes of abandoned changes to these topics. Raises BrokerError if the writer of such a
        change is alive.
        """
        async with self._changing:
            await self._clean_up_abandoned(names)

    async def _clean_up_abandoned(self, names: Collection[str]) -> None:
        for rest in await read_unfinished(self._store, names):
            if rest.node.writer != self.writer and self._is_alive(rest.node.writer):
                raise BrokerError(
                    ErrorCode.request_timed_out,
                    f"another change of topic {rest.topic} is in progress; try again",
                )
            await self._clean_up_one(rest)

    async def _make(self, decide: Callable[[ClusterImage], MetadataChange[R]], fence: Check | None) -> R:
        for attempt in range(MAX_ATTEMPTS):
            change = decide(self._metadata.image)
            if not change.writes.visible:
                return change.result
            if await self._clean_up_scope(change.scope):
                continue
            entry = await self._write(change.writes, change.scope, fence)
            if entry is not None:
                await self._metadata.applied(entry)
                await self._remove_leftovers(change.writes)
                return change.result
            await self._metadata.catch_up()
            if attempt:  # Catching up was not enough, so the image itself may be wrong.
                await self._metadata.reload()
            await self._clean_up_abandoned(change.scope.topics)
        raise BrokerError(ErrorCode.request_timed_out, UNCLEAR)

    async def _clean_up_scope(self, scope: Scope) -> bool:
        """Clean up unfinished changes in the scope. Returns True if there were any, because the image has
        changed then.
        """
        topics = self._metadata.image.topics
        unfinished = [name for name in scope.topics if name in topics and topics[name].is_unfinished]
        await self._clean_up_abandoned(unfinished)
        return bool(unfinished)

    async def _write(self, writes: Writes, scope: Scope, fence: Check | None = None) -> int | None:
        if writes.announced and await self._change_list.commit(writes.announced, scope) is None:
            return None
        for operations in writes.before:
            if not await self._change_list.write_unlisted(operations):
                return None
        return await self._change_list.commit(writes.visible, scope, fence)

    async def _remove_leftovers(self, writes: Writes) -> None:
        """Remove leftover nodes after a change. Failures are ignored, because the controller or the next
        change of the topic removes the nodes.
        """
        with suppress(StorageError, StoreUnreachable, SessionExpired):
            for operations in writes.after:
                if not await self._change_list.write_unlisted(operations):
                    return

    async def _clean_up_one(self, rest: UnfinishedChange) -> None:
        scope = Scope(frozenset({rest.topic}))
        entry = await self._change_list.commit([claim(rest, self.writer)], scope)
        if entry is not None:
            for claimed in await read_unfinished(self._store, [rest.topic]):
                if claimed.version == rest.version + 1:
                    await self._write(cleanup(claimed), scope)
        await self._metadata.catch_up()

    def _is_alive(self, writer: str) -> bool:
        return any(
            f"{broker.node_id}-{broker.epoch}" == writer for broker in self._metadata.image.brokers.values()
        )
