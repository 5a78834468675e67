"""Lookups by key in a test, and the same result by reading the whole log."""

from __future__ import annotations

from compaction_helpers import batches

from penstock.model import Offset
from penstock.records.iteration import Record, iterate, read_batches
from penstock.storage.derived.index import DerivedIndex, EntriesMissing, EntryFileJob
from penstock.storage.keys.entries import KEYS, idempotency_key
from penstock.storage.keys.lookup import KeyQuery, KeyRecords, find_original, look_up
from penstock.storage.log import Log
from penstock.storage.log_view import LogView


class KeyReader:
    """A key index, driven as a broker drives it."""

    def __init__(self, log: Log) -> None:
        self.log = log
        self.index = DerivedIndex(log.files, KEYS)

    def view(self) -> LogView:
        view = LogView.of(self.log)
        self.index.catch_up(view, ())
        return view

    def file_one(self) -> bool:
        """Make the file of one segment that has none."""
        self.view()
        found = self.index.unfiled(self.log.segments)
        if found is None:
            return False
        segment, part = found
        job = EntryFileJob(self.log.files.disk, self.log.files, KEYS, segment, part, 1 << 20, lambda: True)
        assert job.write()
        if not self.log.jobs.begin_filing(segment):
            job.discard()
            return False
        self.index.filed(segment, job.place())
        self.log.jobs.finish_filing(segment)
        return True

    def file_all(self) -> int:
        count = 0
        while self.file_one():
            count += 1
        return count

    def page(
        self, key: bytes, from_offset: int = 0, max_records: int = 1_000, max_bytes: int = 1 << 20
    ) -> KeyRecords:
        """Look up one page; a missing index is made first."""
        query = KeyQuery(key, Offset(from_offset), max_records, max_bytes)
        while True:
            view = self.view()
            try:
                return look_up(self.index, view, query)
            except EntriesMissing:
                if self.index.suspects:
                    self.index.suspects.clear()  # as after a scrub, whose result these tests ignore
                else:
                    assert self.file_one()

    def records(self, key: bytes, from_offset: int = 0, max_records: int = 1_000) -> list[Record]:
        """All pages of a key."""
        found: list[Record] = []
        while True:
            page = self.page(key, from_offset, max_records)
            assert page.damage is None
            found += records_of(page)
            assert page.next_offset >= from_offset
            if page.is_complete:
                return found
            assert page.batches
            from_offset = page.next_offset

    def original(self, key: bytes | None, own_key: bytes) -> Offset | None:
        while True:
            view = self.view()
            try:
                original = find_original(self.index, view, key, own_key)
                return None if original is None else original.offset
            except EntriesMissing:
                assert self.file_one()


def records_of(page: KeyRecords) -> list[Record]:
    content = memoryview(b"".join(page.batches))
    return [record for header, batch in read_batches(content) for record in iterate(batch, header)]


def scan(log: Log, key: bytes, from_offset: int = 0) -> list[Record]:
    """The expected result of a lookup, by reading everything."""
    below, aborted = log.last_stable_offset, log.producers.aborted
    return [
        record
        for header, batch in batches(log)
        if not header.is_control
        and not (header.is_transactional and aborted.has(header.producer_id, header.base_offset))
        for record in iterate(batch, header)
        if record.key == key and max(from_offset, log.log_start_offset) <= record.offset < below
    ]


def scan_original(log: Log, key: bytes | None, own_key: bytes) -> int | None:
    return next(
        (
            record.offset
            for header, batch in batches(log)
            if not header.is_control
            for record in iterate(batch, header)
            if record.key == key
            and idempotency_key(record.headers) == own_key
            and record.offset >= log.log_start_offset
        ),
        None,
    )
