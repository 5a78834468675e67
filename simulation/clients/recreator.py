"""A client that deletes a topic and creates another one under the same name, and is the only user of both.

Nothing of an earlier topic may show in a later one: no record, no committed offset and no producer
sequence, although brokers that were down for the deletion come back with the old replicas. Each topic has
a model of its own. Records are written and read by topic id, because a broker that does not know of a
deletion may still serve the old topic. A change with an unknown outcome may happen late, so its name is
not used any more.
"""

from __future__ import annotations

from uuid import UUID

from penstock.errors import BrokerError, ErrorCode
from penstock.records.building import NewRecord, build_batch
from penstock.records.log_slice import LogSlice
from simulation.clients.client import NoAnswer, SimulatedClient
from simulation.clients.fetched_records import read_records
from simulation.groups.group_client import Commit, GroupClient, Identity
from simulation.models.history import FILLING, InvariantViolated, Write
from simulation.models.topic_model import TopicModel, TopicState
from simulation.scenarios.stage import Stage

_PARTITION = 0
_REPLICAS = 3
_MAX_BYTES = 100_000
_ATTEMPTS = 4
_GROUP = "recreator"
_WRONG_SEQUENCE = frozenset({ErrorCode.out_of_order_sequence_number, ErrorCode.duplicate_sequence_number})
"""Errors that no batch may get: with one batch in flight no sequence is wrong, whatever an earlier topic has."""
_HEARSAY_SECONDS = 3.0
"""Seconds within which a coordinator knows of a deletion, unless it cannot reach the store."""


