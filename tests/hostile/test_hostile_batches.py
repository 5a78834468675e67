"""Record batches that must not be stored (K15 to K20, K22): the right error code, and nothing appended."""

from __future__ import annotations

import contextlib
import gzip
import struct
import time
import zlib
from collections.abc import Callable, Iterator

import bad_batches
import cramjam
import pytest
from bad_batches import with_body, with_header
from watch import MIB, Watch, create_topic, fetch, log_end, produce

from penstock.records.batch import HEADER_SIZE
from penstock.records.building import NewRecord, build_batch
from penstock.records.compression import Codec, compress
from penstock.records.varints import encode
from support import raw
from support.broker_process import BrokerProcess
from support.eventually import eventually
from support.stopwatch import Stopwatch

CORRUPT_MESSAGE, MESSAGE_TOO_LARGE, INVALID_REQUIRED_ACKS, INVALID_TIMESTAMP = 2, 10, 21, 32
(
    UNSUPPORTED_VERSION,
    UNSUPPORTED_FOR_MESSAGE_FORMAT,
    INVALID_TXN_STATE,
    UNSUPPORTED_COMPRESSION_TYPE,
    INVALID_RECORD,
) = 35, 43, 48, 76, 87
SETTINGS = ("log.cleaner.backoff.ms=200", "log.flush.offset.checkpoint.interval.ms=200")
PLAIN, COMPACTED, SMALL = "plain", "compacted", "small"
INT_MAX = 2**31 - 1


@pytest.fixture(scope="module", autouse=True)
def topics(broker: BrokerProcess) -> None:
    with raw.RawClient(broker.port) as client:
        assert create_topic(client, PLAIN).error_code == 0
        assert create_topic(client, COMPACTED, cleanup_policy="compact").error_code == 0
        assert create_topic(client, SMALL, max_message_bytes="1000").error_code == 0


@pytest.fixture
def client(watch: Watch) -> Iterator[raw.RawClient]:
    with watch.client() as connected:
        yield connected


def expect_refused(client: raw.RawClient, topic: str, batch: bytes, *codes: int) -> None:
    """Expect one of the error codes, nothing appended, and an open connection."""
    before = log_end(client, topic)
    result = produce(client, topic, batch)
    assert result.error_code in codes, (result.error_code, result.error_message)
    assert result.base_offset == -1
    assert log_end(client, topic) == before


def good_batch() -> bytes:
    return bytes(bad_batches.good())


