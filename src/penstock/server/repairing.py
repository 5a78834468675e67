"""Repair of damaged ranges in this broker's logs from other replicas, and an alarm while there is damage.

Any replica that has the whole range can be the source; the leader is tried first. Leaders and followers are repaired
alike, no replica changes its role, and no record is removed. If no other replica has the whole range, it stays damaged:
reads inside it get an error, and all other records are served.

A range whose files are missing cannot be repaired in place. A follower that found such damage at its start, and is out
of sync because of it, truncates its log to the start of the damage and fetches the rest from its leader. Before that it
verifies that the leader has all records that the truncation removes.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from penstock.cluster.image import RegisteredBroker
from penstock.config import REPLICA_SOCKET_TIMEOUT_MS
from penstock.errors import PenstockError, StorageError
from penstock.model import LeaderEpoch, Offset
from penstock.observability.alarms import AlarmKind
from penstock.observability.logs import Logger
from penstock.observability.metrics import BrokerMetrics
from penstock.records.iteration import read_batches
from penstock.replication.range_fetch import fetch_range, verify_range
from penstock.replication.replica import Replica
from penstock.server.context import BrokerContext
from penstock.state_log.coordinator import Coordinator
from penstock.storage.damage import DamagedRange
from penstock.storage.repair import Patch, check_copy, extent_of, locate

REPAIR_SECONDS = 1.0
_RETRY_SECONDS = 30.0


class Repairing:
    def __init__(self, context: BrokerContext, logger: Logger) -> None:
        self._context = context
        self._logger = logger
        self._tried: dict[tuple[Replica, DamagedRange], float] = {}
        """Monotonic time in seconds of the last attempt to repair each range."""
        self._refetched: dict[Replica, float] = {}
        """Monotonic time in seconds of the last attempt to fetch a damaged log again."""
        self.repaired_ranges = 0

    def show(self, metrics: BrokerMetrics) -> None:
        metrics.add_gauge(
            "penstock_damaged_ranges",
            "Ranges of offsets whose stored records cannot be read.",
            lambda: sum(len(replica.log.damage) for replica in self._context.replicas),
        )
        metrics.add_counter(
            "penstock_repaired_ranges",
            "Damaged ranges that were repaired from another replica.",
            lambda: self.repaired_ranges,
        )

    async def run(self) -> None:
        """Try to repair each damaged range. After a failure a range is tried again after `_RETRY_SECONDS`."""
        for replica in self._context.replicas.unsound:
            for damaged in replica.log.damage:
                await self._repair_if_due(replica, damaged)
            self._watch(replica)
            self._context.logs.forget_sound(replica.log)
            if replica.log.damage and replica.may_refetch:
                await self._refetch_if_due(replica)
        present = {
            (replica, each) for replica in self._context.replicas.unsound for each in replica.log.damage
        }
        self._tried = {key: time for key, time in self._tried.items() if key in present}

    def _watch(self, replica: Replica) -> None:
        damage, alarms = replica.log.damage, self._context.alarms
        if not damage:
            if alarms.has(AlarmKind.DAMAGED_LOG, replica.name):
                self._context.replicas.say_again(replica)
            alarms.clear(AlarmKind.DAMAGED_LOG, replica.name)
        elif not alarms.is_set(AlarmKind.DAMAGED_LOG, replica.name, str(damage[0])):
            alarms.set(AlarmKind.DAMAGED_LOG, replica.name, str(damage[0]))

    async def _repair_if_due(self, replica: Replica, damaged: DamagedRange) -> None:
        now = self._context.clock.monotonic()
        if now < self._tried.get((replica, damaged), now - _RETRY_SECONDS) + _RETRY_SECONDS:
            return
        self._tried[replica, damaged] = now
        self._watch(replica)
        try:
            await self._repair(replica, damaged)
        except (PenstockError, OSError, TimeoutError) as error:
            self._logger.error_rarely(
                "damaged records could not be repaired", error, partition=replica.name, damage=damaged
            )

    async def _repair(self, replica: Replica, damaged: DamagedRange) -> None:
        log = replica.log
        extent = extent_of(log, damaged)
        if extent is None or damaged.end_offset > replica.log.high_watermark:
            raise StorageError("the range is not within one segment, or not committed yet")
        target = await self._context.threads.run("background", partial(locate, extent, damaged))
        content = await self._fetch(replica, damaged, target.end - target.position)
        if not log.jobs.begin_patch(target.segment):
            raise StorageError("another job is changing the files of the log")
        patch = Patch(self._context.disk, target, content)
        try:
            await self._context.threads.run("background", patch.work)
        except OSError as error:
            log.jobs.abandon_patch(target.segment, error)
            raise
        log.jobs.finish_patch(target.segment, damaged)
        for header, _ in reversed(list(read_batches(content))):
            log.leader_epochs.add_earlier(LeaderEpoch(header.leader_epoch), Offset(header.base_offset))
        if replica.keyed is not None:
            replica.keyed.on_repaired(target.segment)
        for projected in replica.projections:
            projected.on_repaired(target.segment)
        coordinators: tuple[Coordinator[Any], ...] = (
            self._context.groups,
            self._context.transactions,
            self._context.share.coordinator,
            *self._context.objects.coordinators,
        )
        for coordinator in coordinators:
            coordinator.on_repaired(replica)
        self.repaired_ranges += 1
        self._logger.info("damaged records repaired", partition=replica.name, damage=damaged)

    async def _refetch_if_due(self, replica: Replica) -> None:
        now = self._context.clock.monotonic()
        if now < self._refetched.get(replica, now - _RETRY_SECONDS) + _RETRY_SECONDS:
            return
        self._refetched[replica] = now
        try:
            await self._refetch(replica)
        except (PenstockError, OSError, TimeoutError) as error:
            self._logger.error_rarely("damaged log could not be fetched again", error, partition=replica.name)

    async def _refetch(self, replica: Replica) -> None:
        """Truncate the log to the start of the first damaged range, if this replica is a follower out of sync and its
        leader has all removed records. Raises StorageError otherwise.
        """
        context, log, start = self._context, replica.log, replica.log.damage[0].base_offset
        epoch = replica.partition.leader_epoch
        state = context.image.partition(replica.name)
        leader = None if state is None else context.image.brokers.get(state.leader)
        if leader is None or not self._may_refetch(replica, epoch):
            raise StorageError("this replica is leader or in sync, or the partition has no leader")
        end = max(start, min(replica.log.high_watermark, log.log_end_offset))
        await verify_range(
            context.replicas.context,
            context.replicas.secret,
            leader,
            (replica.topic_id, replica.name.partition),
            DamagedRange(start, end, ""),
            context.config[REPLICA_SOCKET_TIMEOUT_MS] / 1000,
        )
        if not self._may_refetch(replica, epoch):
            raise StorageError("the role of the replica has changed")
        work = partial(context.logs.truncate, log, start, context.clock.now_ms())
        if not await context.replicas.refetch(replica, leader.node_id, work):
            raise StorageError("another job is changing the files of the log")
        self._logger.info("fetching damaged log again", partition=replica.name, offset=start, log_end=end)

    def _may_refetch(self, replica: Replica, epoch: LeaderEpoch) -> bool:
        partition = replica.partition
        return (
            replica.may_refetch
            and not partition.is_leader
            and partition.leader_epoch == epoch
            and not self._context.replicas.is_in_sync(replica)
        )

    async def _fetch(self, replica: Replica, damaged: DamagedRange, size: int) -> memoryview:
        """Batches of the range from the first replica that has all of them; their size must be `size` bytes, as in this
        log.
        """
        context, log = self._context, replica.log
        is_sparse = log.config.compacts or log.cleaned_offset > 0
        failures: list[str] = []
        for source in self._sources(replica):
            try:
                content = await fetch_range(
                    context.replicas.context,
                    context.replicas.secret,
                    source,
                    (replica.topic_id, replica.name.partition),
                    damaged,
                    context.config[REPLICA_SOCKET_TIMEOUT_MS] / 1000,
                )
                check_copy(
                    content,
                    damaged,
                    log.leader_epochs,
                    is_sparse=is_sparse,
                    is_in_sync=self._is_in_sync(replica, source),
                )
                if len(content) != size:
                    raise StorageError(
                        f"the replica's batches have {len(content)} bytes, not {size} as the damaged range"
                    )
            except (PenstockError, OSError, TimeoutError) as error:
                failures.append(f"broker {source.node_id}: {error or 'no response in time'}")
            else:
                return content
        raise StorageError(
            f"no other replica has the records: {'; '.join(failures) or 'there is no other replica'}"
        )

    def _is_in_sync(self, replica: Replica, source: RegisteredBroker) -> bool:
        state = self._context.image.partition(replica.name)
        return state is not None and source.node_id in (state.leader, *state.isr)

    def _sources(self, replica: Replica) -> list[RegisteredBroker]:
        """Registered brokers with another replica: the leader first, then the in-sync set, then the others."""
        image = self._context.image
        state = image.partition(replica.name)
        if state is None:
            return []
        order = dict.fromkeys((state.leader, *state.isr, *state.replicas))
        return [
            image.brokers[each] for each in order if each in image.brokers and each != self._context.node_id
        ]
