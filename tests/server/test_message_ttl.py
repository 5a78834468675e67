"""`message.ttl.ms` through a whole broker: the leader writes the lifetime into the records."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.records.compression import Codec
from support.delayed_partition import TOPIC, Partition, run


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
def test_topic_ttl_is_added_to_records_without_a_lifetime(tmp_path: Path, codec: Codec) -> None:
    async def scenario(partition: Partition) -> None:
        await partition.broker.create(TOPIC, 1, message_ttl_ms="700")
        own, delay = [("penstock-expires-at", b"5")], [("penstock-delay-ms", b"any")]
        result = await partition.send((b"plain", []), (b"own", own), (b"other", delay), codec=codec)
        assert result.error_code == 0, result.error_message
        added = ("penstock-ttl-ms", b"700")
        assert [(each.value, each.headers) for each in await partition.seen()] == [
            (b"plain", (added,)),
            (b"own", tuple(own)),
            (b"other", (*delay, added)),
        ]

    run(tmp_path, scenario)


def test_the_lifetime_of_a_delayed_message_begins_when_it_is_due(tmp_path: Path) -> None:
    async def scenario(partition: Partition) -> None:
        await partition.create(message_ttl_ms="700", delivery_delay_default_ms="50")
        assert (await partition.send((b"later", []))).error_code == 0
        await partition.pass_time(60)
        [delivered] = await partition.seen()
        headers = dict(delivered.headers)
        assert headers["penstock-ttl-ms"] == b"700"
        assert delivered.timestamp == int(headers["penstock-origin-timestamp"] or b"0") + 50

    run(tmp_path, scenario)
