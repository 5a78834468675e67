def lay_out(body: bytes | memoryview, position: int, record_count: int, /) -> bytes: ...
def choose(
    body: bytes | memoryview,
    record_count: int,
    program: bytes,
    base_offset: int,
    time: int,
    has_append_time: bool,
    partition: int,
    /,
) -> tuple[bytes, int, bytes]: ...
