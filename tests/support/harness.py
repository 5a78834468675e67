"""A broker in the test's own process, called through its dispatcher: real frames, no sockets."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from random import Random
from typing import Any

from penstock.clock import Clock, SystemClock
from penstock.cluster.memory import MemoryEnsemble
from penstock.config import BrokerConfig
from penstock.net.network import TcpNetwork
from penstock.net.response import Parts, PendingResponse
from penstock.observability.logs import Logger
from penstock.records.batch import read_header
from penstock.records.building import NewRecord, build_batch
from penstock.records.compression import Codec
from penstock.records.log_slice import LogSlice
from penstock.server.broker import Broker
from penstock.server.context import BrokerContext
from penstock.server.dispatch import Session
from penstock.server.environment import Environment
from penstock.server.security import ANONYMOUS, Authorizer, Operation, Principal, ResourceType
from penstock.storage.disk import RealDisk
from penstock.threads import ThreadPools
from penstock.wire.framing import SIZE_PREFIX
from penstock.wire.messages import decode_response_frame, encode_request_frame

Fields = Mapping[str, Any]
Right = tuple[Operation, ResourceType, str]


def content_of(parts: Parts) -> bytes:
    """The bytes that a connection would send."""
    return b"".join(part.read() if isinstance(part, LogSlice) else bytes(part) for part in parts)


class Denying(Authorizer):
    """Authorizer that allows everything but the listed rights."""

    def __init__(self, *denied: tuple[Operation, ResourceType, str]) -> None:
        self.denied = set(denied)

    def authorize(
        self, principal: Principal, host: str, operation: Operation, kind: ResourceType, name: str
    ) -> bool:
        return (operation, kind, name) not in self.denied


class DenyAll(Authorizer):
    def authorize(
        self, principal: Principal, host: str, operation: Operation, kind: ResourceType, name: str
    ) -> bool:
        return False


class Harness:
    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self.session = Session("test:1", "test", ANONYMOUS)

    @property
    def context(self) -> BrokerContext:
        return self._broker._context

    def deny(self, *rights: Right) -> None:
        self.context.authorizer = Denying(*rights)

    def deny_all(self) -> None:
        self.context.authorizer = DenyAll()

    async def ask(self, api_key: int, version: int, fields: Fields, *, client_id: str | None = "test") -> Any:
        """Send a request and decode the response. A closed connection is an AssertionError."""
        frame = bytearray(encode_request_frame(api_key, version, 7, client_id, fields))
        answer = self._broker._dispatcher.dispatch(self.session, memoryview(frame)[SIZE_PREFIX:])
        if isinstance(answer, PendingResponse):
            done = asyncio.Event()
            answer.when_done(done.set)
            await done.wait()
            assert answer.error is None, answer.error
            answer = answer.parts
        assert answer is not None
        return decode_response_frame(api_key, version, memoryview(content_of(answer))[SIZE_PREFIX:])

    async def create(self, name: str, partitions: int = 1, **configs: str) -> Any:
        topic = new_topic(
            name, partitions, configs={key.replace("_", "."): value for key, value in configs.items()}
        )
        response = await self.ask(19, 7, {"topics": [topic], "timeout": 5_000, "validate_only": False})
        assert response.topics[0].error_code == 0, response.topics[0].error_message
        return response.topics[0]

    async def append(self, topic: str, *values: bytes, partition: int = 0, timestamp: int = 1_000) -> int:
        """Append one batch, wait until it is committed, and return its first offset."""
        records = [NewRecord(b"k", value, timestamp + place) for place, value in enumerate(values)]
        return await self.append_records(topic, records, partition)

    async def append_records(
        self, topic: str, records: list[NewRecord], partition: int = 0, codec: Codec = Codec.NONE
    ) -> int:
        """Append records as one batch, wait until it is committed, and return its first offset."""
        batch = memoryview(build_batch(records, codec=codec))
        replica = self.context.replicas.get(topic, partition)
        info = replica.append_as_leader(batch, read_header(batch), self.context.clock.now_ms())
        committed = asyncio.Event()
        if not replica.when_committed(info, lambda _: committed.set()):
            await committed.wait()
        return info.base_offset


def new_topic(
    name: str,
    partitions: int = -1,
    replication_factor: int = -1,
    assignments: list[tuple[int, list[int]]] | None = None,
    configs: Mapping[str, str | None] | None = None,
) -> Fields:
    return {
        "name": name,
        "num_partitions": partitions,
        "replication_factor": replication_factor,
        "assignments": [
            {"partition_index": index, "broker_ids": replicas} for index, replicas in assignments or ()
        ],
        "configs": [{"name": key, "value": value} for key, value in (configs or {}).items()],
    }


def serve(
    data_dir: Path,
    scenario: Callable[[Harness], Awaitable[None]],
    settings: Mapping[str, str] | None = None,
    ensemble: MemoryEnsemble | None = None,
    clock: Clock | None = None,
) -> None:
    """Run the scenario against a broker with these settings, from its start to a clean stop. `ensemble` has the
    metadata of an earlier run.
    """
    lines: list[str] = []

    async def body() -> None:
        store = (ensemble or MemoryEnsemble()).client()
        environment = Environment(
            clock or SystemClock(), Random(1), RealDisk(str(data_dir)), TcpNetwork(), ThreadPools(), store
        )
        config = BrokerConfig(
            {"port": "0", "http.port": "-1", "log.dir": str(data_dir), "durability": "os", **(settings or {})}
        )
        log = Logger(SystemClock(), lines.append, lambda now, level, text, fields: f"{level} {text} {fields}")
        broker = Broker(config, environment, log)
        await broker.start()
        try:
            await scenario(Harness(broker))
        finally:
            await broker.stop()

    asyncio.run(body())
    assert not [line for line in lines if "Traceback" in line]
