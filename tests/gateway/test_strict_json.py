from __future__ import annotations

import json
from contextlib import suppress
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.gateway.http import strict_json
from penstock.gateway.http.problems import Problem
from penstock.gateway.http.strict_json import MAX_DEPTH, parse

values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=10,
)


@given(values, st.booleans())
def test_valid_json_round_trips(value: object, ascii_only: bool) -> None:
    assert parse(json.dumps(value, ensure_ascii=ascii_only).encode()) == value


near_texts = st.lists(
    st.sampled_from(
        [
            '"a"',
            '"b"',
            '""',
            ":",
            ",",
            "{",
            "}",
            " ",
            "\n",
            '"é"',
            '"\x7f"',
            '"\x01"',
            "1",
            "null",
            "\\",
            '"\\n"',
            "[",
        ]
    ),
    max_size=12,
).map("".join)
objects_of_texts = st.lists(st.tuples(st.sampled_from("abcé"), st.text(max_size=5)), max_size=3).map(
    lambda pairs: (
        "{" + ",".join(f"{json.dumps(a)}: {json.dumps(b, ensure_ascii=False)}" for a, b in pairs) + "}"
    )
)


def outcome(body: bytes) -> object:
    try:
        return parse(body)
    except Problem as problem:
        return problem.detail


@given((near_texts | objects_of_texts).map(str.encode) | st.binary(max_size=20))
def test_objects_of_texts_are_read_as_all_others(body: bytes) -> None:
    quick = outcome(body)
    with patch.object(strict_json, "_parse_texts", lambda _: None):
        assert outcome(body) == quick


@given(st.binary(max_size=100))
def test_any_bytes_are_a_value_or_a_problem(body: bytes) -> None:
    with suppress(Problem):
        parse(body)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (b"\xef\xbb\xbf{}", "byte order mark"),
        (b'"\xff"', "byte 1 is not UTF-8"),
        (b'{"a":1,"a":2}', "twice"),
        (b'[{"b":{"a":1,"a":1}}]', "twice"),
        (b"[NaN]", "NaN is not JSON"),
        (b"[-Infinity]", "-Infinity is not JSON"),
        (b"[1e400]", "too large"),
        (b"[18446744073709551616]", "64 bits"),
        (b"[" + b"9" * 100_000 + b"]", "64 bits"),
        (b'["\\ud800"]', "half a surrogate pair"),
        (b'{"\\udfff":1}', "half a surrogate pair"),
        (b"[" * (MAX_DEPTH + 1) + b"]" * (MAX_DEPTH + 1), "nested deeper"),
        (b"[" * 100_000 + b"]" * 100_000, "nested deeper"),
        (b"[1,]", "line 1, column"),
        (b"", "line 1, column 1"),
    ],
)
def test_ambiguous_json_is_refused_with_reason(text: bytes, says: str) -> None:
    with pytest.raises(Problem, match=says):
        parse(text)


def test_complete_surrogate_pair_is_accepted() -> None:
    assert parse(b'["\\ud83d\\ude00"]') == ["\U0001f600"]
