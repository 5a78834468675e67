"""Partition under min ISR on whole brokers: committed records survive the loss of the last in-sync replica."""

from __future__ import annotations

from pathlib import Path

from test_produce_handler import ALL, LEADER, batch, produce, topic
from test_replicas_on_brokers import ORDERS, create, started

from penstock.errors import BrokerError, ErrorCode
from support.eventually import eventually_async
from support.harness import Harness
from support.whole_brokers import Brokers, run


def log_end(broker: Harness) -> int:
    return broker.context.replicas._replicas[ORDERS, 0].log.log_end_offset


def test_eligible_leader_takes_over_from_the_last_in_sync_replica(tmp_path: Path) -> None:
    """Records that the last in-sync replica took alone, with acks=1, are uncommitted and may be truncated."""

    async def scenario(brokers: Brokers) -> None:
        at = dict(enumerate(await started(brokers, 3), start=1))
        await create(at[1], [1, 2, 3], min_insync_replicas="2")
        await eventually_async(lambda: all(ORDERS in harness.context.image.topics for harness in at.values()))
        for offset in range(5):
            (result,) = await produce(at[1], topic(ORDERS, batch()), acks=ALL)
            assert (result.error_code, result.base_offset) == (0, offset)
        for number in (2, 3):
            await brokers.stop(number)
        await eventually_async(lambda: brokers.members(1, ORDERS) == {1})
        (refused,) = await produce(at[1], topic(ORDERS, batch()), acks=ALL)
        assert refused.error_code == ErrorCode.not_enough_replicas
        for _ in range(3):
            (alone,) = await produce(at[1], topic(ORDERS, batch()), acks=LEADER)
            assert alone.error_code == 0
        replica = at[1].context.replicas.get(ORDERS, 0)
        assert (replica.log.log_end_offset, replica.log.high_watermark) == (8, 5)
        await brokers.stop(1)
        at[2] = await brokers.start(2)
        at[3] = await brokers.start(3)
        # Broker 2 left a set that was not under min ISR, so broker 3 alone is eligible.
        leader = await eventually_async(lambda: at[3].context.replicas.get(ORDERS, 0), ignoring=BrokerError)
        assert leader.log.log_end_offset >= 5, "committed records are kept"
        at[1] = await brokers.start(1)
        await eventually_async(lambda: brokers.members(2, ORDERS) == {1, 2, 3})
        (result,) = await produce(at[3], topic(ORDERS, batch()), acks=ALL)
        assert result.error_code == 0
        await eventually_async(lambda: len({log_end(broker) for broker in at.values()}) == 1)
        assert not any(broker.context.alarms.present for broker in at.values())

    run(tmp_path, scenario)
