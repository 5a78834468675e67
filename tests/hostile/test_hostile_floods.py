"""Floods: pipelined requests without reads, connections, producer ids (K34, K35, K37)."""

from __future__ import annotations

import contextlib
import socket
import struct
import time
from collections.abc import Iterator

import psutil
import pytest
from watch import MIB, Watch, create_topic, log_end, now_ms, produce

from penstock.records.building import NewRecord, build_batch
from support import raw
from support.broker_process import BrokerProcess
from support.eventually import eventually

SETTINGS = (
    "connection.write.timeout.ms=1500",
    "max.connections.per.ip=700",
    "max.connections=1000",
    "max.producers.per.partition=500",
)
OTHER_ADDRESS = "127.0.0.2"
TOPIC, COMPACTED = "flooded", "flooded-compacted"
INVALID_TRANSACTION_TIMEOUT, OUT_OF_ORDER = 50, 45


@pytest.fixture(scope="module", autouse=True)
def topics(broker: BrokerProcess) -> None:
    with raw.RawClient(broker.port) as client:
        assert create_topic(client, TOPIC).error_code == 0
        assert create_topic(client, COMPACTED, cleanup_policy="compact").error_code == 0
        batch = build_batch([NewRecord(b"key", bytes(900_000), now_ms())])
        for _ in range(10):
            assert produce(client, TOPIC, batch).error_code == 0


def send_as_far_as_possible(client: raw.RawClient, content: bytes, seconds: float) -> int:
    """Send until the broker stops reading for a while, and return the number of bytes sent."""
    client.socket.settimeout(seconds)
    sent = 0
    view = memoryview(content)
    with contextlib.suppress(TimeoutError, ConnectionError):
        while sent < len(content):
            sent += client.socket.send(view[sent : sent + 65536])
    return sent


PIPELINES = {
    "api-versions": raw.request(raw.API_VERSIONS, 0) * 100_000,
    "metadata": raw.request(raw.METADATA, 1, topics=None) * 100_000,
    "describe-configs": raw.request(
        raw.DESCRIBE_CONFIGS, 1, resources=[{"resource_type": 4, "resource_name": "1"}]
    )
    * 30_000,
    "fetch": raw.request(
        raw.FETCH,
        4,
        replica_id=-1,
        max_bytes=2**31 - 1,
        topics=[{"topic": TOPIC, "partitions": [{"partition": 0, "partition_max_bytes": 2**31 - 1}]}],
    )
    * 100_000,
    "long-poll": raw.request(
        raw.FETCH,
        4,
        replica_id=-1,
        max_wait=2**31 - 1,
        min_bytes=2**31 - 1,
        max_bytes=1000,
        topics=[{"topic": TOPIC, "partitions": [{"partition": 0, "fetch_offset": 10}]}],
    )
    * 100_000,
    "init-producer-id": raw.request(raw.INIT_PRODUCER_ID, 0, transaction_timeout=1000) * 100_000,
    "list-offsets": raw.request(
        raw.LIST_OFFSETS, 1, replica_id=-1, topics=[{"name": TOPIC, "partitions": [{"timestamp": 5}]}]
    )
    * 100_000,
}


@pytest.mark.parametrize("pipeline", PIPELINES)
def test_responses_to_a_client_that_never_reads_take_bounded_memory(watch: Watch, pipeline: str) -> None:
    with watch.client() as client:
        client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 16_384)
        send_as_far_as_possible(client, PIPELINES[pipeline], 0.5)


@pytest.mark.parametrize("pipeline", ["fetch", "long-poll", "list-offsets"])
def test_broker_stops_reading_from_a_client_that_never_reads(watch: Watch, pipeline: str) -> None:
    content = PIPELINES[pipeline]
    with watch.client() as client:
        client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 16_384)
        taken = send_as_far_as_possible(client, content, 0.5)
        assert taken < len(content), "the broker took everything from a client that reads nothing"


def test_connection_of_a_client_that_never_reads_is_closed(watch: Watch) -> None:
    with watch.client() as client, watch.counts_refusals():
        send_as_far_as_possible(client, PIPELINES["fetch"], 0.5)
        assert watch.holds(client)
        eventually(lambda: not watch.holds(client))


def test_many_clients_that_never_read_share_one_limit(watch: Watch) -> None:
    watch.max_growth_bytes = 384 * MIB
    watch.max_seconds = 6
    content = PIPELINES["describe-configs"]
    clients = [watch.client() for _ in range(40)]
    for client in clients:
        client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 16_384)
        client.socket.setblocking(False)
    sent = [0] * len(clients)
    deadline = time.monotonic() + 3
    while time.monotonic() < deadline:
        for index, client in enumerate(clients):
            with contextlib.suppress(BlockingIOError, ConnectionError):
                sent[index] += client.socket.send(memoryview(content)[sent[index] : sent[index] + 65536])
    for client in clients:
        client.close()


def test_pipelined_requests_of_a_slow_reader_are_answered_in_order(watch: Watch) -> None:
    frame = raw.request(raw.API_VERSIONS, 0)
    with watch.client() as client:
        for number in range(3000):
            client.send(frame[:8] + struct.pack(">i", number) + frame[12:])
        for number in range(3000):
            assert struct.unpack_from(">i", client.read_frame()) == (number,)


def connect_from(address: str, port: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), timeout=5, source_address=(address, 0))


