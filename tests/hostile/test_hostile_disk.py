"""A disk that is full, fails, or returns changed bytes (T09, T11, T12)."""

from __future__ import annotations

import contextlib
import os
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

import pytest
from watch import MIB, create_topic, fetch, log_end, now_ms, produce

from penstock.records.batch import crc_matches, read_header
from penstock.records.building import NewRecord, build_batch
from penstock.records.iteration import iterate
from support import raw
from support.broker_process import BrokerProcess
from support.eventually import eventually

pytestmark = pytest.mark.usefixtures("starts_processes")

StartBroker = Callable[..., BrokerProcess]
AnyBroker = TypeVar("AnyBroker", bound=BrokerProcess)
TOPIC = "stored"
CORRUPT_MESSAGE, KAFKA_STORAGE_ERROR = 2, 56
FAILING_DISK = str(Path(__file__).with_name("failing_disk.py"))
HUGE = str(2**60)


def batch_of(value: bytes) -> bytes:
    return bytes(build_batch([NewRecord(b"key", value, now_ms())]))


def set_broker_config(client: raw.RawClient, name: str, value: str) -> None:
    resource = {
        "resource_type": 4,
        "resource_name": "1",
        "configs": [{"name": name, "config_operation": 0, "value": value}],
    }
    answer = client.call(raw.INCREMENTAL_ALTER_CONFIGS, 0, resources=[resource])
    assert answer.responses[0].error_code == 0, answer.responses[0]


def read_all(client: raw.RawClient, topic: str) -> list[bytes]:
    """All values of partition 0 in offset order; checks each batch, and that no offset is missing."""
    end, offset = log_end(client, topic), 0
    values = []
    while offset < end:
        result = fetch(client, topic, offset)
        assert result.error_code == 0
        buffer = memoryview(result.records)
        assert buffer, f"nothing at {offset} of {end}"
        while len(buffer) >= 61 and read_header(buffer).size <= len(buffer):
            header = read_header(buffer)
            assert crc_matches(buffer, header)
            assert header.base_offset == offset
            values += [record.value for record in iterate(buffer, header) if record.value is not None]
            offset = header.next_offset
            buffer = buffer[header.size :]
    return values


def test_below_the_floor_of_free_space_writes_are_refused_and_reads_continue(
    start_broker: StartBroker,
) -> None:
    broker = start_broker(["log.retention.check.interval.ms=200"])
    with raw.RawClient(broker.port) as client:
        assert create_topic(client, TOPIC).error_code == 0
        assert produce(client, TOPIC, batch_of(b"before")).error_code == 0
        set_broker_config(client, "log.dir.min.free.bytes", HUGE)
        eventually(lambda: produce(client, TOPIC, batch_of(b"maybe")).error_code == KAFKA_STORAGE_ERROR)
        end = log_end(client, TOPIC)
        assert produce(client, TOPIC, batch_of(b"refused")).error_code == KAFKA_STORAGE_ERROR
        assert log_end(client, TOPIC) == end
        assert read_all(client, TOPIC)[0] == b"before"
        set_broker_config(client, "log.dir.min.free.bytes", "0")
        eventually(lambda: produce(client, TOPIC, batch_of(b"after")).error_code == 0)
        assert read_all(client, TOPIC)[-1] == b"after"


def test_a_broker_that_starts_below_the_floor_serves_reads(start_broker: StartBroker) -> None:
    broker = start_broker()
    with raw.RawClient(broker.port) as client:
        assert create_topic(client, TOPIC).error_code == 0
        assert produce(client, TOPIC, batch_of(b"before")).error_code == 0
    broker.stop()
    broker.settings = (f"log.dir.min.free.bytes={HUGE}",)
    broker.start()
    with raw.RawClient(broker.port) as client:
        assert read_all(client, TOPIC) == [b"before"]
        assert produce(client, TOPIC, batch_of(b"refused")).error_code == KAFKA_STORAGE_ERROR
        assert read_all(client, TOPIC) == [b"before"]


