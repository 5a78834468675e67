"""Trial of a filter on single records before a view with this filter is created."""

from __future__ import annotations

from penstock.filters.matching import Filter
from penstock.records.batch import HEADER_SIZE, read_header
from penstock.records.building import NewRecord, build_batch


def is_match(matcher: Filter, record: NewRecord, offset: int) -> bool | None:
    """True if a record matches, False if not, None if the evaluation fails."""
    batch = memoryview(build_batch([record], base_offset=offset))
    matches, failed = matcher.select(batch[HEADER_SIZE:], read_header(batch))
    return None if failed else bool(matches)
