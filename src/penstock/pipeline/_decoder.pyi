ColumnBuffers = tuple[bytes | None, bytes, bytes, int]

class RawBuilder:
    def __init__(self, key: bool, value: bool, headers: bool, /) -> None: ...
    def append(
        self,
        body: bytes | memoryview,
        record_count: int,
        base_offset: int,
        base_timestamp_ms: int,
        append_timestamp_ms: int,
        first_offset: int,
        end_offset: int,
        /,
    ) -> None: ...
    @property
    def rows(self) -> int: ...
    @property
    def size_bytes(self) -> int: ...
    def take(
        self,
    ) -> tuple[
        bytes, bytes, ColumnBuffers, ColumnBuffers, ColumnBuffers, ColumnBuffers, ColumnBuffers, int
    ]: ...
