"""A coordinator that crashes while it ends a transaction, at every point (fault T32).

Each record and each marker is a step; after each the coordinator may crash, and the last append may
survive or be lost. Another coordinator resumes from the log.
"""

from __future__ import annotations

import asyncio

import pytest
from coordinator_bench import P0, P1, Bench, turns

from penstock.errors import BrokerError
from penstock.transactions.transaction import VERSION_1, VERSION_2, Identity, TransactionState

STEPS_AT_MOST = 12
"""Number of steps: opening (1), the decision (1), two markers, the completion (1), and a few without work."""


async def ended_until_step(bench: Bench, producer: Identity, commit: bool, version: int, steps: int) -> bool:
    """Open a transaction and end it, in this many steps; returns whether its producer got the response of the
    end.
    """
    adding = asyncio.ensure_future(bench.shard.add_partitions("t", producer, [P0, P1], version))
    ending: asyncio.Future[Identity] | None = None
    for _ in range(steps):
        await turns()
        if adding.done() and ending is None:
            ending = asyncio.ensure_future(bench.shard.end("t", producer, commit, version))
        elif bench.endings and bench.endings[0].left:
            bench.write_marker(bench.endings[0], min(bench.endings[0].left))
        elif bench.log.waiting:
            bench.log.commit()
    await turns()
    told = ending is not None and ending.done()
    for task in (adding, ending):
        if task is not None:
            task.cancel()
    return told


def outcomes(bench: Bench) -> dict[bool, set[object]]:
    found: dict[bool, set[object]] = {True: set(), False: set()}
    for partition, marker in bench.markers:
        found[marker.is_commit].add(partition)
    return found


@pytest.mark.parametrize("keep", [0, 9], ids=["lost", "kept"])
@pytest.mark.parametrize("steps", range(STEPS_AT_MOST))
@pytest.mark.parametrize("version", [VERSION_1, VERSION_2])
@pytest.mark.parametrize("commit", [True, False], ids=["commit", "abort"])
async def test_crash_of_the_coordinator_at_any_point_leaves_one_outcome_in_all_partitions(
    commit: bool, version: int, steps: int, keep: int
) -> None:
    bench = Bench()
    producer = await bench.init()
    told = await ended_until_step(bench, producer, commit, version, steps)
    bench.crash(keep=keep)
    decided = bench.shard.transactions["t"].state not in (TransactionState.EMPTY, TransactionState.ONGOING)
    assert decided or not told
    bench.advance(60_000)
    bench.fire()  # open transactions belong to a producer that is gone
    await bench.rest()
    found = outcomes(bench)
    state = bench.shard.transactions["t"].state
    if decided:
        assert found[commit] == {P0, P1}
        assert not found[not commit]
        assert state is (TransactionState.COMPLETE_COMMIT if commit else TransactionState.COMPLETE_ABORT)
    else:
        assert not found[True]
        assert state in (TransactionState.EMPTY, TransactionState.COMPLETE_ABORT)


@pytest.mark.parametrize("keep", [0, 9], ids=["lost", "kept"])
@pytest.mark.parametrize("steps", range(STEPS_AT_MOST))
@pytest.mark.parametrize("version", [VERSION_1, VERSION_2])
async def test_producer_that_retries_its_commit_after_a_crash_succeeds(
    version: int, steps: int, keep: int
) -> None:
    bench = Bench()
    producer = await bench.init()
    await ended_until_step(bench, producer, True, version, steps)
    bench.crash(keep=keep)
    if bench.shard.transactions["t"].state is TransactionState.EMPTY:
        await bench.add(producer, version=version)  # the producer got no response to the added partitions
    following = await bench.end(producer, version=version)
    assert following == (producer if version == VERSION_1 else (producer.producer_id, 1))
    await bench.rest()
    assert outcomes(bench) == {True: {P0, P1}, False: set()}
    await bench.add(following, P0, version=version)
    await bench.end(following, version=version)


@pytest.mark.parametrize("version", [VERSION_1, VERSION_2])
async def test_every_coordinator_has_a_higher_epoch_than_its_predecessor(version: int) -> None:
    bench = Bench()
    producer = await bench.init()
    await ended_until_step(bench, producer, True, version, 4)
    bench.crash()
    bench.crash()
    await bench.rest()
    assert [marker.coordinator_epoch for _, marker in bench.markers] == [1, 3, 3]


async def test_former_coordinator_completes_no_transaction() -> None:
    bench = Bench()
    producer = await bench.init()
    await bench.add(producer)
    await asyncio.gather(bench.end(producer), return_exceptions=False)
    old_shard, old_endings = bench.shard, tuple(bench.endings)
    bench.crash()
    for ending in old_endings:
        ending.settle(ending.left)
    assert not bench.log.waiting
    with pytest.raises(BrokerError):
        await old_shard.end("t", producer, True, version=VERSION_1)
