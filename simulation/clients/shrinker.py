"""A client that reduces and restores the partition count of a topic, and is the only user of that topic.

It lets partitions drain, seals them, takes that back, drops sealed partitions and creates partitions again, and writes
to all of them meanwhile. An acknowledged record stays until a sealed partition is dropped, and no offset is used twice.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection

from penstock.errors import BrokerError, ErrorCode
from penstock.records.building import NewRecord, build_batch
from simulation.clients.client import NoAnswer, SimulatedClient
from simulation.clients.count_admin import QUIET_MS, CountRequests
from simulation.clients.fetched_records import read_records
from simulation.models.history import InvariantViolated
from simulation.scenarios.stage import Stage

TOPIC = "shrinking"
_PARTITIONS = 4
_REPLICAS = 3
_MAX_BYTES = 100_000
_SEAL_SECONDS = 20.0
"""Seconds within which a quiet partition is sealed in peace."""
_ATTEMPTS = 40
_SEALED = ("sealed", "dropping")


class Shrinker:
    def __init__(self, stage: Stage) -> None:
        self.name = "shrinker"
        self._stage = stage
        self._random = stage.world.random(self.name)
        self._routing = stage.routing(self.name)
        self._requests = CountRequests(self._routing)
        self._exists = False
        self._sent = 0
        self._acknowledged: list[dict[int, tuple[bytes, int]]] = [{} for _ in range(_PARTITIONS)]
        """Acknowledged values of each partition by offset, each with the number of drops requested before."""
        self._drops = 0
        self._is_any_drop_unknown = False

    async def step(self) -> None:
        if not self._exists:
            await self.create()
            return
        acts = (self._produce, self._set_count, self.grow, self.drop, self._recreate)
        [act] = self._random.choices(acts, weights=(12, 4, 2, 1, 1))
        await act()

    # --- topics

    async def create(self) -> None:
        configs = {
            "partition.drain.quiet.ms": str(QUIET_MS),
            "retention.ms": "-1",
            "min.insync.replicas": str(self._random.choice((1, 2))),
        }
        try:
            await (await self._routing.any_broker()).create_topic(TOPIC, _PARTITIONS, configs, _REPLICAS)
        except BrokerError as error:
            if error.code is not ErrorCode.topic_already_exists:
                raise
        self._exists = True

    async def _set_count(self) -> None:
        change = self._random.choice(("set", "set", "set", "seal-now"))
        await self.request(self._random.randint(1, _PARTITIONS), change, self._random.randint(0, 1))

    async def drop(self) -> None:
        self._drops += 1
        try:
            await self.request(0, "drop-sealed", 1)
        except NoAnswer:
            self._is_any_drop_unknown = True
            raise

    async def _recreate(self) -> None:
        """Seal partitions, drop them and create them again. Every request may fail, and then the next step follows."""
        await self.request(self._random.randint(1, _PARTITIONS - 1), "seal-now", 0)
        await asyncio.sleep(self._random.uniform(0.5, 4.0))
        await self.drop()
        await asyncio.sleep(self._random.uniform(0.5, 4.0))
        await self.grow()

    async def grow(self) -> None:
        await self._requests.grow(TOPIC, _PARTITIONS)

    async def request(self, count: int, change: str, waits_for_groups: int) -> None:
        phases = await self._requests.change(TOPIC, count, change, waits_for_groups=bool(waits_for_groups))
        self._note(change, count, *phases)

    # --- records

    def acknowledged(self, index: int) -> Collection[int]:
        """Offsets of the acknowledged records of a partition."""
        return self._acknowledged[index].keys()

    async def _produce(self) -> None:
        await self.produce(self._random.randrange(_PARTITIONS))

    async def produce(self, index: int) -> None:
        """Send one record, once. Its outcome may stay unknown."""
        self._sent += 1
        value, drops = b"%d" % self._sent, self._drops
        content = bytes(build_batch([NewRecord(b"key", value, self._stage.now_ms())]))
        try:
            leader, _ = await self._routing.leader(TOPIC, index)
            result = await leader.produce(TOPIC, index, content, -1, zstd=False).result()
        except (BrokerError, NoAnswer) as error:
            self._routing.mistrust(TOPIC, index)
            self._note("produce", index, type(error).__name__, str(error)[:40])
            return
        assert result is not None
        self._note("produce", index, result.base_offset)
        known = self._acknowledged[index]
        if result.base_offset in known:
            raise InvariantViolated("I3", f"{TOPIC}-{index}: offset {result.base_offset} is used twice")
        known[result.base_offset] = (value, drops)

    # --- the audit

    async def audit(self) -> None:
        """Check all records in peace, and that a quiet partition is sealed in time."""
        if not self._exists:
            return
        await self._become_consumer()
        phases = await self._requests.retried("partition_phases", TOPIC)
        for index in range(_PARTITIONS):
            await self._audit_partition(index, exists=index < len(phases["phases"]))
        await self._audit_sealing(len(phases["phases"]), phases["active"])

    async def _become_consumer(self) -> None:
        """Look for a coordinator, as a consumer does: sealed partitions are shown to consumers."""
        for _ in range(_ATTEMPTS):
            try:
                await self._routing.coordinator(self.name)
                return
            except (BrokerError, NoAnswer):
                await asyncio.sleep(0.25)
        raise InvariantViolated("liveness", "no coordinator is found in peace")

    async def _audit_partition(self, index: int, *, exists: bool) -> None:
        found: dict[int, bytes] = {}
        start = await self._read_all(index, found) if exists else None
        for offset, (value, drops) in self._acknowledged[index].items():
            if start is not None and offset >= start and found.get(offset) != value:
                raise InvariantViolated("I1", f"{TOPIC}-{index}: {value!r} at {offset} is lost")
            may_be_dropped = self._is_any_drop_unknown or drops < self._drops
            if (start is None or offset < start) and not may_be_dropped:
                raise InvariantViolated("I1", f"{TOPIC}-{index}: {value!r} at {offset} was never dropped")

    async def _read_all(self, index: int, found: dict[int, bytes]) -> int:
        """Read a partition from its log start offset on, which is returned."""
        for _ in range(_ATTEMPTS):
            try:
                leader, epoch = await self._routing.leader(TOPIC, index)
                start = (await leader.list_offset(TOPIC, index, -2)).offset
                end = (await leader.list_offset(TOPIC, index, -1)).offset
                await self._read(leader, index, epoch, range(start, end), found)
                return start
            except (BrokerError, NoAnswer):
                self._routing.mistrust(TOPIC, index)
                await asyncio.sleep(0.25)
        raise InvariantViolated("liveness", f"{TOPIC}-{index} cannot be read in peace")

    async def _read(
        self, leader: SimulatedClient, index: int, epoch: int, offsets: range, found: dict[int, bytes]
    ) -> None:
        position = offsets.start
        while position < offsets.stop:
            result = await leader.fetch(
                TOPIC, index, position, max_bytes=_MAX_BYTES, max_wait_ms=0, leader_epoch=epoch
            )
            read = read_records(f"{TOPIC}-{index}", result, position, compacted=False)
            found.update((record.offset, record.value or b"") for record in read.records)
            if read.end <= position:
                raise NoAnswer("no records")
            position = read.end

    async def _audit_sealing(self, present: int, active: int) -> None:
        """Check that quiet partitions are sealed soon where no group is waited for."""
        if present < 2:
            return
        if active > 1:
            arguments: dict[str, int | str] = {"count": 1, "change": "set", "waits_for_groups": 0}
            await self._requests.retried("set_partition_count", TOPIC, arguments)
        deadline = self._stage.world.loop.time() + _SEAL_SECONDS
        while True:
            phases = (await self._requests.retried("partition_phases", TOPIC))["phases"]
            if all(phase in _SEALED for phase in phases[1:]):
                return
            if self._stage.world.loop.time() > deadline:
                raise InvariantViolated("sealed log", f"{TOPIC} is not sealed: {phases}")
            await asyncio.sleep(0.5)

    def _note(self, what: str, *details: object) -> None:
        self._stage.note(self.name, what, *details)
