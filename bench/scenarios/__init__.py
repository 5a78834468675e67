"""The scenarios of the performance tables by name, for one broker and for a cluster of three.

`paired` scenarios share running servers and end with their memory; `alone` scenarios start their own
servers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from bench.comparison import Bar, Row
from bench.context import Context
from bench.scenarios import (
    cluster_costs,
    cluster_failover,
    cluster_load,
    cluster_pace,
    cluster_start,
    connections,
    consume,
    delays,
    durability,
    gateway,
    gateway_capacity,
    groups,
    heartbeats,
    isolation,
    orders,
    partitions,
    peers,
    pipeline,
    pipeline_overheads,
    produce,
    profiles,
    push,
    queues,
    rights,
    share_holders,
    shares,
    start,
    stored_bytes,
    synchronous,
    tls,
    transactions,
    views,
)
from bench.target import Target

Paired = dict[str, Callable[[Context, Sequence[Target]], list[Row]]]
Alone = dict[str, Callable[[Context], list[Row]]]


@dataclass(frozen=True, slots=True)
class Scenarios:
    paired: Paired
    alone: Alone
    memory_bar: Bar

    @property
    def names(self) -> list[str]:
        return [*self.paired, *self.alone]


_PAIRED: Paired = {
    "produce-1k": produce.one_kilobyte,
    "produce-100b": produce.hundred_bytes,
    "produce-lz4": produce.lz4,
    "produce-idempotent": produce.idempotent,
    "one-record": produce.one_record_requests,
    "one-record-raw": produce.raw_one_record_requests,
    "produce-raw": produce.raw_batches,
    "consume-1k": consume.one_kilobyte,
    "synchronous": synchronous.one_at_a_time,
}
_ALONE: Alone = {
    "start": start.first_answer,
    "partitions": partitions.ten_thousand,
    "connections": connections.ten_thousand,
    "stored-bytes": stored_bytes.hundred_gigabytes,
    "durability": durability.default_durability,
    "isolation": isolation.noisy_neighbours,
    "groups-join": groups.joining,
    "groups-crash": groups.crashing,
    "groups-commit": groups.committing,
    "groups-heartbeat": heartbeats.ten_thousand_groups,
    "shares-one": shares.one_at_a_time,
    "shares-bulk": shares.in_bulk,
    "shares-thousand": shares.thousand_consumers,
    "order-by-key": orders.by_key,
    "priority-over-backlog": orders.urgent,
    "shares-holder": share_holders.slow_holder,
    "shares-in-flight": share_holders.in_flight,
    "webhooks": push.webhook_calls,
    "queue-streams": push.queue_streams,
    "queue-peers": peers.one_by_one,
    "queue-one": queues.workers,
    "queue-hundred": queues.hundreds,
    "queue-http": queues.requests,
    "queue-releases": queues.releases,
    "queue-dead-letters": queues.dead_letters,
    "profiles": profiles.both,
    "transactions": transactions.one_broker,
    "tls": tls.encrypted,
    "rights-rules": rights.rules,
    "rights-quotas": rights.unused_quotas,
    "rights-neighbours": rights.one_broker,
    "views": views.beside_client_filters,
    "view-json": views.json_filter,
    "delay-produce": delays.produced,
    "delay-due": delays.coming_due,
    "delay-burst": delays.at_once,
    "delay-pending": delays.pending,
    "pipeline": pipeline.to_nowhere_and_archive,
    "pipeline-overheads": pipeline_overheads.small_batches_and_typed_values,
    "gateway-mailboxes": gateway.mailboxes,
    "gateway-batches": gateway.batches,
    "gateway-events": gateway.idle_events,
    "gateway-isolation": gateway.slow_clients,
}
_CLUSTERS: Paired = {
    "cluster-produce-1k": cluster_load.one_kilobyte,
    "cluster-synchronous": cluster_load.one_at_a_time,
    "cluster-one-record": cluster_load.one_record_requests,
    "cluster-end-to-end": cluster_pace.end_to_end,
    "cluster-transactions": transactions.three_brokers,
    "cluster-surge": cluster_pace.surge,
}
_CLUSTERS_ALONE: Alone = {
    "cluster-start": cluster_start.first_write,
    "cluster-neighbours": rights.three_brokers,
    "cluster-kill": cluster_failover.killed,
    "cluster-silence": cluster_failover.silent,
    "cluster-shares-kill": cluster_failover.shares_killed,
    "cluster-costs": cluster_costs.small_things,
    "cluster-gateway": gateway_capacity.seed,
    "cluster-gateway-surge": gateway_capacity.surge,
}
ONE_BROKER = Scenarios(_PAIRED, _ALONE, Bar("ratio", "at most", 0.15))
THREE_BROKERS = Scenarios(_CLUSTERS, _CLUSTERS_ALONE, Bar("ratio", "at most", 0.3))