HEADER_FAULTS: dict[str, tuple[Callable[[], bytes], list[int]]] = {
    "wrong-crc": (lambda: bad_batches.with_crc(good_batch(), 0), [CORRUPT_MESSAGE]),
    "crc-of-ones": (lambda: bad_batches.with_crc(good_batch(), 2**32 - 1), [CORRUPT_MESSAGE]),
    "one-bit-of-the-value": (lambda: good_batch()[:-2] + bytes((good_batch()[-2] ^ 1, 0)), [CORRUPT_MESSAGE]),
    "magic-0": (lambda: with_header(good_batch(), magic=0), [UNSUPPORTED_FOR_MESSAGE_FORMAT, INVALID_RECORD]),
    "magic-1": (lambda: with_header(good_batch(), magic=1), [UNSUPPORTED_FOR_MESSAGE_FORMAT, INVALID_RECORD]),
    "magic-3": (lambda: with_header(good_batch(), magic=3), [UNSUPPORTED_FOR_MESSAGE_FORMAT, INVALID_RECORD]),
    "magic-minus-1": (
        lambda: with_header(good_batch(), magic=-1),
        [UNSUPPORTED_FOR_MESSAGE_FORMAT, INVALID_RECORD],
    ),
    "length-too-short": (lambda: with_header(good_batch(), batch_length=55), [CORRUPT_MESSAGE]),
    "length-too-long": (lambda: with_header(good_batch(), batch_length=1000), [CORRUPT_MESSAGE]),
    "length-huge": (lambda: with_header(good_batch(), batch_length=INT_MAX), [CORRUPT_MESSAGE]),
    "length-zero": (lambda: with_header(good_batch(), batch_length=0), [CORRUPT_MESSAGE, INVALID_RECORD]),
    "length-negative": (
        lambda: with_header(good_batch(), batch_length=-1),
        [CORRUPT_MESSAGE, INVALID_RECORD],
    ),
    "header-cut": (lambda: good_batch()[:60], [CORRUPT_MESSAGE]),
    "half-a-header": (lambda: good_batch()[:20], [CORRUPT_MESSAGE]),
    "one-byte": (lambda: b"\x00", [CORRUPT_MESSAGE]),
    "reserved-attribute": (
        lambda: with_header(good_batch(), attributes=0x80),
        [CORRUPT_MESSAGE, INVALID_RECORD],
    ),
    "all-attributes": (lambda: with_header(good_batch(), attributes=-1), [CORRUPT_MESSAGE, INVALID_RECORD]),
    "no-records": (lambda: with_header(good_batch(), record_count=0, last_offset_delta=-1), [INVALID_RECORD]),
    "count-negative": (lambda: with_header(good_batch(), record_count=-1), [INVALID_RECORD]),
    "count-huge": (
        lambda: with_header(good_batch(), record_count=INT_MAX, last_offset_delta=INT_MAX - 1),
        [INVALID_RECORD],
    ),
    "count-not-last-offset-delta": (lambda: with_header(good_batch(), last_offset_delta=5), [INVALID_RECORD]),
    "last-offset-delta-negative": (lambda: with_header(good_batch(), last_offset_delta=-2), [INVALID_RECORD]),
    "base-offset-negative": (lambda: with_header(good_batch(), base_offset=-1), [INVALID_RECORD]),
    "two-batches": (lambda: good_batch() * 2, [INVALID_RECORD]),
    "no-batch": (lambda: b"", [INVALID_RECORD]),
    "control-batch": (lambda: with_header(good_batch(), attributes=0x20), [INVALID_RECORD]),
    "transactional": (
        lambda: with_header(good_batch(), attributes=0x10, producer_id=7, producer_epoch=0, base_sequence=0),
        [INVALID_RECORD, INVALID_TXN_STATE],
    ),
    "transactional-without-producer": (
        lambda: with_header(good_batch(), attributes=0x10),
        [INVALID_RECORD, INVALID_TXN_STATE],
    ),
    "append-time-set": (
        lambda: with_header(good_batch(), attributes=0x08),
        [INVALID_RECORD, INVALID_TIMESTAMP],
    ),
    "producer-id-negative": (
        lambda: with_header(good_batch(), producer_id=-2, producer_epoch=0, base_sequence=0),
        [INVALID_RECORD],
    ),
    "producer-epoch-negative": (
        lambda: with_header(good_batch(), producer_id=7, producer_epoch=-1, base_sequence=0),
        [INVALID_RECORD],
    ),
    "sequence-negative": (
        lambda: with_header(good_batch(), producer_id=7, producer_epoch=0, base_sequence=-1),
        [INVALID_RECORD],
    ),
    "codec-5": (lambda: with_header(good_batch(), attributes=5), [UNSUPPORTED_COMPRESSION_TYPE]),
    "codec-7": (lambda: with_header(good_batch(), attributes=7), [UNSUPPORTED_COMPRESSION_TYPE]),
    "far-future": (
        lambda: with_header(good_batch(), max_timestamp=2**62, base_timestamp=2**62),
        [INVALID_TIMESTAMP],
    ),
    "end-of-time": (
        lambda: with_header(good_batch(), max_timestamp=2**63 - 1, base_timestamp=-(2**63)),
        [INVALID_TIMESTAMP],
    ),
}


