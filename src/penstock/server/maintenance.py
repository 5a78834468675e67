"""Background work of a broker: recovery points, retention, compaction, scrubbing, repair and the check of free space.

Each kind of work is a loop with its own interval; work that may wait for the disk runs in a thread pool. After an error
a loop logs it and continues with the next round.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from penstock.config import (
    LOG_CLEANER_BACKOFF_MS,
    LOG_DIR_MIN_FREE_BYTES,
    LOG_FLUSH_CHECKPOINT_BYTES,
    LOG_FLUSH_OFFSET_CHECKPOINT_INTERVAL_MS,
    LOG_RETENTION_CHECK_INTERVAL_MS,
    REPLICA_HIGH_WATERMARK_CHECKPOINT_INTERVAL_MS,
    BrokerConfig,
    Option,
)
from penstock.errors import StorageError
from penstock.observability.logs import Logger
from penstock.observability.metrics import BrokerMetrics
from penstock.replication.replica import Replica
from penstock.server.acknowledged.retention import ROUND_SECONDS as ACKNOWLEDGED_SECONDS
from penstock.server.acknowledged.retention import AcknowledgedRetention
from penstock.server.cleaning import Cleaning
from penstock.server.context import BrokerContext
from penstock.server.delay_filing import DelayFiling
from penstock.server.projection_files import ProjectionFiles
from penstock.server.queue_upkeep.upkeep import ROUND_SECONDS as QUEUE_UPKEEP_SECONDS
from penstock.server.queue_upkeep.upkeep import QueueUpkeep
from penstock.server.repairing import REPAIR_SECONDS, Repairing
from penstock.server.scrubbing import Scrubbing
from penstock.server.shared_views import ROUND_SECONDS, SharedViews
from penstock.storage.disk import Disk
from penstock.storage.log_manager import LogManager

_FREE_SPACE_SECONDS = 1.0
_FAILED_LOGS_SECONDS = 0.5
_BIG_LOGS_SECONDS = 1.0
_KEYS_SECONDS = 1.0
_REPLICAS_PER_TURN = 200


class Maintenance:
    def __init__(
        self,
        context: BrokerContext,
        logs: LogManager,
        disk: Disk,
        logger: Logger,
        on_failed_log: Callable[[Replica], None],
    ) -> None:
        self._context = context
        self._logs = logs
        self._disk = disk
        self._logger = logger
        self._on_failed_log = on_failed_log
        self._stopping = asyncio.Event()
        self._cleaning = Cleaning(context, logger, self._stopping)
        self._acknowledged = AcknowledgedRetention(context, logger)
        self._queue_upkeep = QueueUpkeep(context, logger)
        self._scrubbing = Scrubbing(context, logger, self._stopping)
        self._repairing = Repairing(context, logger)
        self._shared_views = SharedViews(context, logger)
        self._projection_files = ProjectionFiles(context, logger, self._goes_on)
        self._delay_filing = DelayFiling(context, logger, self._goes_on)
        self._is_outdated = False
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        await self._watch_free_space()
        self._every(lambda _: _FREE_SPACE_SECONDS, self._watch_free_space)
        self._every(lambda _: _FAILED_LOGS_SECONDS, self._watch_failed_logs)
        self._every(lambda _: _BIG_LOGS_SECONDS, self._checkpoint_big_logs)
        self._every(lambda _: _KEYS_SECONDS, self._index_keys)
        self._every(lambda _: _KEYS_SECONDS, self._projection_files.maintain)
        self._every(lambda _: _KEYS_SECONDS, self._delay_filing.file_delays)
        self._every(lambda _: ROUND_SECONDS, self._shared_views.run)
        self._every(_seconds(LOG_FLUSH_OFFSET_CHECKPOINT_INTERVAL_MS), self._checkpoint_logs)
        self._every(_seconds(LOG_RETENTION_CHECK_INTERVAL_MS), self._cleaning.retain)
        self._every(lambda _: ACKNOWLEDGED_SECONDS, self._acknowledged.run)
        self._every(lambda _: QUEUE_UPKEEP_SECONDS, self._queue_upkeep.run)
        self._every(_seconds(LOG_CLEANER_BACKOFF_MS), self._compact)
        self._every(lambda _: self._scrubbing.look_seconds(), self._scrubbing.run_if_due)
        self._every(lambda _: REPAIR_SECONDS, self._scrubbing.scrub_suspects)
        self._every(lambda _: REPAIR_SECONDS, self._repairing.run)
        self._every(_seconds(REPLICA_HIGH_WATERMARK_CHECKPOINT_INTERVAL_MS), self._write_checkpoints)

    async def stop(self) -> None:
        """Stop all loops and wait for work in progress. After this returns, no background work touches the disk."""
        self._stopping.set()
        await asyncio.gather(*self._tasks)

    def show(self, metrics: BrokerMetrics) -> None:
        self._scrubbing.show(metrics)
        self._repairing.show(metrics)
        self._queue_upkeep.show(metrics)
        self._acknowledged.show(metrics)
        metrics.add_gauge(
            "penstock_archive_behind_partitions",
            "Partitions whose retention waits for the archive.",
            lambda: len(self._cleaning.held),
        )
        metrics.add_gauge(
            "penstock_archive_behind_records",
            "Offsets that retention would have removed by now, had they been archived.",
            lambda: sum(self._cleaning.held.values()),
        )

    def _every(self, interval: Callable[[BrokerConfig], float], work: Callable[[], Awaitable[None]]) -> None:
        async def run() -> None:
            while not await self._stops_within(interval(self._context.config)):
                try:
                    await work()
                except Exception as error:  # noqa: BLE001 - a loop that dies would end retention for good
                    self._logger.error_rarely("maintenance failed", error, work=work.__name__)

        self._tasks.append(asyncio.get_running_loop().create_task(run()))

    async def _stops_within(self, seconds: float) -> bool:
        try:
            await asyncio.wait_for(self._stopping.wait(), seconds)
        except TimeoutError:
            return False
        return True

    async def _watch_free_space(self) -> None:
        free_bytes = await self._context.threads.run("background", self._disk.free_bytes)
        floor_bytes = self._context.config[LOG_DIR_MIN_FREE_BYTES]
        full = free_bytes < floor_bytes
        if full != self._logs.full:
            self._logs.full = full
            message = (
                "disk is full: writes are refused"
                if full
                else "disk has free space again: writes are accepted"
            )
            self._logger.warning(message, free_bytes=free_bytes, floor_bytes=floor_bytes)

    async def _watch_failed_logs(self) -> None:
        failed = next((replica for replica in self._context.replicas.unsound if replica.log.failed), None)
        if failed is not None:
            self._on_failed_log(failed)

    async def _checkpoint_big_logs(self) -> None:
        """Checkpoint logs that have grown by `log.flush.checkpoint.bytes` since their last checkpoint, so that recovery
        stays short.

        A file stays open until it is synced by a checkpoint. While too many files are open for this reason, all changed
        logs are checkpointed.
        """
        limit = 0 if self._logs.crowded else self._context.config[LOG_FLUSH_CHECKPOINT_BYTES]
        changed = list(self._context.replicas.changed)
        for start in range(0, len(changed), _REPLICAS_PER_TURN):
            turn = changed[start : start + _REPLICAS_PER_TURN]
            await self._checkpoint([replica for replica in turn if replica.log.unmarked_bytes >= limit])
            await asyncio.sleep(0)  # lets requests be served in between, where there are thousands of logs

    async def _index_keys(self) -> None:
        """Update the key indexes, on followers too, because a new leader needs its index at once."""
        for replica in self._context.replicas.upkeep:
            try:
                while replica.keyed is not None and replica.truncating is None and self._goes_on():
                    if not await replica.keyed.maintain(self._goes_on):
                        break
            except (OSError, StorageError) as error:
                self._logger.error_rarely("key index could not be updated", error, partition=replica.name)

    def _goes_on(self) -> bool:
        return not self._stopping.is_set()

    async def _checkpoint_logs(self) -> None:
        await self._checkpoint(list(self._context.replicas.changed))

    async def _compact(self) -> None:
        """Compact logs, after a checkpoint of the logs that have closed a segment since their last checkpoint.

        The checkpoint is needed because compaction only touches segments below the recovery point.
        """
        changed = list(self._context.replicas.changed)
        await self._checkpoint([replica for replica in changed if _has_unmarked_segments(replica)])
        await self._cleaning.compact()

    async def _checkpoint(self, replicas: list[Replica]) -> None:
        for replica in replicas:
            if self._stopping.is_set():
                return  # stopping the broker checkpoints every log
            job = replica.log.jobs.begin_checkpoint()
            if job is None and replica.log.jobs.is_busy:
                continue  # another job changes its files; the next round tries again
            self._context.replicas.changed.pop(replica, None)
            if job is None:
                self._is_outdated = True  # its offsets in the checkpoint files may have changed
                continue
            try:
                await self._context.threads.run("background", job.work)
            except OSError as error:
                self._logger.error("checkpoint failed", error, partition=replica.name)
                replica.log.jobs.abandon_checkpoint(job, error)
                replica.on_checkpoint_failed()
            else:
                replica.log.jobs.finish_checkpoint(job)
                self._is_outdated = True

    async def _write_checkpoints(self) -> None:
        if self._is_outdated or self._context.replicas.changed:
            self._is_outdated = False
            await self._context.write_checkpoints()


def _has_unmarked_segments(replica: Replica) -> bool:
    """True if a compacted log has closed a segment since its last checkpoint."""
    log, segments = replica.log, replica.log.segments
    return log.config.compacts and bool(segments) and segments[-1].base_offset > log.mark.base_offset


def _seconds(option: Option[int]) -> Callable[[BrokerConfig], float]:
    return lambda config: config[option] / 1000
