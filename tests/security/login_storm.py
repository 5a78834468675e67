"""Measurements of logins: `python tests/security/login_storm.py`.

- 1,000 clients with TLS and SCRAM that connect at once, while another client produces and measures its latency.
- 10,000 wrong passwords, with valid logins in between.
- Times of failed logins with an unknown user and with a wrong password, without the delay that hides them.
- Memory of an idle connection with TLS.

Clients run in this process and cost about as much as the broker, so on two cores the times are upper bounds. The
producer has a process of its own: in the loop of 1,000 handshakes it would measure the clients, not the broker. The
1,000 clients run at the lowest priority, as the noisy clients of `bench/scenarios/isolation.py` do: otherwise they
would take the processor from the producer.
"""

from __future__ import annotations

import asyncio
import functools
import json
import multiprocessing
import os
import statistics
import sys
import tempfile
import time
from multiprocessing.connection import Connection
from multiprocessing.synchronize import Event
from pathlib import Path

import penstock.security.scram as scram
from penstock.config import Address
from penstock.internal_client.client import InternalClient
from penstock.internal_client.client_security import ClientSecurity
from penstock.internal_client.produce_loop import PartitionProducer
from penstock.internal_client.topics import NewTopic
from penstock.net.broker_connection import BrokerConnection
from penstock.net.network import Network, TcpNetwork
from penstock.records.building import NewRecord
from penstock.testing.process import BrokerProcess, free_ports
from penstock.unreachable import LoginRefused
from support.certificates import TestAuthority

CLIENTS = 1_000
WRONG = 10_000
TRIES = 2_000
START_S = 3.0
"""Time in seconds in which the producer's process starts and writes its first records."""
QUIET_S = 3.0
TRIM_S = 3.0
"""Time in seconds after which the broker has returned the memory of the handshakes."""
LOWEST = 19
PASSWORD = "secret"