@pytest.mark.parametrize("fault", HEADER_FAULTS)
@pytest.mark.parametrize("topic", [PLAIN, COMPACTED])
def test_a_batch_with_a_bad_header_is_refused(client: raw.RawClient, topic: str, fault: str) -> None:
    make, codes = HEADER_FAULTS[fault]
    expect_refused(client, topic, make(), *codes)


def test_leader_epoch_set_by_a_client_is_overwritten(client: raw.RawClient) -> None:
    stored = produce(client, PLAIN, with_header(good_batch(), leader_epoch=1_000_000, base_offset=12_345))
    assert stored.error_code == 0
    records = fetch(client, PLAIN, stored.base_offset).records
    base_offset, _, leader_epoch = struct.unpack_from(">qii", records)
    assert base_offset == stored.base_offset
    assert leader_epoch < 1_000_000


RECORD_FAULTS = {
    "more-records-than-said": with_body(bad_batches.record() * 3, count=2),
    "fewer-records-than-said": with_body(bad_batches.record() + bytes(40), count=3),
    "bytes-behind-the-last": with_body(bad_batches.record() + b"\x00"),
    "offsets-not-consecutive": with_body(bad_batches.record() + bad_batches.record(offset_delta=5), count=2),
    "offset-negative": with_body(bad_batches.record(offset_delta=-1)),
    "record-length-negative": with_body(bad_batches.record(length=-1)),
    "record-length-huge": with_body(bad_batches.record(length=INT_MAX)),
    "record-length-zero": with_body(b"\x00" * 40, count=5),
    "key-longer-than-record": with_body(bad_batches.record(key=encode(1000) + b"key")),
    "key-length-huge": with_body(bad_batches.record(key=encode(INT_MAX) + b"key")),
    "key-length-minus-2": with_body(bad_batches.record(key=encode(-2) + b"key")),
    "value-longer-than-record": with_body(bad_batches.record(value=encode(50) + b"value")),
    "value-length-minus-2": with_body(bad_batches.record(value=encode(-2) + b"value")),
    "headers-negative": with_body(bad_batches.record(headers=encode(-1))),
    "headers-huge": with_body(bad_batches.record(headers=encode(INT_MAX))),
    "headers-missing": with_body(bad_batches.record(headers=encode(2) + encode(1) + b"h" + encode(-1))),
    "header-key-null": with_body(bad_batches.record(headers=encode(1) + encode(-1) + encode(-1))),
    "header-key-huge": with_body(bad_batches.record(headers=encode(1) + encode(INT_MAX) + b"h" + encode(-1))),
    "header-value-minus-2": with_body(bad_batches.record(headers=encode(1) + encode(1) + b"h" + encode(-2))),
    "varint-never-ends": with_body(bad_batches.record(key=b"\xff" * 20)),
    "timestamp-varint-never-ends": with_body(bad_batches.record(timestamp_delta=b"\xff" * 11 + b"\x01")),
    "timestamp-out-of-range": with_body(bad_batches.record(timestamp_delta=b"\xfe" + b"\xff" * 8 + b"\x01")),
    "no-key": bytes(bad_batches.good(key=None)),
}


@pytest.mark.parametrize("fault", RECORD_FAULTS)
def test_malformed_record_in_a_compacted_topic_gets_invalid_record(client: raw.RawClient, fault: str) -> None:
    expect_refused(client, COMPACTED, RECORD_FAULTS[fault], INVALID_RECORD)


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD])
@pytest.mark.parametrize(
    "body", [b"", b"\x00", b"\xff" * 100, b"not compressed at all" * 10, b"\x82SNAPPY\x00" + bytes(8)]
)
def test_a_corrupt_compressed_stream_is_refused(client: raw.RawClient, codec: Codec, body: bytes) -> None:
    expect_refused(client, COMPACTED, with_body(body, codec=codec), CORRUPT_MESSAGE, INVALID_RECORD)


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD])
def test_truncated_compressed_stream_is_refused(client: raw.RawClient, codec: Codec) -> None:
    whole = bytes(bad_batches.good(20, codec=codec))[HEADER_SIZE:]
    for cut in range(1, len(whole), 3):
        batch = with_body(whole[:cut], codec=codec, count=20)
        result = produce(client, COMPACTED, batch)
        assert result.error_code in (CORRUPT_MESSAGE, INVALID_RECORD), cut


