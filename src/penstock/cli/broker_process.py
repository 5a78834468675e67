"""Broker process: event loop, open file limit, signals, and errors at start."""

from __future__ import annotations

import asyncio
import os
import resource
import signal
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress

from penstock.cli.collector import tame_collector
from penstock.cli.failures import ExitCode, Failure
from penstock.config import (
    EVENT_LOOP,
    GATEWAY_MAX_CONNECTIONS,
    HOST,
    HTTP_PORT,
    LOG_DIR,
    LOG_OPEN_FILES_MAX,
    MAX_CONNECTIONS,
    PORT,
    Address,
    BrokerConfig,
    EventLoop,
)
from penstock.errors import PenstockError
from penstock.gateway.health import BrokerState
from penstock.observability.library_logs import take_over_library_logs
from penstock.observability.logs import Logger, open_logger
from penstock.server.broker import Broker
from penstock.server.environment import Environment, real_environment

OPEN_FILES_BESIDES = 200
"""Open files besides client connections and segments: metadata store, checkpoints, HTTP, standard streams."""

THREAD_SWITCH_SECONDS = 0.0005
"""Thread switch interval: a busy thread of a pool yields to the event loop after this many seconds."""

REJOIN_SECONDS = 1.0
"""Seconds between attempts to rejoin the cluster after the broker has left it."""

LOOPBACK_HOSTS = frozenset({"localhost", "127.0.0.1", "::1"})


def run_broker(config: BrokerConfig, ignored: Mapping[str, str]) -> None:
    """Run a broker until SIGTERM or SIGINT, then stop it cleanly.

    `ignored` maps settings that have no effect to the reason, for warnings in the log.
    """
    environment = _open_environment(config)
    log = open_logger(config, environment.clock, sys.stderr, no_color=bool(os.environ.get("NO_COLOR")))
    take_over_library_logs(log)
    for name, reason in ignored.items():
        log.warning("setting has no effect", setting=name, reason=reason)
    raise_open_files_limit(config, log)
    sys.setswitchinterval(THREAD_SWITCH_SECONDS)
    warn_if_open_to_all(config, log)
    with asyncio.Runner(loop_factory=loop_factory(config)) as runner:
        runner.run(_serve(config, environment, log))


async def _serve(config: BrokerConfig, environment: Environment, log: Logger) -> None:
    stop = asyncio.Event()
    on_signals(stop.set)
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
            log.error_rarely("the broker could not join its cluster again", error)
            await _first_of(stop, seconds=REJOIN_SECONDS)
        else:
            if is_first:
                tame_collector()
                print(_greeting(config, broker), flush=True)
            is_first = False
            await _first_of(stop, lost)
            await broker.stop()
        if not stop.is_set():
            environment = _open_environment(config)


async def _first_of(*events: asyncio.Event, seconds: float | None = None) -> None:
    """Wait until one of the events is set, or until the timeout."""
    waiting = [asyncio.ensure_future(event.wait()) for event in events]
    await asyncio.wait(waiting, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
    for task in waiting:
        task.cancel()


def on_signals(stop: Callable[[], None]) -> None:
    """Call `stop` on the first SIGTERM or SIGINT; a second signal ends the process at once."""
    loop = asyncio.get_running_loop()

    def stop_once() -> None:
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(number)
            signal.signal(number, signal.SIG_DFL)
        stop()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop_once)


def loop_factory(config: BrokerConfig) -> Callable[[], asyncio.AbstractEventLoop] | None:
    if config[EVENT_LOOP] is EventLoop.ASYNCIO:
        return None
    try:
        import uvloop
    except ImportError:
        if config[EVENT_LOOP] is EventLoop.AUTO:
            return None
        raise Failure("uvloop is not installed", "Install it, or use --set event.loop=asyncio.") from None
    factory: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop
    return factory


def _open_environment(config: BrokerConfig) -> Environment:
    try:
        return real_environment(config)
    except (OSError, PenstockError) as error:
        raise _cannot_start(config, error, BrokerState.STARTING) from None


def _cannot_start(config: BrokerConfig, error: Exception, state: BrokerState) -> Exception:
    """Return the Failure for an error at start; an unexpected error is returned unchanged."""
    if isinstance(error, PenstockError):
        return Failure(str(error), code=ExitCode.USAGE)
    if not isinstance(error, OSError):
        return error
    if error.filename is not None:
        return Failure(
            f"cannot use the data directory {config[LOG_DIR]}: {error.strerror} ({error.filename})",
            "Name one that this user can write to with --data-dir.",
            code=ExitCode.USAGE,
        )
    option, number = ("--port", config[PORT])
    if state is BrokerState.SERVING:
        option, number = ("--http-port", config[HTTP_PORT])
    reason = os.strerror(error.errno) if error.errno else str(error)
    return Failure(
        f"cannot listen on {Address(config[HOST], number)}: {reason}",
        f"Choose another with {option} or --host, or stop what uses it.",
        code=ExitCode.USAGE,
    )


def _greeting(config: BrokerConfig, broker: Broker) -> str:
    serving = f"penstock serves Kafka clients at {Address(config[HOST], broker.port)}"
    if config[HTTP_PORT] < 0:
        return serving
    return f"{serving}, HTTP at http://{Address(config[HOST], broker.http_port)}"


def raise_open_files_limit(config: BrokerConfig, log: Logger) -> None:
    needed = config[MAX_CONNECTIONS] + config[LOG_OPEN_FILES_MAX] + OPEN_FILES_BESIDES
    # HTTP connections need no warning: at the limit the gateway closes the oldest ones.
    raise_limit_of_open_files(needed, config[GATEWAY_MAX_CONNECTIONS], log)


def raise_limit_of_open_files(needed: int, spare: int, log: Logger) -> None:
    """Raise the soft limit of open files to `needed + spare` if possible; warn if it is below `needed`."""
    limit, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = needed + spare if most == resource.RLIM_INFINITY else min(needed + spare, most)
    if limit < wanted:
        with suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, most))
            limit = wanted
    if limit < needed:
        log.warning("the limit of open files is below what the settings may need", limit=limit, needed=needed)


def warn_if_open_to_all(config: BrokerConfig, log: Logger) -> None:
    if config[HOST] not in LOOPBACK_HOSTS:
        log.warning(
            "anybody who can reach this address can read and write: no authentication", host=config[HOST]
        )
