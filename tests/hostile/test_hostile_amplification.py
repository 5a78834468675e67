"""Small requests for much work or large responses (K13, K14); invalid sessions and offsets (K29, K33, K36)."""

from __future__ import annotations

import struct
import time
from collections.abc import Iterator
from typing import Any

import bad_batches
import pytest
from watch import MIB, Watch, create_topic, fetch, log_end, produce

from penstock.records.building import NewRecord, build_batch
from support import raw
from support.broker_process import BrokerProcess
from support.eventually import eventually
from support.stopwatch import Stopwatch

SETTINGS = (
    "fetch.max.bytes=4194304",
    "fetch.max.wait.ms=1000",
    "max.incremental.fetch.session.cache.slots=50",
)
TOPIC, BIG = "small", "big"
FETCH_MAX_BYTES = 4 * MIB
BATCH_BYTES = MIB
INT_MAX, LONG_MAX = 2**31 - 1, 2**63 - 1
OFFSET_OUT_OF_RANGE, CLUSTER_AUTHORIZATION_FAILED, INVALID_REQUEST = 1, 31, 42
FETCH_SESSION_ID_NOT_FOUND, INVALID_FETCH_SESSION_EPOCH = 70, 71
REPETITIONS = 100_000


@pytest.fixture(scope="module", autouse=True)
def topics(broker: BrokerProcess) -> None:
    with raw.RawClient(broker.port) as client:
        assert create_topic(client, TOPIC).error_code == 0
        assert create_topic(client, BIG, partitions=4).error_code == 0
        batch = build_batch([NewRecord(b"key", bytes(BATCH_BYTES - 200), int(time.time() * 1000))])
        for turn in range(24):
            assert produce(client, BIG, batch, partition=turn % 4).error_code == 0
        assert produce(client, TOPIC, bad_batches.good()).error_code == 0


@pytest.fixture
def client(watch: Watch) -> Iterator[raw.RawClient]:
    with watch.client(30) as connected:
        yield connected


def expect_bounded(watch: Watch, client: raw.RawClient, frame: bytes, max_answer_bytes: int) -> bytes:
    """Expect a response of at most this size, or a closed connection, either within ten seconds."""
    stopwatch = Stopwatch(watch.broker.pid)
    client.send(frame)
    try:
        answer = client.read_frame()
    except ConnectionError:
        answer = b""
    assert stopwatch.seconds < 10
    assert len(answer) <= max_answer_bytes
    return answer


def repeat_array(content: bytes, element: bytes, count: int) -> bytes:
    """A request whose last field, an empty legacy array, is replaced by `count` copies of an element."""
    assert content.endswith(bytes(4))
    return raw.framed(content[:-4] + struct.pack(">i", count) + element * count)


def test_metadata_request_that_repeats_one_topic_100000_times_is_bounded(
    watch: Watch, client: raw.RawClient
) -> None:
    content = raw.header(raw.METADATA, 1) + raw.body(raw.METADATA, 1, topics=[])
    element = struct.pack(">h", len(TOPIC)) + TOPIC.encode()
    expect_bounded(watch, client, repeat_array(content, element, REPETITIONS), 200 * len(element) * 10)


def test_metadata_response_for_100000_unknown_topics_is_bounded(watch: Watch, client: raw.RawClient) -> None:
    content = raw.header(raw.METADATA, 1) + raw.body(raw.METADATA, 1, topics=[])
    names = (f"missing-{number}".encode() for number in range(REPETITIONS))
    elements = b"".join(struct.pack(">h", len(name)) + name for name in names)
    frame = raw.framed(content[:-4] + struct.pack(">i", REPETITIONS) + elements)
    expect_bounded(watch, client, frame, 8 * len(frame))


def fetch_body(**fields: Any) -> bytes:
    return raw.header(raw.FETCH, 4) + raw.body(raw.FETCH, 4, replica_id=-1, max_bytes=1000, **fields)