def gzip_bomb(size: int) -> bytes:
    """A gzip member of this many zeros (a multiple of 1 MiB), made of one repeated block."""
    deflate = zlib.compressobj(9, wbits=-zlib.MAX_WBITS)
    block = deflate.compress(bytes(MIB)) + deflate.flush(zlib.Z_FULL_FLUSH)
    head = gzip.compress(b"", 9, mtime=0)[:10]
    return head + block * (size // MIB) + deflate.flush() + struct.pack("<II", 0, size & 0xFFFF_FFFF)


def zstd_bomb(size: int) -> bytes:
    return bytes(cramjam.zstd.compress(bytes(size), level=3))


def zstd_of_unknown_size(size: int) -> bytes:
    """A zstd frame of run-length blocks with the largest window: no content size, 4 bytes for each 128 KiB."""
    blocks = size // 131_072
    head = struct.pack("<I", 0xFD2FB528) + bytes((0x00, 17 << 3))
    run = struct.pack("<I", 131_072 << 3 | 1 << 1)[:3] + b"\x00"
    last = struct.pack("<I", 131_072 << 3 | 1 << 1 | 1)[:3] + b"\x00"
    return head + run * (blocks - 1) + last


def zstd_huge_window() -> bytes:
    """A zstd frame with a window of almost 2 TiB and one block."""
    return (
        struct.pack("<I", 0xFD2FB528)
        + bytes((0x00, 0xFF))
        + struct.pack("<I", 8 << 3 | 1 << 1 | 1)[:3]
        + b"\x00"
    )


def lz4_bomb(size: int) -> bytes:
    return compress(Codec.LZ4, bytes(size))


def lz4_claims(size: int) -> bytes:
    """A zstd frame that declares a large content size and has no content."""
    frame = bytearray(compress(Codec.LZ4, b"x"))
    flags = frame[4] | 0x08
    return bytes(frame[:4]) + bytes((flags, 0x70)) + struct.pack("<Q", size) + bytes(frame[6:])


def snappy_bomb(size: int) -> bytes:
    return bytes(cramjam.snappy.compress_raw(bytes(size)))


def snappy_claims(size: int) -> bytes:
    length = bytearray()
    while size > 127:
        length.append(size & 127 | 128)
        size >>= 7
    return bytes(length) + bytes((size,)) + b"\x00x" * 20


def xerial_bomb(blocks: int) -> bytes:
    block = snappy_bomb(1 * MIB)
    return b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1) + (struct.pack(">i", len(block)) + block) * blocks


def xerial_claims() -> bytes:
    return b"\x82SNAPPY\x00" + struct.pack(">iii", 1, 1, INT_MAX) + b"x" * 20


BOMBS: dict[str, tuple[Codec, Callable[[], bytes]]] = {
    "gzip-900-MiB": (Codec.GZIP, lambda: gzip_bomb(900 * MIB)),
    "gzip-in-many-members": (Codec.GZIP, lambda: gzip_bomb(2 * MIB) * 400),
    "zstd-256-MiB": (Codec.ZSTD, lambda: zstd_bomb(256 * MIB)),
    "zstd-in-many-frames": (Codec.ZSTD, lambda: zstd_bomb(16 * MIB) * 100),
    "zstd-of-unknown-size": (Codec.ZSTD, lambda: zstd_of_unknown_size(8192 * MIB)),
    "zstd-huge-window": (Codec.ZSTD, zstd_huge_window),
    "lz4-200-MiB": (Codec.LZ4, lambda: lz4_bomb(200 * MIB)),
    "lz4-claims-2-GiB": (Codec.LZ4, lambda: lz4_claims(2**31)),
    "lz4-claims-all-there-is": (Codec.LZ4, lambda: lz4_claims(2**64 - 1)),
    "snappy-20-MiB": (Codec.SNAPPY, lambda: snappy_bomb(20 * MIB)),
    "snappy-claims-2-GiB": (Codec.SNAPPY, lambda: snappy_claims(2**31 - 1)),
    "snappy-claims-4-GiB": (Codec.SNAPPY, lambda: snappy_claims(2**32 - 1)),
    "xerial-of-many-blocks": (Codec.SNAPPY, lambda: xerial_bomb(20)),
    "xerial-claims-2-GiB": (Codec.SNAPPY, xerial_claims),
}