class Recreator:
    def __init__(self, stage: Stage) -> None:
        self.name = "recreator"
        self._stage = stage
        self._random = stage.world.random(self.name)
        self._routing = stage.routing(self.name)
        self._names = 0
        self._topic: TopicModel | None = None
        self._old_ids: list[UUID] = []
        """The ids of the deleted topics with this name."""
        self._must_rename = False
        self._producer: tuple[int, int] | None = None
        self._sequence = self._sent = self._position = self._incarnation = 0
        self._created_at = 0.0

    async def step(self) -> None:
        if self._topic is None or self._topic.state is not TopicState.ALIVE:
            await self._create()
            return
        if self._topic.id is None:
            await self._find_id(self._topic)
            return
        acts = (
            self._produce,
            self._read,
            self._commit,
            self._look_up,
            self._ask_for_the_old_one,
            self._delete,
        )
        [act] = self._random.choices(acts, weights=(6, 4, 1, 1, 1, 2))
        await act(self._topic)

    def register(self) -> None:
        """Hand the topic over to the auditor of the cluster."""
        if self._topic is not None:
            self._stage.topics[self._topic.name] = self._topic

    # --- topics

    async def _create(self) -> None:
        broker = await self._routing.any_broker()
        topic = self._topic
        if topic is None or topic.state is TopicState.DELETED or self._must_rename:
            if topic is not None and topic.state is not TopicState.DELETED:
                self._stage.topics[topic.name] = topic  # the audit finds out whether the topic exists
            if topic is None or self._must_rename:
                self._names, self._incarnation, self._old_ids = self._names + 1, 0, []
            self._incarnation += 1
            self._must_rename, self._sequence, self._position = False, 0, 0
            configs = {"min.insync.replicas": str(self._random.choice((1, 2)))}
            topic = TopicModel(f"reborn-{self._names}", self._incarnation, 1, configs, _REPLICAS)
            self._topic = topic
        try:
            await broker.create_topic(topic.name, 1, topic.configs, topic.replicas)
        except NoAnswer:
            self._must_rename = True
            raise
        self._routing.forget(topic.name, _PARTITION)
        topic.state, self._created_at = TopicState.ALIVE, self._stage.world.loop.time()
        self._note("create", topic)

    async def _find_id(self, topic: TopicModel) -> None:
        """Look up the topic id; a broker that does not know of the deletion may name an earlier topic."""
        found = (await (await self._routing.any_broker()).topic_ids()).get(topic.name)
        topic.id = None if found in self._old_ids else found

    async def _delete(self, topic: TopicModel) -> None:
        if self._must_rename:
            self._stage.topics[topic.name] = topic
            self._topic = None
            return
        broker = await self._routing.any_broker()
        topic.state, self._must_rename = TopicState.DELETING, True
        await broker.delete_topic(topic.name)
        topic.state, self._must_rename = TopicState.DELETED, False
        if topic.id is not None:
            self._old_ids.append(topic.id)
        self._note("delete", topic)

    # --- records

    async def _produce(self, topic: TopicModel) -> None:
        """Send one batch until it is acknowledged; sequences begin at 0 in every topic."""
        leader = await self._leader(topic)
        if self._producer is None:
            self._producer = await leader.init_producer_id()
        self._sent += 1
        value = f"{topic.name}#{topic.incarnation}-0 {self.name} {self._sent}".encode() + FILLING
        now_ms = self._stage.now_ms()
        write = Write((value,), (b"key",), (now_ms,), self.name, self._sent, -1, topic.weak_changes)
        content = build_batch(
            [NewRecord(b"key", value, now_ms)],
            producer_id=self._producer[0],
            producer_epoch=self._producer[1],
            base_sequence=self._sequence,
        )
        topic.partitions[_PARTITION].on_send(write)
        for _ in range(_ATTEMPTS):
            try:
                sent = (await self._leader(topic)).produce(
                    topic.name, _PARTITION, bytes(content), -1, zstd=False, topic_id=topic.id
                )
            except NoAnswer:
                continue
            try:
                result = await sent.result()
            except NoAnswer:
                self._routing.forget(topic.name, _PARTITION)
            except BrokerError as error:
                self._note("produce", topic, error.code.name)
                self._routing.forget(topic.name, _PARTITION)
                if error.code in _WRONG_SEQUENCE:
                    raise InvariantViolated("sequence", f"{write} got {error.code.name}") from error
            else:
                assert result is not None
                self._note("produce", topic, self._sequence, result.base_offset)
                topic.on_ack(_PARTITION, write, result.base_offset)
                self._sequence += 1
                return
        topic.partitions[_PARTITION].on_unknown(write)
        self._producer = None

    async def _read(self, topic: TopicModel) -> None:
        leader, epoch = await self._routing.leader(topic.name, _PARTITION)
        model = topic.partitions[_PARTITION]
        try:
            result = await leader.fetch(
                topic.name,
                _PARTITION,
                self._position,
                max_bytes=_MAX_BYTES,
                max_wait_ms=0,
                leader_epoch=epoch,
                topic_id=topic.id,
            )
        except (BrokerError, NoAnswer):
            self._routing.forget(topic.name, _PARTITION)
            raise
        read = read_records(model.name, result, self._position, compacted=False)
        self._note("read", topic, read.start, read.end)
        topic.on_read(_PARTITION, read)
        self._position = read.end

    async def _ask_for_the_old_one(self, topic: TopicModel) -> None:
        """Check that a fetch with the id of the deleted topic returns nothing of the new one."""
        if not self._old_ids:
            return
        old_id = self._old_ids[-1]
        leader, _ = await self._routing.leader(topic.name, _PARTITION)
        try:
            result = await leader.fetch(
                topic.name, _PARTITION, 0, max_bytes=_MAX_BYTES, max_wait_ms=0, topic_id=old_id
            )
        except BrokerError as error:
            self._note("old id", topic, error.code.name)
            return
        assert not isinstance(result.records, LogSlice)
        if f"{topic.name}#{topic.incarnation}-".encode() in bytes(result.records):
            raise InvariantViolated("I14", f"{topic.name}: records of {topic.id} are shown for {old_id}")

    # --- offsets

    async def _commit(self, topic: TopicModel) -> None:
        if topic.id is not None:
            _, client = await self._coordinator()
            self._must_rename, before = True, self._must_rename
            commit = Commit(topic.name, topic.id, _PARTITION, self._position, str(topic.incarnation))
            [code] = await GroupClient(client).commit(Identity(_GROUP), [commit])
            self._must_rename = before
            self._note("commit", topic, self._position, code.name)
            if code is not ErrorCode.none:
                self._routing.mistrust_coordinator(_GROUP)

    async def _look_up(self, topic: TopicModel) -> None:
        """Check that offsets committed for an earlier topic are gone, once the coordinator knows of the
        deletion.
        """
        if topic.id is None:
            return
        node_id, client = await self._coordinator()
        leads = self._stage.coordinates(node_id, _GROUP)
        since = self._stage.world.loop.time() - self._created_at
        try:
            shown = await GroupClient(client).fetch_offset(_GROUP, topic.name, topic.id, _PARTITION)
        except BrokerError:
            self._routing.mistrust_coordinator(_GROUP)
            raise
        self._note("offset", topic, shown)
        is_certain = leads and self._stage.coordinates(node_id, _GROUP) and since > _HEARSAY_SECONDS
        if (
            self._stage.is_strict
            and is_certain
            and shown is not None
            and shown.metadata != str(topic.incarnation)
        ):
            raise InvariantViolated("I12", f"{topic.name}: {shown} was committed for a deleted topic")

    async def _coordinator(self) -> tuple[int, SimulatedClient]:
        return await self._routing.coordinator(_GROUP)

    async def _leader(self, topic: TopicModel) -> SimulatedClient:
        leader, _ = await self._routing.leader(topic.name, _PARTITION)
        return leader

    def _note(self, what: str, topic: TopicModel, *details: object) -> None:
        self._stage.note(self.name, what, topic.partitions[_PARTITION].name, *details)
