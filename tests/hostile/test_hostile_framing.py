"""Invalid frames: wrong sizes, other protocols, and incomplete requests (K01, K02, K04, K05)."""

from __future__ import annotations

import contextlib
import random
import socket
import struct
import time
from collections.abc import Callable

import psutil
import pytest
from watch import MIB, Watch, now_ms, produce

from penstock.records.building import NewRecord, build_batch
from support import raw
from support.broker_process import BrokerProcess
from support.eventually import eventually
from support.stopwatch import Stopwatch

SETTINGS = (
    "request.receive.timeout.ms=1000",
    "connections.max.idle.ms=1500",
)
MAX_FRAME_BYTES = 104_857_600


def size(value: int) -> bytes:
    return struct.pack(">i", value)


@pytest.mark.parametrize("claimed", [-1, -2, -(2**31), -(2**31) + 8])
def test_negative_frame_size_closes_the_connection(watch: Watch, claimed: int) -> None:
    watch.refuses(size(claimed), size(claimed) + raw.header(raw.METADATA, 0))


@pytest.mark.parametrize("claimed", [2**31 - 1, MAX_FRAME_BYTES + 1])
def test_frame_size_above_the_limit_closes_the_connection_before_the_body(watch: Watch, claimed: int) -> None:
    watch.refuses(size(claimed))


def test_frame_size_above_the_limit_closes_after_earlier_requests_are_answered(watch: Watch) -> None:
    with watch.counts_refusals(), watch.client() as client:
        client.send(raw.request(raw.API_VERSIONS, 0))
        raw.decode_response(raw.API_VERSIONS, 0, client.read_frame())
        client.send(size(2**31 - 1))
        client.expect_refused()


def test_frame_size_zero_closes_the_connection(watch: Watch) -> None:
    watch.refuses(size(0))


@pytest.mark.parametrize(
    "content", [b"\x00", b"\x00\x12", b"\x00\x12\x00", raw.header(raw.API_VERSIONS, 0)[:9]]
)
def test_a_frame_shorter_than_a_header_closes_the_connection(watch: Watch, content: bytes) -> None:
    watch.refuses(raw.framed(content))


@pytest.mark.parametrize(
    "content",
    [
        b"GET / HTTP/1.1\r\nHost: broker\r\n\r\n",
        b"POST /topics HTTP/1.1\r\nContent-Length: 0\r\n\r\n",
        bytes.fromhex("16030100c2010000be0303") + bytes(200),
        bytes.fromhex("1603030200") + bytes(512),
        b"SSH-2.0-OpenSSH_9.6\r\n",
        b"\x00\x00\x00\x08\x04\xd2\x16\x2f" + bytes(8),
        b"*1\r\n$4\r\nPING\r\n",
        b"\xff" * 64,
        b"\x00" * 64,
    ],
    ids=["http-get", "http-post", "tls-1.0", "tls-1.2", "ssh", "postgres", "redis", "ones", "zeros"],
)
def test_bytes_of_another_protocol_close_the_connection(watch: Watch, content: bytes) -> None:
    watch.refuses(content)


def test_random_bytes_do_not_harm_the_broker(watch: Watch) -> None:
    chance = random.Random(3)
    for _ in range(200):
        with watch.client() as client:
            client.send(chance.randbytes(chance.randrange(1, 300)))
            client.finish_sending()
            client.read_until_closed()


def test_frames_with_random_content_do_not_harm_the_broker(watch: Watch) -> None:
    chance = random.Random(4)
    for _ in range(300):
        with watch.client() as client:
            content = struct.pack(">hhi", chance.randrange(80), chance.randrange(14), 5) + chance.randbytes(
                60
            )
            client.send(raw.framed(content))
            client.finish_sending()
            client.read_until_closed()


def test_request_memory_grows_with_received_bytes_not_with_the_claimed_size(watch: Watch) -> None:
    watch.max_growth_bytes = 24 * MIB
    clients = [watch.client() for _ in range(100)]
    for client in clients:
        client.send(size(MAX_FRAME_BYTES) + bytes(1000))
    with watch.client() as polite:
        polite.call(raw.API_VERSIONS, 0)
    assert watch.rss - watch.started_rss < watch.max_growth_bytes
    for client in clients:
        client.close()


def test_connection_with_an_incomplete_request_or_without_any_is_closed(watch: Watch) -> None:
    started = time.monotonic()
    clients = [watch.client() for _ in range(3)]
    clients[0].send(raw.request(raw.METADATA, 1)[:-1])
    clients[1].send(b"\x00\x00")
    with watch.counts_refusals(2):
        for client in clients:
            client.expect_refused()
            assert time.monotonic() - started > 0.9
            client.close()


def test_a_request_sent_byte_by_byte_is_answered(watch: Watch) -> None:
    with watch.client() as client:
        for byte in raw.request(
            raw.API_VERSIONS, 3, client_software_name="slow", client_software_version="1"
        ):
            client.send(bytes((byte,)))
        answer = raw.decode_response(raw.API_VERSIONS, 3, client.read_frame())
    assert answer.error_code == 0


def test_two_hundred_slow_senders_delay_no_other_client(watch: Watch) -> None:
    clients = [watch.client() for _ in range(200)]
    frame = raw.request(raw.API_VERSIONS, 0)
    for byte in frame:
        for client in clients:
            client.send(bytes((byte,)))
    for client in clients:
        assert raw.decode_response(raw.API_VERSIONS, 0, client.read_frame()).error_code == 0
        client.close()


def test_connection_lost_inside_a_request_frees_its_memory(watch: Watch) -> None:
    for _ in range(50):
        client = watch.client()
        client.send(size(1000) + bytes(500))
        client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        client.close()
    eventually(lambda: watch.established_connections() <= 2)


def test_incomplete_requests_that_fill_the_request_memory_are_closed(
    start_broker: Callable[..., BrokerProcess],
) -> None:
    """Ten clients stop in the middle of 100 MiB each, and a thousand idle clients reduce the share of each
    client.
    """
    broker = start_broker(["queued.max.request.bytes=16777216"])
    with contextlib.ExitStack() as stack:
        idle = [stack.enter_context(raw.RawClient(broker.port)) for _ in range(1000)]
        assert idle[0].call(
            raw.CREATE_TOPICS, 5, topics=[{"name": "t", "num_partitions": 1, "replication_factor": 1}]
        )
        hogs = [stack.enter_context(raw.RawClient(broker.port)) for _ in range(10)]
        for hog in hogs:
            hog.socket.settimeout(0.2)
            with contextlib.suppress(TimeoutError):
                hog.send(size(MAX_FRAME_BYTES) + bytes(16 * MIB))
        stopwatch = Stopwatch(broker.pid)
        batch = build_batch([NewRecord(b"key", bytes(900_000), now_ms())])
        assert produce(idle[1], "t", batch).error_code == 0
        assert stopwatch.seconds < 9
        assert psutil.Process(broker.pid).memory_info().rss < 192 * MIB
