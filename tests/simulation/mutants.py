"""Bugs planted on purpose: each is one wrong line of the broker, put in at run time.

A simulation that does not catch one of them within a bounded number of seeds is not worth its time.
`python tests/simulation/mutants.py [name ...]` hunts them all, or those named.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import Any
from unittest.mock import patch

import msgspec
from cluster_mutants import CLUSTER_MUTANTS
from group_mutants import GROUP_MUTANTS
from keyed_mutants import KEYED_MUTANTS
from transaction_mutants import TRANSACTION_MUTANTS

from penstock.model import Offset
from penstock.replication.partition import Partition
from penstock.replication.replica import Replica
from penstock.simulation.seeds import cluster_traits, run_cluster_seed, run_seed
from penstock.storage import log_manager
from penstock.storage.index import IndexDamaged, IndexEntry
from penstock.storage.jobs import CheckpointJob, FlushJob
from penstock.storage.log import Log
from penstock.storage.producer_state import ProducerStates
from penstock.storage.recovery import _Recovery
from penstock.storage.replay import Replay
from penstock.storage.segment import Segment

Mutant = Callable[[], AbstractContextManager[Any]]


def ack_before_fsync() -> AbstractContextManager[Any]:
    """A producer is answered as soon as its batch is in the page cache."""
    return patch.object(Replica, "when_committed", lambda *_: True)


def high_watermark_above_the_flushed_offset() -> AbstractContextManager[Any]:
    """Readers see what a power loss can take back."""

    def advance(self: Partition) -> bool:
        moved = self._log_end > self.high_watermark
        self.high_watermark = max(self.high_watermark, self._log_end)
        return moved

    return patch.object(Partition, "_advance", advance)


def flushed_up_to_where_the_log_ends_now() -> AbstractContextManager[Any]:
    """What was appended while a flush ran counts as flushed by it."""
    finish = Log.finish_flush

    def finish_flush(self: Log, job: FlushJob) -> None:
        finish(self, job)
        self.flushed_offset = self.log_end_offset

    return patch.object(Log, "finish_flush", finish_flush)


def names_are_not_synced() -> AbstractContextManager[Any]:
    """A flush syncs the bytes of a new segment but not its name."""

    def work(self: FlushJob) -> None:
        for file in self.files:
            file.sync()

    return patch.object(FlushJob, "work", work)


def failed_fsync_is_tried_again() -> AbstractContextManager[Any]:
    """After a failed fsync the next one, which has nothing left to write, brings the acknowledgement."""
    return patch.object(Replica, "on_flush_failed", lambda self, error: self._flusher.request(self))


def torn_tail_is_kept() -> AbstractContextManager[Any]:
    """Recovery believes the headers of the last batches without looking at their bytes."""
    return patch.object(_Recovery, "_check_batch", lambda *_: None)


def incomplete_index_is_trusted() -> AbstractContextManager[Any]:
    """Recovery takes the last entry of an index for the end of its segment, whatever lies behind it."""

    def end(segment: Segment) -> IndexEntry | None:
        with suppress(IndexDamaged):
            last = segment.index.last(wait=True)
            return last if segment.index.stored else None
        return None

    return patch.object(_Recovery, "_end", staticmethod(end))


def recovered_tail_is_not_written_again() -> AbstractContextManager[Any]:
    """After a failed fsync the pages look clean; recovery takes them for durable."""
    return patch.object(_Recovery, "_write_again", lambda *_: None)


def recovery_point_before_the_data() -> AbstractContextManager[Any]:
    """The recovery point moves although the data below it was not synced."""
    return patch.object(CheckpointJob, "sync_log", lambda self: None)


def producers_are_not_restored() -> AbstractContextManager[Any]:
    """After a restart nobody remembers what idempotent producers had sent."""

    def apply(self: Replay, segment: Any, position: int, header: Any) -> None:
        self.epochs.assign(header.leader_epoch, header.base_offset)

    @contextmanager
    def forget() -> Iterator[None]:
        with patch.object(Replay, "apply", apply), patch.object(ProducerStates, "restore", lambda *_: None):
            yield

    return forget()


def duplicates_are_appended() -> AbstractContextManager[Any]:
    """The window of sequences is forgotten: a retried batch is taken for a new one."""
    check = ProducerStates.check

    def forget(self: ProducerStates, header: Any) -> None:
        check(self, header)

    return patch.object(ProducerStates, "check", forget)


def clean_stop_mark_stays() -> AbstractContextManager[Any]:
    """A broker that runs still has the mark of its last clean stop."""
    return patch.object(log_manager, "take_clean_stop", lambda disk: None)


def truncation_is_not_kept() -> AbstractContextManager[Any]:
    """DeleteRecords is answered, but the new log start is in no checkpoint."""
    checkpoint = Log.checkpoint

    def with_old_start(self: Log) -> Any:
        first = self.segments[0].base_offset if self.segments else 0
        return msgspec.structs.replace(checkpoint(self), log_start_offset=Offset(first))

    return patch.object(Log, "checkpoint", with_old_start)


def reads_go_up_to_the_log_end() -> AbstractContextManager[Any]:
    """Fetch ignores the high watermark."""
    read = Log.read

    def read_all(self: Log, offset: Offset, max_bytes: int, *, below: Offset, **options: Any) -> Any:
        return read(self, offset, max_bytes, below=self.log_end_offset, **options)

    return patch.object(Log, "read", read_all)


BROKER_MUTANTS: dict[str, Mutant] = {
    mutant.__name__: mutant
    for mutant in (
        ack_before_fsync,
        high_watermark_above_the_flushed_offset,
        flushed_up_to_where_the_log_ends_now,
        names_are_not_synced,
        failed_fsync_is_tried_again,
        torn_tail_is_kept,
        incomplete_index_is_trusted,
        recovered_tail_is_not_written_again,
        recovery_point_before_the_data,
        producers_are_not_restored,
        duplicates_are_appended,
        clean_stop_mark_stays,
        truncation_is_not_kept,
        reads_go_up_to_the_log_end,
        *GROUP_MUTANTS,
    )
}
IN_CLUSTERS = {**CLUSTER_MUTANTS, **TRANSACTION_MUTANTS, **KEYED_MUTANTS}
MUTANTS = [*BROKER_MUTANTS, *(mutant.__name__ for mutant in IN_CLUSTERS)]
NOTICED = {
    "alone_without_fsync": 6,
    "answered_before_it_is_recorded": 127,
    "assignment_is_not_kept": 4,
    "commits_of_an_old_generation_are_taken": 4,
    "cut_too_little": 6,
    "deleted_offsets_come_back": 23,
    "emptied_disk_stays_in_sync": 83,
    "failed_fsync_is_tried_again": 16,
    "followers_forget_producers": 7,
    "generation_begins_anew_after_a_restart": 16,
    "late_end_is_taken": 20,
    "lookups_see_what_is_not_committed": 20,
    "no_epoch_fence": 10,
    "no_fsync_before_a_set_of_one": 41,
    "nothing_is_cut": 6,
    "originals_are_sought_among_the_committed": 109,
    "prepared_ones_are_not_resumed": 62,
    "recovered_tail_is_not_written_again": 4,
    "recovery_point_before_the_data": 4,
    "shrink_counts_before_it_is_recorded": 8,
    "timeouts_are_forgotten": 32,
    "too_few_in_sync_are_enough": 68,
    "torn_tail_is_kept": 11,
    "unclean_restart_stays_in_sync": 84,
}
"""The seeds that noticed them last, where it was none of the first: they are tried before the others."""
SEEDS = range(1, 301)
"""How many a bug may survive."""


def hunt(name: str, seeds: range) -> tuple[int, Exception] | None:
    """A seed that notices the bug, and what it noticed."""
    tried = [NOTICED[name], *seeds] if name in NOTICED else seeds
    if name in BROKER_MUTANTS:
        return _hunt(BROKER_MUTANTS[name], tried, run_seed)
    [(mutant, needs)] = [each for each in IN_CLUSTERS.items() if each[0].__name__ == name]
    fit = [seed for seed in tried if needs <= cluster_traits(seed)]
    return _hunt(mutant, fit, run_cluster_seed)


def _hunt(mutant: Mutant, seeds: Iterable[int], run: Callable[[int], object]) -> tuple[int, Exception] | None:
    with mutant():
        for seed in seeds:
            try:
                run(seed)
            except (AttributeError, TypeError, ImportError):
                raise  # the bug is not planted where it should be
            except Exception as error:  # noqa: BLE001 - whatever it is, the bug was noticed
                return seed, error
    return None


def main() -> None:
    escaped = False
    for name in sys.argv[1:] or MUTANTS:
        caught = hunt(name, SEEDS)
        escaped = escaped or caught is None
        found = "ESCAPED" if caught is None else f"seed {caught[0]}: {str(caught[1]).splitlines()[0]}"
        print(f"{name}: {found}", flush=True)
    sys.exit(1 if escaped else 0)


if __name__ == "__main__":
    main()
