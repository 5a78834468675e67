from __future__ import annotations

import io
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.cli.failures import Failure
from penstock.cli.input import InputFormat, read_records
from penstock.cli.record import IncomingRecord, OutgoingRecord, from_json, to_json
from penstock.cli.record_format import json_form, template_form, value_form

contents = st.none() | st.binary(max_size=50) | st.text(max_size=50).map(lambda text: text.encode())
header_lists = st.lists(st.tuples(st.text(max_size=10), contents), max_size=4).map(tuple)


def incoming(
    key: bytes | None = b"k", value: bytes | None = b"v", headers: tuple[tuple[str, bytes | None], ...] = ()
) -> IncomingRecord:
    return IncomingRecord("orders", 2, 7, 1_700_000_000_000, key, value, headers)


def lines(content: bytes, form: InputFormat = InputFormat.LINES, **options: Any) -> list[OutgoingRecord]:
    return list(read_records(io.BytesIO(content), "input", form, **options))


@given(contents, contents, header_lists)
def test_produce_reads_the_json_of_consume(
    key: bytes | None, value: bytes | None, headers: tuple[tuple[str, bytes | None], ...]
) -> None:
    record = incoming(key, value, headers)
    read = from_json(json_form(record), "line 1")
    assert read == OutgoingRecord(key, value, headers, record.partition, record.timestamp_ms)


def test_bytes_that_are_no_text_are_base64() -> None:
    assert to_json(incoming(value=b"\xff\x00"))["value"] == {"base64": "/wA="}


@pytest.mark.parametrize(
    ("line", "value"),
    [
        ('{"value": {"a": [1, "ä"]}}', '{"a":[1,"ä"]}'.encode()),
        ('{"value": 5}', b"5"),
        ('{"value": null}', None),
        ('{"key": "only"}', None),
    ],
)
def test_a_value_may_be_any_json(line: str, value: bytes | None) -> None:
    assert from_json(line.encode(), "line 1").value == value


def test_headers_may_be_an_object() -> None:
    assert from_json(b'{"headers": {"a": "1", "b": null}}', "line 1").headers == (("a", b"1"), ("b", None))


@pytest.mark.parametrize(
    "line",
    [
        "not json",
        "[1]",
        '"text"',
        '{"vaule": 1}',
        '{"value": {"base64": "*"}}',
        '{"value": {"base64": 5}}',
        '{"headers": ["a"]}',
        '{"headers": 5}',
        '{"headers": [{"value": "x"}]}',
        '{"partition": "0"}',
        '{"timestamp": 1.5}',
        "[" * 100_000,
    ],
)
def test_a_line_that_is_no_record_is_refused_with_its_place(line: str) -> None:
    with pytest.raises(Failure, match=r"^line 9: "):
        from_json(line.encode(), "line 9")


def test_each_line_is_a_value() -> None:
    assert [record.value for record in lines(b"a\n\nb\r\nc")] == [b"a", b"", b"b", b"c"]


def test_a_line_is_split_at_the_first_separator() -> None:
    assert lines(b"k:v:w\n", key_separator=b":") == [OutgoingRecord(b"k", b"v:w")]


def test_a_line_without_the_separator_is_refused_with_its_number() -> None:
    with pytest.raises(Failure, match=r"^input, line 2: .* key separator ':'"):
        lines(b"a:b\nc\n", key_separator=b":")


def test_an_empty_value_can_stand_for_none() -> None:
    assert lines(b"k:\n", key_separator=b":", empty_is_null=True) == [OutgoingRecord(b"k", None)]
    assert lines(b"k:\n", key_separator=b":") == [OutgoingRecord(b"k", b"")]


def test_a_whole_file_is_one_record_with_its_bytes_untouched() -> None:
    assert lines(b"\x00\r\n\xff\n", InputFormat.FILE, key=b"k") == [OutgoingRecord(b"k", b"\x00\r\n\xff\n")]


def test_json_lines_bring_their_own_key_or_get_the_common_one() -> None:
    content = b'{"value": "a"}\n\n{"key": "own", "value": "b", "headers": {"h": "1"}}\n'
    assert lines(content, InputFormat.JSON, key=b"common", headers=(("x", b"y"),)) == [
        OutgoingRecord(b"common", b"a", (("x", b"y"),)),
        OutgoingRecord(b"own", b"b", (("h", b"1"), ("x", b"y"))),
    ]


def test_a_template_names_fields_and_escapes() -> None:
    form = template_form("{{{partition}\\t{offset} {time} {key}={value} [{headers}] {topic}\\n", escape=False)
    record = incoming(headers=(("a", b"1"), ("b", None)))
    assert form(record) == b"{2\t7 2023-11-14T22:13:20.000Z k=v [a=1,b=] orders\n"


def test_a_template_with_an_unknown_field_is_refused() -> None:
    with pytest.raises(Failure, match=r"unknown field \{nope\}"):
        template_form("{nope}", escape=False)


def test_a_template_reaches_nothing_but_the_fields() -> None:
    assert template_form("{value.__class__} %s", escape=False)(incoming()) == b"{value.__class__} %s"


def test_bytes_pass_untouched_into_a_pipe_and_escaped_onto_a_terminal() -> None:
    record = incoming(value=b"\x1b[31m\xff\tok")
    assert value_form(escape=False)(record) == b"\x1b[31m\xff\tok\n"
    assert value_form(escape=True)(record) == b"\\x1b[31m\\xff\tok\n"


def test_missing_keys_and_values_print_as_nothing() -> None:
    assert template_form("{key}|{value}", escape=False)(incoming(None, None)) == b"|"


def test_json_is_one_line_for_each_record() -> None:
    line = json_form(incoming(value=b"a\nb"))
    assert line.count(b"\n") == 1
    assert json.loads(line)["value"] == "a\nb"
