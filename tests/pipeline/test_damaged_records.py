"""Batches whose CRC does not match never become rows of a topic or of an archive."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from archive_helpers import START_MS, job, rows, starts
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from in_process import InProcess
from test_builders import BUILDERS

from penstock.pipeline.archive.archiver import Archiver
from penstock.pipeline.decoding import BuilderType, DamagedRecords, decode
from penstock.pipeline.options import parse
from penstock.pipeline.ranges import OffsetRange
from penstock.pipeline.source import BatchReader
from penstock.records.building import NewRecord, build_batch
from penstock.records.compression import Codec
from penstock.testing.process import BrokerProcess

CRC_AT = 17
WANTED = OffsetRange("orders", "0" * 32, 3, 0, 100)
FIRST = bytes(build_batch([NewRecord(b"k", b"first", START_MS)], base_offset=0))
SECOND = bytes(
    build_batch(
        [NewRecord(b"k1", b"v1", START_MS, (("h", b"x"),)), NewRecord(b"k2", b"v2", START_MS)],
        codec=Codec.GZIP,
        base_offset=1,
    )
)


def decoded(make: BuilderType, records: bytes) -> list[int]:
    chunks = iter([(memoryview(records), None)])
    return [n for batch in decode(chunks, WANTED, ("offset", "value"), make) for n in offsets_of(batch)]


def offsets_of(batch: pa.RecordBatch) -> list[int]:
    found: list[int] = batch.column("offset").to_pylist()
    return found


@pytest.mark.parametrize("make", BUILDERS)
def test_every_changed_byte_under_the_crc_is_found(make: BuilderType) -> None:
    assert decoded(make, FIRST + SECOND) == [0, 1, 2]
    for at in range(CRC_AT, len(SECOND)):
        changed = bytearray(SECOND)
        changed[at] ^= 0x10
        with pytest.raises(DamagedRecords, match=r"records of orders-3 are damaged at offset 1: the CRC"):
            decoded(make, FIRST + changed)


@pytest.mark.parametrize("make", BUILDERS)
def test_batch_with_offsets_before_its_predecessors_end_is_refused(make: BuilderType) -> None:
    with pytest.raises(
        DamagedRecords, match="damaged at offset 3: the batch starts below the end of the batch before it"
    ):
        decoded(make, FIRST + SECOND + FIRST)


TOPIC = "damaged"


@pytest.fixture
def broker(starts_processes: None, tmp_path: Path) -> Iterator[BrokerProcess]:
    """Broker with a topic of twenty batches of one record, with one byte changed in the tenth batch."""
    broker = BrokerProcess(tmp_path)
    broker.start()
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    settings = {"archive.required": "true"}
    admin.create_topics([NewTopic(TOPIC, 1, config=settings)])[TOPIC].result(30)
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for number in range(20):
        producer.produce(TOPIC, b"value %d;" % number, timestamp=START_MS)
        assert producer.flush(30) == 0
    yield broker
    broker.stop()


def change_a_byte(broker: BrokerProcess, before: bytes, after: bytes) -> None:
    broker.stop()
    [segment] = broker.data_dir.glob(f"logs/{TOPIC}-0-*/*.log")
    content = segment.read_bytes()
    assert content.count(before) == 1
    segment.write_bytes(content.replace(before, after))
    broker.start()


def test_damaged_batch_is_not_archived(broker: BrokerProcess, tmp_path: Path) -> None:
    change_a_byte(broker, b"value 10;", b"value 1x;")
    place = tmp_path / "archive"
    work = job(broker.bootstrap, place, TOPIC, truncates=True, grace_ms=-1000)
    with pytest.raises(DamagedRecords, match=f"{TOPIC}-0 are damaged at offset 10"):
        list(Archiver(work, InProcess(), pytest.fail).run())
    assert rows(place) == []
    assert starts(broker.bootstrap, TOPIC) == {0: 0}
    change_a_byte(broker, b"value 1x;", b"value 10;")
    list(Archiver(work, InProcess(), pytest.fail).run())
    assert [row["value"] for row in rows(place)] == [b"value %d;" % number for number in range(20)]


@pytest.mark.parametrize("fails", ["true", "false"])
def test_damage_is_an_error_with_fail_on_data_loss_off(broker: BrokerProcess, fails: str) -> None:
    change_a_byte(broker, b"value 10;", b"value 1x;")
    options = {"bootstrap": broker.bootstrap, "subscribe": TOPIC, "failOnDataLoss": fails}
    reader = BatchReader(parse(options))
    [part] = reader.partitions()
    with pytest.raises(DamagedRecords, match=f"{TOPIC}-0 are damaged at offset 10"):
        list(reader.read(part))
    around = BatchReader(parse({**options, "startingOffsets": f'{{"{TOPIC}": {{"0": 11}}}}'}))
    [part] = around.partitions()
    assert [n for batch in around.read(part) for n in offsets_of(batch)] == list(range(11, 20))


def test_batch_with_a_changed_length_is_not_skipped(broker: BrokerProcess) -> None:
    broker.stop()
    [segment] = broker.data_dir.glob(f"logs/{TOPIC}-0-*/*.log")
    content = bytearray(segment.read_bytes())
    start = content.index(b"value 10;")
    length_at = content.rindex((10).to_bytes(8), 0, start) + 8
    content[length_at + 1] ^= 0x01
    segment.write_bytes(content)
    broker.start()
    reader = BatchReader(parse({"bootstrap": broker.bootstrap, "subscribe": TOPIC}))
    [part] = reader.partitions()
    with pytest.raises(DamagedRecords, match=f"{TOPIC}-0 are damaged at offset 10"):
        list(reader.read(part))
