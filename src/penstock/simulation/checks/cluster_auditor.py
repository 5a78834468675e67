"""The auditor of a cluster in peace: every partition takes a write, every promised record is there, replicas
are equal.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from penstock.errors import BrokerError
from penstock.simulation.checks.inspector import Inspector
from penstock.simulation.clients.client import NoAnswer
from penstock.simulation.clients.cluster_producer import ClusterProducer
from penstock.simulation.clients.fetched_records import read_records
from penstock.simulation.clients.retries import retried
from penstock.simulation.groups.committer import Committer
from penstock.simulation.models.history import Audit, InvariantViolated, ReadRecord
from penstock.simulation.models.topic_model import TopicModel, TopicState
from penstock.simulation.scenarios.cluster_stage import ClusterStage

_EARLIEST, _LATEST = -2, -1
_MAX_BYTES = 1_000_000
_ATTEMPTS = 20
_SETTLE_SECONDS = 0.5

T = TypeVar("T")


class ClusterAuditor:
    def __init__(self, stage: ClusterStage, inspector: Inspector, committers: Sequence[Committer]) -> None:
        self._stage = stage
        self._inspector = inspector
        self._committers = committers
        self._routing = stage.routing("auditor")
        self._producer = ClusterProducer(stage, 99)

    async def audit(self) -> None:
        await asyncio.sleep(_SETTLE_SECONDS)  # until all brokers know the last changes
        existing = await self._retried(self._topics, "topics are not told")
        for topic in self._stage.topics.values():
            self._settle(topic, existing)
        for topic in self._stage.living_topics():
            for index in range(len(topic.partitions)):
                await self._retried(self._prove_alive(topic, index), f"{topic.name}-{index} takes no write")
            audits = [
                await self._retried(self._read(topic, index), f"{topic.name}-{index} cannot be read")
                for index in range(len(topic.partitions))
            ]
            topic.on_audit(audits, cache_lost=False)
        for committer in self._committers:
            await self._retried(committer.audit, f"{committer.name} is not served")
        await self._come_to_rest()
        self._inspector.look()
        self._inspector.check_equal()

    async def _retried(self, act: Callable[[], Awaitable[T]], complaint: str) -> T:
        return await retried(act, complaint, _ATTEMPTS)

    async def _topics(self) -> dict[str, int]:
        return await (await self._routing.any_broker()).topics()

    def _settle(self, topic: TopicModel, existing: dict[str, int]) -> None:
        """Find out what became of a topic whose creation or growth was not acknowledged. A topic under
        deletion may be there or not.
        """
        partitions = existing.get(topic.name)
        topic.check_existence(partitions)
        if topic.state is TopicState.CREATING and partitions is not None:
            topic.state = TopicState.ALIVE
        if topic.state is TopicState.ALIVE and partitions is not None:
            topic.settle_partitions(partitions)

    def _prove_alive(self, topic: TopicModel, index: int) -> Callable[[], Awaitable[None]]:
        async def prove() -> None:
            try:
                await self._producer.prove_alive(topic, index)
            except InvariantViolated as error:
                if error.invariant != "liveness":
                    raise
                raise NoAnswer(str(error)) from error

        return prove

    def _read(self, topic: TopicModel, index: int) -> Callable[[], Awaitable[Audit]]:
        async def read() -> Audit:
            leader, epoch = await self._routing.leader(topic.name, index)
            try:
                end = (await leader.list_offset(topic.name, index, _LATEST, epoch)).offset
                start = (await leader.list_offset(topic.name, index, _EARLIEST, epoch)).offset
                records: list[ReadRecord] = []
                position = start
                while position < end:
                    result = await leader.fetch(
                        topic.name, index, position, max_bytes=_MAX_BYTES, max_wait_ms=0, leader_epoch=epoch
                    )
                    found = read_records(
                        topic.partitions[index].name, result, position, compacted=topic.is_compacted
                    )
                    if found.end == position:
                        raise InvariantViolated(
                            "I1", f"{topic.partitions[index].name}: nothing at {position}, it ends at {end}"
                        )
                    records += [record for record in found.records if record.offset >= position]
                    position = found.end
                return Audit(start, end, tuple(records))
            except (BrokerError, NoAnswer):
                self._routing.mistrust(topic.name, index)
                raise

        return read

    async def _come_to_rest(self) -> None:
        """Wait until all replicas of each partition have the same log end offset."""
        for _ in range(_ATTEMPTS):
            ends: dict[object, set[int]] = {}
            for member in self._stage.members:
                for replica in member.replicas():
                    ends.setdefault(replica.name, set()).add(replica.log.log_end_offset)
            if all(len(each) == 1 for each in ends.values()):
                return
            await asyncio.sleep(0.2)
        raise InvariantViolated("I13", f"followers do not come to the end: {ends}")
