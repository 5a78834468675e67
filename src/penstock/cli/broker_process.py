"""Broker process: start with the settings, serve until a signal, rejoin the cluster after leaving it, stop."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING

from penstock.cli.exposure import warn_of_open_places
from penstock.cli.failures import ExitCode, Failure
from penstock.cli.process_setup import (
    cannot_listen,
    loop_factory,
    on_signals,
    raise_open_files_limit,
    tune_garbage_collector,
)
from penstock.clock import SystemClock
from penstock.cluster.coordination import StoreUnreachable
from penstock.config import (
    GATEWAY_MAX_CONNECTIONS,
    HOST,
    HTTP_PORT,
    HTTP_SSL_ENABLE,
    LISTENERS,
    LOG_DIR,
    LOG_OPEN_FILES_MAX,
    MAX_CONNECTIONS,
    NODE_ID,
    Address,
    BrokerConfig,
)
from penstock.errors import PenstockError, StorageError
from penstock.gateway.health import BrokerState
from penstock.observability.library_logs import take_over_library_logs
from penstock.observability.logs import Logger, open_logger
from penstock.server.broker import Broker
from penstock.server.environment import Environment, MachineShare, real_environment

if TYPE_CHECKING:
    from penstock.cli.processes.supervised import SupervisorLink

OPEN_FILES_BESIDES = 200
"""Number of open files in addition to client connections and segments: metadata store, checkpoints, HTTP, standard
streams.
"""

THREAD_SWITCH_SECONDS = 0.0005
"""Python's thread switch interval in seconds: a busy pool thread yields to the event loop after this time."""

REJOIN_SECONDS = 1.0
"""Seconds between attempts to rejoin the cluster after the broker has left it."""


def run_broker(config: BrokerConfig, ignored: Mapping[str, str]) -> None:
    """Run a broker until SIGTERM or SIGINT, then stop it cleanly.

    `ignored` maps settings that are ignored to the reason, for warnings in the log.
    """
    log = _open_log(config)
    for name, reason in ignored.items():
        log.warning("setting has no effect", setting=name, reason=reason)
    warn_of_open_places(config, log)
    _run(config, None, log)


def run_supervised_broker(config: BrokerConfig, supervisor: SupervisorLink) -> None:
    """Run one of several brokers of a machine until SIGTERM, or until its supervisor ends."""
    _run(config, supervisor, _open_log(config, broker=config[NODE_ID]))


def _open_log(config: BrokerConfig, **common: object) -> Logger:
    no_color = bool(os.environ.get("NO_COLOR"))
    log = open_logger(config, SystemClock(), sys.stderr, no_color=no_color, **common)
    take_over_library_logs(log)
    return log


def _run(config: BrokerConfig, supervisor: SupervisorLink | None, log: Logger) -> None:
    provide_open_files(config, log)
    sys.setswitchinterval(THREAD_SWITCH_SECONDS)
    with asyncio.Runner(loop_factory=loop_factory(config)) as runner:
        runner.run(_serve(config, supervisor, log))


async def _serve(config: BrokerConfig, supervisor: SupervisorLink | None, log: Logger) -> None:
    stop = asyncio.Event()
    on_signals(stop.set)
    share = None
    if supervisor is not None:
        supervisor.on_lost(stop.set)
        share = supervisor.share(config[NODE_ID])
    environment = _open_environment(config, share)
    is_first = True
    while not stop.is_set():
        lost = asyncio.Event()
        broker = Broker(config, environment, log, lost.set)
        try:
            await broker.start()
        except (OSError, PenstockError) as error:
            failure = _cannot_start(config, error, broker.state)
            await broker.abandon()
            if is_first:
                raise failure from None
            log.error_rarely("cannot rejoin the cluster", error)
            await _first_of(stop, seconds=REJOIN_SECONDS)
        else:
            if is_first:
                tune_garbage_collector()
                if supervisor is None:
                    print(_greeting(config, broker), flush=True)
                else:
                    supervisor.report_serving()
            is_first = False
            await _first_of(stop, lost)
            await broker.stop()
        if not stop.is_set():
            environment = _open_environment(config, share)


async def _first_of(*events: asyncio.Event, seconds: float | None = None) -> None:
    """Wait until one of the events is set, or until the timeout."""
    waiting = [asyncio.ensure_future(event.wait()) for event in events]
    await asyncio.wait(waiting, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
    for task in waiting:
        task.cancel()


def _open_environment(config: BrokerConfig, share: MachineShare | None) -> Environment:
    try:
        return real_environment(config, share)
    except (OSError, PenstockError) as error:
        raise _cannot_start(config, error, BrokerState.STARTING) from None


def _cannot_start(config: BrokerConfig, error: Exception, state: BrokerState) -> Exception:
    """Return the Failure for an error at start; an unexpected error is returned unchanged."""
    if isinstance(error, PenstockError):
        return Failure(str(error), _next_step(config, error), code=ExitCode.USAGE)
    if not isinstance(error, OSError):
        return error
    if error.filename is not None:
        return Failure(
            f"cannot use the data directory {config[LOG_DIR]}: {error.strerror} ({error.filename})",
            "Name a directory that this user can write to with --data-dir.",
            code=ExitCode.USAGE,
        )
    if state is BrokerState.SERVING:
        return cannot_listen(Address(config[HOST], config[HTTP_PORT]), "--http-port", error)
    option = "--port" if config[LISTENERS] is None else "listeners"
    return cannot_listen(config.listeners.listeners[0].address, option, error)


def _next_step(config: BrokerConfig, error: PenstockError) -> str:
    if isinstance(error, StoreUnreachable):
        return "Start ZooKeeper, or correct zookeeper.connect, and start the broker again."
    if isinstance(error, StorageError):
        return f"Check the disk of {config[LOG_DIR]} and `penstock log check`, then start the broker again."
    return "Correct the setting and start the broker again."


def _greeting(config: BrokerConfig, broker: Broker) -> str:
    host = config.listeners.listeners[0].address.host
    serving = f"penstock serves Kafka clients at {Address(host, broker.port)}"
    if config[HTTP_PORT] < 0:
        return serving
    scheme = "https" if config[HTTP_SSL_ENABLE] else "http"
    return f"{serving}, HTTP at {scheme}://{Address(config[HOST], broker.http_port)}"


def provide_open_files(config: BrokerConfig, log: Logger) -> None:
    """Raise the limit of open files to the number required by the settings."""
    needed = config[MAX_CONNECTIONS] + config[LOG_OPEN_FILES_MAX] + OPEN_FILES_BESIDES
    # HTTP connections cause no warning: at the limit the gateway closes the oldest ones.
    raise_open_files_limit(needed, config[GATEWAY_MAX_CONNECTIONS], log)
