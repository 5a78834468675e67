"""Planted bugs of a broker alone: each is one wrong line of storage or of an acknowledgement."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import Any
from unittest.mock import patch

import msgspec
from planting import planted_in_broker

from penstock.model import Offset
from penstock.replication.partition import ReplicatedPartition
from penstock.replication.replica import Replica
from penstock.storage import log_manager
from penstock.storage.index import IndexDamaged, IndexEntry
from penstock.storage.jobs import CheckpointJob, FlushJob
from penstock.storage.log import Log
from penstock.storage.log_jobs import LogJobs
from penstock.storage.log_reader import LogReader
from penstock.storage.producer_state import ProducerStates
from penstock.storage.recovery_tail import TailCheck
from penstock.storage.replay import Replay
from penstock.storage.segment import Segment


@planted_in_broker("I1", "I8")
def ack_before_fsync() -> AbstractContextManager[Any]:
    """A write is acknowledged as soon as its batch is in the page cache."""
    return patch.multiple(Replica, when_committed=lambda *_: True, acknowledging=lambda *_: None)


@planted_in_broker("own write")
def acks_1_is_answered_before_it_is_readable() -> AbstractContextManager[Any]:
    """A single replica acknowledges acks=1 after the append, before consumers can read the record."""
    return patch.object(Replica, "is_only_replica", False)


@planted_in_broker("I1")
def high_watermark_above_the_flushed_offset() -> AbstractContextManager[Any]:
    """Consumers see records that a power loss can take back."""

    def advance(self: ReplicatedPartition) -> bool:
        log = self._log
        moved = log.log_end_offset > log.high_watermark
        log.high_watermark = max(log.high_watermark, log.log_end_offset)
        return moved

    return patch.object(ReplicatedPartition, "advance", advance)


@planted_in_broker("I1")
def flushed_up_to_where_the_log_ends_now() -> AbstractContextManager[Any]:
    """Records that were appended while a flush ran count as flushed by it."""
    finish = LogJobs.finish_flush

    def finish_flush(self: LogJobs, job: FlushJob) -> None:
        finish(self, job)
        self._log.flushed_offset = self._log.log_end_offset

    return patch.object(LogJobs, "finish_flush", finish_flush)


@planted_in_broker("I1", "I12")
def names_are_not_synced() -> AbstractContextManager[Any]:
    """A flush syncs the bytes of a new segment but not its name."""

    def work(self: FlushJob) -> None:
        for file in self.files:
            file.sync()

    return patch.object(FlushJob, "work", work)


@planted_in_broker("I1", "I15", needs={"fail_sync"})
def failed_fsync_is_tried_again() -> AbstractContextManager[Any]:
    """A failed fsync is followed by one that has nothing left to write, and the write is acknowledged."""
    return patch.object(Replica, "on_flush_failed", lambda self, error: self._context.flusher.request(self))


@planted_in_broker("I15")
def torn_tail_is_kept() -> AbstractContextManager[Any]:
    """Recovery trusts the headers of the last batches and does not check their bytes."""
    return patch.object(TailCheck, "_check_batch", lambda *_: None)


@planted_in_broker("I1")
def incomplete_index_is_trusted() -> AbstractContextManager[Any]:
    """Recovery takes the last entry of an index for the end of its segment, whatever is behind it."""

    def end(segment: Segment) -> IndexEntry | None:
        with suppress(IndexDamaged):
            last = segment.index.last(wait=True)
            return last if segment.index.stored else None
        return None

    return patch.object(Segment, "indexed_end", end)


@planted_in_broker("I1", "I15", needs={"fail_sync"})
def recovered_tail_is_not_written_again() -> AbstractContextManager[Any]:
    """Recovery takes pages for durable that a failed fsync has left clean."""
    return patch.object(TailCheck, "_write_again", lambda *_: None)


@planted_in_broker("I1", "I5", "I15")
def recovery_point_before_the_data() -> AbstractContextManager[Any]:
    """The recovery point moves before the data below it is synced."""
    return patch.object(CheckpointJob, "sync_log", lambda self: None)


@planted_in_broker("I2")
def producers_are_not_restored() -> AbstractContextManager[Any]:
    """A restart forgets the sequences of idempotent producers."""

    def apply(self: Replay, segment: Any, position: int, header: Any) -> None:
        self.epochs.assign(header.leader_epoch, header.base_offset)

    @contextmanager
    def forget() -> Iterator[None]:
        with patch.object(Replay, "apply", apply), patch.object(ProducerStates, "restore", lambda *_: None):
            yield

    return forget()


@planted_in_broker("I2")
def duplicates_are_appended() -> AbstractContextManager[Any]:
    """A retried batch counts as a new one, because the window of sequences is forgotten."""
    check = ProducerStates.check

    def forget(self: ProducerStates, header: Any) -> None:
        check(self, header)

    return patch.object(ProducerStates, "check", forget)


@planted_in_broker("clean stop")
def clean_stop_mark_stays() -> AbstractContextManager[Any]:
    """A running broker still has the mark of its last clean stop."""
    return patch.object(log_manager, "take_clean_stop", lambda disk: None)


@planted_in_broker("log start")
def truncation_is_not_kept() -> AbstractContextManager[Any]:
    """DeleteRecords is acknowledged, but the new log start is in no checkpoint."""
    checkpoint = Log.checkpoint

    def with_old_start(self: Log) -> Any:
        first = self.segments[0].base_offset if self.segments else 0
        return msgspec.structs.replace(checkpoint(self), log_start_offset=Offset(first))

    return patch.object(Log, "checkpoint", with_old_start)


@planted_in_broker("I8")
def reads_go_up_to_the_log_end() -> AbstractContextManager[Any]:
    """Fetch ignores the high watermark."""
    read = LogReader.read

    def read_all(self: LogReader, offset: Offset, max_bytes: int, *, below: Offset, **options: Any) -> Any:
        return read(self, offset, max_bytes, below=self._log.log_end_offset, **options)

    return patch.object(LogReader, "read", read_all)
