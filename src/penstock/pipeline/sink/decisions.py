"""Which transactions of a streaming query count: decided by its driver, kept in a compacted topic, one key a query.

The last record of a query names the batch that was decided last and the transactions that are its rows. Only the newest
driver can add one. Each record also rules out whatever was under way when it was written and is not named by it: a
transaction is named only by the record that follows the one its task has seen.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta

from penstock.clock import SystemClock
from penstock.cluster.internal_topics import TRANSACTIONS_TOPIC
from penstock.errors import BrokerError, ErrorCode
from penstock.net.partitioner import partition_for
from penstock.net.routes import Routes, TopicRoute, check, persist
from penstock.pipeline.fetching import read_range
from penstock.pipeline.offsets import TopicPartition, end_offsets_of, find_offset, run
from penstock.pipeline.options import EARLIEST, LATEST
from penstock.pipeline.ranges import OffsetRange
from penstock.pipeline.read_settings import RETRY_SECONDS, ReadSettings
from penstock.pipeline.sink.held_transactions import commit_own, take_over
from penstock.pipeline.sink.producer import BatchProducer, RecordPosition, WriterIdentity
from penstock.records.building import NewRecord

DECISIONS_TOPIC = "__pipeline_sinks"
_PARTITIONS = 8
_SETTINGS = {
    "cleanup.policy": "compact",
    "segment.bytes": "1048576",
    "min.cleanable.dirty.ratio": "0.1",
    "delete.retention.ms": "60000",
}
"""What was decided before is of no use to anybody: little of it is kept, as every task reads some."""
_TAIL = 200
"""Offsets to look at first: mostly the last record of a query is among them."""
_CREATE_TOPICS, _CREATE_TOPICS_VERSION = 19, 7


@dataclass(frozen=True, slots=True)
class SinkDecision:
    batch: int = -1
    """The last batch whose rows count."""
    winners: tuple[WriterIdentity, ...] = ()
    """The transactions that are its rows."""
    positions: tuple[RecordPosition, ...] = ()
    """One record of each of these transactions, in their order. Empty in decisions of older versions."""
    offset: int = -1
    """Offset of this decision in its topic."""

    def is_same(self, other: SinkDecision) -> bool:
        """Whether both decide the same, wherever they are recorded."""
        return (self.batch, self.winners) == (other.batch, other.winners)

    def undone(self) -> SinkDecision:
        """The decision that none of the rows count: the batch is to be written again."""
        return SinkDecision(self.batch - 1)

    def position_of(self, winner: WriterIdentity) -> RecordPosition | None:
        return dict(zip(self.winners, self.positions, strict=False)).get(winner)

    def encode(self) -> bytes:
        return json.dumps({"batch": self.batch, "winners": self.winners, "places": self.positions}).encode()

    @classmethod
    def decode(cls, value: bytes, offset: int) -> SinkDecision:
        found = json.loads(value)
        winners = tuple(WriterIdentity(*each) for each in found["winners"])
        return cls(
            found["batch"], winners, tuple(RecordPosition(*each) for each in found.get("places", ())), offset
        )


class DecisionLog:
    def __init__(self, bootstrap: str, query: str) -> None:
        self._bootstrap = bootstrap
        self._key = query.encode()
        self._driver_id = f"spark-sink-driver/{query}"

    def last(self) -> SinkDecision:
        """As far as it can be read already."""
        route = run(self._bootstrap, _find_topic)
        return SinkDecision() if route is None else self._read(route)

    def lead(self) -> tuple[WriterIdentity, SinkDecision]:
        """From here on only this driver can decide; and what the last one has decided, which is certain."""

        async def ask(routes: Routes) -> tuple[WriterIdentity, TopicRoute]:
            # Whatever the last driver was about to record is committed or aborted when this one is known.
            driver = await take_over(routes, self._driver_id)
            route = await _ensure_topic(routes)
            name = (DECISIONS_TOPIC, self._partition(route))
            # What it has committed may still be hidden by a transaction of another query.
            await _until_readable(routes, name, await find_offset(routes, name, LATEST, read_committed=False))
            return driver, route

        driver, route = run(self._bootstrap, ask)
        return driver, self._read(route)

    def record(self, driver: WriterIdentity, decision: SinkDecision) -> None:
        """For good, and everybody can read it."""

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
    """Until all before `end` is committed or aborted, which takes no longer than a timeout of who writes here."""

    async def see() -> None:
        if await find_offset(routes, name, LATEST, read_committed=True) < end:
            raise BrokerError(ErrorCode.offset_not_available, "what was decided cannot be read yet")

    await persist(see, RETRY_SECONDS)


async def _find_topic(routes: Routes) -> TopicRoute | None:
    try:
        return await routes.topic(DECISIONS_TOPIC)
    except BrokerError as error:
        if error.code is ErrorCode.unknown_topic_or_partition:
            return None
        raise


async def _ensure_topic(routes: Routes) -> TopicRoute:
    """Made where there is none: a broker that does not know of it may only be late."""
    found = await _find_topic(routes)
    if found is not None:
        return found
    replicas = len((await routes.topic(TRANSACTIONS_TOPIC)).partitions[0].replicas)
    await _create(routes, replicas)

    async def see() -> TopicRoute:
        route = await _find_topic(routes)
        if route is None or any(each.leader < 0 for each in route.partitions):
            routes.forget(DECISIONS_TOPIC)
            raise BrokerError(ErrorCode.leader_not_available, f"{DECISIONS_TOPIC} is not there yet")
        return route

    return await persist(see, RETRY_SECONDS)


async def _create(routes: Routes, replicas: int) -> None:
    """With as many replicas as transactions have: where brokers are away for a moment, that is waited for."""
    configs: Sequence[dict[str, str]] = [{"name": name, "value": value} for name, value in _SETTINGS.items()]
    topic = {
        "name": DECISIONS_TOPIC,
        "num_partitions": _PARTITIONS,
        "replication_factor": replicas,
        "assignments": [],
        "configs": configs,
    }
    fields = {"topics": [topic], "timeout": timedelta(seconds=30), "validate_only": False}

    async def attempt() -> None:
        response = await routes.ask_any(_CREATE_TOPICS, _CREATE_TOPICS_VERSION, fields)
        [created] = response.topics
        if created.error_code == ErrorCode.invalid_replication_factor:
            raise BrokerError(ErrorCode.broker_not_available, created.error_message or "")
        if created.error_code != ErrorCode.topic_already_exists:
            check(created.error_code, created.error_message)

    await persist(attempt, RETRY_SECONDS)
