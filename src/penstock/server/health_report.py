"""Health of a broker, as `/health` shows it."""

from __future__ import annotations

from penstock.gateway.health import BrokerState, Health, PartitionDamage
from penstock.observability.alarms import Alarms
from penstock.replication.replica_manager import ReplicaManager
from penstock.storage.log_manager import LogManager


def report_health(state: BrokerState, replicas: ReplicaManager, logs: LogManager, alarms: Alarms) -> Health:
    failed = tuple(str(replica.name) for replica in replicas if replica.log.failed)
    damage = tuple(
        PartitionDamage(replica.name, damaged.base_offset, damaged.end_offset, damaged.reason)
        for replica in replicas
        for damaged in replica.log.damage
    )
    return Health(state, failed, logs.full, damage, alarms.present)
