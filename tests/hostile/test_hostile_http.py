"""Invalid and excessive HTTP: rows H01 to H10 and H15 to H25 of docs/faults.md."""

from __future__ import annotations

import json
import socket

import pytest
from raw_http import RawHttp, ask, request, wait_until_ended
from watch import MIB, Watch, sum_of

from support.broker_process import BrokerProcess
from support.eventually import eventually

SETTINGS = (
    "durability=os",
    "gateway.client.max.requests=50",
    "gateway.json.max.bytes=200000",
    "gateway.body.max.bytes=1000000",
    "gateway.write.timeout.ms=2000",
    "mailbox.num.partitions=2",
)
pytestmark = pytest.mark.usefixtures("watch")
HEAD = b"POST /send HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
BODY = b'{"from_user":"a","to_user":"b","message":"c"}'


def send_body(port: int, body: bytes) -> int:
    return request(port, "POST", "/send", body).status


# --- H01, H02: framing


@pytest.mark.parametrize(
    "framing",
    [
        b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n",
        b"Content-Length: 5\r\nContent-Length: 6\r\n\r\nhello!",
        b"Content-Length: 5, 6\r\n\r\nhello!",
        b"Transfer-Encoding: chunked, gzip\r\n\r\n0\r\n\r\n",
        b"Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
        b"Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
        b"Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n0\r\n\r\n",
        b"Content-Length: +5\r\n\r\nhello",
        b"Content-Length: 5 5\r\n\r\nhello",
        b"Content-Length: 0x5\r\n\r\nhello",
        b"Content-Length: -1\r\n\r\nhello",
        b"Content-Length: 99999999999999999999999\r\n\r\nhello",
        b"Content-Length:\r\n\r\nhello",
        b"Transfer-Encoding: chunked\r\n\r\nfffffffffffffffff\r\nx\r\n0\r\n\r\n",
        b"Transfer-Encoding: chunked\r\n\r\n-1\r\nx\r\n0\r\n\r\n",
        b"Transfer-Encoding: chunked\r\n\r\n0x1\r\nx\r\n0\r\n\r\n",
        b"Transfer-Encoding: chunked\r\n\r\n1\r\nxx\r\n0\r\n\r\n",
        b"Transfer-Encoding: chunked\n\n0\n\n",
        b"Content-Length: 5\n\nhello",
        b"X: a\r\n b\r\nContent-Length: 5\r\n\r\nhello",
        b"Content-Length : 5\r\n\r\nhello",
        b"X: a\x00b\r\nContent-Length: 5\r\n\r\nhello",
        b"X: a\rb\r\nContent-Length: 5\r\n\r\nhello",
        b"X\x00: a\r\nContent-Length: 5\r\n\r\nhello",
        b": a\r\nContent-Length: 5\r\n\r\nhello",
    ],
)
def test_ambiguous_framing_is_refused_and_the_connection_closed(
    broker: BrokerProcess, framing: bytes
) -> None:
    answer = ask(broker.http_port, HEAD + framing)
    assert answer.status == 400
    assert answer.is_closed
    assert "Traceback" not in answer.body.decode()


def test_huge_chunk_extensions_do_not_grow_memory(broker: BrokerProcess, watch: Watch) -> None:
    with RawHttp(broker.http_port) as client:
        client.send(HEAD + b"Transfer-Encoding: chunked\r\n\r\n1;x=")
        try:
            for _ in range(200):
                client.send(b"a" * 65_536)
            answer = client.receive()
            assert answer.status in (400, 413)
        except ConnectionError:
            pass
    watch.max_growth_bytes = 8 * MIB


def test_a_chunked_body_is_read_like_any_other(broker: BrokerProcess) -> None:
    chunks = b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in (BODY[:7], BODY[7:])) + b"0\r\n\r\n"
    assert ask(broker.http_port, HEAD + b"Transfer-Encoding: chunked\r\n\r\n" + chunks).status == 200