@pytest.fixture
def small_disk(starts_processes: None, tmp_path: Path) -> Iterator[Path]:
    """A file system of 24 MiB. Skips the test if it may not be mounted."""
    place = tmp_path / "small"
    place.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=24m", "tmpfs", str(place)], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip("mounting a file system is not permitted here")
    try:
        yield place
    finally:
        subprocess.run(["umount", "-l", str(place)], check=True)


@contextlib.contextmanager
def running(process: AnyBroker) -> Iterator[AnyBroker]:
    process.start()
    try:
        yield process
        process.stop()
    finally:
        process.kill()


def test_a_full_disk_loses_nothing_acknowledged_and_works_again_with_space(small_disk: Path) -> None:
    ballast = small_disk / "ballast"
    ballast.write_bytes(bytes(4 * MIB))
    settings = ["log.dir.min.free.bytes=0", "log.segment.bytes=1000000"]
    with running(BrokerProcess(small_disk, settings)) as broker:
        with raw.RawClient(broker.port) as client:
            assert create_topic(client, TOPIC).error_code == 0
            acknowledged = fill_disk(client)
            assert len(acknowledged) > 100
            assert read_all(client, TOPIC) == acknowledged
            create_topic(client, "while-full")
            assert produce(client, TOPIC, batch_of(bytes(60_000))).error_code == KAFKA_STORAGE_ERROR
            ballast.unlink()
            eventually(lambda: produce(client, TOPIC, batch_of(b"again")).error_code == 0)
            assert create_topic(client, "with-space").error_code == 0
            assert read_all(client, TOPIC) == [*acknowledged, b"again"]
        broker.stop()
        broker.start()
        with raw.RawClient(broker.port) as client:
            assert read_all(client, TOPIC) == [*acknowledged, b"again"]


def test_a_crash_on_a_full_disk_loses_nothing_acknowledged(small_disk: Path) -> None:
    settings = ["log.dir.min.free.bytes=0", "log.segment.bytes=1000000"]
    ballast = small_disk / "ballast"
    ballast.write_bytes(bytes(8 * MIB))
    process = BrokerProcess(small_disk, settings)
    with running(process):
        with raw.RawClient(process.port) as client:
            assert create_topic(client, TOPIC).error_code == 0
            acknowledged = fill_disk(client)
        process.kill()
        process.start()
        with raw.RawClient(process.port) as client:
            assert read_all(client, TOPIC) == acknowledged
            ballast.unlink()
            eventually(lambda: produce(client, TOPIC, batch_of(b"again")).error_code == 0)
            assert read_all(client, TOPIC) == [*acknowledged, b"again"]


def fill_disk(client: raw.RawClient) -> list[bytes]:
    """Produce until the disk is full, and return the acknowledged values."""
    acknowledged: list[bytes] = []
    for number in range(10_000):
        value = struct.pack(">i", number) + bytes(50_000)
        code = produce(client, TOPIC, batch_of(value)).error_code
        if code:
            assert code == KAFKA_STORAGE_ERROR
            return acknowledged
        acknowledged.append(value)
    raise AssertionError("the disk does not fill")


class FailingDiskBroker(BrokerProcess):
    """A broker whose system calls fail on command."""

    def __init__(self, directory: Path, settings: Sequence[str] = ()) -> None:
        super().__init__(directory, settings)
        self.switch = directory / "switch"

    def _command(self) -> list[str]:
        command = super()._command()
        start = command.index("broker")
        return [sys.executable, FAILING_DISK, str(self.switch), *command[start:]]

    @contextlib.contextmanager
    def failing(self, call: str, code: str, part: str = "") -> Iterator[None]:
        partial = self.switch.with_suffix(".new")
        partial.write_text(f"{call} {code} {part}")
        partial.rename(self.switch)
        try:
            yield
        finally:
            self.switch.unlink()


