"""Conditions on JSON: C decides as CEL does, or leaves the record to CEL, whatever the bytes of the value are."""

from __future__ import annotations

import json

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from penstock.filters import matching
from penstock.filters.matching import Filter
from penstock.records.batch import HEADER_SIZE, read_header
from penstock.records.building import NewRecord, build_batch
from penstock.records.selecting import Selected

pytestmark = pytest.mark.skipif(matching._select_in_c is None, reason="the extension was not compiled")

names = st.sampled_from(["a", "b", "user", "ü", "a b"])
texts = st.sampled_from(["", "eu", "eu-west", "us", 'q"', "b\\", "ü", "€", "\U0001f600", "\x00", "true", "1"])
numbers = (
    st.integers(-3, 3)
    | st.integers(-(10**20), 10**20)
    | st.sampled_from([2**53, 2**53 + 1, -(2**63), 2**63 - 1])
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.sampled_from([0.5, 1.0, -0.0, 2.999999999999999, 1e22, 12.5, 0.1])
)
values = st.recursive(
    st.none() | st.booleans() | numbers | texts,
    lambda inner: st.dictionaries(names, inner, max_size=3) | st.lists(inner, max_size=2),
    max_leaves=8,
)
documents = st.builds(
    lambda document, is_ascii, indent: json.dumps(document, ensure_ascii=is_ascii, indent=indent).encode(),
    st.dictionaries(names, values, max_size=4) | values,
    st.booleans(),
    st.none() | st.just(1),
)
ODD = [
    b"",
    b"{",
    b"{}x",
    b'{"a": 1,}',
    b'{"a": 01}',
    b'{"a": 1.}',
    b'{"a": .5}',
    b'{"a": +1}',
    b'{"a": -}',
    b'{"a": 1e5}',
    b'{"a": 1e999}',
    b'{"a": -0}',
    b'{"a": 123456789012345678901234567890}',
    b'{"a": 1, "a": 2}',
    b'{"a": {"b": 1}, "a": 3}',
    b'{"\\u0061": 1, "a": 2}',
    b'{"a": "\\ud83d\\ude00"}',
    b'{"a": "\\ud800"}',
    b'{"a": "e\\u0075"}',
    b'{"a": "\xff"}',
    b'{"a": "\xed\xa0\x80"}',
    b'{"a": "\xc0\xaf"}',
    b'{"a": "\n"}',
    b'{"a": "\\x"}',
    b'{"a": NaN}',
    b'{"a": nul}',
    b'\xef\xbb\xbf{"a": 1}',
    b'{"a" 1}',
    b'{"a": 1 "b": 2}',
    b'{"b": "\xff", "a": 1}',
    b'{"b": ' + b"[" * 40 + b"]" * 40 + b', "a": 1}',
    b'{"b": ' + b"[" * 2_000 + b"]" * 2_000 + b', "a": 1}',
    b' \t\r\n{ "a" : 1 } \n',
    b'{"a": 1}\x0c',
    b"{a: 1}",
    b"{'a': 1}",
]
mangled = st.builds(
    lambda document, place, piece: (
        document[: place % (len(document) + 1)] + piece + document[place % (len(document) + 1) + 1 :]
    ),
    documents,
    st.integers(0, 200),
    st.binary(max_size=2) | st.sampled_from([b'"', b"\\", b"{", b"}", b",", b":", b"e", b".", b"-", b"0"]),
)
contents = documents | mangled | st.sampled_from(ODD) | st.none()
paths = st.lists(names, min_size=1, max_size=3).map(
    lambda parts: (
        "json" + "".join(f".{part}" if part.isascii() and part.isalpha() else f'["{part}"]' for part in parts)
    )
)
simple = (
    st.builds(
        lambda path, relation, text: f"{path} {relation} {json.dumps(text, ensure_ascii=False)}",
        paths,
        st.sampled_from(["==", "!="]),
        st.sampled_from(["", "eu", "ü", "1", "\U0001f600"]),
    )
    | st.builds(
        lambda path, test, text: f'{path}.{test}("{text}")',
        paths,
        st.sampled_from(["startsWith", "endsWith", "contains"]),
        st.sampled_from(["", "eu", "t", "ü"]),
    )
    | st.builds(
        lambda path, relation, number: f"{path} {relation} {number}",
        paths,
        st.sampled_from(["==", "!=", "<", "<=", ">", ">="]),
        st.integers(-3, 3) | st.sampled_from([2**53 + 1, 2**63 - 1, 12]),
    )
    | st.builds(
        lambda path, relation, value: f"{path} {relation} {value}",
        paths,
        st.sampled_from(["==", "!="]),
        st.sampled_from(["true", "false"]),
    )
    | st.builds(
        lambda path, few: f"{path} in {json.dumps(few)}",
        paths,
        st.lists(st.sampled_from(["eu", "us", "", 1, 2, True]), max_size=3),
    )
    | paths.filter(lambda path: not path.endswith("]")).map(lambda path: f"has({path})")
    | st.sampled_from(['key == "k"', "size > 10"])
)
expressions = st.recursive(
    simple,
    lambda inner: (
        st.builds(lambda left, right: f"({left} && {right})", inner, inner)
        | st.builds(lambda left, right: f"({left} || {right})", inner, inner)
        | st.builds(lambda only: f"!({only})", inner)
    ),
    max_leaves=4,
)


def select(matcher: Filter, values: list[bytes | None]) -> Selected:
    built = memoryview(build_batch([NewRecord(b"k", value, 0) for value in values]))
    return matcher.select(built[HEADER_SIZE:], read_header(built))


@given(expressions, st.lists(contents, min_size=1, max_size=6))
@example("json.a >= 1", ODD)
@example('json.a == "eu"', ODD)
@example('json.a != "eu"', ODD)
@example("has(json.a)", ODD)
@example("json.a.b == 1", ODD)
@example("json.a == 2 || has(json.b)", ODD)
def test_c_and_cel_evaluate_json_conditions_alike(text: str, values: list[bytes | None]) -> None:
    assert select(Filter(text, 0), values) == select(Filter(text, 0, translated=False), values)


def test_simple_comparisons_need_no_cel(monkeypatch: pytest.MonkeyPatch) -> None:
    matcher = Filter(
        'json.user.region in ["de", "eu"] && json.total >= 10 && json["paid"] == true && has(json.id)', 0
    )
    assert matcher.is_compiled
    monkeypatch.setattr(matcher, "_judge_by_cel", None)
    value = b'{"user": {"region": "eu", "n": [1, {}]}, "total": 12.5, "paid": true, "id": null}'
    others = [value.replace(b"eu", b"us"), value.replace(b"12.5", b"9"), value.replace(b'"id"', b'"no"')]
    found = select(matcher, [value, *others])
    assert ([match.offset_delta for match in found.matches], found.failed) == ([0], 0)
