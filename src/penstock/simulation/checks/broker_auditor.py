"""The auditor of a broker alone: after every restart it reads everything, before clients are let in."""

from __future__ import annotations

import asyncio

from penstock.errors import BrokerError, ErrorCode
from penstock.simulation.clients.client import NoAnswer
from penstock.simulation.clients.fetched_records import read_records
from penstock.simulation.groups.group_auditor import GroupAuditor
from penstock.simulation.models.history import Audit, InvariantViolated, ReadRecord
from penstock.simulation.models.topic_model import TopicModel, TopicState
from penstock.simulation.scenarios.stage import Stage

_EARLIEST, _LATEST = -2, -1
_SETTLE_SECONDS = 0.3
_MAX_BYTES = 1_000_000


class Auditor:
    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        always_open = asyncio.Event()
        always_open.set()
        self._client = stage.client("auditor", always_open)
        self.groups = GroupAuditor(stage, self._client)

    async def audit(self) -> None:
        """Read and check all topics and groups; InvariantViolated when a promise is broken or something
        cannot be read.
        """
        try:
            existing = await self._client.topics()
            for topic in self._stage.topics.values():
                self._settle(topic, existing)
                if topic.state is TopicState.ALIVE:
                    audits = [await self._read_all(topic, index) for index in range(len(topic.partitions))]
                    topic.on_audit(audits, cache_lost=self._stage.broker.cache_lost)
            await self.groups.audit()
        except (BrokerError, NoAnswer) as error:
            is_damaged = isinstance(error, BrokerError) and error.code is ErrorCode.corrupt_message
            invariant = "I15" if is_damaged else "liveness"
            raise InvariantViolated(invariant, f"the restarted broker does not serve: {error!r}") from error
        self._stage.broker.cache_lost = False

    def _settle(self, topic: TopicModel, existing: dict[str, int]) -> None:
        """Find out whether a topic exists whose creation or deletion was not acknowledged."""
        partitions = existing.get(topic.name)
        topic.check_existence(partitions)
        if topic.state in (TopicState.CREATING, TopicState.DELETING):
            topic.state = TopicState.DELETED if partitions is None else TopicState.ALIVE
        if partitions is not None:
            topic.settle_partitions(partitions)

    async def _read_all(self, topic: TopicModel, partition: int) -> Audit:
        while True:
            try:
                return await self._read(topic, partition)
            except BrokerError as error:
                # Retention may remove the records that the auditor is about to read.
                if (
                    error.code is not ErrorCode.offset_out_of_range
                    or not topic.partitions[partition].may_expire
                ):
                    raise

    async def _read(self, topic: TopicModel, partition: int) -> Audit:
        name = topic.partitions[partition].name
        log_end = await self._log_end(topic, partition)
        log_start = (await self._client.list_offset(topic.name, partition, _EARLIEST)).offset
        records: list[ReadRecord] = []
        position = log_start
        while position < log_end:
            result = await self._client.fetch(
                topic.name, partition, position, max_bytes=_MAX_BYTES, max_wait_ms=0
            )
            read = read_records(name, result, position, compacted=topic.is_compacted)
            if read.end == position:
                if topic.is_compacted:
                    break  # a gap at the end; the model knows whether it is allowed
                raise InvariantViolated("I1", f"{name}: nothing at {position}, the log ends at {log_end}")
            records += [record for record in read.records if record.offset >= position]
            position = read.end
        self._stage.note("auditor", "read", name, log_start, log_end)
        return Audit(log_start, log_end, tuple(records))

    async def _log_end(self, topic: TopicModel, partition: int) -> int:
        """Return the log end offset, once the high watermark does not move any more."""
        before = -1
        while True:
            end = (await self._client.list_offset(topic.name, partition, _LATEST)).offset
            if end == before:
                return end
            before = end
            await asyncio.sleep(_SETTLE_SECONDS)
