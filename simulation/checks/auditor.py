"""The auditor: it reads every partition from start to end and compares the logs with the models.

A broker alone is audited after every start, before clients are let in: each request must succeed at once. A
cluster is audited in peace: every partition takes a write, every promised record is there, and replicas are
equal; a client may get a former leader from Metadata at first, so requests are tried again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from penstock.errors import BrokerError, ErrorCode
from simulation.checks.inspector import Inspector
from simulation.clients.client import NoAnswer, SimulatedClient
from simulation.clients.fetched_records import read_records
from simulation.clients.producer import Producer
from simulation.clients.retries import retried
from simulation.groups.committer import Committer
from simulation.groups.group_auditor import GroupAuditor
from simulation.models.history import Audit, InvariantViolated, ReadRecord
from simulation.models.topic_model import TopicModel, TopicState
from simulation.scenarios.stage import Stage

_EARLIEST, _LATEST = -2, -1
_MAX_BYTES = 1_000_000
_ATTEMPTS = 20
_SETTLE_SECONDS = 0.5
"""Seconds until all brokers of a cluster know the last changes."""
_MOVING_SECONDS = 0.3
"""Seconds in which the high watermark of a restarted broker moves, if it still does."""
_PROVER = 99

T = TypeVar("T")


class Auditor:
    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        always_open = asyncio.Event()
        always_open.set()
        self._routing = stage.routing("auditor", always_open)
        self.groups = GroupAuditor(stage, self._routing.first)

    # --- after a start

    async def audit_restart(self) -> None:
        """Read and check all topics and groups of a broker alone; InvariantViolated when a promise is broken
        or something cannot be read.
        """
        if self._stage.history.problem is not None:
            raise self._stage.history.problem
        try:
            await self._settle()
            for topic in self._stage.living_topics():
                audits = [await self._read_now(topic, index) for index in range(len(topic.partitions))]
                topic.on_audit(audits, cache_lost=self._stage.broker.cache_lost)
            await self.groups.audit()
        except (BrokerError, NoAnswer) as error:
            is_damaged = isinstance(error, BrokerError) and error.code is ErrorCode.corrupt_message
            invariant = "I15" if is_damaged else "liveness"
            raise InvariantViolated(invariant, f"the restarted broker does not serve: {error!r}") from error
        self._stage.broker.cache_lost = False

    async def _read_now(self, topic: TopicModel, index: int) -> Audit:
        while True:
            try:
                audit = await self._read(topic, index)
            except BrokerError as error:
                # Retention may remove the records that the auditor is about to read.
                if error.code is not ErrorCode.offset_out_of_range or not topic.partitions[index].may_expire:
                    raise
            else:
                name = topic.partitions[index].name
                self._stage.note("auditor", "read", name, audit.log_start, audit.log_end)
                return audit

    # --- in peace

    async def audit_peace(self, inspector: Inspector, committers: Sequence[Committer]) -> None:
        """Check a cluster whose replicas are all in sync."""
        await asyncio.sleep(_SETTLE_SECONDS)
        await self._retried(self._settle, "topics are not told")
        producer = Producer(self._stage, _PROVER)
        for topic in self._stage.living_topics():
            places = [(topic.partitions[index].name, index) for index in range(len(topic.partitions))]
            for name, index in places:
                await self._retried(_proof(producer, topic, index), f"{name} takes no write")
            audits = [
                await self._retried(self._reading(topic, index), f"{name} cannot be read")
                for name, index in places
            ]
            topic.on_audit(audits, cache_lost=False)
        for committer in committers:
            await self._retried(committer.audit, f"{committer.name} is not served")
        await self._come_to_rest()
        inspector.look()
        inspector.check_equal()

    async def _retried(self, act: Callable[[], Awaitable[T]], complaint: str) -> T:
        return await retried(act, complaint, _ATTEMPTS)

    def _reading(self, topic: TopicModel, index: int) -> Callable[[], Awaitable[Audit]]:
        async def read() -> Audit:
            try:
                return await self._read(topic, index)
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

    # --- topics and logs

    async def _settle(self) -> None:
        """Find out what became of topics whose creation, growth or deletion was not acknowledged. A topic
        that a cluster deletes may still be there.
        """
        existing = await (await self._routing.any_broker()).topics()
        for topic in self._stage.topics.values():
            partitions = existing.get(topic.name)
            topic.check_existence(partitions)
            is_ended = topic.state is TopicState.DELETING and self._stage.is_alone
            if topic.state is TopicState.CREATING or is_ended:
                topic.state = TopicState.DELETED if partitions is None else TopicState.ALIVE
            if topic.state is TopicState.ALIVE and partitions is not None:
                topic.settle_partitions(partitions)

    async def _read(self, topic: TopicModel, index: int) -> Audit:
        name = topic.partitions[index].name
        leader, epoch = await self._routing.leader(topic.name, index)
        end = await self._log_end(leader, epoch, topic, index)
        start = (await leader.list_offset(topic.name, index, _EARLIEST, epoch)).offset
        records: list[ReadRecord] = []
        position = start
        while position < end:
            result = await leader.fetch(
                topic.name, index, position, max_bytes=_MAX_BYTES, max_wait_ms=0, leader_epoch=epoch
            )
            found = read_records(name, result, position, compacted=topic.is_compacted)
            if found.end == position:
                if topic.is_compacted and self._stage.is_alone:
                    break  # a gap at the end; the model knows whether it is allowed
                raise InvariantViolated("I1", f"{name}: nothing at {position}, the log ends at {end}")
            records += [record for record in found.records if record.offset >= position]
            position = found.end
        return Audit(start, end, tuple(records))

    async def _log_end(self, leader: SimulatedClient, epoch: int, topic: TopicModel, index: int) -> int:
        """Return the log end offset; after a start, once the high watermark does not move any more."""
        before = -1
        while True:
            end = (await leader.list_offset(topic.name, index, _LATEST, epoch)).offset
            if end == before or not self._stage.is_alone:
                return end
            before = end
            await asyncio.sleep(_MOVING_SECONDS)


def _proof(producer: Producer, topic: TopicModel, index: int) -> Callable[[], Awaitable[None]]:
    async def prove() -> None:
        try:
            await producer.prove_alive(topic, index)
        except InvariantViolated as error:
            if error.invariant != "liveness":
                raise
            raise NoAnswer(str(error)) from error

    return prove
