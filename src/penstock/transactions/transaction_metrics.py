"""Metrics of the transaction coordinator."""

from __future__ import annotations

from collections.abc import Iterator

from penstock.observability.metrics import BrokerMetrics
from penstock.transactions.coordinator import TransactionCoordinator
from penstock.transactions.hanging import HangingTransactions
from penstock.transactions.transaction import Transaction, TransactionState


class TransactionMetrics:
    def __init__(self, transactions: TransactionCoordinator, hanging: HangingTransactions) -> None:
        self._transactions = transactions
        self._hanging = hanging

    def show(self, metrics: BrokerMetrics) -> None:
        coordinator, counts = self._transactions, self._transactions.counts
        metrics.add_gauge(
            "penstock_transactional_ids",
            "Transactional ids that this broker coordinates.",
            lambda: coordinator.id_count,
        )
        metrics.add_gauge("penstock_open_transactions", "Transactions that are open.", self._count_open)
        metrics.add_gauge(
            "penstock_ending_transactions",
            "Transactions whose outcome is decided and not yet written to all partitions.",
            self._count_ending,
        )
        metrics.add_gauge(
            "penstock_oldest_open_transaction_seconds",
            "How long the oldest open transaction has been open.",
            self._oldest_seconds,
        )
        metrics.add_counter("penstock_transaction_commits", "Transactions committed.", lambda: counts.commits)
        metrics.add_counter("penstock_transaction_aborts", "Transactions aborted.", lambda: counts.aborts)
        metrics.add_counter(
            "penstock_transaction_timeouts",
            "Transactions aborted because they were open for too long.",
            lambda: counts.timeouts,
        )
        metrics.add_counter(
            "penstock_hanging_transaction_aborts",
            "Hanging transactions, unknown to every coordinator, aborted in partitions that this broker leads.",
            lambda: self._hanging.aborts,
        )
        metrics.add_counter(
            "penstock_transaction_late_requests",
            "Requests about transactions refused because their producer uses a newer connection.",
            lambda: counts.late_requests,
        )
        metrics.add_counter(
            "penstock_transaction_unknown_records",
            "Records of __transaction_state that could not be decoded and were skipped.",
            lambda: coordinator.unknown_records,
        )
        metrics.add_counter(
            "penstock_transaction_load_seconds",
            "Time spent on loading transactions from __transaction_state.",
            lambda: coordinator.load_seconds,
        )

    def _all(self) -> Iterator[Transaction]:
        return (
            transaction for shard in self._transactions.shards for transaction in shard.transactions.values()
        )

    def _open(self) -> Iterator[Transaction]:
        return (each for each in self._all() if each.state is TransactionState.ONGOING)

    def _count_open(self) -> int:
        return sum(1 for _ in self._open())

    def _count_ending(self) -> int:
        return sum(each.is_ending for each in self._all())

    def _oldest_seconds(self) -> float:
        now_ms = self._transactions.wall_ms()
        return max((now_ms - each.start_ms for each in self._open()), default=0) / 1000
