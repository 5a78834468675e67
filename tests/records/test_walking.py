"""Layouts of records: the compiled and the Python implementation accept the same bodies and return the same bytes."""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from penstock.errors import InvalidBatch
from penstock.records import walking
from penstock.records.batch import HEADER_SIZE
from penstock.records.building import NewRecord, build_batch
from penstock.records.varints import encode
from penstock.records.walking import LAYOUT, lay_out_in_python, layouts, read_headers

LayOut = Callable[[bytes, int, int], bytes]
IMPLEMENTATIONS: list[LayOut] = [lay_out_in_python]
if find_spec("penstock.records._walker") is not None:  # the extension was compiled
    from penstock.records._walker import lay_out as lay_out_in_c

    IMPLEMENTATIONS.append(lay_out_in_c)

content = st.none() | st.binary(max_size=300)
records = st.lists(
    st.builds(
        NewRecord,
        content,
        content,
        st.integers(-(2**62), 2**62),
        st.lists(st.tuples(st.text(max_size=12), content), max_size=4).map(tuple),
    ),
    min_size=1,
    max_size=20,
)


@pytest.fixture(params=IMPLEMENTATIONS)
def lay_out(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> LayOut:
    monkeypatch.setattr(walking, "lay_out", request.param)
    chosen: LayOut = request.param
    return chosen


def body_of(batch: list[NewRecord]) -> bytes:
    return bytes(build_batch(batch)[HEADER_SIZE:])


def outcome(lay_out: LayOut, body: bytes, position: int, count: int) -> bytes | None:
    try:
        return lay_out(body, position, count)
    except ValueError:
        return None


@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
@given(records)
def test_layouts_lead_to_the_parts_of_each_record(implementation: LayOut, batch: list[NewRecord]) -> None:
    body, end = body_of(batch), 0
    found = list(LAYOUT.iter_unpack(implementation(body, 0, len(batch))))
    assert len(found) == len(batch)
    for index, (record, layout) in enumerate(zip(batch, found, strict=True)):
        start, stop, delta, offset_delta, key, key_length, value, value_length, headers, count = layout
        assert (start, offset_delta, count) == (end, index, len(record.headers))
        assert delta == record.timestamp - batch[0].timestamp
        assert (None if key_length < 0 else body[key : key + key_length]) == record.key
        assert (None if value_length < 0 else body[value : value + value_length]) == record.value
        assert read_headers(body, headers, count) == record.headers
        end = stop
    assert end == len(body)


changed_bodies = records.map(body_of).flatmap(
    lambda body: st.tuples(st.integers(0, len(body) - 1), st.integers(0, 255)).map(
        lambda change: body[: change[0]] + bytes([change[1]]) + body[change[0] + 1 :]
    )
)


@given(st.binary(max_size=60) | changed_bodies, st.integers(-1, 30), st.integers(0, 5))
@example(b"\x0e\x00" + b"\xff" * 9 + b"\x03" + b"\x00" * 5, 1, 0)
@example(b"\x20\x00" + b"\xff" * 9 + b"\x01\x00\x01\x01\x00\x00", 1, 0)
@example(b"\x02\x00", 1, 0)
@example(b"", 0, 0)
def test_implementations_agree_on_any_bytes(body: bytes, count: int, position: int) -> None:
    position = min(position, len(body))
    [expected, *others] = [outcome(each, body, position, count) for each in IMPLEMENTATIONS]
    assert all(each == expected for each in others)


def test_many_records_are_laid_out_in_pieces(lay_out: LayOut) -> None:
    batch = [NewRecord(b"key", b"%d" % number, number) for number in range(2_000)]
    body = body_of(batch)
    values = [body[value : value + length] for *_, value, length, _, _ in layouts(body, len(batch))]
    assert values == [record.value for record in batch]


@pytest.mark.parametrize("count", [0, 1, 3, 2**31 - 1])
def test_a_body_with_another_number_of_records_is_refused(lay_out: LayOut, count: int) -> None:
    body = body_of([NewRecord(b"k", b"v", 0)] * 2)
    with pytest.raises(InvalidBatch):
        list(layouts(body, count))


def test_a_header_count_beyond_the_record_is_refused(lay_out: LayOut) -> None:
    record = b"\x00\x00\x00\x01\x01" + encode(2**31 - 1)
    body = encode(len(record)) + record
    assert outcome(lay_out, body, 0, 1) is None
