"""Cleanup of files that a crash left in a partition's directory, before the log is loaded.

Compaction replaces segments in steps, so that a crash leaves either the old ones or the new one: it writes
`<base>.log.cleaned` and `<base>.index.cleaned` (whose last entry is the offset up to which segments are replaced) and
syncs them; renames the index and then the log to `.swap`; removes the old segments from `base` up to that offset;
renames the index and then the log to their names; with a `sync_dir` after every step. A `.log.swap` is therefore
complete and is put in place here, after recovery has entered the new segment into the list of closed segments
(`recovery_findings`); earlier stages are removed. Unknown names are left alone.
"""

from __future__ import annotations

from struct import error as struct_error
from typing import NamedTuple

from penstock.storage.closed_segments import CLOSED_SEGMENTS_FILE
from penstock.storage.disk import Disk
from penstock.storage.index import ENTRY_SIZE, IndexDamaged, IndexEntry, decode_entry
from penstock.storage.segment import DERIVED_SUFFIXES, INDEX_SUFFIX, LOG_SUFFIX, segment_name
from penstock.storage.snapshot import SNAPSHOT_SUFFIX

CLEANED_SUFFIX = ".cleaned"
SWAP_SUFFIX = ".swap"
DELETED_SUFFIX = ".deleted"
TEMPORARY_SUFFIX = ".tmp"
DAMAGED_SUFFIX = ".damaged"
"""Suffix of a segment file that was found to hold other records than the log wrote; kept for the operator."""
_KNOWN_SUFFIXES = (
    LOG_SUFFIX,
    INDEX_SUFFIX,
    *DERIVED_SUFFIXES,
    SNAPSHOT_SUFFIX,
    CLOSED_SEGMENTS_FILE,
    DAMAGED_SUFFIX,
)
_NAME_DIGITS = len(segment_name(0))


def offsets_with(names: list[str], suffix: str) -> list[int]:
    """The offsets in names of the form `<offset><suffix>`, in order."""
    stems = (name[: -len(suffix)] for name in names if name.endswith(suffix))
    return sorted(
        int(stem) for stem in stems if len(stem) == _NAME_DIGITS and stem.isascii() and stem.isdigit()
    )


def derived_files(names: list[str]) -> dict[int, frozenset[str]]:
    """Suffixes of the files of derived indexes, by the base offset of their segment."""
    found: dict[int, frozenset[str]] = {}
    for name in names:
        stem, suffix = name[:_NAME_DIGITS], name[_NAME_DIGITS:]
        if name.endswith(DERIVED_SUFFIXES) and suffix.startswith(".") and stem.isascii() and stem.isdigit():
            found[int(stem)] = found.get(int(stem), frozenset()) | {suffix}
    return found


class PendingSwap(NamedTuple):
    """A segment that `tidy_directory` puts in the place of others."""

    base_offset: int
    end_offset: int
    path: str
    """Path of its log file before it is renamed."""
    size: int | None
    """Size of the log file according to its index; None without a readable index."""


def pending_swaps(disk: Disk, directory: str, names: list[str]) -> list[PendingSwap]:
    """All swaps that a crash has interrupted and that `tidy_directory` finishes."""
    swaps = []
    for base_offset in offsets_with(names, LOG_SUFFIX + SWAP_SUFFIX):
        path = f"{directory}/{segment_name(base_offset)}"
        last = _last_entry(disk, path + INDEX_SUFFIX + SWAP_SUFFIX, base_offset)
        if last is None:
            last = _last_entry(disk, path + INDEX_SUFFIX, base_offset)
        end_offset = base_offset + (1 if last is None else last.relative_offset)
        size = None if last is None else last.position
        swaps.append(PendingSwap(base_offset, end_offset, path + LOG_SUFFIX + SWAP_SUFFIX, size))
    return swaps


def tidy_directory(disk: Disk, directory: str, names: list[str]) -> list[str]:
    """Finish or undo interrupted swaps and remove leftovers; return the names in the directory afterwards."""
    if all(name.endswith(_KNOWN_SUFFIXES) for name in names) and not _lonely(names):
        return names
    for name in names:
        if name.endswith((CLEANED_SUFFIX, DELETED_SUFFIX, TEMPORARY_SUFFIX)):
            disk.remove(f"{directory}/{name}")
    for base_offset in offsets_with(names, LOG_SUFFIX + SWAP_SUFFIX):
        _finish_swap(disk, directory, base_offset)
    for base_offset in offsets_with(names, INDEX_SUFFIX + SWAP_SUFFIX):
        disk.remove(f"{directory}/{segment_name(base_offset)}{INDEX_SUFFIX}{SWAP_SUFFIX}")
    for name in _lonely(disk.list(directory)):
        disk.remove(f"{directory}/{name}")
    disk.sync_dir(directory)
    return disk.list(directory)


def _lonely(names: list[str]) -> list[str]:
    """Names of index files without a log file."""
    logs = set(offsets_with(names, LOG_SUFFIX))
    indexes = [(base_offset, INDEX_SUFFIX) for base_offset in offsets_with(names, INDEX_SUFFIX)]
    derived = [
        (base_offset, suffix) for base_offset, found in derived_files(names).items() for suffix in found
    ]
    return [segment_name(base) + suffix for base, suffix in indexes + sorted(derived) if base not in logs]


def _finish_swap(disk: Disk, directory: str, base_offset: int) -> None:
    path = f"{directory}/{segment_name(base_offset)}"
    index = path + INDEX_SUFFIX + SWAP_SUFFIX
    last = _last_entry(disk, index, base_offset)
    # Without a readable index only the segment of the same name is replaced.
    end_offset = base_offset + (1 if last is None else last.relative_offset)
    names = disk.list(directory)
    derived = derived_files(names)
    for old in offsets_with(names, LOG_SUFFIX):
        if base_offset <= old < end_offset:
            for suffix in sorted(derived.get(old, ())):
                disk.remove(f"{directory}/{segment_name(old)}{suffix}")
            disk.remove(f"{directory}/{segment_name(old)}{INDEX_SUFFIX}")
            disk.remove(f"{directory}/{segment_name(old)}{LOG_SUFFIX}")
    disk.sync_dir(directory)
    if disk.exists(index):
        disk.rename(index, path + INDEX_SUFFIX)
        disk.sync_dir(directory)
    disk.rename(path + LOG_SUFFIX + SWAP_SUFFIX, path + LOG_SUFFIX)


def _last_entry(disk: Disk, index: str, base_offset: int) -> IndexEntry | None:
    """Last entry of an index, which has the end offset and the size of the segment; None if it cannot be read."""
    try:
        content = disk.read(index)
        return decode_entry(base_offset, content, len(content) - ENTRY_SIZE)
    except (FileNotFoundError, IndexDamaged, struct_error):
        return None
