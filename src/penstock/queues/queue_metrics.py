"""Metrics of the share-partitions that this broker serves: sums that are computed on the event loop at each scrape."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from penstock.observability.metrics import BrokerMetrics
from penstock.queues.dead_letter_record import reason_name
from penstock.queues.share_partition import SharePartition
from penstock.queues.share_partitions import SharePartitions
from penstock.queues.states import DeadReason
from penstock.records.priority import LEVELS


def _blocked_keys(partition: SharePartition) -> tuple[int, int]:
    """Number of keys with blocked records, and number of blocked records."""
    keys = None if partition.order is None else partition.order.keys
    return (0, 0) if keys is None else (keys.blocked_keys, len(keys.blocked))


class QueueMetrics:
    def __init__(self, partitions: SharePartitions, sessions: Callable[[], int]) -> None:
        self._partitions = partitions
        self._sessions = sessions

    def show(self, metrics: BrokerMetrics) -> None:
        metrics.add_gauge("penstock_share_sessions", "Open share sessions.", self._sessions)
        metrics.add_gauge(
            "penstock_share_partitions", "Share-partitions in memory.", lambda: len(self._partitions)
        )
        metrics.add_gauge(
            "penstock_share_records_in_flight",
            "Records that members of share groups have acquired.",
            lambda: self._sum(lambda each: each.acquired),
        )
        metrics.add_gauge(
            "penstock_share_records_waiting",
            "Records that wait for redelivery: released, or their lock has expired.",
            lambda: self._sum(lambda each: each.released),
        )
        metrics.add_gauge(
            "penstock_share_records_delayed",
            "Records that wait for the time of their next delivery: back-off, or a delayed release.",
            lambda: self._sum(lambda each: each.waiting),
        )
        metrics.add_gauge(
            "penstock_share_records_archiving",
            "Records that wait until their dead letter can be written.",
            lambda: self._sum(lambda each: each.archiving),
        )
        metrics.add_gauge(
            "penstock_share_lag",
            "Records that share groups have not settled, in share-partitions in memory.",
            self._lag,
        )
        metrics.add_gauge(
            "penstock_share_oldest_lock_seconds",
            "Age in seconds of the oldest lock of a record.",
            self._oldest_lock_seconds,
        )
        self._show_counters(metrics)
        self._show_order(metrics)

    def _show_order(self, metrics: BrokerMetrics) -> None:
        metrics.add_gauge(
            "penstock_share_blocked_keys",
            "Keys with records that wait until an earlier record of the key is settled (share.order=key).",
            lambda: self._sum(lambda each: _blocked_keys(each)[0]),
        )
        metrics.add_gauge(
            "penstock_share_blocked_records",
            "Records that wait until an earlier record of their key is settled (share.order=key).",
            lambda: self._sum(lambda each: _blocked_keys(each)[1]),
        )
        for level in range(LEVELS):
            metrics.add_counter(
                f"penstock_share_delivered_priority_{level}",
                f"Deliveries of records of priority {level}, in groups with share.priority.enable.",
                partial(self._delivered, level),
            )

    def _delivered(self, level: int) -> int:
        return self._partitions.counts.delivered[level] + self._sum(lambda each: each.delivered[level])

    def _show_counters(self, metrics: BrokerMetrics) -> None:
        counts = self._partitions.counts
        for reason in DeadReason:
            if reason is not DeadReason.NONE:
                name = reason_name(reason)
                metrics.add_counter(
                    f"penstock_share_dead_letters_{name}",
                    f"Dead letters that were written, with the reason {name}.",
                    partial(self._dead_letters, int(reason)),
                )
        metrics.add_counter(
            "penstock_share_lock_timeouts",
            "Records whose lock has expired.",
            lambda: counts.lock_timeouts + self._sum(lambda each: each.lock_timeouts),
        )
        metrics.add_counter(
            "penstock_share_redelivered",
            "Records that were delivered again.",
            lambda: counts.redelivered + self._sum(lambda each: each.redelivered),
        )
        metrics.add_counter(
            "penstock_share_archived",
            "Records that were archived because of the delivery limit.",
            lambda: counts.archived + self._sum(lambda each: each.archived_by_limit),
        )

    def _dead_letters(self, code: int) -> int:
        now = sum(leader.letters.written.get(code, 0) for leader in self._partitions.all)
        return self._partitions.counts.dead_letters.get(code, 0) + now

    def _sum(self, read: Callable[[SharePartition], int]) -> int:
        return sum(read(each.partition) for each in self._partitions.all if each.partition is not None)

    def _lag(self) -> int:
        return sum(
            max(0, leader.read_limit - leader.partition.start_offset - leader.partition.settled)
            for leader in self._partitions.all
            if leader.partition is not None
        )

    def _oldest_lock_seconds(self) -> float:
        now_ms = self._partitions.timers.now_ms()
        ages = [
            now_ms - (deadline_ms - leader.lock_ms)
            for leader in self._partitions.all
            if leader.partition is not None
            and (deadline_ms := leader.partition.oldest_deadline_ms()) is not None
        ]
        return max(ages, default=0) / 1000