class Ground:
    """Broker with TLS and SASL, and one without TLS for measurements of logins alone."""

    def __init__(self, directory: Path) -> None:
        self.authority = TestAuthority(directory / "tls")
        plain, tls, sasl = free_ports(3)
        self.plain, self.tls, self.sasl = (Address("127.0.0.1", port) for port in (plain, tls, sasl))
        listeners = f"PLAINTEXT://{self.plain},SASL_SSL://{self.tls},SASL_PLAINTEXT://{self.sasl}"
        settings = {
            "listeners": listeners,
            "http.port": "-1",
            "max.connections": "5000",
            "max.connections.per.ip": "5000",
            "durability": "os",
            "authorization.mode": "off",
            "connection.failed.authentication.delay.ms": "0",
            **self.authority.settings(),
        }
        self.broker = BrokerProcess(directory, [f"{name}={value}" for name, value in settings.items()])

    def network(self, user: str, password: str, *, has_tls: bool) -> Network:
        ca = str(self.authority.file) if has_tls else None
        return ClientSecurity(ca, None, user, password).network(TcpNetwork())

    def memory_bytes(self) -> int:
        for line in Path(f"/proc/{self.broker.pid}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) * 1024
        raise AssertionError("no VmRSS")


async def connect(network: Network, address: Address) -> BrokerConnection:
    return BrokerConnection(await network.connect(address.host, address.port), "storm")


async def produce(address: Address, counts: Event, is_over: Event) -> list[float]:
    """Write one record after the other until `is_over`. Return the seconds of each that began after `counts`."""
    times: list[float] = []
    async with InternalClient.to(str(address), "writer", 10.0) as client:
        writer = PartitionProducer(client.routes, "t", 0)
        loop = asyncio.get_running_loop()
        while not is_over.is_set():
            is_counted = counts.is_set()
            began = time.perf_counter()
            await writer.write([NewRecord(None, bytes(100), 0)], loop.time() + 30)
            if is_counted:
                times.append(time.perf_counter() - began)
            await asyncio.sleep(0.002)
    return times


def produce_until(address: Address, counts: Event, is_over: Event, results: Connection) -> None:
    """Body of the producer's process."""
    results.send(asyncio.run(produce(address, counts, is_over)))


class ProducerProcess:
    """Producer that writes until `stop`, which returns the p99 in milliseconds of the writes after `count`."""

    def __init__(self, address: Address) -> None:
        context = multiprocessing.get_context("spawn")
        self._counts, self._is_over = context.Event(), context.Event()
        self._results, sender = context.Pipe(duplex=False)
        self._process = context.Process(
            target=produce_until, args=(address, self._counts, self._is_over, sender)
        )
        self._process.start()

    def count(self) -> None:
        self._counts.set()

    def stop(self) -> float:
        self._is_over.set()
        times: list[float] = self._results.recv()
        self._process.join()
        return _percentile(times, 0.99) * 1000


async def reconnects(ground: Ground) -> dict[str, float]:
    network = ground.network("alice", PASSWORD, has_tls=True)
    producer = ProducerProcess(ground.plain)
    await asyncio.sleep(START_S)
    producer.count()
    await asyncio.sleep(QUIET_S)
    quiet_ms = producer.stop()
    producer = ProducerProcess(ground.plain)
    await asyncio.sleep(START_S)
    before = ground.memory_bytes()
    producer.count()
    os.nice(LOWEST)  # the broker and the producer have started already and keep their priority
    began = time.perf_counter()
    opened = await asyncio.gather(*(connect(network, ground.tls) for _ in range(CLIENTS)))
    seconds = time.perf_counter() - began
    busy_ms = producer.stop()
    await asyncio.sleep(TRIM_S)
    idle_kb = (ground.memory_bytes() - before) / CLIENTS / 1000
    for connection in opened:
        connection.close()
    return {
        "reconnect_seconds": seconds,
        "idle_connection_kb": idle_kb,
        "producer_p99_ms_quiet": quiet_ms,
        "producer_p99_ms_during": busy_ms,
    }


async def log_in(ground: Ground, user: str, password: str) -> tuple[bool, float]:
    began = time.perf_counter()
    try:
        connection = await connect(ground.network(user, password, has_tls=False), ground.sasl)
    except LoginRefused:
        return False, time.perf_counter() - began
    connection.close()
    return True, time.perf_counter() - began


async def guesses(ground: Ground) -> dict[str, float]:
    """Wrong passwords from many connections, and valid logins beside them."""
    left = iter(range(WRONG))
    valid: list[float] = []

    async def guess() -> None:
        for number in left:
            is_right, _ = await log_in(ground, "alice", f"guess-{number % 10}")
            assert not is_right

    async def use(guessing: asyncio.Future[list[None]]) -> None:
        while not guessing.done():
            is_right, seconds = await log_in(ground, "alice", PASSWORD)
            assert is_right
            valid.append(seconds)

    began = time.perf_counter()
    guessing = asyncio.gather(*(guess() for _ in range(20)))
    await use(guessing)
    await guessing
    return {
        "wrong_passwords_seconds": time.perf_counter() - began,
        "valid_logins_beside": float(len(valid)),
        "valid_login_p99_ms": _percentile(valid, 0.99) * 1000,
    }


async def timing(ground: Ground) -> dict[str, float]:
    """Failed logins in turn, so that both kinds meet the same load."""
    times: dict[str, list[float]] = {"wrong_password": [], "unknown_user": []}
    for number in range(TRIES):
        pair = [("wrong_password", "alice"), ("unknown_user", f"nobody-{number % 10}")]
        for name, user in pair if number % 2 else reversed(pair):
            _, seconds = await log_in(ground, user, f"guess-{number % 10}")
            times[name].append(seconds)
    medians = {name: statistics.median(found) for name, found in times.items()}
    spread = statistics.median(abs(each - medians["wrong_password"]) for each in times["wrong_password"])
    return {
        **{f"{name}_median_us": value * 1e6 for name, value in medians.items()},
        "difference_us": abs(medians["wrong_password"] - medians["unknown_user"]) * 1e6,
        "spread_us": spread * 1e6,
    }


def _percentile(values: list[float], share: float) -> float:
    return sorted(values)[int(len(values) * share)]


async def measure(ground: Ground) -> dict[str, float]:
    async with InternalClient.to(str(ground.plain), "storm", 30.0) as client:
        await client.topics.create(NewTopic("t", 1))
        await client.users.set_password("alice", PASSWORD)
    # Clients on machines of their own derive their keys themselves; here the derivation would hide the broker.
    scram.salted_password = functools.lru_cache(scram.salted_password)
    await log_in(ground, "alice", PASSWORD)
    found = await timing(ground)
    found |= await guesses(ground)
    return found | await reconnects(ground)


def main() -> int:
    with tempfile.TemporaryDirectory(prefix="penstock-storm-") as directory:
        ground = Ground(Path(directory))
        ground.broker.port = ground.plain.port
        ground.broker.start()
        try:
            found = asyncio.run(measure(ground))
        finally:
            ground.broker.kill()
    print(json.dumps({name: round(value, 2) for name, value in found.items()}, indent=2))
    return 0


if __name__ == "__main__":
    sys.exit(main())
