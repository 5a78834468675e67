"""Simulated consumers of a broker alone: one follows a partition, one looks up random offsets and timestamps."""

from __future__ import annotations

from penstock.errors import BrokerError, ErrorCode
from penstock.simulation.clients.fetched_records import read_records
from penstock.simulation.models.history import InvariantViolated, ReadRange, ReadRecord
from penstock.simulation.models.topic_model import TopicModel, TopicState
from penstock.simulation.scenarios.stage import Stage

EARLIEST, _LATEST = -2, -1
_MAX_BYTES = (1, 200, 2_000, 100_000)


class Reader:
    def __init__(self, stage: Stage, name: str) -> None:
        self.name = name
        self._stage = stage
        self._random = stage.world.random(name)
        self._client = stage.client(name)

    async def fetch(self, topic: TopicModel, partition: int, offset: int) -> ReadRange | None:
        """Fetch from an offset and check the result with the model; None where the broker refused."""
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


class FollowerActor(Reader):
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


class BrowserActor(Reader):
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
