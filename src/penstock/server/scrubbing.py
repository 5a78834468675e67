"""Background scrub: slowly verifies the stored batches of all logs, and marks damaged ranges, which are then not
served.

The first pass begins some time after the start, later passes at `log.scrub.interval.ms`. Each pass begins with a random
log, so that every log is scrubbed even if the broker is restarted often. A pass reads a limited number of bytes per
second and uses at most a twentieth of one processor. `Repairing` repairs the damage that the scrub finds.
"""

from __future__ import annotations

import asyncio
from functools import partial

from penstock.config import LOG_SCRUB_BYTES_PER_SECOND, LOG_SCRUB_INTERVAL_MS
from penstock.errors import StorageError
from penstock.observability.logs import Logger
from penstock.observability.metrics import BrokerMetrics
from penstock.replication.replica import Replica
from penstock.server.context import BrokerContext
from penstock.storage.scrub import BatchBoundary, Damaged, Extent, Piece, extents, scrub_piece, start_of
from penstock.storage.segment import Segment

FIRST_PASS_SECONDS = 600.0
_LOOK_SECONDS = 60.0
_REST_FACTOR = 19.0
"""Rest after each piece, as a multiple of the time that the piece took: the scrub uses at most a twentieth of one
processor.
"""


class Scrubbing:
    def __init__(self, context: BrokerContext, logger: Logger, stopping: asyncio.Event) -> None:
        self._context = context
        self._logger = logger
        self._stopping = stopping
        self._began = context.clock.monotonic()
        """Monotonic time in seconds at which the last pass began, or the broker started."""
        self.read_bytes = 0
        self.damaged_ranges = 0
        self.passes = 0

    def look_seconds(self) -> float:
        """Time in seconds until `run_if_due` should be called again."""
        return min(_LOOK_SECONDS, self._interval_seconds() or _LOOK_SECONDS)

    def show(self, metrics: BrokerMetrics) -> None:
        metrics.add_counter(
            "penstock_scrubbed_bytes",
            "Bytes of stored batches that the scrub verified.",
            lambda: self.read_bytes,
        )
        metrics.add_counter(
            "penstock_scrub_damaged_ranges",
            "Damaged ranges of offsets that the scrub found.",
            lambda: self.damaged_ranges,
        )

    async def run_if_due(self) -> None:
        """Make one pass over all logs, if it is due."""
        context, now = self._context, self._context.clock.monotonic()
        seconds = self._interval_seconds()
        if not self.passes:
            seconds = min(seconds, FIRST_PASS_SECONDS)
        if not seconds or not context.config[LOG_SCRUB_BYTES_PER_SECOND] or now < self._began + seconds:
            return
        self._began = now
        replicas = list(context.replicas)
        first = context.random.randrange(len(replicas)) if replicas else 0
        for replica in (*replicas[first:], *replicas[:first]):
            await self._scrub(replica)
        self.passes += 1

    async def scrub_suspects(self) -> None:
        """Scrub the places where readers have met damage, without waiting for the next pass."""
        for replica in self._context.replicas.upkeep:
            if replica.suspects:
                await self._scrub_offsets(replica)
            suspects = frozenset() if replica.keyed is None else replica.keyed.suspects
            if replica.keyed is not None and suspects:
                await self._scrub(replica, suspects)
                replica.keyed.on_scrubbed(suspects)

    async def _scrub_offsets(self, replica: Replica) -> None:
        """Scrub the segments of offsets that readers could not read. An offset above the recovery point waits for the
        next checkpoint.
        """
        log, suspects = replica.log, replica.suspects
        suspects -= {each for each in suspects if not log.log_start_offset <= each < log.log_end_offset}
        found = {
            offset: extent.segment
            for extent in extents(log)
            for offset in suspects
            if extent.segment.base_offset <= offset < extent.end_offset
        }
        if found:
            await self._scrub(replica, frozenset(found.values()))
            suspects -= found.keys()

    def _interval_seconds(self) -> float:
        return self._context.config[LOG_SCRUB_INTERVAL_MS] / 1000

    async def _scrub(self, replica: Replica, only: frozenset[Segment] = frozenset()) -> None:
        """Scrub a log with rests, or only the segments in `only` without rests."""
        place: BatchBoundary | None = None
        for extent in extents(replica.log):
            if only and extent.segment not in only:
                place = None
                continue
            place = start_of(extent, place)
            while place is not None and place.position < extent.size:
                if self._stopping.is_set() or not self._is_there(replica, extent):
                    return
                place = await self._scrub_piece(replica, extent, place, is_urgent=bool(only))

    async def _scrub_piece(
        self, replica: Replica, extent: Extent, place: BatchBoundary, *, is_urgent: bool
    ) -> BatchBoundary | None:
        """Verify a piece and rest. Returns the position of the next piece; None if the segment cannot be read."""
        started = self._context.clock.monotonic()
        try:
            piece = await self._read(extent, place)
            if piece.found is not None:
                # Read again: a failed read may be temporary, and the file may have been truncated meanwhile.
                piece = await self._read(extent, place)
        except (OSError, StorageError) as error:
            if self._is_there(replica, extent):
                self._logger.error_rarely("segment could not be scrubbed", error, partition=replica.name)
            return None
        if not self._is_there(replica, extent):
            return None
        self.read_bytes += piece.read_bytes
        if piece.found is not None:
            self._report(replica, piece.found)
        elapsed = self._context.clock.monotonic() - started
        rate = max(1, self._context.config[LOG_SCRUB_BYTES_PER_SECOND])
        if not is_urgent:
            await self._rest(max(piece.read_bytes / rate, elapsed * _REST_FACTOR))
        return piece.after

    async def _read(self, extent: Extent, place: BatchBoundary) -> Piece:
        return await self._context.threads.run("background", partial(scrub_piece, extent, place))

    async def _rest(self, seconds: float) -> None:
        try:
            await asyncio.wait_for(self._stopping.wait(), seconds)
        except TimeoutError:
            return

    def _is_there(self, replica: Replica, extent: Extent) -> bool:
        log = replica.log
        return replica.truncating is None and not log.failed and extent.segment in log.segments

    def _report(self, replica: Replica, found: Damaged) -> None:
        before = replica.log.damage
        replica.log.add_damage(found.damaged)
        if replica.log.damage != before:
            self.damaged_ranges += 1
            self._logger.error("scrub found damaged records", partition=replica.name, damage=found.damaged)
