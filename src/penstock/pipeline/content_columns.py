"""Columns that are computed from the content of records: `size` and `crc`, defined in `records.content`.

These columns are not stored; they are computed in the same way for rows of the log and of the archive.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.pipeline.columns import CRC, FIELDS, SIZE
from penstock.records.content import content_crc

_COMPUTED_FROM = {SIZE: ("key", "value", "headers"), CRC: ("key", "value")}

Lengths = np.ndarray[tuple[int], np.dtype[np.int64]]


def with_sources(columns: tuple[str, ...]) -> tuple[str, ...]:
    """The columns, followed by the columns that they are computed from."""
    sources = [source for name in columns for source in _COMPUTED_FROM.get(name, ())]
    return tuple(dict.fromkeys((*columns, *sources)))


def is_computed(name: str) -> bool:
    return name in _COMPUTED_FROM


def computed(name: str, column: Callable[[str], pa.Array]) -> pa.Array:
    """Computed column `name`. `column` returns another column of the same rows."""
    key, value = column("key"), column("value")
    if name == CRC:
        checksums = map(content_crc, key.to_pylist(), value.to_pylist())
        return pa.array(checksums, FIELDS[CRC].type)
    sizes = _lengths(key) + _lengths(value) + _header_sizes(column("headers"))
    return pa.array(sizes, pa.int64()).cast(FIELDS[SIZE].type)


def _header_sizes(headers: pa.Array) -> Lengths:
    """Bytes of header names and header values in each row."""
    pairs = headers.flatten()
    of_pairs = _lengths(pc.struct_field(pairs, "key")) + _lengths(pc.struct_field(pairs, "value"))
    counts = _numbers(pc.list_value_length(headers))
    before = np.concatenate(([0], np.cumsum(of_pairs)))
    ends = np.cumsum(counts)
    sizes: Lengths = before[ends] - before[ends - counts]
    return sizes


def _lengths(content: pa.Array) -> Lengths:
    return _numbers(pc.binary_length(content))


def _numbers(values: pa.Array) -> Lengths:
    numbers: Lengths = pc.fill_null(values, 0).cast(pa.int64()).to_numpy()
    return numbers
