"""Metrics of replication: the partitions that this broker leads, and the state of the cluster in its image."""

from __future__ import annotations

from collections.abc import Iterator

from penstock.cluster.image import NO_LEADER
from penstock.cluster.metadata import ClusterMetadata
from penstock.model import BrokerId
from penstock.observability.metrics import BrokerMetrics
from penstock.replication.in_sync_writer import InSyncWriter
from penstock.replication.replica import Replica
from penstock.replication.replica_manager import ReplicaManager


class ReplicationMetrics:
    def __init__(
        self, node_id: BrokerId, metadata: ClusterMetadata, replicas: ReplicaManager, writer: InSyncWriter
    ) -> None:
        self._node_id = node_id
        self._metadata = metadata
        self._replicas = replicas
        self._writer = writer

    def show(self, metrics: BrokerMetrics) -> None:
        writer, metadata = self._writer, self._metadata
        metrics.add_gauge(
            "penstock_leader_partitions", "Partitions this broker leads.", lambda: sum(1 for _ in self._led())
        )
        metrics.add_gauge(
            "penstock_under_replicated_partitions",
            "Partitions led by this broker with a replica that is not in sync.",
            lambda: sum(
                len(each.partition.in_sync.recorded) <= self._followers(each) for each in self._led()
            ),
        )
        metrics.add_gauge(
            "penstock_under_min_isr_partitions",
            "Partitions led by this broker with fewer in-sync replicas than min.insync.replicas.",
            lambda: sum(each.refuses_acks_all for each in self._led()),
        )
        metrics.add_gauge(
            "penstock_replica_max_lag_records",
            "Lag in records of the slowest follower of all partitions that this broker leads.",
            lambda: max((self._lag(each) for each in self._led()), default=0),
        )
        metrics.add_gauge(
            "penstock_offline_partitions", "Partitions of the cluster without a leader.", self._offline
        )
        metrics.add_gauge(
            "penstock_moving_partitions",
            "Partitions of the cluster with a reassignment in progress.",
            self._moving,
        )
        metrics.add_gauge(
            "penstock_brokers", "Brokers registered in the cluster.", lambda: len(metadata.image.brokers)
        )
        metrics.add_gauge(
            "penstock_is_controller",
            "1 on the broker that is the controller.",
            lambda: metadata.image.controller_id == self._node_id,
        )
        metrics.add_counter(
            "penstock_in_sync_shrinks",
            "Removals of replicas from the in-sync replicas of a partition.",
            lambda: writer.shrinks,
        )
        metrics.add_counter(
            "penstock_in_sync_expansions",
            "Additions of replicas to the in-sync replicas of a partition.",
            lambda: writer.expansions,
        )

        self._show_views(metrics)
        self._show_delays(metrics)

    def _show_delays(self, metrics: BrokerMetrics) -> None:
        counts = self._replicas.delay_counts
        metrics.delivery_lateness = counts.lateness
        metrics.add_gauge(
            "penstock_delayed_pending_messages",
            "Delayed messages of the partitions that this broker leads that are not delivered yet.",
            lambda: counts.pending,
        )
        metrics.add_counter(
            "penstock_retried_records",
            "Records that were produced to retry topics of consumer groups for another attempt.",
            lambda: counts.retried,
        )
        metrics.add_counter(
            "penstock_exhausted_retries",
            "Batches that retry topics have refused, because a record had no attempt left.",
            lambda: counts.exhausted,
        )
        metrics.add_counter(
            "penstock_delayed_delivered_messages", "Delayed messages delivered.", lambda: counts.delivered
        )
        metrics.add_counter(
            "penstock_delayed_cancelled_messages", "Delayed messages cancelled.", lambda: counts.cancelled
        )
        metrics.add_counter(
            "penstock_delayed_moved_messages",
            "Pending messages that were stored again before retention deleted their segment.",
            lambda: counts.moved,
        )
        metrics.add_gauge(
            "penstock_delayed_held_segments",
            "Segments above retention.bytes that are kept, because most of their messages are pending.",
            lambda: counts.held_segments,
        )
        metrics.add_counter(
            "penstock_delayed_unreadable_records",
            "Attempts to read a damaged record of a topic with delayed messages.",
            lambda: counts.unreadable,
        )

    def _show_views(self, metrics: BrokerMetrics) -> None:
        slots = self._replicas.scan_slots
        metrics.add_counter(
            "penstock_view_scanned_records",
            "Records that the filter of a view was evaluated on.",
            lambda: slots.scanned,
        )
        metrics.add_counter(
            "penstock_view_matched_records", "Records that matched a view.", lambda: slots.matched
        )
        metrics.add_counter(
            "penstock_view_failed_records",
            "Records on which the evaluation of a filter failed, so that they match no view.",
            lambda: slots.failed,
        )
        metrics.add_gauge(
            "penstock_view_index_bytes",
            "Memory of the indexes of matching records.",
            lambda: sum(
                projected.index.size_bytes for replica in self._replicas for projected in replica.projections
            ),
        )
        metrics.add_gauge(
            "penstock_view_index_stored_entries",
            "Entries in index files of views that are in use.",
            lambda: sum(
                projected.index.stored_entries
                for replica in self._replicas
                for projected in replica.projections
            ),
        )

    def _led(self) -> Iterator[Replica]:
        return (replica for replica in self._replicas if replica.partition.is_leader)

    def _followers(self, replica: Replica) -> int:
        return len(replica.partition.in_sync.followers)

    def _lag(self, replica: Replica) -> int:
        followers = replica.partition.in_sync.followers.values()
        end = replica.log.log_end_offset
        return max((end - max(0, follower.log_end) for follower in followers), default=0)

    def _offline(self) -> int:
        topics = self._metadata.image.topics.values()
        return sum(state.leader == NO_LEADER for topic in topics for state in topic.partitions)

    def _moving(self) -> int:
        topics = self._metadata.image.topics.values()
        return sum(state.is_reassigning for topic in topics for state in topic.partitions)