@pytest.mark.parametrize("bomb", BOMBS)
def test_a_decompression_bomb_is_refused_within_bounded_memory(
    watch: Watch, client: raw.RawClient, bomb: str
) -> None:
    watch.max_growth_bytes = 192 * MIB
    codec, make = BOMBS[bomb]
    batch = with_body(make(), codec=codec, count=10)
    assert len(batch) <= MIB, "the bomb itself is too large to be looked at"
    stopwatch = Stopwatch(watch.broker.pid)
    expect_refused(client, COMPACTED, batch, INVALID_RECORD, CORRUPT_MESSAGE)
    assert stopwatch.seconds < 10


def test_decompression_bombs_on_many_connections_take_bounded_memory(watch: Watch) -> None:
    watch.max_growth_bytes = 256 * MIB
    batch = with_body(gzip_bomb(900 * MIB), codec=Codec.GZIP, count=10)
    data = [{"name": COMPACTED, "partition_data": [{"index": 0, "records": batch}]}]
    frame = raw.request(raw.PRODUCE, 9, acks=-1, timeout=30_000, topic_data=data)
    clients = [watch.client(30) for _ in range(16)]
    for client in clients:
        client.send(frame)
    for client in clients:
        answer = raw.decode_response(raw.PRODUCE, 9, client.read_frame())
        assert answer.responses[0].partition_responses[0].error_code == INVALID_RECORD
        client.close()


def test_compressed_value_inside_a_compressed_batch_is_not_decompressed(client: raw.RawClient) -> None:
    inner = gzip_bomb(MIB)
    batch = build_batch([NewRecord(b"key", inner, int(time.time() * 1000))], codec=Codec.GZIP)
    stored = produce(client, COMPACTED, batch)
    assert stored.error_code == 0


def test_decompression_bomb_for_an_uncompacted_topic_is_not_decompressed(
    watch: Watch, client: raw.RawClient
) -> None:
    watch.max_growth_bytes = 24 * MIB
    stored = produce(client, PLAIN, with_body(gzip_bomb(900 * MIB), codec=Codec.GZIP, count=10))
    assert stored.error_code in (0, INVALID_RECORD)


def test_zstd_batch_in_a_produce_version_before_zstd_is_refused(client: raw.RawClient) -> None:
    batch = bytes(bad_batches.good(codec=Codec.ZSTD))
    data = [{"name": PLAIN, "partition_data": [{"index": 0, "records": batch}]}]
    answer = client.call(raw.PRODUCE, 6, acks=-1, timeout=1000, topic_data=data)
    assert answer.responses[0].partition_responses[0].error_code == UNSUPPORTED_COMPRESSION_TYPE


@pytest.mark.parametrize("version", [0, 1, 2])
def test_a_produce_version_before_record_batches_is_refused(watch: Watch, version: int) -> None:
    """The version is advertised for old clients (KAFKA-18659), but its message format is refused."""
    records = raw.framed(bytes(30))
    body = struct.pack(">hiih5sii", 1, 1000, 1, len(PLAIN), PLAIN.encode(), 1, 0) + records
    with watch.client() as client:
        client.send(raw.framed(struct.pack(">hhih", raw.PRODUCE, version, 1, -1) + body))
        answer = client.read_frame()
    correlation_id, _, _, _, _, partition, error_code = struct.unpack_from(">iih5siih", answer)
    assert (correlation_id, partition) == (1, 0)
    assert error_code in (UNSUPPORTED_FOR_MESSAGE_FORMAT, INVALID_RECORD, UNSUPPORTED_VERSION)


