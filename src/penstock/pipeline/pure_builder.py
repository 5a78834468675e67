"""Builder in Python, for installations without a compiler. Its results equal those of the native builder."""

from __future__ import annotations

import pyarrow as pa

from penstock.pipeline.columns import FIELDS
from penstock.records.iteration import walk


class PureBuilder:
    def __init__(self, key: bool, value: bool, headers: bool) -> None:
        self._wants_key = key
        self._wants_value = value
        self._wants_headers = headers
        self._clear()

    def _clear(self) -> None:
        self._keys: list[bytes | None] = []
        self._values: list[bytes | None] = []
        self._offsets: list[int] = []
        self._timestamps: list[int] = []
        self._headers: list[list[dict[str, str | bytes | None]] | None] = []
        self.size_bytes = 0

    @property
    def rows(self) -> int:
        return len(self._offsets)

    def append(
        self,
        body: bytes | memoryview,
        record_count: int,
        base_offset: int,
        base_timestamp_ms: int,
        append_timestamp_ms: int,
        first_offset: int,
        end_offset: int,
    ) -> None:
        body = bytes(body)
        for delta, offset_delta, key, key_length, value, value_length, headers in walk(body, record_count):
            for name, _ in headers:
                name.encode()  # raises ValueError for names that are not UTF-8: an Arrow string cannot contain them
            offset = base_offset + offset_delta
            if not first_offset <= offset < end_offset:
                continue
            self._offsets.append(offset)
            timestamp = base_timestamp_ms + delta if append_timestamp_ms < 0 else append_timestamp_ms
            self._timestamps.append(timestamp * 1000)
            if self._wants_key:
                self._keys.append(None if key_length < 0 else body[key : key + key_length])
            if self._wants_value:
                self._values.append(None if value_length < 0 else body[value : value + value_length])
            if self._wants_headers:
                named = [{"key": name, "value": content} for name, content in headers]
                self._headers.append(named or None)
            self.size_bytes += max(0, key_length) + max(0, value_length) + 16

    def take(self) -> dict[str, pa.Array]:
        made = {
            "offset": pa.array(self._offsets, FIELDS["offset"].type),
            "timestamp": pa.array(self._timestamps, pa.int64()).cast(FIELDS["timestamp"].type),
        }
        if self._wants_key:
            made["key"] = pa.array(self._keys, FIELDS["key"].type)
        if self._wants_value:
            made["value"] = pa.array(self._values, FIELDS["value"].type)
        if self._wants_headers:
            made["headers"] = pa.array(self._headers, FIELDS["headers"].type)
        self._clear()
        return made