def test_junk_after_a_request_does_not_affect_its_response(broker: BrokerProcess) -> None:
    proper = HEAD + b"Content-Length: %d\r\n\r\n" % len(BODY) + BODY
    for junk in (b"\x00\x01\x02\r\n\r\n", b"GET /a HTTP/1.1\r\n\r\n", b"BREW / HTTP/1.1\r\nHost: x\r\n\r\n"):
        with RawHttp(broker.http_port) as client:
            client.send(proper + junk)
            assert client.receive().status == 200
            assert wait_until_ended(client, 5) < 5


# --- H03: bodies that are too large


def test_body_with_a_content_length_over_the_limit_is_refused_unread(broker: BrokerProcess) -> None:
    answer = ask(broker.http_port, HEAD + b"Content-Length: 200001\r\n\r\n")
    assert (answer.status, answer.json["error"]) == (413, "MESSAGE_TOO_LARGE")
    assert answer.is_closed


def test_chunked_body_without_end_is_refused_at_the_limit(broker: BrokerProcess, watch: Watch) -> None:
    with RawHttp(broker.http_port) as client:
        client.send(HEAD + b"Transfer-Encoding: chunked\r\n\r\n")
        sent = 0
        try:
            while sent < 64 * MIB:
                client.send(b"10000\r\n" + b"a" * 65_536 + b"\r\n")
                sent += 65_536
        except ConnectionError:
            pass
    assert sent < 32 * MIB, "the server read on"
    watch.max_growth_bytes = 8 * MIB


# --- H04: heads that are too large


def test_request_head_over_the_limit_is_refused(broker: BrokerProcess) -> None:
    head = b"GET /health HTTP/1.1\r\nHost: x\r\n"
    for extra, status in (
        (b"X: " + b"a" * 40_000 + b"\r\n\r\n", 431),
        (b"X: a\r\n" * 101 + b"\r\n", 431),
        (b"".join(b"X%d: %s\r\n" % (number, b"a" * 1_000) for number in range(60)) + b"\r\n", 431),
    ):
        assert ask(broker.http_port, head + extra).status == status
    assert ask(broker.http_port, b"GET /" + b"a" * 9_000 + b" HTTP/1.1\r\nHost: x\r\n\r\n").status == 414


def test_request_head_sent_slowly_beyond_the_limit_is_refused(broker: BrokerProcess) -> None:
    with RawHttp(broker.http_port) as client:
        client.send(b"GET /health HTTP/1.1\r\nHost: x\r\nX: ")
        for _ in range(33):
            client.send(b"a" * 1_000)
        assert client.receive().status == 431


# --- H05: clients that are slow


def test_request_head_that_is_not_complete_in_time_closes_the_connection(broker: BrokerProcess) -> None:
    with RawHttp(broker.http_port) as client:
        client.send(b"GET /health HTTP/1.1\r\nHost: x\r\n")
        answer = client.receive(15)
        assert answer.status == 408
        assert answer.is_closed


def test_http_client_that_does_not_read_is_closed_and_delays_no_other(
    broker: BrokerProcess, watch: Watch
) -> None:
    for _ in range(8):
        value = {"messages": [{"value": "a" * 150_000, "partition": 0}]}
        assert (
            request(
                broker.http_port, "POST", "/v1/topics/innocent/messages", json.dumps(value).encode()
            ).status
            == 200
        )
    clients = [RawHttp(broker.http_port, receive_buffer_bytes=4_096) for _ in range(5)]
    ask_for = b"GET /v1/topics/innocent/messages?partition=0&limit=1000 HTTP/1.1\r\nHost: x\r\n\r\n"
    for client in clients:
        client.send(ask_for * 15)
    eventually(lambda: sum_of(watch.metrics(), "penstock_http_connections") < 5)
    for client in clients:
        wait_until_ended(client, 10)
        client.socket.close()
    watch.max_growth_bytes = 48 * MIB


# --- H06, H09: what a body is


@pytest.mark.parametrize("encoding", ["gzip", "br", "deflate", "gzip, identity"])
def test_compressed_request_body_gets_415(broker: BrokerProcess, encoding: str) -> None:
    answer = request(broker.http_port, "POST", "/send", b"\x1f\x8b" + bytes(100), Content_Encoding=encoding)
    assert answer.status == 415


