"""Broker: the one place that constructs its parts, starts them in order and stops them in reverse.

Order at the start: lock the data directory and recover the logs, read the store and register the broker,
take up leadership, and only then open the listener. A clean stop flushes everything and leaves a mark,
which makes the next start instant.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from random import Random

from penstock.cluster.administration import Administration
from penstock.cluster.broker_removal import BrokerRemoval
from penstock.cluster.change_list import ChangeList
from penstock.cluster.change_maker import ChangeMaker
from penstock.cluster.cluster_metrics import ClusterMetrics
from penstock.cluster.controller import Controller
from penstock.cluster.coordination import SessionState
from penstock.cluster.deletions import deleted_topics
from penstock.cluster.election import initialize_store
from penstock.cluster.image import ClusterImage, ImageChange
from penstock.cluster.membership import BrokerIdentity, Membership
from penstock.cluster.metadata import ClusterMetadata
from penstock.cluster.partition_admin import PartitionAdministration
from penstock.cluster.peers import PeerContext, Peers
from penstock.cluster.topics import draw_uuid
from penstock.config import (
    BROKER_RACK,
    GATEWAY_ENABLE,
    HOST,
    HTTP_PORT,
    LOG_OPEN_FILES_MAX,
    MAX_INCREMENTAL_FETCH_SESSION_CACHE_SLOTS,
    METRICS_MAX_GROUPS,
    METRICS_MAX_TOPICS,
    MIN_INCREMENTAL_FETCH_SESSION_EVICTION_MS,
    NODE_ID,
    PORT,
    SHUTDOWN_TIMEOUT_MS,
    Address,
    BrokerConfig,
)
from penstock.errors import PenstockError
from penstock.gateway.context import ClusterAddress, GatewayContext
from penstock.gateway.health import BrokerState, Health, PartitionDamage
from penstock.gateway.http.service import HttpService
from penstock.groups.coordinator import GroupCoordinator
from penstock.groups.group_metrics import GroupMetrics
from penstock.model import BrokerEpoch, BrokerId, TopicPartition
from penstock.observability.alarms import Alarms
from penstock.observability.logs import Logger
from penstock.observability.loop_lag import LoopLag
from penstock.observability.metrics import BrokerMetrics
from penstock.replication.context import ReplicationContext
from penstock.replication.flusher import Flusher
from penstock.replication.in_sync_store import RecordedInSync
from penstock.replication.in_sync_writer import InSyncWriter
from penstock.replication.replica import Replica
from penstock.replication.replica_manager import ReplicaManager
from penstock.replication.replication_metrics import ReplicationMetrics
from penstock.server.acceptor import Acceptor
from penstock.server.connection_numbers import ConnectionNumbers
from penstock.server.context import BrokerContext
from penstock.server.dispatch import Dispatcher
from penstock.server.environment import Environment
from penstock.server.fetch_sessions import FetchSessions
from penstock.server.handlers import all_apis
from penstock.server.long_polls import LongPolls
from penstock.server.maintenance import Maintenance
from penstock.server.marker_writing import MarkerWriter
from penstock.server.producer_ids import ProducerIds
from penstock.server.security import ANONYMOUS, AllowAll, Operation, ResourceType
from penstock.server.serving_metrics import ServingMetrics
from penstock.state_log.shards import CoordinatorContext
from penstock.storage.log_manager import LogManager
from penstock.transactions.coordinator import TransactionCoordinator
from penstock.transactions.hanging import HangingTransactions
from penstock.transactions.links import BrokerLinks
from penstock.transactions.markers import Markers
from penstock.transactions.transaction_metrics import TransactionMetrics
from penstock.transactions.verification import Verifier
from penstock.wire.apis import api_name

SESSION_PARTITIONS_PER_SLOT = 100

LOOPBACK = {"": "127.0.0.1", "0.0.0.0": "127.0.0.1", "::": "::1"}
"""Addresses by which a broker that listens on all interfaces reaches itself."""

LEAVE_SECONDS = 5.0
"""Time in seconds that a stopping broker waits for the controller to move its leaderships."""


class Broker:
    def __init__(
        self,
        config: BrokerConfig,
        environment: Environment,
        logger: Logger,
        on_lost: Callable[[], None] = lambda: None,
    ) -> None:
        """`on_lost` is called when the broker has left the cluster: it serves no request and has to be
        stopped.
        """
        apis = all_apis()
        self.is_lost = False
        self.state = BrokerState.STARTING
        self.port = config[PORT]
        self.http_port = config[HTTP_PORT]
        self._config = config
        self._environment = environment
        self._logger = logger
        self._node_id = BrokerId(config[NODE_ID])
        self._epoch = BrokerEpoch(-1)
        self._on_lost = on_lost
        clock, threads = environment.clock, environment.threads
        self._metrics = BrokerMetrics(
            {api.key: api_name(api.key) for api in apis}, config[METRICS_MAX_TOPICS]
        )
        self._alarms = Alarms(clock, logger, self._metrics)
        self._logs = LogManager(environment.disk, self._node_id, config[LOG_OPEN_FILES_MAX])
        self._join_cluster()
        self._flusher = Flusher(environment.disk, threads, clock, self._metrics.flushes.observe)
        context = ReplicationContext(
            self._node_id,
            self._logs,
            self._flusher,
            threads,
            clock,
            environment.network,
            environment.random,
            logger,
            self._alarms,
            self._on_connection_lost,
        )
        self._replicas = ReplicaManager(context, config)
        in_sync_store = RecordedInSync(self._changes, self._node_id)
        self._in_sync_writer = InSyncWriter(self._replicas, in_sync_store, clock, logger)
        coordination = CoordinatorContext(
            self._node_id, self._metadata, self._administration, self._replicas, clock, threads, logger
        )
        self._groups = GroupCoordinator(coordination)
        self._coordinate_transactions(coordination)
        self._context = BrokerContext(
            node_id=self._node_id,
            config=config,
            clock=clock,
            threads=threads,
            disk=environment.disk,
            metadata=self._metadata,
            administration=self._administration,
            partition_admin=PartitionAdministration(self._metadata, self._changes, logger),
            logs=self._logs,
            replicas=self._replicas,
            groups=self._groups,
            transactions=self._transactions,
            verifier=self._verifier,
            marker_writer=self._marker_writer,
            hanging_transactions=self._hanging_transactions,
            connection_numbers=self._connection_numbers,
            producer_ids=self._producer_ids,
            fetch_sessions=self._make_fetch_sessions(),
            long_polls=LongPolls(Random(environment.random.getrandbits(64))),
            authorizer=AllowAll(),
            metrics=self._metrics,
            alarms=self._alarms,
            random=environment.random,
        )
        self._dispatcher = Dispatcher(self._context, apis)
        self._acceptor = Acceptor(self._context, self._dispatcher, logger)
        self._maintenance = Maintenance(
            self._context, self._logs, environment.disk, logger, self._on_failed_log
        )
        self._http = HttpService(threads, self._metrics, self._health)
        self._loop_lag = LoopLag(self._metrics.event_loop_lag)

    def _join_cluster(self) -> None:
        store, random, node_id, logger = (
            self._environment.store,
            self._environment.random,
            self._node_id,
            self._logger,
        )
        self._metadata = ClusterMetadata(store, node_id, self._config, logger)
        change_list = ChangeList(store, f"{node_id}-{random.getrandbits(64):x}")
        self._changes = ChangeMaker(store, self._metadata, node_id, change_list)
        self._administration = Administration(store, self._metadata, self._changes, random)
        self._membership = Membership(store, self._metadata, self._changes, node_id)
        self._controller = Controller(store, self._metadata, self._changes, change_list, node_id, logger)
        peer_context = PeerContext(
            node_id,
            self._environment.network,
            self._environment.clock,
            logger,
            self._on_connection_lost,
            self._metrics.failovers.observe,
        )
        removal = BrokerRemoval(store, self._metadata, change_list, node_id)
        self._peers = Peers(self._metadata, removal, peer_context)

    def _coordinate_transactions(self, coordination: CoordinatorContext) -> None:
        metadata, clock, logger = self._metadata, self._environment.clock, self._logger
        self._producer_ids = ProducerIds(self._administration.allocate_producer_ids)
        self._connection_numbers = ConnectionNumbers()
        self._marker_writer = MarkerWriter(self._replicas, clock)
        self._transactions = TransactionCoordinator(
            coordination,
            Markers(self._node_id, metadata, self._make_links(), self._marker_writer.write, logger),
            self._producer_ids.next,
            lambda: self._connection_numbers.newest,
        )
        self._verifier = Verifier(self._node_id, self._transactions, self._make_links(), logger)
        self._hanging_transactions = HangingTransactions(
            self._node_id,
            metadata,
            self._replicas,
            self._transactions,
            self._make_links(),
            self._marker_writer.write,
            clock,
            logger,
        )

    def _make_links(self) -> BrokerLinks:
        network, random = self._environment.network, self._environment.random
        return BrokerLinks(self._node_id, self._metadata, self._replicas, network, random)

    async def start(self) -> None:
        """Start the broker; returns when clients are served. After an error a restart needs no clean-up."""
        environment = self._environment
        await self._open_logs()
        environment.store.on_session(self._on_session)
        await environment.store.start()
        await initialize_store(environment.store, environment.random)
        image = await self._metadata.load()
        await environment.threads.run("background", lambda: self._logs.join_cluster(image.cluster_id))
        await self._remove_deleted(image)
        self._report_orphans(image)
        self._context.config = config = self._metadata.config
        self.port = await self._acceptor.listen(environment.network, config[HOST], config[PORT])
        address = config.advertised_address(self.port)
        self._epoch = await self._membership.register(
            self._identity(address), self._has_log, self._has_vanished
        )
        await environment.threads.run("background", lambda: self._logs.record_use(self._epoch))
        await self._membership.take_leadership()
        await self._controller.start()
        self._metadata.subscribe(self._on_image)
        await self._replicas.load(self._metadata.image)
        self._report_problems()
        self._in_sync_writer.start()
        self._peers.start()
        self._groups.start()
        self._transactions.start()
        self._hanging_transactions.start()
        await self._maintenance.start()
        self._show_metrics()
        self._loop_lag.start()
        self._acceptor.open()
        self.state = BrokerState.SERVING
        self._logger.info("serving", address=address, node_id=self._node_id, partitions=len(self._replicas))
        if config[HTTP_PORT] >= 0:
            self.http_port = await self._start_http(config)

    async def _start_http(self, config: BrokerConfig) -> int:
        host, port, context = config[HOST], config[HTTP_PORT], None
        if config[GATEWAY_ENABLE]:
            own = Address(LOOPBACK.get(host, host), self.port)
            environment = self._environment
            context = GatewayContext(
                ClusterAddress(environment.network, [own], {self._node_id: own}),
                config,
                environment.clock,
                environment.threads,
                self._logger,
                self._metrics,
                self._alarms,
                f"{self._node_id}-{environment.random.getrandbits(32):08x}",
                self._authorize_http,
            )
        return await self._http.start(host, port, context)

    def _authorize_http(self, host: str, operation: str, kind: str, name: str) -> bool:
        return self._context.authorizer.authorize(
            ANONYMOUS, host, Operation[operation], ResourceType[kind], name
        )

    def _identity(self, address: Address) -> BrokerIdentity:
        machine_id, logs = self._environment.machine_id, self._logs
        rack = self._config[BROKER_RACK]
        return BrokerIdentity(
            address.host,
            address.port,
            machine_id,
            logs.directory_id,
            logs.was_clean,
            rack,
            logs.kept_epoch,
        )

    def _has_log(self, name: TopicPartition) -> bool:
        topic = self._metadata.image.topics[name.topic]
        return self._logs.get(topic.id, name.partition) is not None

    def _has_vanished(self, name: TopicPartition) -> bool:
        """True when a log is missing or lacks records: recovery noticed it, or the log ends below a known high
        watermark, or below its log end offset when this replica was left alone in the in-sync set.
        """
        topic = self._metadata.image.topics[name.topic]
        log, state = self._logs.get(topic.id, name.partition), topic.partitions[name.partition]
        is_sole = state.isr == (self._node_id,)
        known_end = max(state.committed, state.sole_end) if is_sole else state.committed
        is_short = log is not None and log.log_end_offset < known_end
        return is_short or self._logs.has_vanished(topic.id, name.partition)

    async def _open_logs(self) -> None:
        now_ms = self._environment.clock.now_ms()
        directory_id = draw_uuid(self._environment.random)
        boot_id = self._environment.boot_id
        await self._environment.threads.run(
            "background", lambda: self._logs.open(now_ms, directory_id, boot_id)
        )
        if self._logs.is_copy:
            self._logger.warning(
                "data directory is a copy of another; its replicas lead only where no other replica can",
                directory_id=self._logs.directory_id,
            )
        self._report_problems()
        for report in self._logs.reports:
            self._logger.info(
                "log recovered",
                partition=report.topic_partition,
                checked_bytes=report.checked_bytes,
                truncated_bytes=report.cut_bytes,
                problems=report.problems,
                has_lost_records=report.has_lost,
            )
            for damaged in report.damage:
                self._logger.error(
                    "log is damaged",
                    topic=report.topic_partition.topic,
                    partition=report.topic_partition.partition,
                    base_offset=damaged.base_offset,
                    end_offset=damaged.end_offset,
                    reason=damaged.reason,
                )

    def _report_problems(self) -> None:
        problems, self._logs.problems = self._logs.problems, []
        for problem in problems:
            self._logger.warning("data directory damaged", problem=problem)

    async def _remove_deleted(self, image: ClusterImage) -> None:
        """Delete the logs of topics that were deleted while this broker was away."""
        deleted = await deleted_topics(self._environment.store)
        for topic_id in {log.topic_id for log in self._logs.orphans(image.topic_names)} & deleted:
            job = self._logs.begin_delete(topic_id)
            self._logger.info("deleting logs of a deleted topic", directories=job.directories)
            await self._environment.threads.run("background", job.work)

    def _report_orphans(self, image: ClusterImage) -> None:
        for orphan in self._logs.orphans(image.topic_names):
            self._logger.warning("log of an unknown topic kept", directory=orphan.directory)

    async def stop(self) -> None:
        """Respond to requests under way, make all records durable and leave the mark of a clean stop."""
        self.state = BrokerState.STOPPING
        await self._http.close_gateway()
        await self._leave()
        self._acceptor.close_listener()
        await self._drain()
        await self._end(self._epoch)
        self._logger.info("stopped", node_id=self._node_id)

    async def abandon(self) -> None:
        """End a start that failed; the next start finds the data directory as this one did."""
        clean_epoch = self._epoch if self.state is BrokerState.SERVING else self._logs.was_clean
        self.state = BrokerState.STOPPING
        await self._end(clean_epoch)

    async def _end(self, clean_epoch: BrokerEpoch | None) -> None:
        await self._hanging_transactions.stop()
        await self._verifier.close()
        await self._transactions.stop()
        await self._groups.stop()
        self._acceptor.close()
        for replica in self._replicas:
            replica.fail_held_appends()
        await self._dispatcher.close()
        await self._peers.stop()
        await self._controller.stop()
        await self._changes.close()
        await self._metadata.close()
        await self._http.stop()
        self._loop_lag.stop()
        await self._maintenance.stop()
        await self._in_sync_writer.stop()
        await self._replicas.stop()
        await self._flusher.drain()
        async with self._replicas.writing_checkpoints:
            await self._environment.threads.run("background", lambda: self._logs.close(clean_epoch))
        await self._environment.store.close()
        self._environment.threads.close()

    async def _leave(self) -> None:
        """Move leaderships to other brokers, if there are any."""
        if self.is_lost or len(self._metadata.image.brokers) < 2:
            return
        try:
            async with asyncio.timeout(LEAVE_SECONDS):
                await self._membership.leave()
        except (TimeoutError, PenstockError) as error:
            self._logger.warning("leadership not handed over", reason=str(error) or "no response in time")

    async def _drain(self) -> None:
        """Wait for the responses to appends that wait for a flush; long polls are not waited for."""
        timeout_seconds = self._context.config[SHUTDOWN_TIMEOUT_MS] / 1000
        try:
            await asyncio.wait_for(self._flusher.drain(), timeout_seconds)
        except TimeoutError:
            self._logger.warning("stopping with requests under way", waited_seconds=timeout_seconds)

    def _make_fetch_sessions(self) -> FetchSessions:
        slots = self._config[MAX_INCREMENTAL_FETCH_SESSION_CACHE_SLOTS]
        return FetchSessions(
            slots,
            slots * SESSION_PARTITIONS_PER_SLOT,
            self._config[MIN_INCREMENTAL_FETCH_SESSION_EVICTION_MS],
            self._environment.random,
        )

    def _on_session(self, state: SessionState) -> None:
        if state is SessionState.EXPIRED:
            self._lose("the session with the coordination store has expired")

    def _lose(self, reason: str) -> None:
        """Leave the cluster: serve no request, because other brokers may lead the partitions of this broker now."""
        if self.is_lost or self.state is BrokerState.STOPPING:
            return
        self.is_lost = True
        self._logger.error("broker left the cluster", reason=reason, node_id=self._node_id)
        self._acceptor.close_listener()
        self._acceptor.close()
        self._replicas.on_lost_session()
        self._on_lost()

    def _on_failed_log(self, replica: Replica) -> None:
        """Handle a failed log, which only a start recovers. In a cluster this broker stops: other brokers
        lead and are in sync meanwhile, without records that the disk may have lost. A single broker goes
        on with its other logs.
        """
        if len(self._metadata.image.brokers) > 1:
            self._lose(f"the log of {replica.name} has failed")

    def _on_connection_lost(self, broker_id: BrokerId) -> None:
        self._context.lost_leaders.suspect(self._metadata.image, broker_id)

    def _on_image(self, change: ImageChange) -> None:
        own = change.after.brokers.get(self._node_id)
        if own is None or own.epoch != self._epoch:
            self._lose("its registration is gone")
        if change.before.broker_configs != change.after.broker_configs:
            self._context.config = self._metadata.config
        self._replicas.follow(change, self._context.config)
        self._groups.on_image(change)
        self._context.lost_leaders.on_image(change)
        self._transactions.on_image(change)

    def _health(self) -> Health:
        failed = tuple(str(replica.name) for replica in self._replicas if replica.log.failed)
        damage = tuple(
            PartitionDamage(replica.name, damaged.base_offset, damaged.end_offset, damaged.reason)
            for replica in self._replicas
            for damaged in replica.log.damage
        )
        return Health(self.state, failed, self._logs.full, damage, self._alarms.present)

    def _show_metrics(self) -> None:
        metrics = self._metrics
        ServingMetrics(self._context, self._acceptor).show(metrics)
        self._maintenance.show(metrics)
        ClusterMetrics(self._metadata, self._peers).show(metrics)
        ReplicationMetrics(self._node_id, self._metadata, self._replicas, self._in_sync_writer).show(metrics)
        GroupMetrics(self._groups, self._replicas, self._config[METRICS_MAX_GROUPS]).show(metrics)
        TransactionMetrics(self._transactions, self._hanging_transactions).show(metrics)
