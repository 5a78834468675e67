"""Named objects on a broker: records, agents, limits, restarts, and changes that are refused."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path

import msgspec
import pytest

from penstock.cluster.internal_topics import SCHEDULES_TOPIC
from penstock.cluster.memory import MemoryEnsemble
from penstock.errors import BrokerError, ErrorCode
from penstock.objects.coordinator import ObjectCoordinator
from penstock.objects.kind import Handle, ObjectKind
from penstock.objects.record_codec import ObjectCodec, ObjectRecord
from penstock.objects.shard import ObjectShard
from penstock.state_log.replaying import UnknownRecord
from support.eventually import eventually_async
from support.harness import Harness, serve


class Counter(msgspec.Struct, frozen=True):
    count: int = 0


class Recorder:
    """Agent that records its calls."""

    def __init__(self, handle: Handle[Counter], events: list[tuple[str, str]]) -> None:
        self.handle = handle
        self._events = events

    def start(self) -> None:
        self._events.append(("start", self.handle.name))

    def on_change(self) -> None:
        self._events.append(("change", self.handle.name))

    def close(self) -> None:
        self._events.append(("close", self.handle.name))


Scenario = Callable[[ObjectShard[Counter], list[tuple[str, str]]], Awaitable[None]]


def run(path: Path, scenario: Scenario, ensemble: MemoryEnsemble | None = None, **limits: int) -> None:
    """Run a scenario with the shard of the name `a` of a kind, in place of the schedules of a broker."""
    events: list[tuple[str, str]] = []

    async def body(broker: Harness) -> None:
        schedules = broker.context.objects.schedules
        await schedules.stop()
        kind = ObjectKind(
            "counter", SCHEDULES_TOPIC, Counter, lambda each: Recorder(each, events), lambda _: 10, **limits
        )
        coordinator = ObjectCoordinator(schedules._context, kind)
        await coordinator.find("a")
        await broker.context.replicas.settled()
        coordinator.start()
        try:
            (shard,) = await eventually_async(lambda: (coordinator.shard_of("a"),))
            await scenario(shard, events)
        finally:
            await coordinator.stop()

    serve(path, body, ensemble=ensemble)


async def refusal(work: Awaitable[object]) -> ErrorCode:
    with pytest.raises(BrokerError) as caught:
        await work
    return caught.value.code


def test_agents_follow_creation_change_and_deletion(tmp_path: Path) -> None:
    async def scenario(shard: ObjectShard[Counter], events: list[tuple[str, str]]) -> None:
        await shard.create("a", Counter())
        assert await refusal(shard.create("a", Counter())) is ErrorCode.duplicate_resource
        await shard.update("a", lambda known: Counter(known.count + 1))
        await shard.update("a", lambda known: known)
        assert (await shard.read("a")).count == 1
        await shard.delete("a")
        assert await refusal(shard.read("a")) is ErrorCode.resource_not_found
        assert await refusal(shard.delete("a")) is ErrorCode.resource_not_found
        assert await refusal(shard.update("a", lambda known: known)) is ErrorCode.resource_not_found
        assert events == [("start", "a"), ("change", "a"), ("close", "a")]

    run(tmp_path, scenario)


def test_objects_and_agents_are_there_after_a_restart(tmp_path: Path) -> None:
    ensemble = MemoryEnsemble()

    async def before(shard: ObjectShard[Counter], events: list[tuple[str, str]]) -> None:
        await shard.create("a", Counter())
        await shard.create("deleted", Counter())
        await shard.delete("deleted")
        agent = shard.agent_of("a")
        assert isinstance(agent, Recorder)
        await agent.handle.update(lambda known: Counter(known.count + 5))
        await agent.handle.committed()
        shard.close(ErrorCode.not_coordinator)
        assert events[-1] == ("close", "a")
        assert await refusal(agent.handle.update(lambda known: known)) is ErrorCode.not_coordinator

    async def after(shard: ObjectShard[Counter], events: list[tuple[str, str]]) -> None:
        assert dict(shard.states) == {"a": Counter(5)}
        assert events == [("start", "a")]

    run(tmp_path, before, ensemble)
    run(tmp_path, after, ensemble)


def test_limits_of_a_shard_hold(tmp_path: Path) -> None:
    async def scenario(shard: ObjectShard[Counter], events: list[tuple[str, str]]) -> None:
        await shard.create("a", Counter())
        await shard.create("b", Counter())
        assert await refusal(shard.create("c", Counter())) is ErrorCode.policy_violation

    run(tmp_path, scenario, max_objects=2)
    run(tmp_path / "bytes", scenario, max_bytes=25)


def test_records_are_decoded_or_unknown() -> None:
    codec = ObjectCodec(Counter)
    for record in (ObjectRecord("ä", Counter(3)), ObjectRecord[Counter]("ä", None)):
        assert codec.decode_record(*codec.encode_record(record)) == record
    key, value = codec.encode_record(ObjectRecord("a", Counter(3)))
    assert value is not None
    for wrong in ((b"", value), (key, b""), (key, b"\0\1" + value[2:]), (key, value[:3]), (key[:3], value)):
        with pytest.raises(UnknownRecord):
            codec.decode_record(*wrong)
