"""Transactional offset commits of the groups of one shard: appended within the transaction, ended by its
marker.

The partition must be in the transaction, as for any transactional batch (see `replication.verified_appends`).
The member is checked after that verification, so that a member that was replaced meanwhile cannot commit.
Loop thread only.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING

from penstock.errors import BrokerError, ErrorCode, ProtocolError
from penstock.groups.offsets import OffsetCommit
from penstock.groups.records import GroupRecord
from penstock.model import ProducerEpoch, ProducerId
from penstock.records.batch import BatchHeader
from penstock.records.control import Marker
from penstock.replication.verified_appends import Verify
from penstock.state_log.appender import Appender, is_stored
from penstock.storage.log import AppendInfo

if TYPE_CHECKING:
    from penstock.groups.shard import GroupShard


_OF_PRODUCER = frozenset({ErrorCode.invalid_producer_epoch, ErrorCode.invalid_txn_state})
"""Errors that concern the producer and are passed to the client unchanged. The log is not affected."""


class TransactionalCommits:
    def __init__(self, shard: GroupShard, appender: Appender[GroupRecord]) -> None:
        self._shard = shard
        self._appender = appender
        self._replica = appender.replica
        self._connections: dict[ProducerId, tuple[ProducerEpoch, int]] = {}
        """Producer epoch, and number of the newest connection that sent offsets, for each open transaction."""
        self._replica.on_marker = self._on_marker

    def close(self) -> None:
        if self._replica.on_marker == self._on_marker:
            self._replica.on_marker = None

    def commit(
        self,
        commit: OffsetCommit,
        producer_id: ProducerId,
        producer_epoch: ProducerEpoch,
        connection: int,
        verify: Verify,
    ) -> asyncio.Future[None]:
        """Commit offsets in a transaction. The future is done when the batch is committed, or fails with a
        BrokerError.

        The offsets become valid when the transaction is committed. ProtocolError for a late request, whose
        producer has used a newer connection since: it would overwrite offsets that were committed after it.
        """
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        records = [GroupRecord(key, offset) for key, offset in commit.offsets.items()]
        content, header = self._appender.build_transactional(records, producer_id, producer_epoch)
        verified = self._replica.verified
        go_on = partial(self._append, commit, content, header, connection, future)
        if verified.must_hold(header):
            verified.hold(header, verify, go_on, partial(self._refuse, future))
        else:
            go_on()
        return future

    def _append(
        self,
        commit: OffsetCommit,
        content: memoryview,
        header: BatchHeader,
        connection: int,
        future: asyncio.Future[None],
    ) -> None:
        shard = self._shard
        producer_id, producer_epoch = ProducerId(header.producer_id), ProducerEpoch(header.producer_epoch)
        epoch, newest = self._connections.get(producer_id, (producer_epoch, connection))
        if epoch == producer_epoch and connection < newest:
            if not future.done():
                future.set_exception(
                    ProtocolError("late offset commit: the producer has used a newer connection")
                )
            return
        try:
            shard.check_commit(commit, shard.now_ms(), is_transactional=True)
        except BrokerError as error:
            stale = error.code is ErrorCode.stale_member_epoch
            self._refuse(future, BrokerError(ErrorCode.illegal_generation, str(error)) if stale else error)
            return
        shard.offsets.transactional.begin(commit.offsets)
        done = partial(self._on_commit, commit, producer_id, future)
        self._appender.add_transactional(content, header, done)
        if self._replica.log.producers.is_in_transaction(header):
            self._connections[producer_id] = producer_epoch, connection
        if not future.done():
            shard.limit_wait(future)

    def _on_commit(
        self,
        commit: OffsetCommit,
        producer_id: ProducerId,
        future: asyncio.Future[None],
        error: BrokerError | None,
    ) -> None:
        shard = self._shard
        if not shard.is_closed:
            transactional = shard.offsets.transactional
            transactional.end(commit.offsets)
            if is_stored(error):
                for key, offset in commit.offsets.items():
                    transactional.add(producer_id, key, offset)
            else:
                shard.drop_if_blank(commit.group_id)
        if error is not None and error.code in _OF_PRODUCER:
            self._refuse(future, error)
        else:
            shard.settle(future, error)

    def _refuse(self, future: asyncio.Future[None], error: BrokerError) -> None:
        if error.code is ErrorCode.not_leader_or_follower:
            self._shard.settle(future, error)
        elif not future.done():
            future.set_exception(error)

    def _on_marker(self, marker: Marker, info: AppendInfo) -> None:
        done = partial(self._on_ended, marker)
        if self._replica.when_committed(info, done):
            done(None)

    def _on_ended(self, marker: Marker, error: BrokerError | None) -> None:
        shard = self._shard
        self._connections.pop(ProducerId(marker.producer_id), None)
        if error is None and not shard.is_closed:
            groups = shard.offsets.transactional.groups_of(marker.producer_id)
            shard.offsets.end_transaction(marker.producer_id, is_commit=marker.is_commit)
            for group_id in groups:
                shard.drop_if_blank(group_id)
