"""Simulated consumers. On a broker alone one follows a partition, and one looks up random offsets and timestamps:
a response may not say less than the one before. In a cluster one follows partitions over all leaders.
"""

from __future__ import annotations

from penstock.errors import BrokerError, ErrorCode
from penstock.wire.fetch import FetchResult
from simulation.clients.client import NoAnswer, SimulatedClient
from simulation.clients.fetched_records import read_records
from simulation.models.history import DamagedBatch, InvariantViolated, ReadRange, ReadRecord
from simulation.models.topic_model import TopicModel, TopicState
from simulation.scenarios.stage import Stage

EARLIEST, _LATEST = -2, -1
_MAX_BYTES = (1, 200, 2_000, 100_000)
_MAX_BYTES_FROM_LEADERS = (1, 2_000, 100_000, 100_000)


class Reader:
    def __init__(self, stage: Stage, name: str) -> None:
        self.name = name
        self._stage = stage
        self._random = stage.world.random(name)
        self._routing = stage.routing(name)
        self._client = self._routing.first

    async def fetch(self, topic: TopicModel, partition: int, offset: int) -> ReadRange | None:
        """Fetch from a broker alone and check the result with the model; None where the broker refused."""
        await self._client.connect()
        if topic.state is not TopicState.ALIVE:
            return None
        model = topic.partitions[partition]
        view = model.view()
        max_bytes, max_wait_ms = self._random.choice(_MAX_BYTES), self._random.choice((0, 0, 50, 500))
        if self._stage.is_at_rest:
            max_bytes, max_wait_ms = _MAX_BYTES[-1], 0
        try:
            result = await self._client.fetch(
                topic.name, partition, offset, max_bytes=max_bytes, max_wait_ms=max_wait_ms
            )
        except BrokerError as error:
            self._stage.note(self.name, "fetch", model.name, offset, error.code.name)
            if error.code is ErrorCode.offset_out_of_range and model.must_serve(view, offset):
                raise InvariantViolated("I5", f"{model.name}: {offset} is out of range") from error
            return None
        self._stage.note(self.name, "fetch", model.name, offset, len(result.records), result.high_watermark)
        log_start = result.log_start_offset if result.log_start_offset >= 0 else model.log_start
        model.check_ends(view, log_start, result.high_watermark)
        read = read_records(model.name, result, offset, compacted=model.compacted)
        if read.end == offset and model.must_serve(view, offset):
            raise InvariantViolated("I5", f"{model.name}: nothing at {offset}, below {view.visible_end}")
        topic.on_read(partition, read)
        return read

    def decode(
        self, topic: TopicModel, partition: int, offset: int, result: FetchResult, *, was_damaged: bool
    ) -> ReadRange | None:
        """Return the records that a broker of a cluster sent; None where they are damaged at present.

        `was_damaged` says so of the moment of the request: damage may be repaired while the response is on
        its way.
        """
        try:
            name = topic.partitions[partition].name
            return read_records(name, result, offset, compacted=topic.is_compacted)
        except DamagedBatch:
            if not was_damaged and not self._stage.is_damaged(topic.name, partition):
                raise
            return None


class PartitionFollower(Reader):
    """A consumer that follows one partition from its start to its end and on."""

    def __init__(self, stage: Stage, number: int) -> None:
        super().__init__(stage, f"follower-{number}")
        self._following: tuple[TopicModel, int] | None = None
        self._position = 0

    async def step(self) -> None:
        if self._following is None or self._random.random() < 0.05:
            self._following = self._stage.choose_partition(self._random)
            self._position = 0
        if self._following is None:
            return
        topic, partition = self._following
        read = await self.fetch(topic, partition, self._position)
        if read is not None:
            self._position = read.end
        else:
            await self._reset(topic, partition)

    async def _reset(self, topic: TopicModel, partition: int) -> None:
        """Go to the log start, or choose another partition where the topic is gone."""
        if topic.state is TopicState.ALIVE:
            try:
                found = await self._client.list_offset(topic.name, partition, EARLIEST)
            except BrokerError:
                self._following = None
            else:
                self._position = max(found.offset, 0)
        else:
            self._following = None


class Browser(Reader):
    """A consumer that looks up random offsets, timestamps and ends."""

    def __init__(self, stage: Stage, number: int) -> None:
        super().__init__(stage, f"browser-{number}")

    async def step(self) -> None:
        chosen = self._stage.choose_partition(self._random)
        if chosen is None:
            return
        topic, partition = chosen
        if self._random.random() < 0.6:
            model = topic.partitions[partition]
            await self.fetch(topic, partition, self._random.randint(model.log_start, model.known_end))
        else:
            await self._look_up(topic, partition)

    async def _look_up(self, topic: TopicModel, partition: int) -> None:
        await self._client.connect()
        if topic.state is not TopicState.ALIVE:
            return
        model = topic.partitions[partition]
        view = model.view()
        wanted = self._random.choice((EARLIEST, _LATEST, 0, 0, 0))
        timestamp = wanted or self._stage.now_ms() - self._random.randrange(12_000)
        try:
            found = await self._client.list_offset(topic.name, partition, timestamp)
        except BrokerError as error:
            self._stage.note(self.name, "look up", model.name, timestamp, error.code.name)
            return
        self._stage.note(self.name, "look up", model.name, timestamp, found.offset)
        if timestamp == EARLIEST:
            model.on_log_start(view, found.offset)
        elif timestamp == _LATEST:
            model.check_ends(view, view.log_start, found.offset)
        else:
            record = ReadRecord(found.offset, found.timestamp, b"", b"") if found.offset >= 0 else None
            model.check_time_lookup(view, timestamp, record)


class LeaderFollower(Reader):
    """A consumer that follows partitions record by record over all leaders, and never goes back.

    It names the leader epoch that it knows: a replaced leader may lack records that the consumer has seen,
    and has to refuse the request.
    """

    def __init__(self, stage: Stage, number: int, name: str = "") -> None:
        super().__init__(stage, name or f"reader-{number}")
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
        log_start = (await leader.list_offset(topic.name, partition, EARLIEST, epoch)).offset
        self._positions[topic, partition] = max(position, log_start)

    async def _read(self, leader: SimulatedClient, epoch: int, topic: TopicModel, partition: int) -> None:
        model = topic.partitions[partition]
        position = self._positions.get((topic, partition), 0)
        was_damaged = self._stage.is_damaged(topic.name, partition)
        result = await leader.fetch(
            topic.name,
            partition,
            position,
            max_bytes=self._random.choice(_MAX_BYTES_FROM_LEADERS),
            max_wait_ms=self._random.choice((0, 100)),
            leader_epoch=epoch,
        )
        read = self.decode(topic, partition, position, result, was_damaged=was_damaged)
        if read is None:
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
