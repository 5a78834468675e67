"""`penstock broker --processes N`: one supervisor process with the metadata store of the machine, and N broker
processes.

The brokers form a cluster. Each is an ordinary broker with its own directory and port; all share the HTTP port. A
broker that ends is restarted. A start with fewer processes than before also starts the surplus brokers, drains them,
and stops them when they have no replicas.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Sequence

import msgspec

from penstock.cli.exposure import warn_of_open_places
from penstock.cli.failures import ExitCode, Failure
from penstock.cli.process_setup import on_signals
from penstock.cli.processes.draining import drain
from penstock.cli.processes.machine_directory import Machine, MachineDirectory
from penstock.cli.processes.plan import BrokerPlan, check_ports, plan_broker, plan_machine
from penstock.cli.processes.supervised import STORE_SOCKET, SupervisedOption
from penstock.cli.processes.supervisor import ChildEnded, ProcessSupervisor
from penstock.clock import SystemClock
from penstock.cluster.embedded import EmbeddedStore
from penstock.cluster.store_server import StoreServer
from penstock.config import HOST, HTTP_PORT, HTTP_SSL_ENABLE, LOG_DIR, PROCESSES, ZOOKEEPER_CONNECT, Address
from penstock.config.loading import Loaded
from penstock.errors import PenstockError
from penstock.net.unix_network import UnixNetwork
from penstock.observability.logs import open_logger
from penstock.server.environment import STORE_FILE
from penstock.storage.disk import RealDisk
from penstock.storage.start_reserve import release_reserve
from penstock.threads import ThreadPools


def run_processes(loaded: Loaded, arguments: Sequence[str]) -> None:
    """Run the brokers until SIGTERM or SIGINT, then stop them cleanly."""
    config = loaded.config
    directory = MachineDirectory(config[LOG_DIR])
    try:
        descriptor = directory.lock()
        machine = plan_machine(config, directory.load())
        if len(machine.brokers) == 1:
            directory.forget()
            _run_alone(loaded)
            return
        check_ports(config, machine)
        asyncio.run(BrokerProcesses(loaded, arguments, directory, machine).run(descriptor))
    except PenstockError as error:
        raise Failure(str(error), code=ExitCode.USAGE) from None
    except OSError as error:
        raise _unusable(directory, error) from None
    finally:
        directory.unlock()


def _run_alone(loaded: Loaded) -> None:
    from penstock.cli.broker_process import run_broker

    run_broker(loaded.config, loaded.ignored)


def _unusable(directory: MachineDirectory, error: OSError) -> Failure:
    return Failure(
        f"cannot use the data directory {directory.path}: {error.strerror} ({error.filename})",
        "Name one that this user can write to with --data-dir.",
        code=ExitCode.USAGE,
    )


class BrokerProcesses:
    def __init__(
        self, loaded: Loaded, arguments: Sequence[str], directory: MachineDirectory, machine: Machine
    ) -> None:
        self._config = config = loaded.config
        self._arguments = tuple(arguments)
        self._directory = directory
        self._machine = machine
        self._wanted = range(machine.first, machine.first + config[PROCESSES])
        self._log = open_logger(config, SystemClock(), sys.stderr, no_color=bool(os.environ.get("NO_COLOR")))
        for name, reason in loaded.ignored.items():
            self._log.warning("setting has no effect", setting=name, reason=reason)
        warn_of_open_places(config, self._log)
        self._has_store = config[ZOOKEEPER_CONNECT] is None
        self._sockets = str(directory.make_sockets(machine))
        self._threads = ThreadPools()
        self._store = EmbeddedStore(os.path.join(config[LOG_DIR], STORE_FILE), self._threads)
        self._server = StoreServer(self._store, UnixNetwork(), self._log)

    async def run(self, lock_descriptor: int) -> None:
        stop = asyncio.Event()
        on_signals(stop.set)
        supervisor = ProcessSupervisor(
            self._command,
            lambda: self._record(supervisor),
            self._on_end,
            [lock_descriptor],
        )
        self._record_brokers(supervisor)
        try:
            if self._has_store:
                release_reserve(RealDisk(str(self._directory.path)))  # the start writes to the store
                await self._store.start()
                await self._server.start(os.path.join(self._sockets, STORE_SOCKET))
            await self._serve(supervisor, stop)
        finally:
            await supervisor.stop_all()
            await self._server.close()
            await self._store.close()
            self._threads.close()
            self._directory.remove_sockets()
        self._log.info("stopped", brokers=self._machine.brokers)

    async def _serve(self, supervisor: ProcessSupervisor, stop: asyncio.Event) -> None:
        stopping = asyncio.ensure_future(stop.wait())
        starting = asyncio.ensure_future(supervisor.start(self._machine.brokers))
        await asyncio.wait([starting, stopping], return_when=asyncio.FIRST_COMPLETED)
        if not starting.done():
            starting.cancel()
            return
        try:
            starting.result()
        except ChildEnded as error:
            message = f"broker {error.number} did not start: exit code {error.code}"
            raise Failure(message, "The error of the broker is above.", code=ExitCode.USAGE) from None
        print(self._greeting(), flush=True)
        draining = asyncio.ensure_future(self._drain(supervisor))
        await stopping
        draining.cancel()
        await asyncio.wait([draining])

    async def _drain(self, supervisor: ProcessSupervisor) -> None:
        """Drain the surplus brokers, and stop them."""
        bootstrap = plan_broker(self._config, self._machine.first, self._machine.first).address
        for node_id in sorted(set(self._machine.brokers) - set(self._wanted), reverse=True):
            await drain(node_id, bootstrap, self._log)
            await self._directory.until_empty(self._machine, node_id)
            await supervisor.stop([node_id])
            remaining = tuple(each for each in self._machine.brokers if each != node_id)
            is_empty = self._directory.remove_broker(self._machine, node_id)
            os.unlink(os.path.join(self._sockets, "health", str(node_id)))
            self._machine = msgspec.structs.replace(self._machine, brokers=remaining)
            self._record(supervisor)
            self._log.info("broker drained and stopped", node_id=node_id, directory_removed=is_empty)

    def _record_brokers(self, supervisor: ProcessSupervisor) -> None:
        """Record the brokers on disk before one of them can get a replica. Raises OSError if a new broker cannot be
        recorded.
        """
        last = self._directory.load()
        if last is not None and last.brokers == self._machine.brokers:
            self._record(supervisor)
        else:
            self._directory.save_processes(self._machine, {})

    def _record(self, supervisor: ProcessSupervisor) -> None:
        try:
            self._directory.save_processes(self._machine, supervisor.pids)
        except OSError as error:
            self._log.error("process ids could not be saved", error)

    def _command(self, node_id: int, descriptor: int) -> list[str]:
        plan = self._plan(node_id)
        place = SupervisedOption(
            descriptor,
            self._machine.brokers,
            self._sockets,
            self._has_store,
            is_cordoned=node_id not in self._wanted,
        )
        program = [sys.executable, "-m", "penstock.cli.main", "broker"]
        directory = str(self._directory.broker_directory(self._machine, node_id))
        return [*program, *self._arguments, *plan.options(directory), "--supervised", place.encode()]

    def _plan(self, node_id: int) -> BrokerPlan:
        return plan_broker(self._config, self._machine.first, node_id)

    def _on_end(self, node_id: int, code: int) -> None:
        self._log.error("broker process ended; restarting it", node_id=node_id, exit_code=code)

    def _greeting(self) -> str:
        host, count = self._config[HOST], len(self._machine.brokers)
        first = self._plan(self._machine.first).port
        last = self._plan(max(self._machine.brokers)).port
        processes = f"{count} processes, ports {first} to {last}"
        serving = f"penstock serves Kafka clients at {Address(host, first)} ({processes})"
        if self._config[HTTP_PORT] < 0:
            return serving
        scheme = "https" if self._config[HTTP_SSL_ENABLE] else "http"
        return f"{serving}, HTTP at {scheme}://{Address(host, self._config[HTTP_PORT])}"