def test_fetch_request_that_repeats_one_partition_100000_times_is_bounded(
    watch: Watch, client: raw.RawClient
) -> None:
    element = struct.pack(">h", len(TOPIC)) + TOPIC.encode() + struct.pack(">iiqi", 1, 0, 0, 1000)
    expect_bounded(watch, client, repeat_array(fetch_body(), element, REPETITIONS), 100_000)


def test_fetch_response_for_100000_unknown_partitions_is_bounded(watch: Watch, client: raw.RawClient) -> None:
    partitions = b"".join(struct.pack(">iqi", number, 0, 1000) for number in range(REPETITIONS))
    name = struct.pack(">h", len(TOPIC)) + TOPIC.encode()
    frame = raw.framed(
        fetch_body()[:-4] + struct.pack(">i", 1) + name + struct.pack(">i", REPETITIONS) + partitions
    )
    expect_bounded(watch, client, frame, 8 * len(frame))


def test_produce_request_that_repeats_one_partition_100000_times_is_bounded(
    watch: Watch, client: raw.RawClient
) -> None:
    content = raw.header(raw.PRODUCE, 7) + raw.body(raw.PRODUCE, 7, acks=1, timeout=1000)
    element = struct.pack(">h", len(TOPIC)) + TOPIC.encode() + struct.pack(">iii", 1, 0, -1)
    expect_bounded(watch, client, repeat_array(content, element, REPETITIONS), 100 * REPETITIONS)


@pytest.mark.parametrize("twice", ["partition", "topic"])
def test_partition_repeated_in_a_produce_request_is_appended_at_most_once(
    client: raw.RawClient, twice: str
) -> None:
    before = log_end(client, TOPIC)
    partition = {"index": 0, "records": bytes(bad_batches.good())}
    once = {"name": TOPIC, "partition_data": [partition]}
    data = [once, once] if twice == "topic" else [{"name": TOPIC, "partition_data": [partition, partition]}]
    answer = client.call(raw.PRODUCE, 9, acks=-1, timeout=1000, topic_data=data)
    codes = [result.error_code for topic in answer.responses for result in topic.partition_responses]
    assert INVALID_REQUEST in codes
    assert log_end(client, TOPIC) <= before + 1


@pytest.mark.parametrize(
    ("api_key", "version", "fields"),
    [
        (raw.LIST_OFFSETS, 1, {"topics": [{"name": TOPIC, "partitions": [{"timestamp": -1}] * 10_000}]}),
        (raw.OFFSET_FOR_LEADER_EPOCH, 2, {"topics": [{"topic": TOPIC, "partitions": [{}] * 10_000}]}),
        (raw.DELETE_RECORDS, 0, {"topics": [{"name": TOPIC, "partitions": [{"offset": 0}] * 10_000}]}),
        (raw.DESCRIBE_CONFIGS, 1, {"resources": [{"resource_type": 2, "resource_name": TOPIC}] * 10_000}),
        (raw.DESCRIBE_CONFIGS, 1, {"resources": [{"resource_type": 4, "resource_name": "1"}] * 10_000}),
        (
            raw.CREATE_TOPICS,
            2,
            {"topics": [{"name": "twice", "num_partitions": 1, "replication_factor": 1}] * 10_000},
        ),
        (raw.DELETE_TOPICS, 1, {"topic_names": ["never-was"] * 50_000}),
        (raw.CREATE_PARTITIONS, 0, {"topics": [{"name": TOPIC, "count": 2}] * 10_000}),
        (raw.DESCRIBE_LOG_DIRS, 1, {"topics": [{"topic": TOPIC, "partitions": [0] * 100}] * 1000}),
        (
            raw.DESCRIBE_TOPIC_PARTITIONS,
            0,
            {"topics": [{"name": BIG}] * 10_000, "response_partition_limit": INT_MAX},
        ),
        (
            raw.INCREMENTAL_ALTER_CONFIGS,
            0,
            {"resources": [{"resource_type": 2, "resource_name": TOPIC}] * 10_000, "validate_only": True},
        ),
    ],
    ids=lambda value: str(value) if isinstance(value, int) else "",
)
def test_repeated_elements_in_a_request_stay_bounded(
    watch: Watch, client: raw.RawClient, api_key: int, version: int, fields: dict[str, Any]
) -> None:
    frame = raw.request(api_key, version, **fields)
    expect_bounded(watch, client, frame, max(4 * MIB, 8 * len(frame)))


