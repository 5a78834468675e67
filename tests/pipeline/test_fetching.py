"""Offset ranges read from a real broker as Arrow."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pyarrow as pa
import pytest
from archive_helpers import make
from confluent_kafka import Producer
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)

from penstock.internal_client.routes import Routes
from penstock.pipeline import fetching
from penstock.pipeline.columns import ALL
from penstock.pipeline.fetching import OffsetsLost, read_range
from penstock.pipeline.ranges import OffsetRange
from penstock.pipeline.read_settings import ReadSettings
from penstock.testing.process import BrokerProcess
from penstock.wire.fetch import FetchResult


def fill(bootstrap: str, topic: str, count: int, **settings: str) -> OffsetRange:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    make(bootstrap, topic, 1)
    producer = Producer({"bootstrap.servers": bootstrap, **settings})
    for number in range(count):
        producer.produce(
            topic,
            b"value %d" % number if number % 7 else None,
            b"key %d" % number if number % 5 else None,
            timestamp=1_700_000_000_000 + number,
            headers=[("trace", b"%d" % number), ("empty", None)] if number % 3 == 0 else None,
        )
        producer.poll(0)
    assert producer.flush(60) == 0
    topic_id = topic_id_of(admin, topic)
    return OffsetRange(topic, topic_id, 0, 0, count)


def topic_id_of(admin: AdminClient, topic: str) -> str:
    from confluent_kafka import TopicCollection

    described = admin.describe_topics(TopicCollection([topic]))[topic].result(30)
    uuid = described.topic_id
    high, low = uuid.get_most_significant_bits(), uuid.get_least_significant_bits()
    return f"{(high & (1 << 64) - 1) << 64 | (low & (1 << 64) - 1):032x}"


def table_of(bootstrap: str, wanted: OffsetRange, columns: tuple[str, ...] = ALL) -> pa.Table:
    return pa.Table.from_batches(read_range(ReadSettings(bootstrap), wanted, columns))


@pytest.mark.parametrize("codec", ["none", "lz4", "zstd", "gzip", "snappy"])
def test_every_record_is_a_row(penstock_session_broker: BrokerProcess, codec: str) -> None:
    bootstrap = penstock_session_broker.bootstrap
    wanted = fill(bootstrap, f"rows-{codec}", 5_000, **{"compression.type": codec})
    table = table_of(bootstrap, wanted)
    rows = table.to_pylist()
    assert [row["offset"] for row in rows] == list(range(5_000))
    for number in (0, 1, 5, 7, 4_999):
        row = rows[number]
        assert row["value"] == (b"value %d" % number if number % 7 else None)
        assert row["key"] == (b"key %d" % number if number % 5 else None)
        assert row["topic"] == f"rows-{codec}"
        assert int(row["timestamp"].timestamp() * 1000 + 0.5) == 1_700_000_000_000 + number
        trace = [{"key": "trace", "value": b"%d" % number}, {"key": "empty", "value": None}]
        assert row["headers"] == (trace if number % 3 == 0 else None)


def test_only_requested_offsets_and_columns_are_read(penstock_session_broker: BrokerProcess) -> None:
    bootstrap = penstock_session_broker.bootstrap
    wanted = fill(bootstrap, "part", 1_000)
    part = OffsetRange("part", wanted.topic_id, 0, 333, 777)
    table = table_of(bootstrap, part, ("offset", "key"))
    assert table.column_names == ["offset", "key"]
    assert table["offset"].to_pylist() == list(range(333, 777))


@pytest.mark.parametrize(
    "change",
    [
        lambda wanted: OffsetRange(wanted.topic, wanted.topic_id, 0, 0, 50),
        lambda wanted: OffsetRange(wanted.topic, wanted.topic_id, 0, 40, 50),
        lambda wanted: OffsetRange(wanted.topic, "0" * 31 + "7", 0, 0, 10),
    ],
)
def test_missing_offsets_raise_offsets_lost(
    penstock_session_broker: BrokerProcess,
    change: Callable[[OffsetRange], OffsetRange],
    request: pytest.FixtureRequest,
) -> None:
    bootstrap = penstock_session_broker.bootstrap
    wanted = fill(bootstrap, f"short-{abs(hash(request.node.name))}", 10)
    with pytest.raises(OffsetsLost):
        table_of(bootstrap, change(wanted))


def test_new_leader_without_high_watermark_is_not_data_loss(
    penstock_session_broker: BrokerProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    bootstrap = penstock_session_broker.bootstrap
    wanted = fill(bootstrap, "after-a-failover", 10)
    behind = iter([FetchResult(0, high_watermark=4, last_stable_offset=4)] * 2)
    fetch = fetching._ReadAhead._fetch_from

    async def answer(self: Any, routes: Routes, offset: int) -> FetchResult:
        return next(behind, None) or await fetch(self, routes, offset)

    monkeypatch.setattr(fetching._ReadAhead, "_fetch_from", answer)
    assert table_of(bootstrap, wanted)["offset"].to_pylist() == list(range(10))


def test_create_timestamp_is_read_beside_append_time(
    penstock_session_broker: BrokerProcess,
) -> None:
    bootstrap = penstock_session_broker.bootstrap
    columns = ("offset", "timestamp", "timestampType", "createTimestamp")
    wanted = fill(bootstrap, "made", 100)
    assert all(row["timestamp"] == row["createTimestamp"] for row in _rows(bootstrap, wanted, columns))
    settings = [
        ConfigEntry("message.timestamp.type", "LogAppendTime", incremental_operation=AlterConfigOpType.SET)
    ]
    admin = AdminClient({"bootstrap.servers": bootstrap})
    [done] = admin.incremental_alter_configs(
        [ConfigResource(ResourceType.TOPIC, "made", incremental_configs=settings)]
    ).values()
    done.result(30)
    producer = Producer({"bootstrap.servers": bootstrap})
    for number in range(100):
        producer.produce("made", b"later", timestamp=1_700_000_000_000 + number)
    assert producer.flush(60) == 0
    rows = _rows(bootstrap, OffsetRange("made", wanted.topic_id, 0, 90, 200), columns)
    assert [row["offset"] for row in rows] == list(range(90, 200))
    assert [int(row["createTimestamp"].timestamp() * 1000 + 0.5) for row in rows] == [
        *range(1_700_000_000_090, 1_700_000_000_100),
        *range(1_700_000_000_000, 1_700_000_000_100),
    ]
    assert {row["timestamp"] - row["createTimestamp"] > timedelta(days=365) for row in rows[10:]} == {True}
    plain = _rows(bootstrap, OffsetRange("made", wanted.topic_id, 0, 90, 200), ("offset", "timestamp"))
    assert [row["timestamp"] for row in plain] == [row["timestamp"] for row in rows]


def _rows(bootstrap: str, wanted: OffsetRange, columns: tuple[str, ...]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = table_of(bootstrap, wanted, columns).to_pylist()
    return found
