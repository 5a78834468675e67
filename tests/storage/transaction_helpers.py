"""Transactions on a log in a test, and a consumer of committed records that works as Kafka's clients do."""

from __future__ import annotations

from collections.abc import Sequence

from log_helpers import EPOCH, NOW_MS, header_of

from penstock.model import Offset
from penstock.records.batch import read_header
from penstock.records.building import NewRecord, build_batch
from penstock.records.control import Marker, build_marker, read_marker
from penstock.records.iteration import iterate, read_batches
from penstock.storage.log import AppendInfo, Log


class Writer:
    """One transactional producer of one partition, of transaction version 1."""

    def __init__(self, log: Log, producer_id: int = 1, epoch: int = 0) -> None:
        self.log = log
        self.producer_id = producer_id
        self.epoch = epoch
        self.sequence = 0

    def write(
        self, *values: bytes, keys: Sequence[bytes] | None = None, transactional: bool = True
    ) -> AppendInfo:
        keys = keys or [b"k"] * len(values)
        batch = memoryview(
            build_batch(
                [NewRecord(key, value, NOW_MS) for key, value in zip(keys, values, strict=True)],
                producer_id=self.producer_id,
                producer_epoch=self.epoch,
                base_sequence=self.sequence,
                transactional=transactional,
            )
        )
        info = self.log.append(batch, header_of(batch), EPOCH, NOW_MS)
        self.sequence += len(values)
        return info

    def end(self, *, commit: bool, coordinator_epoch: int = 0, bump: bool = False) -> AppendInfo:
        """Write the marker; with `bump` as in transaction version 2."""
        epoch = self.epoch + bump
        marker = Marker(self.producer_id, epoch, commit, coordinator_epoch)
        assert self.log.producers.check_marker(marker, is_epoch_new=bump)
        info = append_marker(self.log, marker)
        if bump:
            self.epoch, self.sequence = epoch, 0
        return info

    def commit(self, *, bump: bool = False) -> AppendInfo:
        return self.end(commit=True, bump=bump)

    def abort(self, *, bump: bool = False) -> AppendInfo:
        return self.end(commit=False, bump=bump)


def append_marker(log: Log, marker: Marker) -> AppendInfo:
    producer_id, epoch, is_commit, coordinator_epoch = marker
    batch = memoryview(build_marker(producer_id, epoch, is_commit, coordinator_epoch, NOW_MS))
    return log.append(batch, read_header(batch), EPOCH, NOW_MS)


def read_committed(log: Log, max_bytes: int = 200) -> list[tuple[int, bytes]]:
    """(offset, value) of all records that a read_committed consumer gets, in fetches of about this size."""
    offset, found = log.log_start_offset, list[tuple[int, bytes]]()
    below = log.last_stable_offset
    while offset < below:
        records, aborted = log.read_committed(offset, max_bytes, below=below, at_least_one=True, wait=True)
        assert aborted == sorted(aborted, key=lambda each: each.first_offset)
        batches = list(read_batches(memoryview(records.read())))
        assert batches, f"nothing at {offset}, where {below} is stable"
        left_out = set[int]()
        for header, batch in batches:
            while aborted and aborted[0].first_offset <= header.last_offset:
                left_out.add(aborted.pop(0).producer_id)
            if header.is_control:
                marker = read_marker(batch, header)
                if marker is not None and not marker.is_commit:
                    left_out.discard(marker.producer_id)
            elif not (header.is_transactional and header.producer_id in left_out):
                found += [
                    (record.offset, record.value or b"")
                    for record in iterate(batch, header)
                    if record.offset >= offset
                ]
        offset = Offset(batches[-1][0].next_offset)
    return found


def commit_all(log: Log) -> None:
    log.high_watermark = log.log_end_offset
