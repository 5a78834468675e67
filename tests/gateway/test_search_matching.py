"""The condition of a search: what matches, what cannot hang it, and batches that are passed over whole."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.gateway.search.json_path import MISSING, WrongPath, find, parse_path
from penstock.gateway.search.matcher import Matcher, WrongQuery
from penstock.gateway.search.scan import scan
from penstock.records.building import NewRecord, build_batch
from penstock.records.compression import Codec
from penstock.records.iteration import Record


def record(value: bytes | None = b"", key: bytes | None = None, timestamp: int = 0, **headers: str) -> Record:
    return Record(0, timestamp, key, value, tuple((name, text.encode()) for name, text in headers.items()))


@pytest.mark.parametrize(
    ("query", "given", "expected"),
    [
        ({"text": "paid"}, record(b"It was PAID"), True),
        ({"text": "a.b"}, record(b"aXb"), False),
        ({"text": "17"}, record(b"", b"k17"), True),
        ({"text": "abc"}, record(b"", trace="xabcx"), True),
        ({"regex": "^a+$"}, record(b"aaa"), True),
        ({"regex": "^a+$"}, record(None), False),
        ({"key": "k"}, record(b"", b"k"), True),
        ({"key": "k"}, record(b"k", b"kk"), False),
        ({"header": "trace"}, record(trace="1"), True),
        ({"header": "trace", "header_value": "2"}, record(trace="1"), False),
        ({"json_path": "$.user.id", "json_value": "7"}, record(b'{"user": {"id": 7}}'), True),
        ({"json_path": "user.id"}, record(b'{"user": {}}'), False),
        ({"json_path": "$.a"}, record(b"not json"), False),
        ({"from_ms": 5, "to_ms": 7}, record(timestamp=6), True),
        ({"from_ms": 5, "to_ms": 7}, record(timestamp=8), False),
        ({"text": "x", "key": "k"}, record(b"x", b"other"), False),
        ({}, record(b"anything"), True),
    ],
)
def test_record_matches_all_parts_of_a_query(query: Any, given: Record, expected: bool) -> None:
    assert Matcher(query).matches(given) is expected


@pytest.mark.parametrize("pattern", ["(", "a{1000}{1000}", "(?<x>a)\\1"])
def test_pattern_that_re2_refuses_is_explained(pattern: str) -> None:
    with pytest.raises(WrongQuery, match="RE2"):
        Matcher({"regex": pattern})


def test_pattern_that_hangs_other_engines_takes_linear_time() -> None:
    matcher = Matcher({"regex": "(a+)+$"})
    began = time.process_time()
    assert not matcher.matches(record(b"a" * 100_000 + b"b"))
    assert time.process_time() - began < 1


def test_deep_json_does_not_match_and_does_not_fail() -> None:
    assert not Matcher({"json_path": "$.a"}).matches(record(b"[" * 100_000 + b"]" * 100_000))


@pytest.mark.parametrize("text", ["$..a", "$.a[*]", "$.a[-1]", "a b[", "$[", "." * 100])
def test_path_of_another_form_is_refused(text: str) -> None:
    with pytest.raises(WrongPath):
        parse_path(text)


def test_path_finds_names_and_indexes() -> None:
    document = {"a": [{"b c": 1}], "0": 2}
    assert find(document, parse_path("$.a[0]['b c']")) == 1
    assert find(document, parse_path("$.0")) == 2
    assert find(document, parse_path("$.a[1]")) is MISSING
    assert find(document, parse_path("$")) == document


TEXTS = st.text(min_size=1, max_size=5)


@given(st.lists(st.tuples(TEXTS, TEXTS), min_size=1, max_size=6), TEXTS, st.sampled_from(list(Codec)))
def test_scan_finds_what_single_records_match(pairs: list[tuple[str, str]], text: str, codec: Codec) -> None:
    records = [NewRecord(key.encode(), json.dumps(value).encode(), 1) for key, value in pairs]
    matcher = Matcher({"text": text})
    batch = memoryview(build_batch(records, codec=codec))
    expected = [
        place
        for place, each in enumerate(records)
        if matcher.matches(Record(place, 1, each.key, each.value, ()))
    ]
    found = scan(batch, None, 0, len(records), matcher, 1_000)
    assert [each.offset for each in found.matches] == expected
    assert found.next_offset == len(records)
    assert found.records == len(records)
