"""Views in a simulated cluster: a source that is written, and readers of its views through all leaders.

The source grows, is compacted or loses its oldest records, the filter of one view is changed, and views are read from
leaders and followers. In the end every view is read from the start of its source to the end.
"""

from __future__ import annotations

import asyncio
from functools import partial

from penstock.errors import BrokerError, ErrorCode
from penstock.records.building import NewRecord, build_batch
from penstock.records.compression import Codec
from penstock.records.iteration import Record, iterate, read_batches
from penstock.records.log_slice import LogSlice
from penstock.wire.fetch import FetchResult
from simulation.clients.cast import Cast
from simulation.clients.client import NoAnswer, SimulatedClient
from simulation.clients.rack_reader import RACKS
from simulation.clients.retries import retried
from simulation.clients.whole_log import read_whole_log
from simulation.models.history import FILLING, InvariantViolated
from simulation.models.invariants import Invariant
from simulation.models.partition_history import Place
from simulation.models.view_model import FILTERS, Claim, ViewModel
from simulation.scenarios.stage import Stage
from simulation.transactions.transaction_reader import readable

_SHARE = 0.25
"""The share of seeds with views."""
_SOURCE = "goods"
_FIXED, _CHANGED = "goods.fixed", "goods.changed"
_EARLIEST, _LATEST = -2, -1
_ROOMY = 100_000
_MOST_PARTITIONS = 3
_STALLS = 20
"""Responses without progress after which a reader counts as stuck."""
_SETTLE_SECONDS = 20.0
_SHORTEST_WAIT = 0.7
"""The part of its wait that a long poll takes at least: brokers end it up to a quarter early."""
_KINDS = {
    "plain": {},
    "retention": {"retention.bytes": "4000"},
    "compacted": {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01"},
}


class ViewCast(Cast):
    def __init__(self, stage: Stage) -> None:
        super().__init__(stage, "views", _SHARE)
        random = self._random
        self._kind = random.choice(("plain", "plain", "retention", "compacted"))
        self.places: list[Place] = [(_SOURCE, index) for index in range(random.randint(1, 2))]
        self.model = ViewModel(may_lose=self._kind == "compacted")
        texts = list(FILTERS)
        self.filters: dict[str, list[str]] = {view: [random.choice(texts)] for view in (_FIXED, _CHANGED)}
        """All filters that a view may have had."""

    @property
    def traits(self) -> frozenset[str]:
        return frozenset({"views", f"views of {self._kind}"} if self.is_there else ())

    async def open(self) -> None:
        """Create the source and its views."""
        if not self.is_there:
            return
        random, copies = self._random, self._random.choice((3, 3, 2))
        configs = {
            "segment.bytes": str(random.choice((1_500, 3_000, 1_000_000))),
            "min.insync.replicas": str(random.choice((1, 2)) if copies > 2 else 1),
            **_KINDS[self._kind],
        }
        partitions = len(self.places)
        create = partial(self.create_topic, _SOURCE, partitions, configs, copies)
        await retried(create, "the source is not made")
        for view, (text, *_) in self.filters.items():
            configs = {"view.of": _SOURCE, "view.filter": text}
            create = partial(self.create_topic, view, partitions, configs, 1)
            await retried(create, f"{view} is not made")
        self._actors = [
            GoodsWriter(self._stage, self, 0),
            GoodsWriter(self._stage, self, 1),
            ViewReader(self._stage, self, 0),
            ViewReader(self._stage, self, 1),
            ViewReader(self._stage, self, 2),
            ViewAdmin(self._stage, self),
        ]

    async def audit(self) -> None:
        """Read source and views from start to end, compare them, and compare all earlier responses."""
        if not self.is_there:
            return
        final = self.filters[_CHANGED][-1]
        await retried(partial(self._change, final), "the filter cannot be changed")
        for place in self.places:
            for view in self.filters:
                await self._until_right(view, place)
            start, records = await retried(partial(self._read_source, place), f"{place} cannot be read")
            self.model.check(place, start, records)

    async def _change(self, text: str) -> None:
        await (await self._routing.any_broker()).set_topic_config(_CHANGED, "view.filter", text)

    async def _until_right(self, view: str, place: Place) -> None:
        """Read source and view until they agree: a broker may learn of the last filter a moment later, and retention
        may remove records meanwhile.
        """
        reader = ViewReader(self._stage, self, 99)
        deadline = self._stage.world.loop.time() + _SETTLE_SECONDS
        while True:
            try:
                start, records = await self._read_source(place)
                end = records[-1].offset + 1 if records else start
                claim = await reader.read_all(view, place, start, end)
                self.model.check_claim(claim, start, records)
                return
            except InvariantViolated as error:
                if error.invariant is not Invariant.VIEW_SHOWS_MATCHES or self._is_late(deadline):
                    raise
            except (BrokerError, NoAnswer) as error:
                if self._is_late(deadline):
                    raise InvariantViolated("I13", f"{view} cannot be read: {error!r}") from error
            await asyncio.sleep(0.5)

    def _is_late(self, deadline: float) -> bool:
        return self._stage.world.loop.time() > deadline

    async def _read_source(self, place: Place) -> tuple[int, list[Record]]:
        # Compaction may leave nothing before the end.
        return await read_whole_log(self._routing, place, _decode, compacted=True)


def _decode(result: FetchResult, position: int) -> tuple[int, list[Record]]:
    assert not isinstance(result.records, LogSlice)
    records: list[Record] = []
    following = position
    for header, batch in read_batches(memoryview(result.records)):
        if not header.is_control:
            records += [each for each in iterate(batch, header) if each.offset >= position]
        following = header.next_offset
    return following, records


class GoodsWriter:
    """Sends batches of several records, perhaps compressed, each once."""

    def __init__(self, stage: Stage, cast: ViewCast, number: int) -> None:
        self.name = f"goods-writer-{number}"
        self._stage, self._cast = stage, cast
        self._random = stage.world.random(self.name)
        self._routing = stage.routing(self.name)
        self._sent = 0

    async def step(self) -> None:
        place = self._random.choice(self._cast.places)
        leader, _ = await self._routing.leader(*place)
        codec = self._random.choice((Codec.NONE, Codec.NONE, Codec.LZ4, Codec.ZSTD))
        records = [self._make() for _ in range(self._random.choice((1, 3, 8)))]
        batch = bytes(build_batch(records, codec=codec))
        acks = self._random.choice((-1, -1, 1))
        try:
            result = await leader.produce(*place, batch, acks, zstd=codec is Codec.ZSTD).result()
        except (BrokerError, NoAnswer):
            self._routing.mistrust(*place)
            raise
        assert result is not None
        self._stage.note(self.name, "produce", *place, result.base_offset, len(records))

    def _make(self) -> NewRecord:
        self._sent += 1
        region = self._random.choice((b"eu", b"us", b"us", None))
        value = f"{self.name} {self._sent}".encode() + FILLING + bytes(self._random.choice((0, 10, 200)))
        key = f"key-{self._random.randrange(12)}".encode()
        headers = () if region is None else (("region", region),)
        return NewRecord(key, value, self._stage.now_ms(), headers)


class ViewReader:
    """Follows the partitions of views through all leaders, and perhaps followers."""

    def __init__(self, stage: Stage, cast: ViewCast, number: int) -> None:
        self.name = f"view-reader-{number}"
        self._stage, self._cast = stage, cast
        self._random = stage.world.random(self.name)
        self._routing = stage.routing(self.name)
        self._rack = self._random.choice(("", *RACKS))
        self._positions: dict[tuple[str, Place], int] = {}

    async def step(self) -> None:
        view, place = self._random.choice((_FIXED, _CHANGED)), self._random.choice(self._cast.places)
        position = self._positions.get((view, place), 0)
        if self._random.random() < 0.05:
            position = self._random.randint(0, position)
        max_bytes = self._random.choice((1, 300, 2_000, _ROOMY, _ROOMY))
        wait_ms = self._random.choice((0, 0, 100, 1_000))
        try:
            claim = await self._read(view, place, position, max_bytes, wait_ms)
        except BrokerError as error:
            if error.code is not ErrorCode.offset_out_of_range:
                raise
            leader, epoch = await self._routing.leader(view, place[1])
            start = (await leader.list_offset(view, place[1], _EARLIEST, epoch)).offset
            self._positions[view, place] = max(start, 0)
            return
        self._positions[view, place] = claim.end

    async def read_all(self, view: str, place: Place, start: int, end: int) -> Claim:
        """Read a range from beginning to end; a reader that does not get there is a violation."""
        position, stalls = start, 0
        shown: list[tuple[int, bytes]] = []
        while position < end:
            claim = await self._read(view, place, position, _ROOMY, 100, is_final=True)
            stalls = 0 if claim.end > position else stalls + 1
            if stalls > _STALLS:
                raise InvariantViolated("view end", f"{view} of {place} stops at {position} of {end}")
            shown += claim.shown
            position = claim.end
        final = self._cast.filters[view][-1]
        return Claim(view, place, start, end, tuple(each for each in shown if each[0] < end), (final,))

    async def _read(
        self,
        view: str,
        place: Place,
        position: int,
        max_bytes: int,
        wait_ms: int,
        *,
        is_final: bool = False,
    ) -> Claim:
        partition, loop = place[1], self._stage.world.loop
        try:
            leader, epoch = await self._routing.leader(view, partition)
            asked = loop.time()
            fetch = partial(_fetch, view, partition, position, max_bytes, wait_ms, epoch, self._rack)
            result = await fetch(leader)
            if result.preferred_read_replica >= 0:
                follower = await self._routing.broker(result.preferred_read_replica)
                asked = loop.time()
                result = await fetch(follower)
        except (BrokerError, NoAnswer):
            self._routing.mistrust(view, partition)
            raise
        end, shown = readable((view, partition), result, position, is_committed=False)
        is_early = loop.time() - asked < wait_ms / 1000 * _SHORTEST_WAIT
        if is_early and not shown and max_bytes == _ROOMY and end > position and not is_final:
            raise InvariantViolated("view wait", f"{view} of {place}: {position} to {end} ended a long poll")
        self._stage.note(self.name, "read", view, *place, position, end, len(shown))
        claim = Claim(view, place, position, end, tuple(shown), tuple(self._cast.filters[view]))
        if not is_final:
            self._cast.model.on_read(claim)
        return claim


async def _fetch(
    view: str,
    partition: int,
    position: int,
    max_bytes: int,
    wait_ms: int,
    epoch: int,
    rack: str,
    client: SimulatedClient,
) -> FetchResult:
    return await client.fetch(
        view, partition, position, max_bytes=max_bytes, max_wait_ms=wait_ms, leader_epoch=epoch, rack=rack
    )


class ViewAdmin:
    """Now and then changes a filter, adds or reassigns a partition, or deletes the oldest records."""

    def __init__(self, stage: Stage, cast: ViewCast) -> None:
        self.name = "view-admin"
        self._stage, self._cast = stage, cast
        self._random = stage.world.random(self.name)
        self._routing = stage.routing(self.name)

    async def step(self) -> None:
        chance = self._random.random()
        if chance < 0.06:
            text = self._random.choice(list(FILTERS))
            self._cast.filters[_CHANGED].append(text)
            self._stage.note(self.name, "filter", text)
            await (await self._routing.any_broker()).set_topic_config(_CHANGED, "view.filter", text)
        elif chance < 0.08 and len(self._cast.places) < _MOST_PARTITIONS:
            count = len(self._cast.places) + 1
            await (await self._routing.any_broker()).create_partitions(_SOURCE, count)
            self._cast.places.append((_SOURCE, count - 1))
            self._stage.note(self.name, "grow", count)
        elif chance < 0.11:
            await self._delete(self._random.choice(self._cast.places))
        elif chance < 0.14:
            await self._reassign(self._random.choice(self._cast.places))

    async def _reassign(self, place: Place) -> None:
        nodes = [member.node_id for member in self._stage.members]
        replicas = self._random.sample(nodes, self._random.choice((2, 3, 3)))
        await (await self._routing.any_broker()).reassign(*place, replicas)
        self._stage.note(self.name, "reassign", *place, *replicas)

    async def _delete(self, place: Place) -> None:
        try:
            leader, epoch = await self._routing.leader(*place)
            end = (await leader.list_offset(*place, _LATEST, epoch)).offset
            start = await leader.delete_records(*place, self._random.randint(0, end))
        except (BrokerError, NoAnswer):
            self._routing.mistrust(*place)
            raise
        self._stage.note(self.name, "delete", *place, start)
