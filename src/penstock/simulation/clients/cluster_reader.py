"""A simulated consumer of a cluster: it follows partitions record by record over all leaders, and never goes
back.

It names the leader epoch that it knows: a replaced leader may lack records that the consumer has seen, and
has to refuse the request.
"""

from __future__ import annotations

from penstock.errors import BrokerError, ErrorCode
from penstock.simulation.clients.client import NoAnswer, SimulatedClient
from penstock.simulation.clients.fetched_records import read_records
from penstock.simulation.models.history import DamagedBatch, InvariantViolated
from penstock.simulation.models.topic_model import TopicModel, TopicState
from penstock.simulation.scenarios.cluster_stage import ClusterStage

_EARLIEST, _LATEST = -2, -1
_MAX_BYTES = (1, 2_000, 100_000, 100_000)


class ClusterReader:
    def __init__(self, stage: ClusterStage, number: int, name: str = "") -> None:
        self.name = name or f"reader-{number}"
        self._stage = stage
        self._random = stage.world.random(self.name)
        self._routing = stage.routing(self.name)
        self._positions: dict[tuple[TopicModel, int], int] = {}

    async def step(self) -> None:
        chosen = self._stage.choose_partition(self._random)
        if chosen is None:
            return
        topic, partition = chosen
        try:
            leader, epoch = await self._routing.leader(topic.name, partition)
            if topic.state is not TopicState.ALIVE:
                return
            kind = self._random.random()
            if kind < 0.05 and epoch > 0:
                await self._ask_with_an_old_epoch(leader, epoch, topic, partition)
            elif kind < 0.2:
                await self._look_up_end(leader, epoch, topic, partition)
            else:
                await self._read(leader, epoch, topic, partition)
        except (BrokerError, NoAnswer) as error:
            self._routing.mistrust(topic.name, partition)
            self._stage.note(self.name, "refused", topic.partitions[partition].name, str(error))
            if isinstance(error, BrokerError) and error.code is ErrorCode.offset_out_of_range:
                await self._on_out_of_range(topic, partition)

    async def _on_out_of_range(self, topic: TopicModel, partition: int) -> None:
        """Continue at the log start, if retention removed the next record; nothing else may remove it."""
        position = self._positions.get((topic, partition), 0)
        model = topic.partitions[partition]
        if topic.state is not TopicState.ALIVE:
            return
        if not model.may_expire:
            raise InvariantViolated("I5", f"{model.name}: {position} is out of range")
        leader, epoch = await self._routing.leader(topic.name, partition)
        log_start = (await leader.list_offset(topic.name, partition, _EARLIEST, epoch)).offset
        self._positions[topic, partition] = max(position, log_start)

    async def _read(self, leader: SimulatedClient, epoch: int, topic: TopicModel, partition: int) -> None:
        model = topic.partitions[partition]
        position = self._positions.get((topic, partition), 0)
        was_damaged = self._stage.is_damaged(topic.name, partition)
        result = await leader.fetch(
            topic.name,
            partition,
            position,
            max_bytes=self._random.choice(_MAX_BYTES),
            max_wait_ms=self._random.choice((0, 100)),
            leader_epoch=epoch,
        )
        try:
            read = read_records(model.name, result, position, compacted=topic.is_compacted)
        except DamagedBatch:
            # The damage may be repaired while the response is on its way.
            if not was_damaged and not self._stage.is_damaged(topic.name, partition):
                raise
            self._stage.note(self.name, "damaged", model.name, position)
            return
        self._stage.note(self.name, "read", model.name, position, read.end, result.high_watermark)
        topic.on_read(partition, read)
        self._positions[topic, partition] = read.end

    async def _look_up_end(
        self, leader: SimulatedClient, epoch: int, topic: TopicModel, partition: int
    ) -> None:
        name = topic.partitions[partition].name
        position = self._positions.get((topic, partition), 0)
        end = (await leader.list_offset(topic.name, partition, _LATEST, epoch)).offset
        self._stage.note(self.name, "end", name, end)
        if end < position:
            raise InvariantViolated("I5", f"{name}: ends at {end}, {position - 1} was read before")

    async def _ask_with_an_old_epoch(
        self, leader: SimulatedClient, epoch: int, topic: TopicModel, partition: int
    ) -> None:
        """Ask with the epoch before the known one; only a leader that is still in that epoch may respond."""
        begun = self._stage.leader_epoch(topic.name, partition)
        await leader.list_offset(topic.name, partition, _LATEST, epoch - 1)
        if begun == epoch == self._stage.leader_epoch(topic.name, partition):
            name = topic.partitions[partition].name
            raise InvariantViolated("I10", f"{name}: answered in epoch {epoch - 1}, its leader is in {epoch}")
