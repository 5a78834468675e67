"""Native and Python builder: equal rows for valid batches, an error for invalid ones."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from importlib.util import find_spec

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from penstock.errors import InvalidBatch
from penstock.pipeline.decoding import BuilderType
from penstock.pipeline.pure_builder import PureBuilder
from penstock.records.batch import HEADER_SIZE, read_header
from penstock.records.building import NewRecord, build_batch

BUILDERS: list[BuilderType] = [PureBuilder]
if find_spec("penstock.pipeline._decoder") is not None:  # the extension was compiled
    from penstock.pipeline.native_builder import NativeBuilder

    BUILDERS.append(NativeBuilder)

content = st.none() | st.binary(max_size=300)
records = st.builds(
    NewRecord,
    content,
    content,
    st.integers(-(2**40), 2**41),
    st.lists(st.tuples(st.text(max_size=12), content), max_size=4).map(tuple),
)
REFUSED = (ValueError, InvalidBatch)


def rows_of(
    make: BuilderType,
    batches: Sequence[Sequence[NewRecord]],
    first: int = 0,
    end: int = 1 << 60,
    columns: tuple[bool, bool, bool] = (True, True, True),
) -> dict[str, pa.Array]:
    builder = make(*columns)
    base = 0
    for batch in batches:
        built = build_batch(batch, base_offset=base)
        header = read_header(memoryview(built))
        builder.append(
            memoryview(built)[HEADER_SIZE:],
            header.record_count,
            header.base_offset,
            header.base_timestamp,
            -1,
            first,
            end,
        )
        base += len(batch)
    taken = builder.take()
    for array in taken.values():
        array.validate(full=True)
    assert builder.rows == 0
    assert builder.take()["offset"].to_pylist() == []
    return taken


@given(st.lists(st.lists(records, min_size=1, max_size=5), max_size=4), st.integers(0, 6), st.integers(0, 20))
@settings(max_examples=300, deadline=None)
def test_builders_return_the_written_records(batches: list[list[NewRecord]], first: int, end: int) -> None:
    flat = [record for batch in batches for record in batch]
    wanted = list(enumerate(flat))[first:end]
    for make in BUILDERS:
        rows = rows_of(make, batches, first, end)
        assert rows["offset"].to_pylist() == [offset for offset, _ in wanted]
        assert rows["key"].to_pylist() == [record.key for _, record in wanted]
        assert rows["value"].to_pylist() == [record.value for _, record in wanted]
        microseconds = rows["timestamp"].cast(pa.int64()).to_pylist()
        assert microseconds == [record.timestamp * 1000 for _, record in wanted]
        headers = [[{"key": k, "value": v} for k, v in record.headers] or None for _, record in wanted]
        assert rows["headers"].to_pylist() == headers


@pytest.mark.parametrize("make", BUILDERS)
@pytest.mark.parametrize("columns", [(False, False, False), (True, False, False), (False, True, True)])
def test_only_requested_columns_are_built(make: BuilderType, columns: tuple[bool, bool, bool]) -> None:
    taken = rows_of(make, [[NewRecord(b"k", b"v", 1, (("h", b"x"),))]], columns=columns)
    wanted = {name for name, is_wanted in zip(("key", "value", "headers"), columns, strict=True) if is_wanted}
    assert taken.keys() == wanted | {"offset", "timestamp"}


@pytest.mark.parametrize("make", BUILDERS)
def test_append_time_applies_to_all_records_of_a_batch(make: BuilderType) -> None:
    built = build_batch([NewRecord(None, b"a", 5), NewRecord(None, b"b", 9)])
    builder = make(True, True, False)
    builder.append(memoryview(built)[HEADER_SIZE:], 2, 0, 5, 77, 0, 10)
    assert builder.take()["timestamp"].cast(pa.int64()).to_pylist() == [77_000, 77_000]


@given(
    st.lists(records, min_size=1, max_size=4),
    st.data(),
)
@settings(max_examples=600, deadline=None)
def test_builders_agree_on_damaged_bytes_and_keep_earlier_rows(
    batch: list[NewRecord], data: st.DataObject
) -> None:
    body = bytearray(build_batch(batch)[HEADER_SIZE:])
    for _ in range(data.draw(st.integers(1, 4))):
        body[data.draw(st.integers(0, len(body) - 1))] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(0, len(body)) | st.just(len(body)))
    outcomes = []
    for make in BUILDERS:
        builder = make(True, True, True)
        good = memoryview(build_batch([NewRecord(b"good", b"row", 1, (("a", None),))]))[HEADER_SIZE:]
        builder.append(good, 1, 0, 1, -1, 0, 1 << 60)
        try:
            builder.append(memoryview(bytes(body[:cut])), len(batch), 1, 0, -1, 0, 1 << 60)
            is_refused = False
        except REFUSED:
            is_refused = True
        except OverflowError:
            return  # a timestamp outside Arrow's range: the native builder wraps, the Python builder raises
        taken = builder.take()
        for array in taken.values():
            array.validate(full=True)
        assert taken["key"].to_pylist()[0] == b"good"
        rows = {name: taken[name].to_pylist() for name in ("key", "value", "offset", "headers")}
        outcomes.append(None if is_refused else rows)
    assert all(outcome == outcomes[0] for outcome in outcomes)


@given(st.binary(max_size=400), st.integers(-5, 2**31 - 1))
@example(b"\x02\x00", 1)
@settings(max_examples=500, deadline=None)
def test_builders_survive_arbitrary_bytes(body: bytes, count: int) -> None:
    for make in BUILDERS:
        builder = make(True, True, True)
        with suppress(*REFUSED, OverflowError):
            builder.append(body, count, 0, 0, -1, 0, 1 << 60)
            for array in builder.take().values():
                array.validate(full=True)
