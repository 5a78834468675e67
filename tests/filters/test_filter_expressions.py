"""Filters: the three ways to evaluate one agree, failures do not match, and wrong filters name a position."""

from __future__ import annotations

import json

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from penstock.errors import ConfigError
from penstock.filters.expression import MAX_LENGTH, check_expression
from penstock.filters.matching import Filter
from penstock.filters.routes import route_matches
from penstock.records.batch import HEADER_SIZE, TimestampType, read_header
from penstock.records.building import NewRecord, build_batch
from penstock.records.compression import Codec
from penstock.records.selecting import Selected

words = st.sampled_from(["", "eu", "us", "e", "u", "eu-west", "ü", "€uro"])
subjects = st.sampled_from(["key", "value", "headers.region", 'headers["region"]', 'headers["x-y"]'])
numbers = st.sampled_from(["size", "partition", "offset"])
times = st.sampled_from(["1970-01-01T00:00:01Z", "2023-11-14T22:13:20Z", "9999-12-31T23:59:59Z"])
simple = (
    st.builds(
        lambda subject, relation, word: f'{subject} {relation} "{word}"',
        subjects,
        st.sampled_from(["==", "!="]),
        words,
    )
    | st.builds(
        lambda subject, test, word: f'{subject}.{test}("{word}")',
        subjects,
        st.sampled_from(["startsWith", "endsWith", "contains"]),
        words,
    )
    | st.builds(
        lambda subject, relation, number: f"{subject} {relation} {number}",
        numbers,
        st.sampled_from(["==", "!=", "<", "<=", ">", ">="]),
        st.integers(-5, 40),
    )
    | st.builds(
        lambda relation, time: f'timestamp {relation} timestamp("{time}")',
        st.sampled_from(["==", "<", ">="]),
        times,
    )
    | st.builds(
        lambda subject, few: f"{subject} in {few}", subjects, st.lists(words, max_size=3).map(json.dumps)
    )
    | st.builds(lambda subject, few: f"{subject} in {few}", numbers, st.lists(st.integers(0, 30), max_size=3))
    | st.sampled_from(
        ['"region" in headers', "has(headers.region)", "true", "false", '"eu" == key', "5 < size"]
    )
)
expressions = st.recursive(
    simple,
    lambda inner: (
        st.builds(lambda left, right: f"({left} && {right})", inner, inner)
        | st.builds(lambda left, right: f"({left} || {right})", inner, inner)
        | st.builds(lambda only: f"!({only})", inner)
    ),
    max_leaves=5,
)
contents = st.none() | words.map(str.encode) | st.binary(max_size=6)
records = st.lists(
    st.builds(
        NewRecord,
        contents,
        contents,
        st.sampled_from([-1, 0, 1_000, 1_700_000_000_000, 253_402_300_799_000]),
        st.lists(st.tuples(st.sampled_from(["region", "x-y", "other"]), contents), max_size=3).map(tuple),
    ),
    min_size=1,
    max_size=6,
)


def select(matcher: Filter, batch: list[NewRecord], **options: object) -> Selected:
    built = memoryview(build_batch(batch, base_offset=20, **options))  # type: ignore[arg-type]
    return matcher.select(built[HEADER_SIZE:], read_header(built))


@given(expressions, records, st.sampled_from(TimestampType))
@example('size > 1 || headers.region == "eu"', [NewRecord(b"k", b"v", 0)], TimestampType.CREATE_TIME)
def test_compiled_code_python_and_cel_agree(
    text: str, batch: list[NewRecord], timestamp_type: TimestampType
) -> None:
    ways = [Filter(text, 3), Filter(text, 3, in_c=False), Filter(text, 3, in_c=False, translated=False)]
    [first, *others] = [select(way, batch, timestamp_type=timestamp_type) for way in ways]
    assert all(other == first for other in others), text


