"""Bugs planted in the retention of delayed messages, which seeds of the simulation show too rarely.

A follower gets the new log start together with the records, so the loss needs a leader that deletes the original of a
message and dies before a follower has fetched its delivery. The scenario holds back commits while a message comes due
and retention runs, and then takes away all that was not committed, as an election does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from penstock.cluster.memory import MemoryEnsemble
from penstock.delay.pending import PendingMessages
from penstock.replication import delayed_delivery
from penstock.replication.delayed_delivery import DelayedLog
from penstock.replication.partition import ReplicatedPartition
from support.delayed_partition import HOUR_MS, TOPIC, Partition, run
from support.eventually import eventually_async
from support.manual_clock import ManualClock

_CONFIGS = {"segment_bytes": "1024", "retention_ms": "60000"}
_MESSAGE = b"reminder"

Bug = Callable[[], AbstractContextManager[Any]]


@contextmanager
def commits_held_back() -> Iterator[None]:
    """Followers do not fetch: the high watermark stays, and retention does not wait long for it."""
    with (
        patch.object(ReplicatedPartition, "advance", lambda self: False),
        patch.object(delayed_delivery, "MOVE_PATIENCE_S", 0.05),
    ):
        yield


async def lose_uncommitted(partition: Partition) -> None:
    """Truncate the log to its high watermark, as a follower of the next leader does."""
    log = partition.broker.context.replicas.get(TOPIC, 0).log
    assert log.log_end_offset > log.high_watermark, "nothing was appended that can be lost"
    assert log.jobs.begin_truncation()
    partition.broker.context.logs.truncate(log, log.high_watermark, partition.clock.now_ms())
    log.jobs.finish_truncation()


def message_survives_retention(tmp_path: Path, delay_ms: int, bug: Bug = nullcontext) -> None:
    """A message whose delivery or copy is lost before its commit comes once, from its original."""
    clock, ensemble = ManualClock(), MemoryEnsemble()

    async def before(partition: Partition) -> None:
        await partition.create(**_CONFIGS)
        await partition.delay(_MESSAGE, delay_ms)
        log = partition.broker.context.replicas.get(TOPIC, 0).log
        while len(log.segments) < 4:
            assert (await partition.send((b"x" * 200, []))).error_code == 0
        await partition.settle()
        with bug(), commits_held_back():
            clock.advance(100_000)
            if delay_ms <= 100_000:
                partition.delayed.on_high_watermark()
                await eventually_async(lambda: log.log_end_offset > log.high_watermark, "it is delivered")
            await partition.broker._broker._maintenance._cleaning.retain()
            await lose_uncommitted(partition)

    async def after(partition: Partition) -> None:
        await partition.pass_time(delay_ms)
        seen = [value for value in await partition.values() if value != b"x" * 200]
        assert seen == [_MESSAGE], f"delivered: the reader has seen {seen}"

    run(tmp_path, before, clock, ensemble)
    run(tmp_path, after, clock, ensemble)


def deliveries_in_flight_free_their_originals() -> AbstractContextManager[Any]:
    """Retention takes a message for delivered when its delivery is appended."""

    async def at_once(self: DelayedLog) -> bool:
        return True

    patches = ExitStack()
    patches.enter_context(patch.object(DelayedLog, "_all_applied", at_once))
    patches.enter_context(patch.object(PendingMessages, "is_in_flight_below", lambda self, offset: False))
    return patches


def copies_in_flight_free_their_originals() -> AbstractContextManager[Any]:
    """Retention takes a message for stored again when its copy is appended."""
    move_below = DelayedLog.move_below

    async def without_wait(self: DelayedLog, offset: Any) -> bool:
        await move_below(self, offset)
        return True

    return patch.object(DelayedLog, "move_below", without_wait)


@pytest.mark.parametrize("delay_ms", [100_000, HOUR_MS], ids=["delivery", "copy"])
def test_original_stays_until_its_delivery_or_copy_is_committed(tmp_path: Path, delay_ms: int) -> None:
    message_survives_retention(tmp_path, delay_ms)


@pytest.mark.parametrize(
    ("delay_ms", "bug"),
    [(100_000, deliveries_in_flight_free_their_originals), (HOUR_MS, copies_in_flight_free_their_originals)],
    ids=["delivery", "copy"],
)
def test_uncommitted_record_that_frees_its_original_is_noticed(
    tmp_path: Path, delay_ms: int, bug: Bug
) -> None:
    with pytest.raises(AssertionError, match="delivered: the reader has seen"):
        message_survives_retention(tmp_path, delay_ms, bug)
