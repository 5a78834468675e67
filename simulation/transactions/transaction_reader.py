"""Simulated consumers of partitions with transactions: of all records, or of committed ones, always forward.

Aborted records are left out as Kafka's clients do it: by the list that comes with the records, and by
markers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

from penstock.errors import BrokerError, ErrorCode, InvalidBatch
from penstock.records.batch import crc_matches
from penstock.records.control import read_marker
from penstock.records.iteration import iterate, read_batches
from penstock.records.log_slice import LogSlice
from penstock.wire.fetch import FetchResult
from simulation.clients.client import READ_COMMITTED, READ_UNCOMMITTED, NoAnswer, SimulatedClient
from simulation.clients.routing_client import RoutingClient
from simulation.clients.whole_log import read_whole_log
from simulation.models.history import InvariantViolated
from simulation.models.partition_history import Place
from simulation.models.transaction_model import TransactionModel
from simulation.scenarios.stage import Stage

_LATEST = -1
_MAX_BYTES = (1, 2_000, 100_000)

Shown = tuple[int, bytes]


def readable(
    place: Place, result: FetchResult, position: int, *, is_committed: bool
) -> tuple[int, list[Shown]]:
    """Return the offsets and values of a fetch from `position`, and the next position."""
    assert not isinstance(result.records, LogSlice)
    aborted = sorted(result.aborted_transactions or (), key=lambda each: each.first_offset)
    limit = result.last_stable_offset if is_committed else result.high_watermark
    left_out: set[int] = set()
    shown: list[Shown] = []
    expected = position
    for header, batch in read_batches(memoryview(result.records)):
        if header.last_offset < expected or (header.base_offset > expected):
            raise InvariantViolated("I5", f"{place}: wanted {expected}, got {header.base_offset}")
        if header.last_offset >= limit:
            raise InvariantViolated("I8", f"{place}: {header.last_offset} is not below {limit}")
        if not crc_matches(batch, header):
            raise InvariantViolated("I15", f"{place}: the CRC at {header.base_offset} is wrong")
        expected = header.next_offset
        while aborted and aborted[0].first_offset <= header.last_offset:
            left_out.add(aborted.pop(0).producer_id)
        if header.is_control:
            marker = read_marker(batch, header)
            if marker is not None and not marker.is_commit:
                left_out.discard(marker.producer_id)
            continue
        if is_committed and header.is_transactional and header.producer_id in left_out:
            continue
        try:
            records = list(iterate(batch, header))
        except InvalidBatch as error:
            raise InvariantViolated("I15", f"{place}: {header.base_offset}: {error}") from error
        shown += [(record.offset, record.value or b"") for record in records if record.offset >= position]
    return expected, shown


async def read_from(
    routing: RoutingClient, place: Place, position: int, max_bytes: int, *, is_committed: bool
) -> tuple[int, list[Shown]]:
    """Fetch once from the leader."""
    try:
        leader, epoch = await routing.leader(*place)
        result = await leader.fetch(
            *place,
            position,
            max_bytes=max_bytes,
            max_wait_ms=20,
            leader_epoch=epoch,
            isolation_level=READ_COMMITTED if is_committed else READ_UNCOMMITTED,
        )
    except (BrokerError, NoAnswer):
        routing.mistrust(*place)
        raise
    return readable(place, result, position, is_committed=is_committed)


async def read_shown(
    routing: RoutingClient, place: Place, *, is_committed: bool, end: int | None = None
) -> tuple[int, list[Shown]]:
    """Return the log start offset, and the offsets and values up to `end`, by default the high watermark."""
    return await read_whole_log(
        routing,
        place,
        partial(readable, place, is_committed=is_committed),
        end=end,
        isolation_level=READ_COMMITTED if is_committed else READ_UNCOMMITTED,
    )


class TransactionReader:
    def __init__(
        self,
        stage: Stage,
        model: TransactionModel,
        places: Sequence[Place],
        number: int,
        *,
        is_committed: bool,
        views: Mapping[str, str] | None = None,
    ) -> None:
        """`views` has the view of each topic, for a reader of views."""
        self._views = views or {}
        self.name = f"{'committed' if is_committed else 'uncommitted'}-reader-{number}"
        self.is_committed = is_committed
        self.positions: dict[Place, int] = dict.fromkeys(places, 0)
        self.shown: dict[Place, list[Shown]] = {place: [] for place in places}
        self._stage = stage
        self._model = model
        self._random = stage.world.random(self.name)
        self._routing = stage.routing(self.name)

    async def step(self) -> None:
        place = self._random.choice(list(self.positions))
        if self._random.random() < 0.2:
            await self._look_up_end(place)
        else:
            await self._read(place)

    async def _read(self, place: Place) -> None:
        position = self.positions[place]
        max_bytes = self._random.choice(_MAX_BYTES)
        try:
            end, shown = await read_from(
                self._routing, self._shown_as(place), position, max_bytes, is_committed=self.is_committed
            )
        except BrokerError as error:
            if error.code is ErrorCode.offset_out_of_range:
                raise InvariantViolated("I5", f"{place}: {position} is out of range") from error
            raise
        self._stage.note(self.name, "read", *place, position, end)
        learn = self._model.on_committed if self.is_committed else self._model.on_uncommitted
        for offset, value in shown:
            learn(place, offset, value)
        self.shown[place] += shown
        self.positions[place] = end

    def _shown_as(self, place: Place) -> Place:
        """The place that the reader names to brokers."""
        return self._views.get(place[0], place[0]), place[1]

    async def _look_up_end(self, place: Place) -> None:
        """Check that the end for this isolation level does not decrease."""
        leader: SimulatedClient
        named = self._shown_as(place)
        try:
            leader, epoch = await self._routing.leader(*named)
            position = self.positions[place]
            isolation = READ_COMMITTED if self.is_committed else READ_UNCOMMITTED
            end = (await leader.list_offset(*named, _LATEST, epoch, isolation)).offset
        except (BrokerError, NoAnswer):
            self._routing.mistrust(*named)
            raise
        self._stage.note(self.name, "end", *place, end)
        if end < position:
            raise InvariantViolated("I6", f"{place}: stable up to {end}, {position - 1} was read before")

    def check(self, place: Place, final: Sequence[Shown]) -> None:
        """Check that the reader was shown everything that is there in the end."""
        wanted = [shown for shown in final if shown[0] < self.positions[place]]
        if self.shown[place] != wanted:
            had, missed = set(self.shown[place]) - set(wanted), set(wanted) - set(self.shown[place])
            invariant = "I6" if had else "I5"
            raise InvariantViolated(invariant, f"{self.name} was shown {had} and missed {missed} of {place}")