@given(expressions)
def test_times_beyond_the_range_of_cel_match_alike(text: str) -> None:
    """CEL reports each such record as failed, the translation only where it compares the time."""
    batch = [NewRecord(b"k", b"v", 253_402_300_800_000)]
    first, second = (select(Filter(text, 3, translated=translated), batch) for translated in (True, False))
    if not second.failed:
        assert first.matches == second.matches
    else:
        assert second.matches == []


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('json.user.country == "de"', [0]),
        ("json.total > 10 && json.total < 20", [0]),
        ("has(json.total)", [0, 1]),
        ('json.items.exists(item, item == "a")', [1]),
        ('route("orders.*.new")', [0]),
        ('route("orders.#")', [0, 1]),
        ('key.matches("^k[01]$")', [0, 1]),
        ('value.size() > 30 || headers["penstock-route"].endsWith("old")', [0, 1]),
        ("json", []),
        ("timestamp.getFullYear() == 2023", [0, 1, 2, 3]),
        ("offset == 21", [1]),
    ],
)
def test_filter_selects_matching_records(text: str, expected: list[int]) -> None:
    batch = [
        NewRecord(
            b"k0",
            b'{"user": {"country": "de"}, "total": 12.5}',
            1_700_000_000_000,
            (("penstock-route", b"orders.eu.new"),),
        ),
        NewRecord(
            b"k1",
            b'{"items": ["a"], "total": 99}',
            1_700_000_000_001,
            (("penstock-route", b"orders.eu.de.old"),),
        ),
        NewRecord(b"k2", b"no json", 1_700_000_000_002),
        NewRecord(None, None, 1_700_000_000_003),
    ]
    found = select(Filter(text, 0), batch)
    assert [match.offset_delta for match in found.matches] == expected


def test_failed_evaluations_are_counted() -> None:
    batch = [
        NewRecord(b"k", b"no json", 0),
        NewRecord(b"k", b'{"a": 1}', 0),
        NewRecord(b"k", b'{"a": "x"}', 0),
    ]
    found = select(Filter("json.a > 0", 0), batch)
    assert ([match.offset_delta for match in found.matches], found.failed) == ([1], 2)


def test_a_body_that_is_no_batch_matches_nothing() -> None:
    header = read_header(memoryview(build_batch([NewRecord(b"k", b"v", 0)] * 3)))
    for text in ("size >= 0", "json.a == 1"):
        assert Filter(text, 0).select(b"\xff" * 30, header) == Selected([], 3)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("headers.region ==", "line 1, column 18"),
        ("colour == 1", "line 1, column 1: undeclared reference to 'colour'"),
        ('size ==\n  "x"', "line 1, column 6: found no matching overload"),
        ("size", "type int"),
        ("x" * (MAX_LENGTH + 1), "4097 characters; 4096 are allowed"),
        ("(" * 500 + "true" + ")" * 500, "recursion limit"),
        ("[1].all(a, [1].all(b, [1].all(c, a == b && b == c)))", "nested 2 deep"),
        ("route(5)", "line 1, column 6"),
    ],
)
def test_wrong_filters_are_refused_with_a_reason(text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        check_expression(text)


@pytest.mark.parametrize(
    "text",
    [
        'key.matches("(a*)*b")',
        "json.items.all(a, json.items.all(b, a <= b))",
        'key.matches("(((a{100}){100}){100})")',
    ],
)
def test_expensive_filters_end(text: str) -> None:
    document = b'{"items": [' + b"1," * 3_000 + b"1]}"
    found = select(Filter(text, 0), [NewRecord(b"a" * 10_000, document, 0)])
    assert len(found.matches) + found.failed <= 1


@pytest.mark.parametrize(
    ("pattern", "route", "expected"),
    [
        ("#", "", True),
        ("#", "a.b", True),
        ("a.#", "a", True),
        ("a.*", "a", False),
        ("a.*.c", "a.b.c", True),
        ("#.c", "a.b.c", True),
        ("#.b.#", "a.b.c", True),
        ("a.#.c.*", "a.c.c.d", True),
        ("*.*", "a.b.c", False),
        ("", "a", False),
    ],
)
def test_route_pattern_matches_exactly_its_routes(pattern: str, route: str, expected: bool) -> None:
    assert route_matches(pattern, route) is expected


def test_long_routes_fail() -> None:
    with pytest.raises(ValueError, match="at most"):
        route_matches("#", "a." * 1_000)


@pytest.mark.parametrize("codec", Codec)
def test_record_positions_lead_to_the_records(codec: Codec) -> None:
    batch = [NewRecord(b"k%d" % number, b"v" * number, 0) for number in range(20)]
    built = memoryview(build_batch(batch))
    for start, end, delta in select(Filter('key.endsWith("7")', 0), batch).matches:
        assert b"k%d" % delta in bytes(built[HEADER_SIZE + start : HEADER_SIZE + end])
