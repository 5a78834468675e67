"""Node ids, ports and addresses of the broker processes of one machine, checked before any process starts."""

from __future__ import annotations

import socket
from dataclasses import dataclass

from penstock.cli.failures import ExitCode, Failure
from penstock.cli.process_setup import cannot_listen
from penstock.cli.processes.machine_directory import Machine
from penstock.config import (
    ADVERTISED_LISTENERS,
    HOST,
    HTTP_PORT,
    LISTENERS,
    NODE_ID,
    PROCESSES,
    Address,
    BrokerConfig,
    ListenerEndpoint,
)
from penstock.config.listeners import Endpoints

MAX_PORT = 65_535
LOOPBACK = {"": "127.0.0.1", "0.0.0.0": "127.0.0.1", "::": "::1"}


@dataclass(frozen=True, slots=True)
class BrokerPlan:
    node_id: int
    bound: Endpoints
    """Addresses of the listeners."""
    advertised: Endpoints | None
    is_short_form: bool
    """True if the listener is set by `host` and `port`."""

    @property
    def port(self) -> int:
        return self.bound[0].address.port

    @property
    def address(self) -> Address:
        """Address that this machine uses to connect to the broker."""
        host = self.bound[0].address.host
        return Address(LOOPBACK.get(host, host), self.port)

    def options(self, directory: str) -> list[str]:
        """Return the options of the broker's command line."""
        options = ["--data-dir", directory, "--node-id", str(self.node_id)]
        if self.is_short_form:
            options += ["--port", str(self.port)]
        else:
            options += ["--set", f"listeners={LISTENERS.format(self.bound)}"]
        if self.advertised is not None:
            options += ["--advertised", ADVERTISED_LISTENERS.format(self.advertised)]
        return options


def plan_machine(config: BrokerConfig, last: Machine | None) -> Machine:
    """Return the brokers to start: the configured number, and the other brokers of the last start, which may have
    replicas.
    """
    first = config[NODE_ID]
    if last is not None and last.first != first:
        raise Failure(
            f"the data directory belongs to node {last.first}, not {first}",
            f"Start with --node-id {last.first} or with another --data-dir.",
            code=ExitCode.USAGE,
        )
    wanted = range(first, first + config[PROCESSES])
    return Machine(first, tuple(sorted({*wanted, *(last.brokers if last is not None else ())})))


def plan_broker(config: BrokerConfig, first: int, node_id: int) -> BrokerPlan:
    """Return the plan of one broker. Its ports follow from the difference between its node id and the first one: with
    two listeners, each further broker uses the next two ports.
    """
    bound = tuple(ListenerEndpoint(each.name, each.address) for each in config.listeners)
    distance = (node_id - first) * len(bound)
    advertised = config[ADVERTISED_LISTENERS]
    return BrokerPlan(
        node_id,
        _moved(bound, distance),
        None if advertised is None else _moved(advertised, distance),
        config[LISTENERS] is None,
    )


def _moved(endpoints: Endpoints, distance: int) -> Endpoints:
    return tuple(
        ListenerEndpoint(each.name, Address(each.address.host, each.address.port + distance))
        for each in endpoints
    )


def check_ports(config: BrokerConfig, machine: Machine) -> None:
    """Raise Failure if a port is out of range, is used twice, or is not free.

    The check of the HTTP port is needed because the brokers share it in a way that also admits processes of another
    machine directory.
    """
    plans = [plan_broker(config, machine.first, node_id) for node_id in machine.brokers]
    bound = [(plan.node_id, each.address) for plan in plans for each in plan.bound]
    ports = [address.port for _, address in bound]
    if any(listener.address.port == 0 for listener in config.listeners):
        raise _refusal("--port cannot be 0 with several processes", "Give the port of the first one.")
    if config[HTTP_PORT] == 0:
        raise _refusal(
            "--http-port cannot be 0 with several processes, because they share the port",
            "Give a port, or -1 to disable HTTP.",
        )
    if max(ports) > MAX_PORT:
        raise _refusal(
            f"port {max(ports)} of the last process is above {MAX_PORT}",
            f"Give a --port of at most {MAX_PORT + 1 - len(ports)}.",
        )
    if config[HTTP_PORT] in ports:
        node_id = bound[ports.index(config[HTTP_PORT])][0]
        raise _refusal(
            f"port {config[HTTP_PORT]} would be used for HTTP and for broker {node_id}",
            f"The brokers take the ports {ports[0]} to {ports[-1]}; give another --http-port.",
        )
    if len(set(ports)) < len(ports):
        raise _refusal(
            "two broker processes would listen on the same port", "Give listeners with consecutive ports."
        )
    for _, address in bound:
        _check_free(address, "--port")
    if config[HTTP_PORT] > 0:
        _check_free(Address(config[HOST], config[HTTP_PORT]), "--http-port")


def _check_free(address: Address, option: str) -> None:
    try:
        [(family, *_, bound), *_] = socket.getaddrinfo(
            address.host or None, address.port, type=socket.SOCK_STREAM
        )
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(bound)
            probe.listen()
    except OSError as error:
        raise cannot_listen(address, option, error) from None


def _refusal(message: str, hint: str) -> Failure:
    return Failure(message, hint, code=ExitCode.USAGE)