@pytest.mark.parametrize(
    "content_type",
    [
        "text/plain",
        "application/x-www-form-urlencoded",
        "multipart/form-data",
        "application/json; charset=utf-16",
    ],
)
def test_cross_origin_post_without_preflight_is_refused(broker: BrokerProcess, content_type: str) -> None:
    assert request(broker.http_port, "POST", "/send", BODY, content_type).status == 415


@pytest.mark.parametrize("origin", ["https://evil.example", "null"])
@pytest.mark.parametrize(("method", "path"), [("POST", "/send"), ("POST", "/receive"), ("GET", "/receive")])
def test_web_page_of_another_origin_cannot_send_json_without_content_type(
    broker: BrokerProcess, origin: str, method: str, path: str
) -> None:
    body = BODY if path == "/send" else b'{"user_id":"b"}'
    assert request(broker.http_port, method, path, body, "").status == 200
    assert request(broker.http_port, method, path, body, "", Origin="http://x").status == 200
    assert request(broker.http_port, method, path, body, "", Origin=origin).status in (403, 415)


# --- H07: JSON


@pytest.mark.parametrize(
    "body",
    [
        b"[" * 100_000 + b"]" * 100_000,
        b"[" * 100_000,
        b'{"a":' * 30_000 + b"1" + b"}" * 30_000,
        b'{"from_user":"a","to_user":"b","message":' + b"1" * 100_000 + b"}",
        b'{"from_user":"a","to_user":"b","message":NaN}',
        b'{"from_user":"a","to_user":"b","message":1e999}',
        b'{"from_user":"a","to_user":"b","to_user":"c","message":"d"}',
        b'{"from_user":"a","to_user":"b","message":"\\ud800"}',
        b'{"from_user":"a","to_user":"b","message":"\\udc00\\ud800"}',
        b'{"from_user":"a","to_user":"b","message":"\xed\xa0\x80"}',
        b"\xef\xbb\xbf" + BODY,
        BODY.decode().encode("utf-16"),
        b'"text"',
        b"1",
        b"null",
        b"[]",
        b"{}",
        b"{",
        BODY + b"x",
        b'{"from_user":"a","to_user":"b","message":1}',
        b'{"from_user":"a","to_user":"","message":"c"}',
        b'{"from_user":"a","to_user":"b","message":"c","principal":"root"}',
        b'{"from_user":"a","to_user":"b","message":"line\nbreak"}',
    ],
)
def test_ambiguous_json_or_json_against_the_schema_gets_400(broker: BrokerProcess, body: bytes) -> None:
    answer = request(broker.http_port, "POST", "/send", body)
    assert answer.status == 400
    assert answer.headers["content-type"] == "application/problem+json"


# --- H08: records


@pytest.mark.parametrize(
    ("message", "pointer"),
    [
        ({"value_base64": "a"}, "/messages/1/value_base64"),
        ({"value_base64": "YQ"}, "/messages/1/value_base64"),
        ({"value_base64": "YQ==\n"}, "/messages/1/value_base64"),
        ({"value_base64": "Y*=="}, "/messages/1/value_base64"),
        ({"value": "a", "key_base64": "!"}, "/messages/1/key_base64"),
        ({"value": 5}, "/messages/1/value"),
        ({"value": "a", "key": []}, "/messages/1/key"),
        ({"value": "a", "partition": "0"}, "/messages/1/partition"),
        ({"value": "a", "partition": -1}, "/messages/1/partition"),
        ({"value": "a", "partition": 1.5}, "/messages/1/partition"),
        ({"value": "a", "partition": True}, "/messages/1/partition"),
        ({"value": "a", "headers": {"h": 1}}, "/messages/1/headers/h"),
        ({"value": "a", "value_json": 1}, "/messages/1"),
        ({}, "/messages/1"),
    ],
)
def test_invalid_record_of_a_request_is_named_and_no_record_is_stored(
    broker: BrokerProcess, message: dict[str, object], pointer: str
) -> None:
    path = "/v1/topics/innocent/messages"
    body = json.dumps({"messages": [{"value": "never stored"}, message]}).encode()
    answer = request(broker.http_port, "POST", path, body)
    assert (answer.status, answer.json["pointer"]) == (400, pointer)


# --- H10, H24: names


