"""Plain requests are answered as those through ASGI are: the same bytes, metrics and limits, whatever a
client sends.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from plain_stage import HOST, JSON_TYPE, MAX_JSON_BYTES, Side, Wire, request

from penstock.gateway.http.connection import HttpConnection
from penstock.gateway.http.plain_exchange import MAX_PLAIN_BODY_BYTES

optional_headers = st.lists(
    st.sampled_from(
        [
            JSON_TYPE,
            JSON_TYPE,
            JSON_TYPE,
            ("Content-Type", "application/json; charset=UTF-8"),
            ("Content-Type", "text/plain"),
            ("content-type", "application/octet-stream"),
            ("Content-Type", "application/vnd.penstock.messages"),
            ("Content-Encoding", "gzip"),
            ("Content-Encoding", "identity"),
            ("Idempotency-Key", "k-1"),
            ("Idempotency-Key", ""),
            ("Idempotency-Key", "a b"),
            ("Idempotency-Key", "\udcff"),
            ("Idempotency-Key", "k" * 256),
            ("Connection", "close"),
            ("Connection", "keep-alive"),
            ("Connection", "upgrade"),
            # Not "websocket": it replaces the protocol of the connection, which `Wire` cannot do.
            ("Upgrade", "something"),
            ("Upgrade", "h2c"),
            ("Expect", "100-continue"),
            ("Expect", "miracles"),
            ("Origin", "http://x"),
            ("Origin", "http://evil"),
            ("Origin", "http://friend"),
            ("Host", "y"),
            ("X", "y" * 40_000),
        ]
    ),
    max_size=4,
)
names = st.sampled_from(["a", "secret", "missing", "unknown", "broken", "", "a b", "é", "x" * 300])
json_bodies = st.sampled_from(
    [
        b'{"from_user":"a","to_user":"b","message":"c"}',
        b'{"from_user":"a","to_user":"missing","message":"c"}',
        b'{"from_user":"a","to_user":"unknown","message":"c"}',
        b'{"from_user":"a","to_user":"broken","message":"c"}',
        b'{"from_user":"a","to_user":"b","message":"c","more":1}',
        b'{"from_user":"a","from_user":"a","to_user":"b","message":"c"}',
        b'{"from_user":"a","to_user":1e999,"message":"c"}',
        b'{"from_user":"\\ud800","to_user":"b","message":"c"}',
        b'{"from_user":"a","to_user":"b","message":"' + b"x" * MAX_JSON_BYTES + b'"}',
        b'{"from_user":"a","to_user":"b","message":"' + b"x" * MAX_PLAIN_BODY_BYTES + b'"}',
        b'{"messages":[{"value":"v"},{"key":"k","value_base64":"AA=="}]}',
        b'{"messages":[{"value":"v","partition":7}]}',
        b'{"messages":[]}',
        b'{"user_id":"a","limit":3}',
        b'{"user_id":"a","limit":0}',
        b"[" * 50,
        b"\xff",
        b"\xef\xbb\xbf{}",
        b"null",
        b"",
    ]
)
targets = st.one_of(
    st.sampled_from(
        ["/send", "/receive", "/send", "/receive", "/v1/topics/t/messages", "/nowhere", "/", "*"]
    ),
    names.map(lambda name: f"/v1/topics/{name}/messages".replace(" ", "%20")),
    names.map(lambda name: f"/receive?user_id={name}".replace(" ", "+")),
    st.sampled_from(
        [
            "/receive?user_id=a&limit=5&wait=0.5&last_message_id=1",
            "/receive?user_id=a&user_id=b",
            "/receive?user_id=a&other=1",
            "/receive?user_id=%ff",
            "/receive?user_id=%41%2B+",
            "/receive?user_id=a#b",
            "/receive?",
            "/receive?&&&",
            "/receive?user_id=a&limit=1e3",
            '/receive?user_id="<>"',
            "/send?x=1",
            "/send/",
            "//send",
            "/./send",
            "/%73end",
            "/send;a=b",
            "http://x/send",
            "http://y/send",
            "/v1/topics/secret/messages?partition=1&key=k",
            "/v1/topics/t%2Fu/messages",
            "/v1/topics//messages",
            "/v1/topics/t/messages/",
            "/receive?user_id=" + "x" * 9_000,
        ]
    ),
)
methods = st.sampled_from(["POST", "GET", "POST", "GET", "HEAD", "OPTIONS", "PUT", "DELETE", "TRACE", "get"])


@st.composite
def requests(draw: st.DrawFn) -> bytes:
    headers = [HOST, *draw(optional_headers)] if draw(st.integers(0, 9)) else draw(optional_headers)
    made = request(
        draw(methods),
        draw(targets),
        draw(json_bodies),
        draw(st.sampled_from(["1.1", "1.1", "1.1", "1.0", "2.0"])),
        headers,
        draw(st.sampled_from([None, None, None, None, 5, 100_000])),
    )
    if draw(st.integers(0, 19)) == 0:
        place = draw(st.integers(0, len(made)))
        made = made[:place] + draw(st.binary(min_size=1, max_size=3)) + made[place + 1 :]
    return made


def split(data: bytes, places: Sequence[int]) -> list[bytes]:
    cuts = sorted({0, len(data), *(place % (len(data) + 1) for place in places)})
    return [data[begin:end] for begin, end in pairwise(cuts)]


@settings(deadline=None, max_examples=400, suppress_health_check=list(HealthCheck))
@given(st.lists(requests(), min_size=1, max_size=3), st.lists(st.integers(0, 10_000), max_size=3))
def test_both_ways_give_the_same_response(sent: list[bytes], places: list[int]) -> None:
    async def compare() -> None:
        config = {"gateway.allowed.origins": "http://friend"}
        general = Side(has_plain=False, config=config)
        pieces = split(b"".join(sent), places)
        expected = await general.ask(pieces)
        for begins in (True, False):
            plain = Side(has_plain=True, begins=begins, config=config)
            assert await plain.ask(pieces) == expected
            assert plain.cluster.calls == general.cluster.calls
            assert plain.counted() == general.counted()

    asyncio.run(compare())


@pytest.mark.parametrize(
    "sent",
    [
        request(),
        request("GET", "/receive?user_id=a", b"", headers=[HOST]),
        request("POST", "/receive", b'{"user_id":"a"}'),
        request("POST", "/v1/topics/t/messages", b'{"messages":[{"value":"v"}]}'),
        request(
            "POST",
            "/v1/topics/t/messages?key=k",
            b"value",
            headers=[HOST, ("content-type", "application/octet-stream")],
        ),
        request(body=b'{"from_user":"a","to_user":1,"message":"c"}'),
    ],
)
async def test_common_requests_take_the_plain_way(sent: bytes) -> None:
    side = Side(has_plain=True)
    written, _ = await side.ask([sent])
    assert written.startswith((b"HTTP/1.1 200 OK\r\n", b"HTTP/1.1 400 Bad Request\r\n"))
    assert side.plain_requests == 1


@pytest.mark.parametrize(
    "sent",
    [
        request("HEAD", "/receive?user_id=a", b"", headers=[HOST]),
        request("GET", "/v1/topics", b"", headers=[HOST]),
        request("GET", "/receive?user_id=a#b", b"", headers=[HOST]),
        request(headers=[HOST, JSON_TYPE, ("Expect", "100-continue")]),
        request(headers=[HOST, JSON_TYPE, ("Transfer-Encoding", "chunked")], body=b""),
        request(length=MAX_PLAIN_BODY_BYTES + 1),
    ],
)
async def test_unusual_requests_take_the_general_way(sent: bytes) -> None:
    side = Side(has_plain=True)
    await side.ask([sent])
    assert side.plain_requests == 0


@pytest.mark.slow
async def test_rate_limit_refuses_both_ways_alike() -> None:
    config = {"gateway.client.max.request.rate": "1"}
    sides = [Side(has_plain=each, config=config) for each in (True, False)]
    answers = [[await side.ask([request()]) for _ in range(2)] for side in sides]
    assert answers[0] == answers[1]
    assert answers[0][1][0].startswith(b"HTTP/1.1 429 ")
    assert sides[0].counted() == sides[1].counted()


async def test_pipelined_requests_are_answered_in_order() -> None:
    side = Side(has_plain=True)
    bodies = [b'{"from_user":"a","to_user":"b","message":"m%d"}' % number for number in range(5)]
    written, _ = await side.ask([b"".join(request(body=body) for body in bodies)])
    places = [written.index(b"id of m%d" % number) for number in range(5)]
    assert places == sorted(places)


async def test_client_that_leaves_cancels_its_plain_request() -> None:
    side = Side(has_plain=True)
    connection = side.server._make_protocol()
    assert isinstance(connection, HttpConnection)
    wire = Wire()
    connection.connection_made(wire)
    is_cancelled = asyncio.Event()

    async def hang(*_: Any) -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            is_cancelled.set()
            raise

    side.cluster.send = hang
    side.cluster.begins = False
    connection.data_received(request())
    for _ in range(3):
        await asyncio.sleep(0)
    assert side.application.limits.open_requests == 1
    connection.connection_lost(None)
    await asyncio.wait_for(is_cancelled.wait(), 10)
    for _ in range(3):
        await asyncio.sleep(0)
    assert side.application.limits.open_requests == 0
    assert wire.written == b""
