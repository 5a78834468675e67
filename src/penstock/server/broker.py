"""Broker: the one place that constructs its parts, starts them in order and stops them in reverse.

Order at the start: lock the data directory and recover the logs, read the store and register the broker, resume
leadership, and only then open the listeners. A clean stop flushes all logs and marks the data directory as clean, so
the next start checks nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from random import Random

from penstock.cluster.acl_admin import AclAdministration
from penstock.cluster.administration import Administration
from penstock.cluster.broker_removal import BrokerRemoval
from penstock.cluster.change_list import ChangeList
from penstock.cluster.change_maker import ChangeMaker
from penstock.cluster.controller import Controller
from penstock.cluster.controller_election import initialize_store
from penstock.cluster.coordination import SessionState
from penstock.cluster.image import ImageChange
from penstock.cluster.membership import Membership
from penstock.cluster.metadata import ClusterMetadata
from penstock.cluster.partition_admin import PartitionAdministration
from penstock.cluster.peers import PeerContext, Peers
from penstock.config import (
    BROKER_RACK,
    GATEWAY_ENABLE,
    HOST,
    HTTP_PORT,
    LOG_OPEN_FILES_MAX,
    METRICS_MAX_TOPICS,
    NODE_ID,
    SHUTDOWN_TIMEOUT_MS,
    BrokerConfig,
)
from penstock.errors import PenstockError
from penstock.gateway.health import BrokerState, Health
from penstock.gateway.http.service import HttpService
from penstock.groups.coordinator import GroupCoordinator
from penstock.model import BrokerEpoch, BrokerId
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
from penstock.server.acceptor import Acceptor
from penstock.server.audit_topic import AuditTopic
from penstock.server.authorization import Authorization
from penstock.server.broker_metrics import show_metrics
from penstock.server.broker_security import BrokerSecurity
from penstock.server.connection_numbers import ConnectionNumbers
from penstock.server.context import BrokerContext
from penstock.server.directory_start import DataDirectory
from penstock.server.dispatch import Dispatcher
from penstock.server.draining.draining import Draining
from penstock.server.embedded_gateway import gateway_context
from penstock.server.environment import Environment
from penstock.server.fetch_sessions import FetchSessions
from penstock.server.first_user import ensure_first_user
from penstock.server.handlers import all_apis
from penstock.server.health_report import report_health
from penstock.server.listening import BoundListeners, bind_listeners
from penstock.server.long_polls import LongPolls
from penstock.server.maintenance import Maintenance
from penstock.server.marker_writing import MarkerWriter
from penstock.server.objects.services import ObjectServices
from penstock.server.producer_ids import ProducerIds
from penstock.server.share_services import ShareServices
from penstock.server.siblings import await_siblings, close_reports, exchange_reports
from penstock.server.topic_writer import TopicWriter
from penstock.state_log.shards import CoordinatorContext
from penstock.storage.log_manager import LogManager
from penstock.transactions.coordinator import TransactionCoordinator
from penstock.transactions.hanging import HangingTransactions
from penstock.transactions.links import BrokerLinks
from penstock.transactions.markers import Markers
from penstock.transactions.verification import Verifier
from penstock.wire.apis import api_name

LEAVE_SECONDS = 5.0
"""Time in seconds that a stopping broker waits until the controller has elected other leaders for its partitions."""


class Broker:
    def __init__(
        self,
        config: BrokerConfig,
        environment: Environment,
        logger: Logger,
        on_lost: Callable[[], None] = lambda: None,
    ) -> None:
        """`on_lost` is called when the broker has left the cluster, refuses all requests and has to be stopped."""
        apis = all_apis()
        self.is_lost = False
        self.state = BrokerState.STARTING
        self.port = config.listeners.listeners[0].address.port
        self.http_port = config[HTTP_PORT]
        self._config = config
        self._environment, self._logger = environment, logger
        self._node_id = BrokerId(config[NODE_ID])
        self._epoch = BrokerEpoch(-1)
        self._on_lost = on_lost
        names = {api.key: api_name(api.key) for api in apis}
        self._metrics = BrokerMetrics(names, config[METRICS_MAX_TOPICS])
        self._alarms = Alarms(environment.clock, logger, self._metrics)
        self._logs = LogManager(environment.disk, self._node_id, config[LOG_OPEN_FILES_MAX])
        self._security = BrokerSecurity(
            environment, logger, config, lambda: self._metadata.config, lambda: self._replicas.secret
        )
        self._join_cluster()
        self._data_directory = DataDirectory(self._logs, self._node_id, self._metadata, environment, logger)
        self._replicate()
        self._coordinate()
        self._context = self._make_context()
        self._draining = Draining(self._context, self._changes, self._make_links(), logger)
        self._dispatcher = Dispatcher(self._context, apis, serves_plain=environment.serves_plain)
        self._acceptor = Acceptor(self._context, self._dispatcher, logger)
        disk, on_failed_log = environment.disk, self._on_failed_log
        self._maintenance = Maintenance(self._context, self._logs, disk, logger, on_failed_log)
        self._http = HttpService(environment.threads, self._metrics, self._health)
        self._loop_lag = LoopLag(self._metrics.event_loop_lag)

    def _join_cluster(self) -> None:
        store, random = self._environment.store, self._environment.random
        node_id, logger = self._node_id, self._logger
        self._metadata = ClusterMetadata(store, node_id, self._config, logger)
        change_list = ChangeList(store, f"{node_id}-{random.getrandbits(64):x}")
        self._changes = ChangeMaker(store, self._metadata, node_id, change_list)
        self._administration = Administration(store, self._metadata, self._changes, random)
        self._membership = Membership(store, self._metadata, self._changes, node_id)
        self._controller = Controller(store, self._metadata, self._changes, change_list, node_id, logger)
        peer_context = PeerContext(
            node_id,
            self._security.network,
            self._environment.clock,
            logger,
            self._on_connection_lost,
            self._metrics.failovers.observe,
        )
        removal = BrokerRemoval(store, self._metadata, change_list, node_id)
        self._peers = Peers(self._metadata, removal, peer_context)

    def _replicate(self) -> None:
        environment, logger = self._environment, self._logger
        clock, threads = environment.clock, environment.threads
        self._flusher = Flusher(environment.disk, threads, clock, self._metrics.flushes.observe)
        context = ReplicationContext(
            self._node_id,
            self._logs,
            self._flusher,
            threads,
            clock,
            self._security.network,
            environment.random,
            logger,
            self._alarms,
            self._on_connection_lost,
        )
        self._replicas = ReplicaManager(context, self._config)
        in_sync_store = RecordedInSync(self._changes, self._node_id)
        self._in_sync_writer = InSyncWriter(self._replicas, in_sync_store, clock, logger)

    def _coordinate(self) -> None:
        metadata, clock, logger = self._metadata, self._environment.clock, self._logger
        threads, administration = self._environment.threads, self._administration
        coordination = CoordinatorContext(
            self._node_id, metadata, administration, self._replicas, clock, threads, logger
        )
        self._producer_ids = ProducerIds(self._administration.allocate_producer_ids)
        links = self._make_links()
        writer = TopicWriter(coordination, links, self._producer_ids)
        self._audit_topic = AuditTopic(writer, administration, clock)
        self._share = ShareServices(coordination, links, writer)
        random, caller = self._environment.random.random, self._environment.webhook_caller
        self._objects = ObjectServices(coordination, writer, random, caller)
        self._groups = GroupCoordinator(coordination, self._share.states)
        self._connection_numbers = ConnectionNumbers()
        self._marker_writer = MarkerWriter(self._replicas, clock)
        self._transactions = TransactionCoordinator(
            coordination,
            Markers(self._node_id, metadata, self._make_links(), self._marker_writer.begin, logger),
            self._producer_ids.next,
            lambda: self._connection_numbers.newest,
        )
        self._coordinators = (self._share, self._groups, self._transactions, self._objects)
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
        network = self._security.network
        return BrokerLinks(self._node_id, self._metadata, self._replicas, network, self._environment.random)

    def _make_context(self) -> BrokerContext:
        environment = self._environment
        return BrokerContext(
            node_id=self._node_id,
            config=self._config,
            clock=environment.clock,
            threads=environment.threads,
            disk=environment.disk,
            metadata=self._metadata,
            administration=self._administration,
            partition_admin=PartitionAdministration(self._metadata, self._changes, self._logger),
            acl_admin=AclAdministration(self._metadata, self._changes),
            logs=self._logs,
            replicas=self._replicas,
            groups=self._groups,
            transactions=self._transactions,
            share=self._share,
            objects=self._objects,
            verifier=self._verifier,
            marker_writer=self._marker_writer,
            hanging_transactions=self._hanging_transactions,
            connection_numbers=self._connection_numbers,
            producer_ids=self._producer_ids,
            fetch_sessions=FetchSessions.from_config(self._config, environment.random),
            long_polls=LongPolls(Random(environment.random.getrandbits(64))),
            authorization=Authorization(self._config, environment, self._logger),
            metrics=self._metrics,
            alarms=self._alarms,
            random=environment.random,
        )

    async def start(self) -> None:
        """Start the broker; returns when clients are served. After an error, another start needs no clean-up."""
        environment = self._environment
        await self._data_directory.open()
        environment.store.on_session(self._on_session)
        await environment.store.start()
        await initialize_store(environment.store, environment.random)
        await self._data_directory.join_cluster(await self._metadata.load())
        self._context.config = config = self._metadata.config
        await self._security.start(self._context)
        bound = await bind_listeners(self._acceptor, environment.network, self._context, self._security)
        self.port = bound.first_port
        await self._register(bound)
        own = self._security.own_cluster(config, self._context.authorizer, bound.own_address)
        self._objects.webhook_services.connect(own.routes())
        await self._start_parts()
        await ensure_first_user(self._context, self._logger)
        await await_siblings(environment.share, self._metadata)
        self._acceptor.open()
        self.state = BrokerState.SERVING
        self._logger.info(
            "serving", address=bound.address, node_id=self._node_id, partitions=len(self._replicas)
        )
        if config[HTTP_PORT] >= 0:
            self.http_port = await self._start_http(config, bound)

    async def _register(self, bound: BoundListeners) -> None:
        """Register with the cluster, and resume leadership of this broker's partitions."""
        data = self._data_directory
        identity = data.identity(bound.address, self._config[BROKER_RACK], bound.advertised)
        self._epoch = await self._membership.register(identity, data.has_log, data.has_vanished)
        await data.record_use(self._epoch)
        await self._membership.take_leadership()

    async def _start_parts(self) -> None:
        await self._controller.start()
        self._metadata.subscribe(self._on_image)
        await self._replicas.load(self._metadata.image)
        self._data_directory.report_problems()
        self._in_sync_writer.start()
        self._peers.start()
        for part in (*self._coordinators, self._hanging_transactions, self._draining):
            part.start()
        await self._maintenance.start()
        self._context.authorization.start_audit(self._audit_topic.send)
        self._show_metrics()
        self._loop_lag.start()

    async def _start_http(self, config: BrokerConfig, bound: BoundListeners) -> int:
        context, share, security = None, self._environment.share, self._security
        if config[GATEWAY_ENABLE]:
            own = security.own_cluster(config, self._context.authorizer, bound.own_address)
            users = security.http_users(self._context, own)
            context = gateway_context(self._context, config, own, self._environment, self._logger, users)
        await exchange_reports(share, self._http, self._health)
        tls, is_shared = security.http_tls(), share is not None
        return await self._http.start(config[HOST], config[HTTP_PORT], context, shared=is_shared, tls=tls)

    async def stop(self) -> None:
        """Respond to requests in progress, flush all records and mark the data directory as clean."""
        self.state = BrokerState.STOPPING
        await self._http.close_gateway()
        await self._leave()
        self._acceptor.close_listeners()
        await self._drain()
        await self._end(self._epoch)
        self._logger.info("stopped", node_id=self._node_id)

    async def abandon(self) -> None:
        """Stop after a failed start; the data directory stays as the start found it."""
        clean_epoch = self._epoch if self.state is BrokerState.SERVING else self._logs.was_clean
        self.state = BrokerState.STOPPING
        await self._end(clean_epoch)

    async def _end(self, clean_epoch: BrokerEpoch | None) -> None:
        await self._draining.stop()
        await self._hanging_transactions.stop()
        await self._verifier.close()
        for coordinator in reversed(self._coordinators):
            await coordinator.stop()
        self._acceptor.close()
        for replica in self._replicas:
            replica.fail_held_appends()
        await self._dispatcher.close()
        await self._peers.stop()
        await self._controller.stop()
        await self._changes.close()
        await self._metadata.close()
        await self._http.stop()
        close_reports(self._environment.share)
        self._loop_lag.stop()
        await self._maintenance.stop()
        await self._in_sync_writer.stop()
        await self._replicas.stop()
        await self._flusher.drain()
        async with self._replicas.writing_checkpoints:
            await self._environment.threads.run("background", lambda: self._logs.close(clean_epoch))
        await self._security.stop()
        await self._environment.store.close()
        self._environment.threads.close()

    async def _leave(self) -> None:
        """Hand leadership over to other brokers, if there are any."""
        if self.is_lost or len(self._metadata.image.brokers) < 2:
            return
        try:
            async with asyncio.timeout(LEAVE_SECONDS):
                await self._membership.leave()
        except (TimeoutError, PenstockError) as error:
            self._logger.warning("leadership not handed over", reason=str(error) or "no response in time")

    async def _drain(self) -> None:
        """Wait for pending flushes, and so for the responses to produce requests. Long polls are not awaited."""
        timeout_seconds = self._context.config[SHUTDOWN_TIMEOUT_MS] / 1000
        try:
            await asyncio.wait_for(self._flusher.drain(), timeout_seconds)
        except TimeoutError:
            self._logger.warning("stopping with requests in progress", waited_seconds=timeout_seconds)

    def _on_session(self, state: SessionState) -> None:
        if state is SessionState.EXPIRED:
            self._lose("the session with the coordination store has expired")

    def _lose(self, reason: str) -> None:
        """Leave the cluster: serve no request, because other brokers may lead the partitions of this broker now."""
        if self.is_lost or self.state is BrokerState.STOPPING:
            return
        self.is_lost = True
        self._logger.error("broker left the cluster", reason=reason, node_id=self._node_id)
        self._acceptor.close()
        self._replicas.on_lost_session()
        self._on_lost()

    def _on_failed_log(self, replica: Replica) -> None:
        """Leave a cluster, so that other brokers lead until a restart recovers the log. A single broker continues."""
        if len(self._metadata.image.brokers) > 1:
            self._lose(f"the log of {replica.name} has failed")

    def _on_connection_lost(self, broker_id: BrokerId) -> None:
        self._context.lost_leaders.suspect(self._metadata.image, broker_id)

    def _on_image(self, change: ImageChange) -> None:
        own = change.after.brokers.get(self._node_id)
        if own is None or own.epoch != self._epoch:
            self._lose("the registration of the broker no longer exists")
        if change.before.broker_configs != change.after.broker_configs:
            self._context.config = self._metadata.config
        self._context.apply_policy()
        self._replicas.follow(change, self._context.config)
        for coordinator in self._coordinators:
            coordinator.on_image(change)
        self._context.lost_leaders.on_image(change)
        self._acceptor.on_users(change.before.users, change.after.users)

    def _health(self) -> Health:
        return report_health(self.state, self._replicas, self._logs, self._alarms)

    def _show_metrics(self) -> None:
        show_metrics(self._context, self._acceptor, self._peers, self._in_sync_writer)
        self._security.show(self._metrics)
        self._maintenance.show(self._metrics)
