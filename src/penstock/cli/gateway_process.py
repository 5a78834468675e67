"""Gateway process: start from its settings, serve until a signal, stop."""

from __future__ import annotations

import asyncio
import os
import random
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from penstock.cli.broker_process import (
    loop_factory,
    on_signals,
    raise_limit_of_open_files,
    warn_if_open_to_all,
)
from penstock.cli.collector import tame_collector
from penstock.cli.failures import ExitCode, Failure
from penstock.cli.gateway_siblings import Siblings
from penstock.clock import SystemClock
from penstock.config import GATEWAY_MAX_CONNECTIONS, HOST, HTTP_PORT, Address, BrokerConfig
from penstock.gateway.context import ClusterAddress, GatewayContext
from penstock.gateway.health import BrokerState, Health
from penstock.gateway.http.service import HttpService
from penstock.net.network import TcpNetwork
from penstock.observability.alarms import Alarms
from penstock.observability.library_logs import take_over_library_logs
from penstock.observability.logs import Logger, open_logger
from penstock.observability.loop_lag import LoopLag
from penstock.observability.metrics import BrokerMetrics
from penstock.threads import ThreadPools

OPEN_FILES_BESIDES = 200
"""Open files besides HTTP connections: connections to brokers and standard streams."""


PARENT_SECONDS = 1.0
"""Seconds between a worker's checks that its parent process is alive."""


@dataclass(frozen=True, slots=True)
class Worker:
    """Identity of one of several processes that share a port."""

    parent: int
    socket: Path
    """Path of the socket where this worker serves its metrics to the other workers."""


def run_gateway(config: BrokerConfig, bootstrap: Sequence[Address], worker: Worker | None) -> None:
    """Serve until SIGTERM or SIGINT, or until a worker's parent has ended; then stop cleanly."""
    log = open_logger(config, SystemClock(), sys.stderr, no_color=bool(os.environ.get("NO_COLOR")))
    take_over_library_logs(log)
    raise_limit_of_open_files(config[GATEWAY_MAX_CONNECTIONS] + OPEN_FILES_BESIDES, 0, log)
    warn_if_open_to_all(config, log)
    with asyncio.Runner(loop_factory=loop_factory(config)) as runner:
        runner.run(_serve(config, bootstrap, log, worker))


async def _serve(
    config: BrokerConfig, bootstrap: Sequence[Address], log: Logger, worker: Worker | None
) -> None:
    stop = asyncio.Event()
    on_signals(stop.set)
    threads = ThreadPools()
    metrics = BrokerMetrics({}, max_topics=0)
    state = BrokerState.SERVING
    clock = SystemClock()
    alarms = Alarms(clock, log, metrics)
    service = HttpService(threads, metrics, lambda: Health(state, alarms=alarms.present))
    context = GatewayContext(
        ClusterAddress(TcpNetwork(), bootstrap),
        config,
        clock,
        threads,
        log,
        metrics,
        alarms,
        f"g{random.SystemRandom().getrandbits(48):012x}",
    )
    loop_lag = LoopLag(metrics.event_loop_lag)
    siblings = None if worker is None else Siblings(worker.socket, service.own_metrics, threads)
    if siblings is not None:
        await siblings.start()
        service.shown_metrics = siblings.metrics
    try:
        port = await service.start(config[HOST], config[HTTP_PORT], context, shared=worker is not None)
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno else str(error)
        raise Failure(
            f"cannot listen on {Address(config[HOST], config[HTTP_PORT])}: {reason}",
            "Choose another with --http-port or --host, or stop what uses it.",
            code=ExitCode.USAGE,
        ) from None
    tame_collector()
    loop_lag.start()
    address = Address(config[HOST], port)
    log.info("serving", address=f"http://{address}", bootstrap=",".join(map(str, bootstrap)))
    if worker is None:
        print(f"penstock serves HTTP at http://{address}", flush=True)
    else:
        _end_with_parent(worker.parent, stop)
    await stop.wait()
    state = BrokerState.STOPPING
    loop_lag.stop()
    if siblings is not None:
        siblings.close()
    await service.stop()
    threads.close()
    log.info("stopped")


def _end_with_parent(parent: int, stop: asyncio.Event) -> None:
    """Stop a worker whose parent was killed: it would have no process to stop or replace it."""
    if os.getppid() != parent:
        stop.set()
    else:
        asyncio.get_running_loop().call_later(PARENT_SECONDS, _end_with_parent, parent, stop)