def fetch_all(client: raw.RawClient, **fields: Any) -> Any:
    partitions = [{"partition": index, "partition_max_bytes": INT_MAX} for index in range(4)]
    return client.call(raw.FETCH, 12, topics=[{"topic": BIG, "partitions": partitions}], **fields)


def fetched_bytes(answer: Any) -> int:
    return sum(len(result.records or b"") for topic in answer.responses for result in topic.partitions)


def test_fetch_without_size_limit_is_limited_by_the_broker(client: raw.RawClient) -> None:
    answer = fetch_all(client, max_bytes=INT_MAX, min_bytes=INT_MAX, max_wait=0)
    assert BATCH_BYTES / 2 < fetched_bytes(answer) <= FETCH_MAX_BYTES


@pytest.mark.parametrize("max_bytes", [0, -1, -(2**31), 1])
def test_fetch_with_max_bytes_too_small_returns_at_most_one_batch(
    client: raw.RawClient, max_bytes: int
) -> None:
    answer = fetch_all(client, max_bytes=max_bytes, max_wait=0)
    assert fetched_bytes(answer) <= BATCH_BYTES


@pytest.mark.parametrize("max_bytes", [0, -1, -(2**31)])
def test_fetch_with_partition_max_bytes_too_small_returns_at_most_one_batch(
    client: raw.RawClient, max_bytes: int
) -> None:
    partitions = [{"partition": index, "partition_max_bytes": max_bytes} for index in range(4)]
    topics = [{"topic": BIG, "partitions": partitions}]
    answer = client.call(raw.FETCH, 12, topics=topics, max_bytes=INT_MAX, max_wait=0)
    assert fetched_bytes(answer) <= BATCH_BYTES


@pytest.mark.parametrize("max_wait", [INT_MAX, 100_000])
def test_long_poll_is_limited_by_the_broker(client: raw.RawClient, max_wait: int) -> None:
    started = time.monotonic()
    end = log_end(client, TOPIC)
    topics = [
        {"topic": TOPIC, "partitions": [{"partition": 0, "fetch_offset": end, "partition_max_bytes": 1000}]}
    ]
    client.call(raw.FETCH, 12, max_wait=max_wait, min_bytes=INT_MAX, max_bytes=1000, topics=topics)
    assert 0.5 < time.monotonic() - started < 60


@pytest.mark.parametrize("max_wait", [-1, -(2**31)])
def test_fetch_with_negative_max_wait_is_answered_at_once(client: raw.RawClient, max_wait: int) -> None:
    topics = [{"topic": TOPIC, "partitions": [{"partition": 0, "partition_max_bytes": 1000}]}]
    client.call(raw.FETCH, 12, max_wait=max_wait, min_bytes=INT_MAX, max_bytes=1000, topics=topics)


@pytest.mark.parametrize("offset", [LONG_MAX, -1, -2, -(2**63), 10_000])
def test_fetch_at_an_extreme_offset_gets_offset_out_of_range(client: raw.RawClient, offset: int) -> None:
    assert fetch(client, TOPIC, offset).error_code == OFFSET_OUT_OF_RANGE


@pytest.mark.parametrize("partition", [-1, 1, INT_MAX, -(2**31)])
def test_fetch_of_an_extreme_partition_number_gets_unknown_partition(
    client: raw.RawClient, partition: int
) -> None:
    assert fetch(client, TOPIC, 0, partition=partition).error_code == 3


