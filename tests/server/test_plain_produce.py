"""The short path of Produce beside the general one: the same requests to two brokers, one without the short path."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any
from uuid import UUID

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from penstock.cluster.memory import MemoryEnsemble
from penstock.config import BrokerConfig
from penstock.errors import ProtocolError
from penstock.model import TopicId
from penstock.net.network import TcpNetwork
from penstock.net.response import PendingResponse
from penstock.observability.logs import Logger
from penstock.records.batch import read_header, write_crc, write_header
from penstock.records.building import NewRecord, build_batch
from penstock.records.compression import Codec
from penstock.server.broker import Broker
from penstock.server.environment import Environment
from penstock.server.produce_routes import MAX_ROUTES, ProduceRoutes
from penstock.server.security import Operation, ResourceType
from penstock.storage.disk import RealDisk
from penstock.threads import ThreadPools
from penstock.wire.framing import SIZE_PREFIX
from penstock.wire.produce import ProducePartition, ProduceRequest, ProduceTopic
from penstock.wire.produce_client import encode_produce_request
from support.harness import Harness, new_topic
from support.manual_clock import START_MS, ManualClock

TOPICS: dict[str, dict[str, str]] = {
    "plain": {},
    "stamped": {"message.timestamp.type": "LogAppendTime"},
    "compacted": {"cleanup.policy": "compact"},
    "small": {"max.message.bytes": "120"},
    "guarded": {"min.insync.replicas": "2"},
    "denied": {},
    "x" * 150: {},
}
LONG = "x" * 150
TIMEOUT_MS = 600_000


@dataclass
class Served:
    """A broker with the topics of every example."""

    harness: Harness
    broker: Broker
    ids: dict[str, TopicId] = field(default_factory=dict)

    async def create(self, suffix: str) -> None:
        topics = [new_topic(name + suffix, 1, configs=configs) for name, configs in TOPICS.items()]
        fields = {"topics": topics, "timeout": 60_000, "validate_only": False}
        for made in (await self.harness.ask(19, 7, fields)).topics:
            assert made.error_code == 0, made.error_message
            self.ids[made.name] = TopicId(made.topic_id)

    async def send(self, frames: list[bytes]) -> list[Any]:
        answers = [await self._dispatch(frame) for frame in frames]
        return [await self._outcome(answer) for answer in answers]

    async def _dispatch(self, frame: bytes) -> Any:
        """Response to a frame; the next one waits while this one is a barrier, as on a connection."""
        try:
            answer = self.broker._dispatcher.dispatch(self.harness.session, memoryview(bytearray(frame)))
        except ProtocolError as error:
            return error
        while isinstance(answer, PendingResponse) and answer.barrier:
            await asyncio.sleep(0)
        return answer

    async def _outcome(self, answer: Any) -> Any:
        if isinstance(answer, PendingResponse):
            while not answer.is_done:
                await asyncio.sleep(0)
            answer = answer.error or answer.parts
        if isinstance(answer, Exception):
            return type(answer), str(answer)
        response = b"".join(answer or ())
        for topic_id in self.ids.values():
            response = response.replace(topic_id.bytes, bytes(16))
        return response

    async def settle(self, suffix: str) -> None:
        """Wait for flushes that no response has waited for."""
        for name in TOPICS:
            await self.harness.context.replicas.get(name + suffix, 0).flushed()

    def state(self, suffix: str) -> list[Any]:
        """All that requests may have changed."""
        context = self.harness.context
        counted = context.metrics.produce_errors, sum(context.metrics.requests[0].counts)
        refused = [
            (run.epoch, run.first, run.next, run.code) for run in context.replicas.refused.runs.values()
        ]
        return [*counted, refused, *(self._log_state(name + suffix) for name in TOPICS)]

    def _log_state(self, topic: str) -> Any:
        log = self.harness.context.replicas.get(topic, 0).log
        content = [segment.file.pread(0, segment.size) for segment in log.segments]
        entries = log.producers.copy()
        return log.log_end_offset, log.high_watermark, content, entries, list(entries)


class Pair:
    """The broker with the short path and the broker without it, in one loop."""

    def __init__(self, directory: Path, durability: str) -> None:
        self.runner = asyncio.Runner()
        self.examples = 0
        self.short, self.general = (
            self.runner.run(_start(directory / str(number), durability, serves_plain=number == 0))
            for number in range(2)
        )

    def compare(self, steps: list[Step]) -> None:
        self.examples += 1
        self.runner.run(self._compare(steps, f"-{self.examples}"))

    async def _compare(self, steps: list[Step], suffix: str) -> None:
        outcomes = []
        for served in self.short, self.general:
            await served.create(suffix)
            served.harness.deny((Operation.WRITE, ResourceType.TOPIC, "denied" + suffix))
            outcomes.append(await served.send([step.frame(served.ids, suffix) for step in steps]))
            await served.settle(suffix)
        assert outcomes[0] == outcomes[1]
        assert self.short.state(suffix) == self.general.state(suffix)

    def close(self) -> None:
        for served in self.short, self.general:
            self.runner.run(served.broker.stop())
        self.runner.close()


async def _start(directory: Path, durability: str, *, serves_plain: bool) -> Served:
    directory.mkdir()
    network, store = TcpNetwork(), MemoryEnsemble().client()
    environment = Environment(
        ManualClock(),
        Random(1),
        RealDisk(str(directory)),
        network,
        ThreadPools(),
        store,
        serves_plain=serves_plain,
    )
    settings = {"port": "0", "http.port": "-1", "log.dir": str(directory), "durability": durability}
    logger = Logger(ManualClock(), lambda line: None, lambda now, level, text, fields: text)
    broker = Broker(BrokerConfig(settings), environment, logger)
    await broker.start()
    return Served(Harness(broker), broker)


@pytest.fixture(scope="module", params=["os", "auto"])
def pair(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    pair = Pair(tmp_path_factory.mktemp("pair"), request.param)
    yield pair
    pair.close()


@dataclass(frozen=True)
class Step:
    """One Produce request, valid or not."""

    topic: str
    version: int
    acks: int
    batch: bytes | None
    partition: int = 0
    transactional_id: str | None = None
    repeats: int = 1
    client_id: str | None = "client"
    damage: tuple[int, int] | None = None
    """A position in the frame and the byte that is put there."""
    tail: bytes | None = None
    """Bytes behind the frame; None cuts one byte off."""

    def frame(self, ids: dict[str, TopicId], suffix: str) -> bytes:
        name = self.topic + suffix
        topic_id = ids.get(name, TopicId(UUID(int=9)))
        records = None if self.batch is None else memoryview(self.batch)
        partitions = [ProducePartition(self.partition, records)] * self.repeats
        has_ids = self.version >= 13
        topic = ProduceTopic(None if has_ids else name, topic_id if has_ids else None, partitions)
        request = ProduceRequest(self.transactional_id, self.acks, TIMEOUT_MS, [topic])
        frame = bytearray(encode_produce_request(7, self.version, self.client_id, request)[SIZE_PREFIX:])
        if self.damage is not None:
            timeout_at = frame.index(struct.pack(">hi", self.acks, TIMEOUT_MS)) + 2
            frame[self.damage[0] % len(frame)] = self.damage[1]
            # Responses would depend on the speed of the disk if the timeout became short.
            struct.pack_into(">i", frame, timeout_at, TIMEOUT_MS)
        return bytes(frame[:-1] if self.tail is None else frame + self.tail)


def batches() -> st.SearchStrategy[bytes]:
    """Batches that a client may send, with and without a producer; keys, because a topic is compacted."""
    producer = st.tuples(st.sampled_from([5, 6]), st.integers(0, 1), st.integers(0, 3))

    def build(count: int, codec: Codec, producer: tuple[int, int, int]) -> bytes:
        return bytes(
            build_batch(
                [NewRecord(b"k", b"v", START_MS)] * count,
                codec=codec,
                producer_id=producer[0],
                producer_epoch=producer[1],
                base_sequence=producer[2],
            )
        )

    codecs = st.sampled_from([Codec.NONE, Codec.NONE, Codec.GZIP, Codec.ZSTD])
    return st.builds(build, st.integers(1, 3), codecs, st.just((-1, -1, -1)) | producer)


def hostile_batches() -> st.SearchStrategy[bytes | None]:
    """Batches with a changed header and a matching CRC, with any changed byte, and of any length."""
    changes = st.fixed_dictionaries(
        {},
        optional={
            "base_offset": st.integers(-1, 1),
            "magic": st.integers(0, 3),
            "attributes": st.integers(0, 127),
            "last_offset_delta": st.integers(-1, 3),
            "record_count": st.integers(-1, 1000),
            "max_timestamp": st.sampled_from([-1, 0, START_MS * 2]),
            "base_timestamp": st.sampled_from([-1, 0, START_MS * 2]),
            "producer_id": st.integers(-2, 6),
            "producer_epoch": st.integers(-1, 2),
            "base_sequence": st.integers(-2, 5),
            "batch_length": st.integers(0, 200),
        },
    )

    def change(batch: bytes, fields: dict[str, int]) -> bytes:
        changed = bytearray(batch)
        write_header(changed, read_header(changed)._replace(**fields))
        write_crc(memoryview(changed))
        return bytes(changed)

    def flip(batch: bytes, position: int, value: int) -> bytes:
        changed = bytearray(batch)
        changed[position % len(changed)] = value
        return bytes(changed)

    return st.one_of(
        st.none(),
        st.builds(change, batches(), changes),
        st.builds(flip, batches(), st.integers(0, 200), st.integers(0, 255)),
        st.builds(lambda batch, end: batch[:end], batches(), st.integers(0, 70)),
        st.builds(lambda one, other: one + other, batches(), batches()),
    )


usual_steps = st.builds(
    Step,
    topic=st.sampled_from(["plain", "plain", "stamped", "compacted", "guarded", LONG]),
    version=st.sampled_from([3, 5, 8, 9, 10, 12, 13]),
    acks=st.sampled_from([-1, -1, 1, 0]),
    batch=batches(),
    tail=st.just(b""),
)
odd_steps = st.builds(
    Step,
    topic=st.sampled_from([*TOPICS, "missing", "__consumer_offsets"]),
    version=st.integers(0, 13),
    acks=st.sampled_from([-1, 1, 0, 2]),
    batch=batches() | hostile_batches(),
    partition=st.sampled_from([0, 0, 0, 1, -1]),
    transactional_id=st.sampled_from([None, None, None, "", "t"]),
    repeats=st.sampled_from([1, 1, 1, 2, 0]),
    client_id=st.sampled_from(["client", None, "", "ä" * 40]),
    damage=st.none() | st.tuples(st.integers(0, 80), st.integers(0, 255)),
    tail=st.sampled_from([b"", b"", b"", b"\x00", b"more", None]),
)


@settings(
    max_examples=40,
    deadline=None,
    phases=[
        Phase.explicit,
        Phase.reuse,
        Phase.generate,
    ],  # an example takes long: shrinking would take minutes
    suppress_health_check=list(HealthCheck),
)
@given(steps=st.lists(usual_steps | usual_steps | odd_steps, max_size=25))
def test_both_paths_respond_alike_and_leave_the_same_state(pair: Pair, steps: list[Step]) -> None:
    pair.compare(steps)


@pytest.mark.parametrize("version", range(3, 14))
@pytest.mark.parametrize("acks", [-1, 1, 0])
def test_second_request_takes_the_short_path(
    pair: Pair, monkeypatch: pytest.MonkeyPatch, version: int, acks: int
) -> None:
    found = []
    find = ProduceRoutes.find

    def counted(self: ProduceRoutes, *arguments: Any) -> Any:
        found.append(find(self, *arguments) is not None)
        return find(self, *arguments)

    monkeypatch.setattr(ProduceRoutes, "find", counted)
    batch = bytes(build_batch([NewRecord(b"k", b"v", START_MS)]))
    pair.compare([Step("plain", version, acks, batch, tail=b"")] * 3)
    assert found == [False, True, True]


@pytest.mark.parametrize("version", range(3, 14))
def test_every_changed_byte_of_a_known_request_is_noticed(pair: Pair, version: int) -> None:
    """A request that differs from a known one in one byte before its records gets the response of the general path."""
    batch = bytes(build_batch([NewRecord(b"k", b"v", START_MS)]))
    good = Step("plain", version, -1, batch, tail=b"")
    size = len(good.frame({}, "-1")) - len(batch)
    changed = [
        Step("plain", version, -1, batch, damage=(at, value), tail=b"")
        for at in range(size)
        for value in (0, 255)
    ]
    pair.compare([good, good, *(step for each in changed for step in (each, good))])


def test_number_of_known_produce_routes_is_bounded(pair: Pair) -> None:
    routes = ProduceRoutes()
    batch = memoryview(build_batch([NewRecord(b"k", b"v", START_MS)]))
    for timeout_ms in range(MAX_ROUTES + 1):
        request = ProduceRequest(
            None, -1, timeout_ms, [ProduceTopic("t", None, [ProducePartition(0, batch)])]
        )
        frame = memoryview(encode_produce_request(1, 7, None, request))[SIZE_PREFIX:]
        routes.remember(frame, 10, 7, request)
        assert routes.find(frame, 10, 7) is not None
    assert sum(map(len, routes._by_version)) == 1


def test_a_topic_that_becomes_compacted_leaves_the_short_path(pair: Pair) -> None:
    """Records of a compacted topic are checked in a pool, so their batches are held on the general path."""
    batch = bytes(build_batch([NewRecord(None, b"v", START_MS)]))
    steps = [Step("plain", 7, -1, batch, tail=b"")] * 2

    async def scenario() -> None:
        await pair.short.create("-late")
        frames = [step.frame(pair.short.ids, "-late") for step in steps]
        await pair.short.send(frames)
        replica = pair.short.harness.context.replicas.get("plain-late", 0)
        replica._admission._held.checks_records = True
        await pair.short.send(frames[:1])
        assert replica.log.log_end_offset == 3
        assert not any(
            b"plain-late" in key for key in pair.short.harness.context.produce_routes._by_version[7]
        )

    pair.runner.run(scenario())
