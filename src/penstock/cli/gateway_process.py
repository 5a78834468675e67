"""Gateway process: start with the settings, serve until a signal, stop."""

from __future__ import annotations

import asyncio
import os
import random
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from penstock.cli.exposure import warn_of_open_places
from penstock.cli.gateway_security import GatewaySecurity, gateway_users
from penstock.cli.gateway_worker_metrics import WorkerMetrics
from penstock.cli.process_setup import (
    cannot_listen,
    loop_factory,
    on_signals,
    raise_open_files_limit,
    tune_garbage_collector,
)
from penstock.clock import SystemClock
from penstock.config import GATEWAY_MAX_CONNECTIONS, HOST, HTTP_PORT, HTTP_SSL_ENABLE, Address, BrokerConfig
from penstock.gateway.context import ClusterAddress, GatewayContext
from penstock.gateway.health import BrokerState, Health
from penstock.gateway.http.service import HttpService
from penstock.gateway.remote_decisions import RemoteDecisions
from penstock.gateway.remote_quotas import RemoteQuotas
from penstock.internal_client.client_security import ClientSecurity
from penstock.net.acting import of_gateway
from penstock.net.network import TcpNetwork
from penstock.observability.alarms import Alarms
from penstock.observability.library_logs import take_over_library_logs
from penstock.observability.logs import Logger, open_logger
from penstock.observability.loop_lag import LoopLag
from penstock.observability.metrics import BrokerMetrics
from penstock.threads import ThreadPools

OPEN_FILES_BESIDES = 200
"""Number of open files in addition to HTTP connections: connections to brokers and standard streams."""

PARENT_SECONDS = 1.0
"""Seconds between a worker's checks that its parent process is alive."""


@dataclass(frozen=True, slots=True)
class GatewayWorker:
    """Parent and metrics socket of one of several gateway processes that share a port."""

    parent: int
    socket: Path
    """Path of the socket where this worker serves its metrics to the other workers."""


def run_gateway(config: BrokerConfig, bootstrap: Sequence[Address], worker: GatewayWorker | None) -> None:
    """Serve until SIGTERM or SIGINT, or until the parent of a worker ends; then stop cleanly."""
    log = open_logger(config, SystemClock(), sys.stderr, no_color=bool(os.environ.get("NO_COLOR")))
    take_over_library_logs(log)
    raise_open_files_limit(config[GATEWAY_MAX_CONNECTIONS] + OPEN_FILES_BESIDES, 0, log)
    warn_of_open_places(config, log, is_gateway=True)
    with asyncio.Runner(loop_factory=loop_factory(config)) as runner:
        runner.run(_serve(config, bootstrap, log, worker))


class GatewayProcess:
    """HTTP service of this process with its metrics, alarms and threads. Methods run on the event loop's thread
    only.
    """

    def __init__(self, config: BrokerConfig, log: Logger, worker: GatewayWorker | None) -> None:
        self._config = config
        self._log = log
        self._worker = worker
        self._state = BrokerState.SERVING
        self._clock = SystemClock()
        self._threads = ThreadPools()
        self._metrics = BrokerMetrics({}, max_topics=0)
        self._alarms = Alarms(self._clock, log, self._metrics)
        self._loop_lag = LoopLag(self._metrics.event_loop_lag)
        self._service = HttpService(self._threads, self._metrics, self._health)
        self._security = GatewaySecurity(config, self._threads, self._clock, log)
        self._worker_metrics = (
            None if worker is None else WorkerMetrics(worker.socket, self._service.own_metrics, self._threads)
        )

    async def start(self, bootstrap: Sequence[Address]) -> Address:
        """Start serving and return the address. Raises Failure if the port cannot be listened on."""
        if self._worker_metrics is not None:
            await self._worker_metrics.start()
            self._service.shown_metrics = self._worker_metrics.metrics
        host, port = self._config[HOST], self._config[HTTP_PORT]
        is_shared = self._worker is not None
        tls = await self._security.start()
        context = self._context(bootstrap)
        try:
            port = await self._service.start(host, port, context, shared=is_shared, tls=tls)
        except OSError as error:
            raise cannot_listen(Address(host, port), "--http-port", error) from None
        tune_garbage_collector()
        self._loop_lag.start()
        return Address(host, port)

    async def stop(self) -> None:
        self._state = BrokerState.STOPPING
        self._loop_lag.stop()
        if self._worker_metrics is not None:
            self._worker_metrics.close()
        await self._service.stop()
        await self._security.stop()
        self._threads.close()

    def _health(self) -> Health:
        return Health(self._state, alarms=self._alarms.present)

    def _context(self, bootstrap: Sequence[Address]) -> GatewayContext:
        own = ClientSecurity.from_environment(os.environ)
        cluster = ClusterAddress(own.network(TcpNetwork()), bootstrap)
        as_gateway = replace(cluster, client_id=of_gateway(cluster.client_id))
        found = gateway_users(self._config, cluster, own, self._threads, self._clock)
        if found is None:
            return self._make_context(cluster)
        users, questions = found
        decisions = RemoteDecisions(questions, self._clock)
        context = self._make_context(as_gateway)
        return replace(
            context,
            authorize=decisions.authorize,
            learn=decisions.learn,
            shows=decisions.shows,
            learn_shown=decisions.learn_shown,
            users=users,
            quota=RemoteQuotas(questions, self._clock),
        )

    def _make_context(self, cluster: ClusterAddress) -> GatewayContext:
        return GatewayContext(
            cluster,
            self._config,
            self._clock,
            self._threads,
            self._log,
            self._metrics,
            self._alarms,
            f"g{random.SystemRandom().getrandbits(48):012x}",
        )


async def _serve(
    config: BrokerConfig, bootstrap: Sequence[Address], log: Logger, worker: GatewayWorker | None
) -> None:
    stop = asyncio.Event()
    on_signals(stop.set)
    process = GatewayProcess(config, log, worker)
    address = await process.start(bootstrap)
    place = f"{'https' if config[HTTP_SSL_ENABLE] else 'http'}://{address}"
    log.info("gateway started", address=place, bootstrap=",".join(map(str, bootstrap)))
    if worker is None:
        print(f"penstock serves HTTP at {place}", flush=True)
    else:
        _stop_with_parent(worker.parent, stop)
    await stop.wait()
    await process.stop()
    log.info("gateway stopped")


def _stop_with_parent(parent: int, stop: asyncio.Event) -> None:
    """Stop a worker whose parent was killed, because no process would stop or replace it later."""
    if os.getppid() != parent:
        stop.set()
    else:
        asyncio.get_running_loop().call_later(PARENT_SECONDS, _stop_with_parent, parent, stop)