def test_long_polls_of_closed_connections_are_dropped(watch: Watch) -> None:
    """A long poll ends with its connection, so polls of closed connections do not add up."""
    watch.max_growth_bytes = 24 * MIB
    with watch.client() as client:
        end = log_end(client, TOPIC)
    topics = [
        {"topic": TOPIC, "partitions": [{"partition": 0, "fetch_offset": end, "partition_max_bytes": 1000}]}
    ]
    frame = raw.request(raw.FETCH, 12, max_wait=INT_MAX, min_bytes=INT_MAX, max_bytes=1000, topics=topics)
    for _ in range(300):
        with watch.client() as client:
            client.send(frame * 100)


@pytest.mark.parametrize("replica_id", [0, 1, 2, 999, INT_MAX])
@pytest.mark.parametrize("version", [4, 11, 12])
def test_client_fetch_with_a_replica_id_is_refused(
    client: raw.RawClient, replica_id: int, version: int
) -> None:
    high_watermark = fetch(client, TOPIC, 0).high_watermark
    partition = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1000, "log_start_offset": 0}
    topics = [{"topic": TOPIC, "partitions": [partition]}]
    answer = client.call(raw.FETCH, version, replica_id=replica_id, max_bytes=1000, topics=topics)
    partitions = [result for topic in answer.responses for result in topic.partitions]
    assert partitions or answer.error_code == CLUSTER_AUTHORIZATION_FAILED
    assert all(result.error_code == CLUSTER_AUTHORIZATION_FAILED for result in partitions)
    assert not any(result.records for result in partitions)
    assert fetch(client, TOPIC, 0).high_watermark == high_watermark


def test_client_fetch_with_a_replica_state_tag_is_refused(client: raw.RawClient) -> None:
    topics: list[Any] = []
    answer = client.call(
        raw.FETCH, 15, replica_state={"replica_id": 1, "replica_epoch": 1}, topics=topics, max_bytes=1
    )
    assert answer.error_code == CLUSTER_AUTHORIZATION_FAILED


def open_session(client: raw.RawClient) -> Any:
    topics = [{"topic": TOPIC, "partitions": [{"partition": 0, "partition_max_bytes": 1000}]}]
    return client.call(
        raw.FETCH, 12, session_id=0, session_epoch=0, max_bytes=1000, max_wait=0, topics=topics
    )


@pytest.mark.parametrize("epoch", [1, 2, INT_MAX, -2, -(2**31)])
@pytest.mark.parametrize("session_id", [1, 12345, INT_MAX, -1])
def test_forged_fetch_session_id_gets_session_id_not_found(
    client: raw.RawClient, session_id: int, epoch: int
) -> None:
    answer = client.call(raw.FETCH, 12, session_id=session_id, session_epoch=epoch, max_bytes=1000)
    assert answer.error_code in (FETCH_SESSION_ID_NOT_FOUND, INVALID_FETCH_SESSION_EPOCH)
    assert not answer.responses


def test_fetch_session_id_of_another_client_gets_session_id_not_found(
    watch: Watch, client: raw.RawClient
) -> None:
    session_id = open_session(client).session_id
    assert session_id
    with watch.client() as thief:
        answer = thief.call(raw.FETCH, 12, session_id=session_id, session_epoch=1, max_bytes=1000)
        assert answer.error_code == FETCH_SESSION_ID_NOT_FOUND
        thief.call(raw.FETCH, 12, session_id=session_id, session_epoch=-1, max_bytes=1000)
    again = client.call(raw.FETCH, 12, session_id=session_id, session_epoch=1, max_bytes=1000)
    assert again.error_code == 0