@pytest.mark.parametrize("topic", [PLAIN, COMPACTED, SMALL])
def test_a_message_over_the_limit_is_refused_and_the_connection_stays(
    client: raw.RawClient, topic: str
) -> None:
    size = 1001 if topic == SMALL else 2 * MIB
    batch = build_batch([NewRecord(b"key", bytes(size), int(time.time() * 1000))])
    expect_refused(client, topic, bytes(batch), MESSAGE_TOO_LARGE)
    small = build_batch([NewRecord(b"key", bytes(100), int(time.time() * 1000))])
    assert produce(client, topic, small).error_code == 0


def test_a_produce_request_near_the_frame_limit_is_refused_and_the_connection_stays(
    watch: Watch, client: raw.RawClient
) -> None:
    watch.max_growth_bytes = 320 * MIB
    batch = build_batch([NewRecord(b"key", bytes(90 * MIB), int(time.time() * 1000))])
    expect_refused(client, PLAIN, bytes(batch), MESSAGE_TOO_LARGE)


@pytest.mark.parametrize("acks", [2, -2, 3, 32767, -32768])
def test_invalid_acks_get_invalid_required_acks(client: raw.RawClient, acks: int) -> None:
    before = log_end(client, PLAIN)
    result = produce(client, PLAIN, good_batch(), acks=acks)
    assert result.error_code == INVALID_REQUIRED_ACKS
    assert log_end(client, PLAIN) == before


@pytest.mark.parametrize("acks", [0, 1])
def test_a_transactional_id_without_acks_all_is_refused(watch: Watch, acks: int) -> None:
    data = [{"name": PLAIN, "partition_data": [{"index": 0, "records": good_batch()}]}]
    frame = raw.request(raw.PRODUCE, 9, acks=acks, timeout=1000, transactional_id="mine", topic_data=data)
    with watch.client() as client:
        before = log_end(client, PLAIN)
        client.send(frame)
        if acks:
            answer = raw.decode_response(raw.PRODUCE, 9, client.read_frame())
            assert answer.responses[0].partition_responses[0].error_code == INVALID_REQUIRED_ACKS
        else:
            client.expect_refused()
    with watch.client() as client:
        assert log_end(client, PLAIN) == before


def test_a_bad_batch_with_acks_0_closes_the_connection(watch: Watch) -> None:
    data = [
        {"name": PLAIN, "partition_data": [{"index": 0, "records": bad_batches.with_crc(good_batch(), 0)}]}
    ]
    watch.refuses(raw.request(raw.PRODUCE, 9, acks=0, timeout=1000, topic_data=data))


def test_valid_batch_is_stored_beside_an_invalid_one_of_the_same_request(client: raw.RawClient) -> None:
    data = [
        {"name": PLAIN, "partition_data": [{"index": 0, "records": bad_batches.with_crc(good_batch(), 0)}]},
        {"name": COMPACTED, "partition_data": [{"index": 0, "records": good_batch()}]},
    ]
    answer = client.call(raw.PRODUCE, 9, acks=-1, timeout=1000, topic_data=data)
    codes = [topic.partition_responses[0].error_code for topic in answer.responses]
    assert codes == [CORRUPT_MESSAGE, 0]


def test_pipelined_bad_and_good_batches_to_a_compacted_topic_keep_their_order(client: raw.RawClient) -> None:
    bad = with_body(bad_batches.record() + b"\x00")
    for turn in range(60):
        records = bad if turn % 3 == 1 else good_batch()
        data = [{"name": COMPACTED, "partition_data": [{"index": 0, "records": records}]}]
        client.send(raw.request(raw.PRODUCE, 9, acks=-1, timeout=5000, topic_data=data))
    offsets = []
    for turn in range(60):
        answer = raw.decode_response(raw.PRODUCE, 9, client.read_frame())
        result = answer.responses[0].partition_responses[0]
        assert result.error_code == (INVALID_RECORD if turn % 3 == 1 else 0)
        if result.error_code == 0:
            offsets.append(result.base_offset)
    assert offsets == list(range(offsets[0], offsets[0] + 40))


