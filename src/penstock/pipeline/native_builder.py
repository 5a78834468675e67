"""Builder on the compiled decoder: converts its buffers to Arrow arrays without a copy."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from penstock.pipeline._decoder import RawBuilder
from penstock.pipeline.columns import FIELDS

if TYPE_CHECKING:
    from penstock.pipeline._decoder import ColumnBuffers


class NativeBuilder:
    def __init__(self, key: bool, value: bool, headers: bool) -> None:
        self._wanted = {"key": key, "value": value, "headers": headers}
        self._raw = RawBuilder(key, value, headers)
        self.append = self._raw.append

    @property
    def rows(self) -> int:
        return self._raw.rows

    @property
    def size_bytes(self) -> int:
        return self._raw.size_bytes

    def take(self) -> dict[str, pa.Array]:
        rows = self._raw.rows
        offsets, timestamps, key, value, lists, names, contents, headers = self._raw.take()
        made = {
            "offset": _numbers("offset", rows, offsets),
            "timestamp": _numbers("timestamp", rows, timestamps),
        }
        if self._wanted["key"]:
            made["key"] = _values(FIELDS["key"].type, rows, key)
        if self._wanted["value"]:
            made["value"] = _values(FIELDS["value"].type, rows, value)
        if self._wanted["headers"]:
            kind = FIELDS["headers"].type
            pairs = pa.StructArray.from_arrays(
                [_values(pa.string(), headers, names), _values(pa.binary(), headers, contents)],
                fields=list(kind.value_type),
            )
            valid, ends, _, nulls = lists
            made["headers"] = pa.Array.from_buffers(
                kind, rows, [_buffer(valid), pa.py_buffer(ends)], nulls, children=[pairs]
            )
        return made


def _numbers(name: str, rows: int, content: bytes) -> pa.Array:
    return pa.Array.from_buffers(FIELDS[name].type, rows, [None, pa.py_buffer(content)], 0)


def _values(kind: pa.DataType, count: int, column: ColumnBuffers) -> pa.Array:
    valid, ends, data, nulls = column
    buffers = [_buffer(valid), pa.py_buffer(ends), pa.py_buffer(data)]
    return pa.Array.from_buffers(kind, count, buffers, nulls)


def _buffer(content: bytes | None) -> pa.Buffer | None:
    return None if content is None else pa.py_buffer(content)
