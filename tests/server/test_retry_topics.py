"""Retry topics through a whole broker: the leader counts attempts and picks delays."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.errors import BrokerError, ErrorCode
from penstock.records.compression import Codec
from penstock.records.iteration import Record
from support.delayed_partition import TOPIC, Header, Partition, run

POLICY = {"retry_group": "billing", "retry_max_attempts": "3", "retry_backoff_ms": "100,1000"}


def headers_of(record: Record) -> list[Header]:
    return [(name, value or b"") for name, value in record.headers]


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
def test_retry_topic_redelivers_a_record_until_its_attempts_are_exhausted(
    tmp_path: Path, codec: Codec
) -> None:
    async def scenario(partition: Partition) -> None:
        await partition.create(**POLICY, retry_dead_letter_topic="letters")
        assert (await partition.send((b"job", [("own", b"1")]), codec=codec)).error_code == 0
        assert await partition.values() == []
        await partition.pass_time(99)
        assert await partition.values() == []
        await partition.pass_time(1)
        [first] = await partition.seen()
        assert dict(first.headers)["penstock-retry-attempts"] == b"1"
        assert (await partition.send((b"job", headers_of(first)), codec=codec)).error_code == 0
        await partition.pass_time(1_000)
        _, second = await partition.seen()
        assert dict(second.headers)["penstock-retry-attempts"] == b"2"
        assert dict(second.headers)["own"] == b"1"
        refused = await partition.send((b"job", headers_of(second)), codec=codec)
        assert refused.error_code == ErrorCode.policy_violation
        assert "letters" in refused.error_message
        counts = partition.broker.context.replicas.delay_counts
        assert (counts.retried, counts.exhausted) == (2, 1)

    run(tmp_path, scenario)


def test_a_batch_with_one_exhausted_record_is_refused_as_a_whole(tmp_path: Path) -> None:
    async def scenario(partition: Partition) -> None:
        await partition.create(**POLICY)
        refused = await partition.send((b"new", []), (b"old", [("penstock-retry-attempts", b"2")]))
        assert refused.error_code == ErrorCode.policy_violation
        await partition.pass_time(10_000)
        assert await partition.values() == []

    run(tmp_path, scenario)


def test_a_retry_topic_needs_delayed_messages(tmp_path: Path) -> None:
    async def scenario(partition: Partition) -> None:
        with pytest.raises((BrokerError, AssertionError), match=r"delivery\.delay"):
            await partition.broker.create(TOPIC, 1, retry_group="billing")

    run(tmp_path, scenario)
