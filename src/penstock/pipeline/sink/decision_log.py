"""Decision log of the streaming sink: a compacted topic in which the driver of a query records its decisions.

Each query has one key. The last record of the key names the last decided batch and the transactions that contain the
rows of this batch. Only the newest driver can append a record. A decision names only transactions of tasks that had
read the previous decision; other transactions that are open at that time are aborted.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

from penstock.clock import SystemClock
from penstock.cluster.internal_topics import TRANSACTIONS_TOPIC
from penstock.errors import BrokerError, ErrorCode
from penstock.internal_client.errors import OutcomeUnknown
from penstock.internal_client.partitioner import partition_for
from penstock.internal_client.retries import retry
from penstock.internal_client.routes import Routes
from penstock.internal_client.topic_routes import TopicRoute
from penstock.internal_client.topics import NewTopic, TopicCalls
from penstock.internal_client.transactions import ProducerIdentity
from penstock.pipeline.fetching import read_range
from penstock.pipeline.offsets import TopicPartition, end_offsets_of, find_offset, run
from penstock.pipeline.options import EARLIEST, LATEST
from penstock.pipeline.ranges import OffsetRange
from penstock.pipeline.read_settings import RETRY_SECONDS, ReadSettings
from penstock.pipeline.sink.held_transactions import commit_own, take_over
from penstock.pipeline.sink.producer import BatchProducer, RecordPosition
from penstock.records.building import NewRecord

DECISIONS_TOPIC = "__pipeline_sinks"
_PARTITIONS = 8
_SETTINGS = {
    "cleanup.policy": "compact",
    "segment.bytes": "1048576",
    "min.cleanable.dirty.ratio": "0.1",
    "delete.retention.ms": "60000",
}
"""Configs of the topic. Only the last decision of a query is needed: small segments and early compaction keep the topic
short, because every task reads it.
"""
_TAIL = 200
"""Number of offsets at the end of the log that are read first. They usually include the last record of the query."""


@dataclass(frozen=True, slots=True)
class SinkDecision:
    batch: int = -1
    """Number of the last decided batch; -1 before the first decision."""
    winners: tuple[ProducerIdentity, ...] = ()
    """Transactions that contain the rows of the batch."""
    positions: tuple[RecordPosition, ...] = ()
    """Position of one record of each transaction, in the order of `winners`. Empty in decisions written by older
    versions.
    """
    offset: int = -1
    """Offset of this decision in its topic."""

    def is_same(self, other: SinkDecision) -> bool:
        """Return True if both name the same batch and transactions; the offset is not compared."""
        return (self.batch, self.winners) == (other.batch, other.winners)

    def undone(self) -> SinkDecision:
        """Decision that reverts this one: no transaction is committed, and the batch has to be written again."""
        return SinkDecision(self.batch - 1)

    def position_of(self, winner: ProducerIdentity) -> RecordPosition | None:
        return dict(zip(self.winners, self.positions, strict=False)).get(winner)

    def encode(self) -> bytes:
        return json.dumps({"batch": self.batch, "winners": self.winners, "places": self.positions}).encode()

    @classmethod
    def decode(cls, value: bytes, offset: int) -> SinkDecision:
        found = json.loads(value)
        winners = tuple(ProducerIdentity(*each) for each in found["winners"])
        return cls(
            found["batch"], winners, tuple(RecordPosition(*each) for each in found.get("places", ())), offset
        )


class DecisionLog:
    def __init__(self, bootstrap: str, query: str) -> None:
        self._bootstrap = bootstrap
        self._key = query.encode()
        self._driver_id = f"spark-sink-driver/{query}"

    def last(self) -> SinkDecision:
        """Last decision that is visible with `read_committed`."""
        route = run(self._bootstrap, _find_topic)
        return SinkDecision() if route is None else self._read(route)

    def lead(self) -> tuple[ProducerIdentity, SinkDecision]:
        """Fence earlier drivers of the query. Returns this driver's identity and the last decision, which can no longer
        change.
        """

        async def ask(routes: Routes) -> tuple[ProducerIdentity, TopicRoute]:
            # take_over ends the open transaction of the previous driver, so its decision is either committed or
            # aborted.
            driver = await take_over(routes, self._driver_id)
            route = await _ensure_topic(routes)
            name = (DECISIONS_TOPIC, self._partition(route))
            # An open transaction of another query may still hide a committed decision.
            await _until_readable(routes, name, await find_offset(routes, name, LATEST, read_committed=False))
            return driver, route

        driver, route = run(self._bootstrap, ask)
        return driver, self._read(route)

    def record(self, driver: ProducerIdentity, decision: SinkDecision) -> None:
        """Append a decision. On return it is committed and visible with `read_committed`."""

        async def ask(routes: Routes) -> None:
            partition = self._partition(await routes.topic(DECISIONS_TOPIC))
            record = NewRecord(self._key, decision.encode(), SystemClock().now_ms())
            offset = await BatchProducer(routes, driver).write(DECISIONS_TOPIC, partition, [record])
            await commit_own(routes, driver)
            await _until_readable(routes, (DECISIONS_TOPIC, partition), offset + 1)

        run(self._bootstrap, ask)

    def _read(self, route: TopicRoute) -> SinkDecision:
        read_settings, partition = ReadSettings(self._bootstrap), self._partition(route)
        name = (DECISIONS_TOPIC, partition)
        start, end = (end_offsets_of(read_settings, [name], at)[name] for at in (EARLIEST, LATEST))
        for since in dict.fromkeys((max(start, end - _TAIL), start)):
            wanted = OffsetRange(DECISIONS_TOPIC, route.id.hex, partition, since, end)
            found = self._newest(read_settings, wanted)
            if found is not None:
                return found
        return SinkDecision()

    def _newest(self, read_settings: ReadSettings, wanted: OffsetRange) -> SinkDecision | None:
        newest = None
        for rows in read_range(read_settings, wanted, ("key", "value", "offset")):
            for row in rows.to_pylist():
                if row["key"] == self._key:
                    newest = SinkDecision.decode(row["value"], row["offset"])
        return newest

    def _partition(self, route: TopicRoute) -> int:
        return partition_for(self._key, len(route.partitions))


async def _until_readable(routes: Routes, name: TopicPartition, end: int) -> None:
    """Wait until all transactions with records before `end` are committed or aborted. The transaction timeouts of the
    drivers bound the wait.
    """

    async def see() -> None:
        if await find_offset(routes, name, LATEST, read_committed=True) < end:
            raise BrokerError(ErrorCode.offset_not_available, "the decision is not readable yet")

    await retry(see, RETRY_SECONDS)


async def _find_topic(routes: Routes) -> TopicRoute | None:
    try:
        return await routes.topic(DECISIONS_TOPIC)
    except BrokerError as error:
        if error.code is ErrorCode.unknown_topic_or_partition:
            return None
        raise


async def _ensure_topic(routes: Routes) -> TopicRoute:
    """Return the topic of decisions; create it if it does not exist."""
    found = await _find_topic(routes)
    if found is not None:
        return found
    replicas = len((await routes.topic(TRANSACTIONS_TOPIC)).partitions[0].replicas)
    await _create(routes, replicas)

    async def see() -> TopicRoute:
        route = await _find_topic(routes)
        if route is None or any(each.leader < 0 for each in route.partitions):
            routes.forget(DECISIONS_TOPIC)
            raise BrokerError(ErrorCode.leader_not_available, f"{DECISIONS_TOPIC} has no leader yet")
        return route

    return await retry(see, RETRY_SECONDS)


async def _create(routes: Routes, replicas: int) -> None:
    """Create the topic with the replication factor of `__transaction_state`. Waits while fewer brokers than that are
    alive.
    """
    topic = NewTopic(DECISIONS_TOPIC, _PARTITIONS, replicas, _SETTINGS)

    async def attempt() -> None:
        try:
            await TopicCalls(routes).create(topic)
        except OutcomeUnknown as error:
            raise BrokerError(ErrorCode.request_timed_out, str(error)) from error
        except BrokerError as error:
            if error.code is ErrorCode.invalid_replication_factor:
                raise BrokerError(ErrorCode.broker_not_available, str(error)) from error
            if error.code is not ErrorCode.topic_already_exists:
                raise

    await retry(attempt, RETRY_SECONDS)