@pytest.mark.parametrize(
    "path",
    [
        "/v1/topics/%2e%2e%2f",
        "/v1/topics/..%2f..%2fetc%2fpasswd",
        "/v1/topics/%00",
        "/v1/topics/a%00b",
        "/v1/topics//configs",
        "/v1//topics",
        "/v1/topics/%252e%252e%252f",
        "/v1/topics/..;/configs",
        "/v1/topics/a%0d%0aX-Injected:%20yes",
        "/v1/topics/%ff",
        "/v1/topics/a%2Fconfigs",
        "/v1/../v1/topics",
        "/v1/topics/" + "a" * 250,
        "/v1/topics/..",
        "/v1/topics/%C3%A4",
    ],
)
def test_path_traversal_and_header_injection_in_a_name_have_no_effect(
    broker: BrokerProcess, path: str
) -> None:
    answer = request(broker.http_port, "GET", path)
    assert answer.status in (400, 404)
    assert "x-injected" not in answer.headers


def test_group_id_with_control_characters_injects_no_response_header(broker: BrokerProcess) -> None:
    group = "%0d%0aX-Injected:%20yes%3Cscript%3E"
    answer = request(broker.http_port, "GET", f"/v1/groups/{group}")
    assert answer.status == 404
    assert "x-injected" not in answer.headers
    assert b"\r\n" not in answer.body


# --- H15, H16: too much


def test_long_polls_of_one_client_are_limited(broker: BrokerProcess) -> None:
    polls = [RawHttp(broker.http_port) for _ in range(60)]
    for number, poll in enumerate(polls):
        poll.send(f"GET /receive?user_id=poller-{number}&wait=30 HTTP/1.1\r\nHost: x\r\n\r\n".encode())
    refused = 0
    for poll in polls[50:]:
        answer = poll.receive()
        refused += answer.status == 429
        assert answer.headers["retry-after"] == "1"
    assert refused == 10
    for poll in polls:
        poll.socket.close()
    eventually(lambda: request(broker.http_port, "GET", "/v1/topics").status == 200)


def test_http_connection_with_too_many_pipelined_requests_is_closed(broker: BrokerProcess) -> None:
    with RawHttp(broker.http_port) as client:
        client.send(b"GET /receive?user_id=nobody&wait=2 HTTP/1.1\r\nHost: x\r\n\r\n" * 40)
        assert client.receive().status == 200
        assert wait_until_ended(client, 10) < 9


# --- H18, H19, H20, H21


def test_http_client_lost_during_a_send_leaves_all_records_or_none(broker: BrokerProcess) -> None:
    for number in range(20):
        body = json.dumps({"from_user": "a", "to_user": "leaver", "message": str(number)}).encode()
        with RawHttp(broker.http_port) as client:
            cut = len(body) if number % 2 else len(body) - 1
            client.send(HEAD + b"Content-Length: %d\r\n\r\n" % len(body) + body[:cut])
            client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    stored = request(broker.http_port, "GET", "/receive?user_id=leaver&wait=1").json["messages"]
    assert all(int(message["message"]) % 2 for message in stored)
    assert len({message["message_id"] for message in stored}) == len(stored)


def test_only_webhook_endpoints_accept_a_url(broker: BrokerProcess) -> None:
    """Addresses of webhooks are checked, see webhooks/test_receiver_url.py; definitions create webhooks too."""
    paths = json.loads(request(broker.http_port, "GET", "/openapi.json").body)["paths"]
    takers = ("/v1/webhooks", "/v1/definitions")
    others = json.dumps({path: item for path, item in paths.items() if not path.startswith(takers)})
    assert len(others) > 10_000
    assert '"uri"' not in others
    assert '"url"' not in others


def test_pages_of_other_origins_get_no_cors_headers(broker: BrokerProcess) -> None:
    answer = request(broker.http_port, "GET", "/v1/topics", Origin="https://evil.example", Cookie="a=b")
    assert not any(name.startswith("access-control") for name in answer.headers)
    preflight = request(
        broker.http_port,
        "OPTIONS",
        "/send",
        Origin="https://evil.example",
        Access_Control_Request_Method="POST",
    )
    assert not any(name.startswith("access-control") for name in preflight.headers)


# --- H22, H23: the request line and its host


