"""Typed columns of values: the fast path and the path row by row agree, and each bad value has a reason."""

from __future__ import annotations

import io
import json
from typing import Any

import fastavro
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from penstock.declared.value_schema import parse_schema
from penstock.pipeline.typed.value_decoder import NO_VALUE, ValueDecoder

PLAIN = "id bigint not null, name string, total double, tags array<string>, at struct<x:int,y:boolean>"

numbers = st.integers(-(2**70), 2**70) | st.floats(allow_nan=False, allow_infinity=False)
scalars = st.none() | st.booleans() | numbers | st.text()
objects = st.dictionaries(
    st.sampled_from(["id", "name", "total", "tags", "at", "other"]),
    scalars | st.lists(st.text() | st.none(), max_size=3) | st.dictionaries(st.sampled_from("xy"), scalars),
)
values = st.none() | st.binary() | objects.map(lambda found: json.dumps(found).encode())


def columns(decoder: ValueDecoder, found: list[bytes | None]) -> list[list[Any]]:
    return [column.to_pylist() for column in decoder.decode(pa.array(found, pa.binary()))]


@given(st.lists(values, max_size=8))
def test_fast_path_and_rows_give_the_same_columns(found: list[bytes | None]) -> None:
    decoder = ValueDecoder(parse_schema(PLAIN))
    array = pa.array(found, pa.binary())
    fast = decoder._decode_plain(array) if found else None
    if fast is not None:
        slow = decoder._decode_rows(found)
        assert [each.to_pylist() for each in fast] == [each.to_pylist() for each in slow]


def test_plain_batches_take_the_fast_path() -> None:
    decoder = ValueDecoder(parse_schema(PLAIN))
    found = [
        json.dumps({"id": number, "name": "x", "total": 1.5, "tags": ["a"]}).encode() for number in range(5)
    ]
    assert decoder._decode_plain(pa.array(found, pa.binary())) is not None


def test_each_bad_value_has_a_reason_and_the_others_their_columns() -> None:
    found = [
        b'{"id": 1}',
        b'{"id": "x"}',
        b"nope",
        None,
        b'{"name": "a"}',
        b'{"id": 1, "at": {"x": 5000000000}}',
        b'{"id": 1}\n{"id": 2}',
        b"[]",
        b'{"id": 7, "total": 3}',
    ]
    ids, *_, reasons = columns(ValueDecoder(parse_schema(PLAIN)), found)
    assert ids == [1, None, None, None, None, None, None, None, 7]
    assert reasons[1] == "id: 'x' is not of type bigint"
    assert reasons[3] == NO_VALUE
    assert reasons[4] == "id is missing"
    assert reasons[5] == "at.x: 5000000000 is not of type int"
    assert [reason is None for reason in reasons] == [True, *[False] * 7, True]


def test_times_dates_decimals_and_maps() -> None:
    decoder = ValueDecoder(parse_schema("t timestamp, d date, p decimal(5,2), m map<string,int>, b binary"))
    good = b'{"t":"2026-03-01T12:00:00+01:00","d":"2026-03-01","p":"12.50","m":{"a":1},"b":"aGk="}'
    times, dates, prices, maps, contents, reasons = columns(
        decoder, [good, b'{"p": 1234.5}', b'{"d": "soon"}']
    )
    assert times[0].isoformat() == "2026-03-01T11:00:00+00:00"
    assert (str(dates[0]), str(prices[0]), maps[0], contents[0]) == ("2026-03-01", "12.50", [("a", 1)], b"hi")
    assert reasons[1] == "p: 1234.5 does not fit decimal(5,2)"
    assert "soon" in reasons[2]


def test_json_schema_constraints_are_checked() -> None:
    properties = {"id": {"type": "integer", "minimum": 3}, "kind": {"enum": ["a"]}}
    decoder = ValueDecoder(parse_schema({"type": "object", "properties": properties, "required": ["id"]}))
    *_, reasons = columns(
        decoder, [b'{"id": 3, "kind": "a"}', b'{"id": 1}', b"{}", b'{"id": 3, "kind": "b"}']
    )
    assert reasons[0] is None
    assert "less than the minimum of 3" in reasons[1]
    assert "required" in reasons[2]
    assert reasons[3].startswith("kind: ")


def test_avro_with_and_without_the_prefix_of_a_registry() -> None:
    fields = [{"name": "id", "type": "long"}, {"name": "note", "type": ["null", "string"]}]
    document = {"type": "record", "name": "order", "fields": fields}
    content = io.BytesIO()
    fastavro.schemaless_writer(content, document, {"id": 5, "note": "x"})
    plain = content.getvalue()
    ids, notes, reasons = columns(ValueDecoder(parse_schema(document)), [plain, b"\0\0\0\0\7" + plain, b"z"])
    assert (ids, notes) == ([5, 5, None], ["x", "x", None])
    assert reasons[:2] == [None, None]
    assert reasons[2].startswith("not valid Avro")
