"""Registration of the metrics of a broker's parts."""

from __future__ import annotations

from penstock.cluster.cluster_metrics import ClusterMetrics
from penstock.cluster.peers import Peers
from penstock.config import METRICS_MAX_GROUPS
from penstock.groups.group_metrics import GroupMetrics
from penstock.replication.in_sync_writer import InSyncWriter
from penstock.replication.replication_metrics import ReplicationMetrics
from penstock.server.acceptor import Acceptor
from penstock.server.context import BrokerContext
from penstock.server.draining.draining_metrics import DrainingMetrics
from penstock.server.serving_metrics import ServingMetrics
from penstock.transactions.transaction_metrics import TransactionMetrics


def show_metrics(context: BrokerContext, acceptor: Acceptor, peers: Peers, in_sync: InSyncWriter) -> None:
    metrics, metadata, replicas = context.metrics, context.metadata, context.replicas
    ServingMetrics(context, acceptor).show(metrics)
    ClusterMetrics(metadata, peers).show(metrics)
    ReplicationMetrics(context.node_id, metadata, replicas, in_sync).show(metrics)
    GroupMetrics(context.groups, replicas, context.config[METRICS_MAX_GROUPS]).show(metrics)
    context.share.show(metrics)
    context.objects.show(metrics)
    metrics.add_counter(
        "penstock_throttled_requests",
        "Requests of clients over a quota.",
        lambda: 0 if context.quotas is None else context.quotas.throttled_requests,
    )
    metrics.add_counter(
        "penstock_throttled_seconds",
        "Time for which clients over a quota were throttled.",
        lambda: 0 if context.quotas is None else context.quotas.throttled_seconds,
    )
    if context.draining is not None:
        DrainingMetrics(context, context.draining).show(metrics)
    audit = context.authorization.audit
    if audit is not None:
        metrics.add_counter("penstock_audit_lines", "Lines of the audit log.", lambda: audit.written)
        metrics.add_counter("penstock_audit_lines_lost", "Lost lines of the audit log.", lambda: audit.lost)
    metrics.add_counter(
        "penstock_authorization_refusals",
        "Requests that no ACL allows; with authorization.mode=report, requests that enforce would refuse.",
        lambda: context.authorization.refusals.total,
    )
    TransactionMetrics(context.transactions, context.hanging_transactions).show(metrics)