def test_writes_of_a_failed_fsync_are_never_acknowledged(tmp_path: Path) -> None:
    with running(FailingDiskBroker(tmp_path)) as broker:
        with raw.RawClient(broker.port) as client:
            assert create_topic(client, TOPIC).error_code == 0
            assert create_topic(client, "other").error_code == 0
            assert produce(client, TOPIC, batch_of(b"safe")).error_code == 0
            with broker.failing("fdatasync", "EIO", f"{TOPIC}-0"):
                assert produce(client, TOPIC, batch_of(b"unsafe")).error_code == KAFKA_STORAGE_ERROR
            assert produce(client, TOPIC, batch_of(b"late")).error_code == KAFKA_STORAGE_ERROR
            assert fetch(client, TOPIC, 0).high_watermark == 1
            assert produce(client, "other", batch_of(b"fine")).error_code == 0
        broker.kill()
        broker.start()
        with raw.RawClient(broker.port) as client:
            assert read_all(client, TOPIC)[0] == b"safe"
            assert b"late" not in read_all(client, TOPIC)
            assert produce(client, TOPIC, batch_of(b"works")).error_code == 0


def test_failed_write_takes_only_its_own_log_out_of_service(tmp_path: Path) -> None:
    with running(FailingDiskBroker(tmp_path)) as broker:
        with raw.RawClient(broker.port) as client:
            assert create_topic(client, TOPIC).error_code == 0
            assert create_topic(client, "other").error_code == 0
            assert produce(client, TOPIC, batch_of(b"safe")).error_code == 0
            with broker.failing("pwrite", "EIO", f"{TOPIC}-0"):
                assert produce(client, TOPIC, batch_of(b"lost")).error_code == KAFKA_STORAGE_ERROR
                assert produce(client, "other", batch_of(b"fine")).error_code == 0
            assert fetch(client, TOPIC, 0).error_code == 0
            assert read_all(client, "other") == [b"fine"]
        broker.kill()
        broker.start()
        with raw.RawClient(broker.port) as client:
            assert read_all(client, TOPIC) == [b"safe"]
            assert produce(client, TOPIC, batch_of(b"works")).error_code == 0


def test_log_accepts_writes_after_a_write_without_disk_space(tmp_path: Path) -> None:
    with running(FailingDiskBroker(tmp_path)) as broker, raw.RawClient(broker.port) as client:
        assert create_topic(client, TOPIC).error_code == 0
        for turn in range(3):
            assert produce(client, TOPIC, batch_of(b"good %d" % turn)).error_code == 0
            with broker.failing("pwrite", "ENOSPC"):
                assert produce(client, TOPIC, batch_of(b"refused")).error_code == KAFKA_STORAGE_ERROR
        assert read_all(client, TOPIC) == [b"good 0", b"good 1", b"good 2"]


def test_failed_segment_roll_leaves_no_file_that_hides_later_segments(tmp_path: Path) -> None:
    """The large batch finds no space for a new segment, and a small one still fits into the old segment. The
    failed roll must leave no file behind, because recovery would take it for the next segment.
    """
    with running(FailingDiskBroker(tmp_path, ["log.segment.bytes=10000"])) as broker:
        with raw.RawClient(broker.port) as client:
            assert create_topic(client, TOPIC).error_code == 0
            values = [b"%d" % number + bytes(1000) for number in range(9)]
            for value in values:
                assert produce(client, TOPIC, batch_of(value)).error_code == 0
            with broker.failing("pwrite", "ENOSPC"):
                assert produce(client, TOPIC, batch_of(bytes(5000))).error_code == KAFKA_STORAGE_ERROR
            for value in (b"small", b"large" + bytes(5000), b"last"):
                assert produce(client, TOPIC, batch_of(value)).error_code == 0
                values.append(value)
        broker.kill()
        broker.start()
        with raw.RawClient(broker.port) as client:
            assert read_all(client, TOPIC) == values


def segment_files(broker: BrokerProcess, topic: str) -> list[Path]:
    return sorted(path for path in broker.data_dir.glob(f"logs/{topic}-0-*/*.log"))


def checkpointed_ns(broker: BrokerProcess) -> int:
    return max(path.stat().st_mtime_ns for path in broker.data_dir.glob("checkpoint.*"))