def is_served(connection: socket.socket) -> bool:
    try:
        connection.sendall(raw.request(raw.API_VERSIONS, 0))
        return len(connection.recv(8)) == 8
    except OSError:
        return False


@pytest.fixture
def crowd() -> Iterator[list[socket.socket]]:
    connections: list[socket.socket] = []
    yield connections
    for connection in connections:
        connection.close()


def test_one_address_cannot_take_all_connections(watch: Watch, crowd: list[socket.socket]) -> None:
    port = watch.broker.port
    with watch.counts_refusals(250):
        for _ in range(1000):
            with contextlib.suppress(OSError):
                crowd.append(connect_from(OTHER_ADDRESS, port))
        assert 600 <= sum(is_served(connection) for connection in crowd) <= 700
    with watch.client() as client:
        client.call(raw.API_VERSIONS, 0)
    for connection in crowd:
        connection.close()

    def has_room() -> bool:
        with contextlib.closing(connect_from(OTHER_ADDRESS, port)) as connection:
            return is_served(connection)

    eventually(has_room)


def test_connections_of_all_addresses_stay_within_the_total_limit(
    watch: Watch, crowd: list[socket.socket]
) -> None:
    with watch.counts_refusals(100):
        for number in range(1200):
            with contextlib.suppress(OSError):
                crowd.append(connect_from(f"127.0.0.{10 + number % 5}", watch.broker.port))
        assert sum(is_served(connection) for connection in crowd) <= 1000


def test_short_connections_delay_no_other_client(watch: Watch) -> None:
    for _ in range(3000):
        with contextlib.suppress(OSError):
            connect_from(OTHER_ADDRESS, watch.broker.port).close()
    eventually(lambda: watch.established_connections() < 50)


def test_lack_of_file_descriptors_affects_only_new_connections(
    watch: Watch, crowd: list[socket.socket]
) -> None:
    process = psutil.Process(watch.broker.pid)
    limits = process.rlimit(psutil.RLIMIT_NOFILE)
    with watch.client() as client:
        process.rlimit(psutil.RLIMIT_NOFILE, (process.num_fds() + 20, limits[1]))
        try:
            for _ in range(100):
                crowd.append(connect_from(OTHER_ADDRESS, watch.broker.port))
            used = sum(process.cpu_times()[:2])
            time.sleep(1)
            assert sum(process.cpu_times()[:2]) - used < 0.7, "the broker spins"
            assert create_topic(client, "created-without-descriptors").error_code == 0
            stored = produce(
                client, "created-without-descriptors", build_batch([NewRecord(None, b"", now_ms())])
            )
            assert stored.error_code == 0
        finally:
            process.rlimit(psutil.RLIMIT_NOFILE, limits)
    eventually(lambda: sum(is_served(connection) for connection in crowd[:5]) == 5)


def test_producer_ids_are_unique_under_many_requests(watch: Watch) -> None:
    count = 5000
    with watch.client(30) as client:
        client.socket.settimeout(30)
        frame = raw.request(raw.INIT_PRODUCER_ID, 0, transaction_timeout=1000)
        producer_ids = set()
        for _ in range(count // 100):
            client.send(frame * 100)
            for _ in range(100):
                answer = raw.decode_response(raw.INIT_PRODUCER_ID, 0, client.read_frame())
                assert answer.error_code == 0
                producer_ids.add(answer.producer_id)
    assert len(producer_ids) == count


def idempotent_batch(producer_id: int, sequence: int) -> bytes:
    record = NewRecord(b"key", b"value", now_ms())
    return bytes(build_batch([record], producer_id=producer_id, producer_epoch=0, base_sequence=sequence))


def test_many_producers_of_one_partition_take_bounded_memory(watch: Watch) -> None:
    watch.max_growth_bytes = 24 * MIB
    with watch.client(30) as client:
        before = log_end(client, TOPIC)
        for start in range(0, 5_000, 50):
            for producer_id in range(start, start + 50):
                partition = {"index": 0, "records": idempotent_batch(1_000_000 + producer_id, 0)}
                data = [{"name": TOPIC, "partition_data": [partition]}]
                client.send(raw.request(raw.PRODUCE, 7, acks=1, timeout=5000, topic_data=data))
            for _ in range(50):
                answer = raw.decode_response(raw.PRODUCE, 7, client.read_frame())
                assert answer.responses[0].partition_responses[0].error_code == 0
        eventually(lambda: log_end(client, TOPIC) == before + 5_000)
        newest = produce(client, TOPIC, idempotent_batch(1_000_000 + 4_999, 0))
        assert newest.base_offset == before + 4_999, "the newest producer is still known, so this is a retry"


@pytest.mark.parametrize("timeout", [2**31 - 1, -1, 0, -(2**31)])
def test_transaction_timeout_above_the_maximum_is_refused(watch: Watch, timeout: int) -> None:
    with watch.client() as client:
        answer = client.call(raw.INIT_PRODUCER_ID, 1, transactional_id="mine", transaction_timeout=timeout)
        assert answer.error_code != 0
        assert answer.producer_id == -1


@pytest.mark.parametrize("producer_id", [2**63 - 1, -2, 12345])
def test_init_producer_id_does_not_return_a_producer_id_forged_by_the_client(
    watch: Watch, producer_id: int
) -> None:
    with watch.client() as client:
        answer = client.call(
            raw.INIT_PRODUCER_ID, 4, transaction_timeout=1000, producer_id=producer_id, producer_epoch=32767
        )
        assert answer.error_code != 0 or answer.producer_id != producer_id
