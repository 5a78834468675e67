"""A derived index of a log: the entries of every segment, in a file beside it or, for the newest, in memory.

The index follows the log: appends do not update it; before a lookup, `catch_up` reads the batches that were appended
since the last lookup. Therefore the index always agrees with the log: after a truncation it forgets its entries in
memory, and the file of a segment is used only if it was made from exactly that segment. The entries of a closed segment
without a valid file are missing (`EntriesMissing`) until an `EntryFileJob` has written the file. `catch_up` and lookups
run in a thread pool, one at a time for a log; other methods run on the loop thread.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator
from dataclasses import dataclass

from penstock.errors import CorruptLog
from penstock.model import Offset
from penstock.records.batch import crc_matches
from penstock.storage.batch_scan import read_batch
from penstock.storage.derived.entries import PLACE, SORT_KEY_BYTES, IndexKind
from penstock.storage.derived.file import EntriesDamaged, EntryFile, EntryFileWriter, SortedPart
from penstock.storage.derived.part import EntryPart
from penstock.storage.disk import Disk
from penstock.storage.file_cache import FileCache
from penstock.storage.index import IndexEntry
from penstock.storage.log_view import LogView
from penstock.storage.segment import NO_TIMESTAMP, Segment
from penstock.storage.stray_files import TEMPORARY_SUFFIX

PART_ENTRIES = 1 << 19
"""Maximum number of entries in one part of a file, which limits the memory that is used to write the file."""
_MAX_UNFILED = 4
"""Maximum number of closed segments without files whose entries stay in memory; others are read again for their files.
"""

Source = EntryPart | EntryFile
NewEntries = dict[bytes, int]
"""The first new offset of each awaited sort key that was found."""


class EntriesMissing(Exception):
    """A segment has no entries yet: its file has to be written first."""


class DerivedIndex:
    def __init__(self, files: FileCache, kind: IndexKind) -> None:
        self.kind = kind
        self.end_offset = Offset(0)
        """Offset below which all batches were read."""
        self.has_skipped = False
        """True if the index fell behind and skipped segments: lookups that wait for new records have to start again."""
        self.suspects: set[Segment] = set()
        """Segments with a damaged batch, until the scrub has handled them. The keys in a damaged batch may be wrong, so
        that a lookup would skip its records unnoticed.
        """
        self.outdated: set[Segment] = set()
        """Segments whose batches were changed by a repair. The loop thread adds them; the next `catch_up` drops their
        files.
        """
        self._files = files
        self._sources: dict[Segment, Source] = {}
        self._generation = -1
        self._followed_from = 0
        """Base offset of the first segment whose entries are kept in memory. Older segments have files, or get them
        from an `EntryFileJob`.
        """

    def catch_up(self, view: LogView, awaited: Container[bytes]) -> NewEntries:
        """Read the batches that were appended since the last call. Return the `awaited` sort keys among their entries.

        Waits for the disk.
        """
        if view.generation != self._generation:
            self._forget(set(self._sources))
            self._generation = view.generation
            self._followed_from = view.segments[-1].base_offset if view.segments else view.log_end_offset
        while self.outdated:
            self.drop(self.outdated.pop())
        self._forget(self._sources.keys() - set(view.segments))
        self._skip_surplus(view.segments)
        found: NewEntries = {}
        for segment in view.segments:
            if self._is_followed(segment):
                end = view.end if segment is view.segments[-1] else segment.size
                self._follow(segment, end, view.max_decompressed_bytes, awaited, found)
            elif segment not in self._sources and self.kind.suffix in segment.derived:
                self._open(segment)
        self.end_offset = view.log_end_offset
        return found

    def is_behind(self, view: LogView) -> bool:
        """True if `catch_up` has to be called before a lookup in this view."""
        return (
            view.generation != self._generation
            or bool(self.outdated)
            or self.end_offset < view.log_end_offset
            or any(self._is_followed(segment) and segment not in self._sources for segment in view.segments)
        )

    def source(self, segment: Segment) -> Source:
        try:
            return self._sources[segment]
        except KeyError:
            raise EntriesMissing from None

    def drop(self, segment: Segment) -> None:
        """Stop using the damaged or outdated file of a segment; an `EntryFileJob` writes a new one."""
        self._forget({segment})
        segment.derived -= {self.kind.suffix}

    def unfiled(self, segments: tuple[Segment, ...]) -> tuple[Segment, EntryPart | None] | None:
        """The newest closed segment without a file, and its entries if all are in memory; None if all have files."""
        for segment in reversed(segments[:-1]):
            source = self._sources.get(segment)
            if source is None and not self._is_followed(segment):
                return segment, None
            if isinstance(source, EntryPart) and source.position >= segment.size:
                return segment, source
        return None

    def filed(self, segment: Segment, file: EntryFile) -> None:
        """Use the file of a segment, which was put in place, instead of the entries in memory."""
        segment.derived |= {self.kind.suffix}
        self._sources[segment] = file

    def _is_followed(self, segment: Segment) -> bool:
        return segment.base_offset >= self._followed_from

    def _follow(
        self,
        segment: Segment,
        end: int,
        max_decompressed_bytes: int,
        awaited: Container[bytes],
        found: NewEntries,
    ) -> None:
        source = self._sources.get(segment)
        if source is None:
            source = self._sources[segment] = EntryPart()
        if isinstance(source, EntryFile):
            return
        for entries in extend(source, segment, end, self.kind, max_decompressed_bytes, self.suspects):
            for entry in entries if awaited else ():
                if entry[:SORT_KEY_BYTES] in awaited:
                    offset, *_ = PLACE.unpack_from(entry, SORT_KEY_BYTES)
                    found.setdefault(entry[:SORT_KEY_BYTES], segment.base_offset + offset)

    def _open(self, segment: Segment) -> None:
        try:
            self._sources[segment] = EntryFile(self._files, segment, self.kind)
        except (EntriesDamaged, FileNotFoundError):
            segment.derived -= {self.kind.suffix}

    def _skip_surplus(self, segments: tuple[Segment, ...]) -> None:
        unfiled = [
            each
            for each in segments[:-1]
            if self._is_followed(each) and not isinstance(self._sources.get(each), EntryFile)
        ]
        if len(unfiled) > _MAX_UNFILED:
            self._forget(set(unfiled[:-_MAX_UNFILED]))
            self._followed_from = unfiled[-_MAX_UNFILED].base_offset
            self.has_skipped = True

    def _forget(self, segments: set[Segment]) -> None:
        for segment in segments:
            source = self._sources.pop(segment, None)
            if isinstance(source, EntryFile):
                source.close()


def extend(
    part: EntryPart,
    segment: Segment,
    end: int,
    kind: IndexKind,
    max_decompressed_bytes: int,
    suspects: set[Segment] | None = None,
) -> Iterator[list[bytes]]:
    """Read a segment from the end of `part` up to the position `end` and add the entries; yield those of each batch.

    Damage is skipped, and a segment with damage is added to `suspects`.
    """
    while part.position < end:
        here = IndexEntry(0, part.position, NO_TIMESTAMP)
        try:
            for position, header in segment.walk(end, here, wait=True):
                batch = read_batch(segment.file, position, header)
                if suspects is not None and not crc_matches(batch, header):
                    suspects.add(segment)
                entries = kind.entries_of(
                    batch, header, segment.base_offset, position, max_decompressed_bytes
                )
                part.add(entries, position, header.size)
                yield entries
        except CorruptLog:
            if suspects is not None:
                suspects.add(segment)
            behind = segment.after_damage(IndexEntry(0, part.position, NO_TIMESTAMP), end)
            part.position = end if behind is None else behind.position


@dataclass(slots=True)
class EntryFileJob:
    """Write the file of a closed segment. `write` takes long and writes a temporary file; `place` renames it, and is
    called only while no other job changes files of the log. Both wait for the disk.
    """

    disk: Disk
    files: FileCache
    kind: IndexKind
    segment: Segment
    part: SortedPart | None
    """All entries of the segment; None if `write` has to read the segment."""
    max_decompressed_bytes: int
    is_wanted: Callable[[], bool]
    suspects: set[Segment] | None = None
    """Set to which the segment is added if one of its batches is damaged."""

    @property
    def _path(self) -> str:
        return self.segment.derived_path(self.kind.suffix)

    @property
    def _temporary(self) -> str:
        return self._path + TEMPORARY_SUFFIX

    def write(self) -> bool:
        """Write the temporary file; False if the file is no longer wanted."""
        file = self.disk.open(self._temporary, create=True)
        writer = EntryFileWriter(file, self.segment.base_offset, self.kind)
        part = self.part or self._read_entries(writer)
        if part is None:
            return False
        writer.add(part)
        writer.finish(self.segment, part.last_position)
        file.close()
        return True

    def _read_entries(self, writer: EntryFileWriter) -> EntryPart | None:
        """Read the segment; write all parts but the last, and return the last. None if the file is no longer wanted."""
        part, segment = EntryPart(), self.segment
        for _ in extend(part, segment, segment.size, self.kind, self.max_decompressed_bytes, self.suspects):
            if not self.is_wanted():
                return None
            if part.count >= PART_ENTRIES:
                writer.add(part)
                part.clear()
        return part

    def place(self) -> EntryFile:
        self.disk.rename(self._temporary, self._path)
        self.disk.sync_dir(self._path.rpartition("/")[0])
        return EntryFile(self.files, self.segment, self.kind)

    def discard(self) -> None:
        self.disk.remove(self._temporary)