def flip_bit(path: Path, position: int, bit: int = 0) -> None:
    with path.open("r+b") as file:
        file.seek(position)
        (value,) = file.read(1)
        file.seek(position)
        file.write(bytes((value ^ 1 << bit,)))


def fill_segments(client: raw.RawClient, count: int) -> list[bytes]:
    assert create_topic(client, TOPIC, segment_bytes="20000").error_code == 0
    values = [struct.pack(">i", number) + os.urandom(900) for number in range(count)]
    for value in values:
        assert produce(client, TOPIC, batch_of(value)).error_code == 0
    return values


def collect(client: raw.RawClient, values: list[bytes]) -> list[int]:
    """Read every offset separately, and return the offsets with an error or another value."""
    damaged = []
    for offset, value in enumerate(values):
        result = fetch(client, TOPIC, offset, max_bytes=1)
        if result.error_code == 0:
            buffer = memoryview(result.records)
            header = read_header(buffer)
            if crc_matches(buffer, header):
                assert header.base_offset <= offset <= header.last_offset, "a record was skipped in silence"
                stored: list[Any] = [record.value for record in iterate(buffer[: header.size], header)]
                assert stored == [value], "wrong bytes with a CRC that fits"
                continue
        else:
            assert result.error_code in (CORRUPT_MESSAGE, KAFKA_STORAGE_ERROR), result.error_code
        damaged.append(offset)
    return damaged


# (byte, bit) of base offset, length, magic, CRC, attributes, last offset delta, record count and records.
DAMAGES = (
    (0, 0),
    (7, 0),
    (8, 6),
    (11, 0),
    (16, 6),
    (17, 0),
    (21, 0),
    (22, 0),
    (23, 0),
    (26, 0),
    (57, 0),
    (60, 0),
    (61, 0),
    (500, 7),
)


def test_flipped_bit_in_a_closed_segment_makes_few_batches_unreadable(
    start_broker: StartBroker,
) -> None:
    broker = start_broker()
    with raw.RawClient(broker.port) as client:
        values = fill_segments(client, 20 * (len(DAMAGES) + 2))
    broker.stop()
    batch_bytes = len(batch_of(values[0]))
    sealed = segment_files(broker, TOPIC)[1 : len(DAMAGES) + 1]
    for segment, (byte, bit) in zip(sealed, DAMAGES, strict=True):
        flip_bit(segment, 5 * batch_bytes + byte, bit)
    broker.start()
    with raw.RawClient(broker.port) as client:
        assert log_end(client, TOPIC) == len(values)
        damaged = set(collect(client, values))
        for segment, damage in zip(sealed, DAMAGES, strict=True):
            first = int(segment.stem)
            count = segment.stat().st_size // batch_bytes
            harmed = damaged & set(range(first, first + count))
            assert first + 5 in harmed, f"the damage {damage} went unnoticed"
            assert len(harmed) <= 6, f"the damage {damage} costs {harmed}"
            damaged -= harmed
        assert not damaged
        assert produce(client, TOPIC, batch_of(b"goes on")).error_code == 0


def test_flipped_bit_in_the_active_segment_loses_no_other_batch_over_a_crash(
    start_broker: StartBroker,
) -> None:
    """The stored high watermark says that all batches are committed, so a damaged batch is not a torn tail."""
    broker = start_broker(["replica.high.watermark.checkpoint.interval.ms=100"])
    with raw.RawClient(broker.port) as client:
        assert create_topic(client, TOPIC).error_code == 0
        values = [struct.pack(">i", number) + os.urandom(900) for number in range(20)]
        for value in values:
            assert produce(client, TOPIC, batch_of(value)).error_code == 0
    written = time.time_ns()
    eventually(lambda: checkpointed_ns(broker) > written + 200_000_000)
    broker.kill()
    (segment,) = segment_files(broker, TOPIC)
    flip_bit(segment, 5 * len(batch_of(values[0])) + 200)
    broker.start()
    with raw.RawClient(broker.port) as client:
        assert log_end(client, TOPIC) == 20
        assert collect(client, values) == [5]