def slow_batch() -> bytes:
    """A batch whose validation takes a while."""
    records = [NewRecord(b"%d" % number, b"", int(time.time() * 1000)) for number in range(100_000)]
    return bytes(build_batch(records, codec=Codec.GZIP))


def test_broker_stops_cleanly_while_it_validates_batches(start_broker: Callable[..., BrokerProcess]) -> None:
    broker = start_broker()
    with raw.RawClient(broker.port) as client:
        assert create_topic(client, COMPACTED, cleanup_policy="compact").error_code == 0
        data = [{"name": COMPACTED, "partition_data": [{"index": 0, "records": slow_batch()}]}]
        for _ in range(5):
            client.send(raw.request(raw.PRODUCE, 9, acks=-1, timeout=30_000, topic_data=data))
        broker.stop()
    broker.start()
    assert "recovered" not in broker.log_path.read_text(), (
        "something was written after the mark of a clean stop"
    )


def test_topic_deleted_while_its_batches_are_validated_stores_no_batch(
    watch: Watch, client: raw.RawClient
) -> None:
    assert create_topic(client, "short-lived", cleanup_policy="compact").error_code == 0
    data = [{"name": "short-lived", "partition_data": [{"index": 0, "records": slow_batch()}]}]
    frame = raw.request(raw.PRODUCE, 9, acks=-1, timeout=30_000, topic_data=data)
    producers = [watch.client() for _ in range(4)]
    for producer in producers:
        producer.send(frame)
    deleted = client.call(raw.DELETE_TOPICS, 1, topic_names=["short-lived"], timeout=10_000)
    assert deleted.responses[0].error_code == 0
    for producer in producers:
        answer = raw.decode_response(raw.PRODUCE, 9, producer.read_frame())
        assert answer.responses[0].partition_responses[0].error_code in (0, 3, 6)
        producer.close()
    assert not list(watch.broker.data_dir.glob("logs/short-lived*"))


def test_decompression_bombs_stored_before_compaction_was_enabled_do_no_harm(
    watch: Watch, client: raw.RawClient
) -> None:
    """A topic with cleanup.policy=delete stores record bodies unread; compaction reads all of them."""
    watch.max_growth_bytes = 320 * MIB
    topic = "compacted-later"
    assert create_topic(client, topic, segment_bytes="20000", min_cleanable_dirty_ratio="0").error_code == 0
    for number in range(60):
        record = NewRecord(b"%d" % (number % 5), b"%d" % number + bytes(1000), int(time.time() * 1000))
        assert produce(client, topic, build_batch([record])).error_code == 0
        if number == 30:
            for fault in RECORD_FAULTS.values():
                assert produce(client, topic, fault).error_code == 0
            for codec, make in BOMBS.values():
                assert produce(client, topic, with_body(make(), codec=codec, count=10)).error_code == 0
    before = stored_bytes(watch, topic)
    setting = {"name": "cleanup.policy", "config_operation": 0, "value": "compact"}
    resource = {"resource_type": 2, "resource_name": topic, "configs": [setting]}
    altered = client.call(raw.INCREMENTAL_ALTER_CONFIGS, 0, resources=[resource])
    assert altered.responses[0].error_code == 0
    eventually(lambda: stored_bytes(watch, topic) < before - 20_000)
    assert produce(client, topic, good_batch()).error_code == 0


def stored_bytes(watch: Watch, topic: str) -> int:
    sizes = 0
    for path in watch.broker.data_dir.glob(f"logs/{topic}-0-*/*.log"):
        with contextlib.suppress(FileNotFoundError):
            sizes += path.stat().st_size
    return sizes
