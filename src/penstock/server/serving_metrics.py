"""Metrics of serving clients and storing their records."""

from __future__ import annotations

from collections.abc import Iterator

from penstock.observability.metrics import BrokerMetrics, TopicSize
from penstock.replication.replica_manager import ReplicaManager
from penstock.server.acceptor import Acceptor
from penstock.server.context import BrokerContext


class ServingMetrics:
    def __init__(self, context: BrokerContext, acceptor: Acceptor) -> None:
        self._context = context
        self._acceptor = acceptor

    def show(self, metrics: BrokerMetrics) -> None:
        traffic, replicas = self._acceptor.traffic, self._context.replicas
        metrics.add_counter(
            "penstock_received_bytes", "Bytes received from clients.", lambda: traffic.received_bytes
        )
        metrics.add_counter("penstock_sent_bytes", "Bytes sent to clients.", lambda: traffic.sent_bytes)
        metrics.add_gauge(
            "penstock_request_memory_bytes",
            "Memory held by requests without a response.",
            lambda: traffic.memory.used_bytes,
        )
        metrics.add_gauge("penstock_connections", "Open connections.", lambda: self._acceptor.connections)
        metrics.add_gauge("penstock_partitions", "Partitions on this broker.", lambda: len(replicas))
        metrics.add_gauge(
            "penstock_failed_logs",
            "Logs taken out of service by an I/O error.",
            lambda: sum(replica.log.failed for replica in replicas),
        )
        metrics.add_gauge(
            "penstock_disk_full",
            "1 while writes are refused because the disk is full, else 0.",
            lambda: self._context.logs.full,
        )
        metrics.add_gauge(
            "penstock_fetch_sessions",
            "Incremental fetch sessions in the cache.",
            lambda: len(self._context.fetch_sessions),
        )
        metrics.topic_sizes = lambda: _topic_sizes(replicas)


def _topic_sizes(replicas: ReplicaManager) -> Iterator[TopicSize]:
    """Sizes of all partitions, lazily, so that they can be read in slices."""
    for replica in list(replicas):
        log = replica.log
        yield TopicSize(replica.name.topic, 1, log.size_bytes, log.log_end_offset)
