"""Files that list the delayed messages of each segment. They are written on leaders and followers, because a new leader
needs them at once. Loop thread only; work that waits for the disk runs in a thread pool.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from penstock.errors import StorageError
from penstock.observability.logs import Logger
from penstock.replication.index_filing import place_file
from penstock.replication.replica import Replica
from penstock.server.context import BrokerContext
from penstock.storage.delay_files import DelayFileJob, read_covered
from penstock.storage.segment import DELAYS_SUFFIX, Segment

ACTIVE_BYTES = 32 << 20
"""The file of the active segment is written again after this many bytes of new records, or after an eighth of
`segment.bytes` if that is less.
"""


class DelayFiling:
    def __init__(self, context: BrokerContext, logger: Logger, goes_on: Callable[[], bool]) -> None:
        self._context = context
        self._logger = logger
        self._goes_on = goes_on
        self._tried: dict[Segment, int] = {}
        """Position in bytes up to which each segment was read for its file. The file itself may end earlier, at a
        damaged batch.
        """

    async def file_delays(self) -> None:
        """Write the files that are missing or do not cover enough of their segments."""
        known, self._tried = self._tried, {}
        for replica in self._context.replicas.upkeep:
            if not replica.log.config.delivery_delay:
                continue
            self._tried.update(
                (segment, known[segment]) for segment in replica.log.segments if segment in known
            )
            try:
                for segment in _committed(replica):
                    if replica.truncating is not None or not self._goes_on():
                        break
                    if segment in replica.log.segments:
                        await self._file(replica, segment)
            except FileNotFoundError:
                pass  # retention has deleted the segment meanwhile
            except (OSError, StorageError) as error:
                self._logger.error_rarely(
                    "file of delayed messages could not be written", error, partition=replica.name
                )

    async def _file(self, replica: Replica, segment: Segment) -> None:
        log, threads = replica.log, self._context.threads
        if DELAYS_SUFFIX not in segment.derived:
            self._tried.pop(segment, None)
        elif segment not in self._tried:
            found = await threads.run("background", partial(read_covered, log.files.disk, segment))
            self._tried[segment] = 0 if found is None else found.position
        end = segment.size
        is_active = segment is log.segments[-1]
        least_bytes = max(1, min(ACTIVE_BYTES, log.config.segment_bytes // 8)) if is_active else 1
        if end - self._tried.get(segment, 0) < least_bytes:
            return
        limit = log.config.max_decompressed_bytes
        job = DelayFileJob(log.files.disk, segment, end, log.high_watermark, limit, self._goes_on)
        if await place_file(log, threads, job, may_be_active=True) is not None:
            self._tried[segment] = end


def _committed(replica: Replica) -> list[Segment]:
    """Closed segments whose records are all committed, and the active segment, oldest first."""
    log = replica.log
    ends = [segment.base_offset for segment in log.segments[1:]]
    closed = [segment for segment, end in zip(log.segments, ends, strict=False) if end <= log.high_watermark]
    return [*closed, *log.segments[-1:]]
