"""A broker, put together: the one place that constructs its parts, starts them in order and stops them in reverse.

Order at start: the data directory is locked and its logs are recovered, the store is read and the broker registered,
leadership is taken, and only then does the listener answer. At a clean stop everything is flushed and a mark says so,
which makes the next start instant.
"""

from __future__ import annotations

import asyncio
from enum import Enum

from penstock.cluster.controller import Controller
from penstock.cluster.image import ImageChange
from penstock.config import (
    HOST,
    MAX_INCREMENTAL_FETCH_SESSION_CACHE_SLOTS,
    METRICS_MAX_TOPICS,
    MIN_INCREMENTAL_FETCH_SESSION_EVICTION_MS,
    NODE_ID,
    PORT,
    SHUTDOWN_TIMEOUT_MS,
    BrokerConfig,
)
from penstock.model import BrokerEpoch, BrokerId
from penstock.observability.logs import Log
from penstock.observability.loop_lag import LoopLag
from penstock.observability.metrics import BrokerMetrics
from penstock.replication.flusher import Flusher
from penstock.replication.replica_manager import ReplicaManager
from penstock.server.acceptor import Acceptor
from penstock.server.context import BrokerContext
from penstock.server.dispatch import Dispatcher
from penstock.server.environment import Environment
from penstock.server.fetch_sessions import FetchSessions
from penstock.server.handlers import all_apis
from penstock.server.maintenance import Maintenance
from penstock.server.producer_ids import ProducerIds
from penstock.server.security import AllowAll
from penstock.storage.log_manager import LogManager
from penstock.wire.apis import api_name

SESSION_PARTITIONS_PER_SLOT = 100


class State(Enum):
    STARTING = "starting"
    SERVING = "serving"
    STOPPING = "stopping"


class Broker:
    def __init__(self, config: BrokerConfig, environment: Environment, log: Log) -> None:
        self.state = State.STARTING
        self.port = config[PORT]
        self.metrics = BrokerMetrics({api.key: api_name(api.key) for api in all_apis()}, config[METRICS_MAX_TOPICS])
        self._static_config = config
        self._environment = environment
        self._log = log
        self._node_id = BrokerId(config[NODE_ID])
        self._loop_lag = LoopLag(self.metrics.event_loop_lag)
