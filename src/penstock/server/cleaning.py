"""Retention and compaction of this broker's logs: decided on the event loop, carried out in a thread pool.

Compaction pauses after each step for as long as the step took. A log that cannot be cleaned, because it is damaged or
the disk is full, stays as it is, and the error is logged; the other logs are cleaned.
"""

from __future__ import annotations

import asyncio
from functools import partial

from penstock.config import LOG_CLEANER_DEDUPE_BUFFER_SIZE, LOG_CLEANER_ENABLE
from penstock.errors import StorageError
from penstock.model import Offset
from penstock.observability.logs import Logger
from penstock.replication.replica import Replica
from penstock.server.context import BrokerContext
from penstock.server.delay_retention import start_without_pending
from penstock.storage.compaction import Compaction, CompactionProgress, begin_compaction
from penstock.storage.retention import retained_from


class Cleaning:
    def __init__(self, context: BrokerContext, logger: Logger, stopping: asyncio.Event) -> None:
        self._context = context
        self._logger = logger
        self._stopping = stopping
        self.held: dict[Replica, int] = {}
        """Number of offsets of each replica that the last retention pass kept only because they are not archived yet.
        """

    async def retain(self) -> None:
        """Delete records beyond the retention limits."""
        self.held = {}
        self._context.replicas.delay_counts.held_segments = 0
        for replica in self._context.replicas:
            if replica.log.segments and not self._stopping.is_set():
                try:
                    await self._retain(replica)
                except (OSError, StorageError) as error:
                    self._logger.error("retention failed", error, partition=replica.name)

    async def compact(self) -> None:
        """Compact every log that is due for compaction, once."""
        if self._context.config[LOG_CLEANER_ENABLE]:
            for replica in self._context.replicas:
                if replica.log.config.compacts and not self._stopping.is_set():
                    await self._compact(replica)

    async def _retain(self, replica: Replica) -> None:
        if replica.log.config.retention_acknowledged:
            start_offset = replica.log.log_start_offset  # moved by `AcknowledgedRetention`, at the leader
        elif replica.log.config.delivery_delay:
            start_offset = await start_without_pending(self._context, replica)
        else:
            start_offset = await self._retained_from(replica, replica.log.high_watermark)
        if start_offset > replica.removable_offset:
            self.held[replica] = start_offset - replica.removable_offset
            self._logger.warning_rarely(
                "retention waits for the archive",
                partition=replica.name,
                archived_offset=replica.removable_offset,
                due_offset=start_offset,
            )
            start_offset = await self._retained_from(replica, replica.removable_offset)
        await free_records(self._context, replica, start_offset)

    async def _retained_from(self, replica: Replica, limit: Offset) -> Offset:
        decide = partial(retained_from, replica.log, self._context.clock.now_ms(), limit)
        return await self._context.threads.run("background", decide)

    async def _compact(self, replica: Replica) -> None:
        compaction = begin_compaction(
            replica.log,
            self._context.logs.context.files,
            self._context.clock.now_ms(),
            replica.removable_offset,
            self._context.config[LOG_CLEANER_DEDUPE_BUFFER_SIZE],
        )
        if compaction is None:
            return
        try:
            await self._run(replica, compaction)
        except (OSError, StorageError) as error:
            self._logger.error("compaction failed", error, partition=replica.name)
            await self._context.threads.run("background", compaction.abandon)

    async def _run(self, replica: Replica, compaction: Compaction) -> None:
        while True:
            started = self._context.clock.monotonic()
            progress = await self._context.threads.run("background", compaction.step)
            if progress is CompactionProgress.DONE:
                compaction.finish()
                return
            swapped = progress is not CompactionProgress.CLEANED or await self._swap(replica, compaction)
            if not swapped or self._stopping.is_set():
                await self._context.threads.run("background", compaction.abandon)
                return
            await asyncio.sleep(self._context.clock.monotonic() - started)

    async def _swap(self, replica: Replica, compaction: Compaction) -> bool:
        """Replace the original segments by the cleaned one. Returns False if the log has changed meanwhile."""
        cleaned, log = compaction.cleaned, replica.log
        if cleaned is None or not log.jobs.begin_swap(cleaned.replaced):
            return False
        try:
            await self._context.threads.run("background", cleaned.swap)
        except StorageError:
            log.jobs.cancel_swap(cleaned.replaced)
            raise
        except OSError as error:
            log.jobs.abandon_swap(cleaned.replaced, error)
            raise
        log.jobs.finish_swap(cleaned.replaced, cleaned.segment())
        return True


async def free_records(context: BrokerContext, replica: Replica, start_offset: Offset) -> None:
    """Advance the log start offset to `start_offset`, and delete the segments below it."""
    if start_offset > replica.log.log_start_offset:
        replica.log.advance_log_start(start_offset)
    if replica.log.jobs.can_delete():
        kept_offset = replica.log.log_start_offset
        await context.write_checkpoints()
        await delete_segments(context, replica, kept_offset)


async def delete_segments(context: BrokerContext, replica: Replica, kept_offset: Offset) -> None:
    """Delete the segments below `kept_offset`, a log start offset that the checkpoint files already contain."""
    job = replica.log.jobs.begin_delete(kept_offset)
    if job is not None:
        try:
            await context.threads.run("background", job.work)
        finally:
            replica.log.jobs.finish_delete(job)