@pytest.mark.parametrize(
    ("data", "statuses"),
    [
        (b"TRACE / HTTP/1.1\r\nHost: x\r\n\r\n", {405}),
        (b"CONNECT x:80 HTTP/1.1\r\nHost: x\r\n\r\n", {405}),
        (b"BREW / HTTP/1.1\r\nHost: x\r\n\r\n", {501}),
        (b"PROPFIND / HTTP/1.1\r\nHost: x\r\n\r\n", {501}),
        (b"PUT /send HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n", {405}),
        (b"GET /\r\n\r\n", {400, 505}),
        (b"GET / HTTP/2.0\r\nHost: x\r\n\r\n", {400, 505}),
        (b"GET / HTTP/9.9\r\nHost: x\r\n\r\n", {400, 505}),
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", {400, 405, 501, 505}),
        (b"GET /health HTTP/1.1\r\nHost: x\r\nExpect: miracles\r\n\r\n", {417}),
        (b"GET /health HTTP/1.1\r\n\r\n", {400}),
        (b"GET /health HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", {400}),
        (b"GET http://other/health HTTP/1.1\r\nHost: x\r\n\r\n", {400}),
        (b"GET ftp://x/health HTTP/1.1\r\nHost: x\r\n\r\n", {400}),
        (b"GET http://u@x/health HTTP/1.1\r\nHost: x\r\n\r\n", {400}),
        (b"GET health HTTP/1.1\r\nHost: x\r\n\r\n", {400}),
        (b"GET /a b HTTP/1.1\r\nHost: x\r\n\r\n", {400}),
    ],
)
def test_malformed_requests_get_the_matching_status(
    broker: BrokerProcess, data: bytes, statuses: set[int]
) -> None:
    answer = ask(broker.http_port, data)
    assert answer.status in statuses


@pytest.mark.parametrize(
    "data",
    [
        b"GET http://x/health HTTP/1.1\r\nHost: x\r\n\r\n",
        b"GET /health HTTP/1.0\r\nConnection: keep-alive\r\n\r\n",
        b"GET /health HTTP/1.1\r\nHost: x\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\n"
        b"HTTP2-Settings: AAMAAABkAARAAAAA\r\n\r\n",
        b"OPTIONS * HTTP/1.1\r\nHost: x\r\n\r\n",
    ],
)
def test_unusual_valid_http_requests_are_answered_without_an_upgrade(
    broker: BrokerProcess, data: bytes
) -> None:
    answer = ask(broker.http_port, data)
    assert answer.status in (200, 204)
    assert "upgrade" not in answer.headers


def test_upgrade_request_smuggles_no_second_request(broker: BrokerProcess) -> None:
    with RawHttp(broker.http_port) as client:
        client.send(
            HEAD
            + b"Connection: Upgrade\r\nUpgrade: h2c\r\nContent-Length: 60\r\n\r\n"
            + b"GET /v1/topics HTTP/1.1\r\nHost: x\r\n\r\n"
        )
        assert client.receive().status in (400, 501)
        assert client.is_closed()


def test_body_is_requested_only_if_it_will_be_read(broker: BrokerProcess) -> None:
    with RawHttp(broker.http_port) as client:
        client.send(HEAD + b"Content-Length: 999999999\r\nExpect: 100-continue\r\n\r\n")
        assert client.receive().status == 413
    with RawHttp(broker.http_port) as client:
        client.send(HEAD + b"Content-Length: %d\r\nExpect: 100-continue\r\n\r\n" % len(BODY))
        assert client.receive().status == 100
        client.send(BODY)
        assert client.receive().status == 200


# --- H25: errors


@pytest.mark.parametrize("path", ["/nope", "/v1/topics/nope", "/receive?user_id=x&last_message_id=nope"])
def test_http_errors_reveal_no_implementation_details(broker: BrokerProcess, path: str) -> None:
    answer = request(broker.http_port, "GET", path)
    assert answer.status in (400, 404)
    text = answer.body.decode() + str(answer.headers)
    for secret in ("Traceback", ".py", "site-packages", "uvicorn", "starlette", str(broker.data_dir)):
        assert secret not in text
    assert answer.json["request_id"] == answer.headers["x-request-id"]
