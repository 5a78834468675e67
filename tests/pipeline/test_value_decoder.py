"""Typed columns of values: the fast path and the path row by row agree, and each bad value has a reason."""

from __future__ import annotations

import io
import json
from typing import Any

import fastavro
import pyarrow as pa
from hypothesis import example, given
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


TIMES = "day date, at timestamp, id bigint"
_DIGITS = st.integers(0, 99).map("{:02}".format)
_YEARS = st.sampled_from(["0000", "0001", "1582", "1969", "2024", "2026", "9999", "12026"])
_FRACTIONS = st.sampled_from(["", ".5", ".123", ".1234", ".999999", ".1234567"])
_ZONES = st.sampled_from(["", "Z", "z", "+00:00", "-05:30", "+23:59", "+24:00", "+05:61", "+0100"])
days = st.builds("{}-{}-{}".format, _YEARS, _DIGITS, _DIGITS)
times = st.builds(
    "{}{}{}:{}:{}{}{}".format, days, st.sampled_from("T "), _DIGITS, _DIGITS, _DIGITS, _FRACTIONS, _ZONES
)
texts = days | times | st.dates().map(str) | st.datetimes().map(lambda at: f"{at.isoformat()}Z") | scalars


@example(day="2024-02-29", at="2024-02-29T23:59:59.999999-05:30")
@example(day="2026-02-29", at="2026-03-01T24:00:00Z")
@example(day="0001-01-01", at="0001-01-01T00:00:00+23:59")
@given(texts, texts)
def test_dates_and_times_of_the_fast_path_are_those_of_the_rows(day: object, at: object) -> None:
    decoder = ValueDecoder(parse_schema(TIMES))
    value = json.dumps({"day": day, "at": at, "id": 1}).encode()
    fast = decoder._decode_plain(pa.array([value], pa.binary()))
    if fast is not None:
        assert [each.to_pylist() for each in fast] == columns_by_row(decoder, value)


RULES = {
    "type": "object",
    "required": ["id"],
    "properties": {
        "id": {"type": "integer", "minimum": 0},
        "name": {"type": "string", "maxLength": 3},
        "total": {"type": ["number", "null"]},
        "tags": {"type": "array", "items": {"type": "string"}},
        "at": {"type": "string", "format": "date-time"},
    },
}


@given(st.lists(values, min_size=1, max_size=3))
def test_json_schema_on_the_fast_path_gives_the_columns_of_the_rows(found: list[bytes | None]) -> None:
    decoder = ValueDecoder(parse_schema(json.dumps(RULES)))
    fast = decoder._decode_plain(pa.array(found, pa.binary()))
    if fast is not None:
        slow = decoder._decode_rows(found)
        assert [each.to_pylist() for each in fast] == [each.to_pylist() for each in slow]


def test_usual_times_and_valid_values_of_a_json_schema_take_the_fast_path() -> None:
    timed = ValueDecoder(parse_schema(TIMES))
    value = b'{"day": "2026-03-01", "at": "2026-03-01T12:00:00.123Z"}'
    assert timed._decode_plain(pa.array([value, b"{}"], pa.binary())) is not None
    ruled = ValueDecoder(parse_schema(json.dumps(RULES)))
    for text, is_fast in ((b'{"id": 1, "name": "abc"}', True), (b'{"id": 1, "name": "abcd"}', False)):
        assert (ruled._decode_plain(pa.array([text], pa.binary())) is not None) is is_fast


def columns_by_row(decoder: ValueDecoder, value: bytes) -> list[list[Any]]:
    return [each.to_pylist() for each in decoder._decode_rows([value])]


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


def test_times_dates_decimals_and_maps_become_columns() -> None:
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


def test_avro_values_are_decoded_with_and_without_a_registry_prefix() -> None:
    fields = [{"name": "id", "type": "long"}, {"name": "note", "type": ["null", "string"]}]
    document = {"type": "record", "name": "order", "fields": fields}
    content = io.BytesIO()
    fastavro.schemaless_writer(content, document, {"id": 5, "note": "x"})
    plain = content.getvalue()
    ids, notes, reasons = columns(ValueDecoder(parse_schema(document)), [plain, b"\0\0\0\0\7" + plain, b"z"])
    assert (ids, notes) == ([5, 5, None], ["x", "x", None])
    assert reasons[:2] == [None, None]
    assert reasons[2].startswith("not valid Avro")