@pytest.mark.parametrize("epoch", [2, 100, INT_MAX, -2])
def test_a_wrong_epoch_of_a_fetch_session_is_refused(client: raw.RawClient, epoch: int) -> None:
    session_id = open_session(client).session_id
    answer = client.call(raw.FETCH, 12, session_id=session_id, session_epoch=epoch, max_bytes=1000)
    assert answer.error_code == INVALID_FETCH_SESSION_EPOCH


def test_fetch_sessions_beyond_the_limit_are_served_without_one(watch: Watch) -> None:
    clients = [watch.client() for _ in range(120)]
    answers = [open_session(client) for client in clients]
    assert all(answer.error_code == 0 and fetched_bytes(answer) for answer in answers)
    assert sum(1 for answer in answers if answer.session_id) <= 50
    for client in clients:
        client.close()

    def has_room_again() -> bool:
        with watch.client() as late:
            return bool(open_session(late).session_id)

    eventually(has_room_again)


def test_fetch_session_opened_repeatedly_takes_one_cache_slot(client: raw.RawClient) -> None:
    for _ in range(500):
        assert open_session(client).session_id


def test_partitions_added_to_a_fetch_session_take_bounded_memory(watch: Watch, client: raw.RawClient) -> None:
    """An incremental fetch can add partitions; the broker must not remember millions of them."""
    watch.max_growth_bytes = 96 * MIB
    session_id = open_session(client).session_id
    for turn in range(12):
        partitions = b"".join(
            struct.pack(">iiqqi", turn * 50_000 + number, -1, 0, -1, 1000) for number in range(50_000)
        )
        head = struct.pack(">iiiibii", -1, 0, 0, 1000, 0, session_id, turn + 1)
        topic = struct.pack(">ih", 1, len(TOPIC)) + TOPIC.encode() + struct.pack(">i", 50_000) + partitions
        client.send(raw.framed(raw.header(raw.FETCH, 11) + head + topic + struct.pack(">ih", 0, 0)))
        try:
            client.read_frame()
        except ConnectionError:
            return


@pytest.mark.parametrize("timestamp", [-3, -4, -5, -6, -7, -(2**63), LONG_MAX, 0, 2**62])
def test_list_offsets_at_an_extreme_timestamp_returns_an_offset_within_the_log(
    client: raw.RawClient, timestamp: int
) -> None:
    topics = [{"name": TOPIC, "partitions": [{"partition_index": 0, "timestamp": timestamp}]}]
    result = client.call(raw.LIST_OFFSETS, 7, replica_id=-1, topics=topics).topics[0].partitions[0]
    assert result.error_code in (0, 1, 35, 42, 43)
    assert -1 <= result.offset <= log_end(client, TOPIC)


@pytest.mark.parametrize("offset", [LONG_MAX, -2, -(2**63), 1_000_000])
def test_delete_records_at_an_extreme_offset_deletes_no_record(client: raw.RawClient, offset: int) -> None:
    topics = [{"name": TOPIC, "partitions": [{"partition_index": 0, "offset": offset}]}]
    result = client.call(raw.DELETE_RECORDS, 1, topics=topics, timeout=1000).topics[0].partitions[0]
    assert result.error_code in (OFFSET_OUT_OF_RANGE, INVALID_REQUEST)
    first = fetch(client, TOPIC, 0)
    assert first.error_code == 0
    assert first.log_start_offset == 0
    assert first.records


@pytest.mark.parametrize("leader_epoch", [INT_MAX, -2, -(2**31), 1000])
def test_offset_for_an_extreme_leader_epoch_is_within_the_log(
    client: raw.RawClient, leader_epoch: int
) -> None:
    partition = {"partition": 0, "current_leader_epoch": -1, "leader_epoch": leader_epoch}
    answer = client.call(
        raw.OFFSET_FOR_LEADER_EPOCH, 3, replica_id=-1, topics=[{"topic": TOPIC, "partitions": [partition]}]
    )
    assert answer.topics[0].partitions[0].end_offset <= log_end(client, TOPIC)
