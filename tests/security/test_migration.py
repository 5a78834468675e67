"""A running cluster that turns from PLAINTEXT to SASL_SSL by rolling restarts, without a failed request."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from support.broker_process import free_ports
from support.certificates import TestAuthority
from support.eventually import eventually_async
from support.harness import Harness
from support.secure_brokers import add_user, consume, create, in_thread, named
from support.whole_brokers import Brokers, run


class Load:
    """Producer in a thread that counts acknowledged and failed records."""

    def __init__(self, settings: dict[str, Any]) -> None:
        self.acknowledged = 0
        self.failures: list[str] = []
        self._producer = Producer({**settings, "acks": "all", "enable.idempotence": True, "linger.ms": 1})
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        number = 0
        while not self._stop.is_set():
            self._producer.produce("t", number.to_bytes(4, "big"), on_delivery=self._on_delivery)
            number += 1
            self._producer.poll(0.005)
        self._producer.flush(30)

    def _on_delivery(self, error: object, _: object) -> None:
        if error:
            self.failures.append(str(error))
        else:
            self.acknowledged += 1

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()


@pytest.mark.slow
def test_cluster_turns_to_sasl_ssl_without_a_failed_request(tmp_path: Path) -> None:
    authority = TestAuthority(tmp_path / "tls")
    ports = free_ports(6)
    plain = [f"PLAINTEXT://127.0.0.1:{port}" for port in ports[:3]]
    secure = [f"SASL_SSL://127.0.0.1:{port}" for port in ports[3:]]

    async def scenario(brokers: Brokers) -> None:
        async def restart(number: int, *listeners: str, between: str) -> None:
            if number in brokers.running:
                await brokers.stop(number)
            brokers._settings |= {"listeners": ",".join(listeners), "inter.broker.listener.name": between}
            harness = await brokers.start(number)
            if "t" in harness.context.image.topics:
                await eventually_async(lambda: brokers.members(number, "t") == {1, 2, 3})

        for number in (1, 2, 3):
            await restart(number, plain[number - 1], between="PLAINTEXT")
        before = {"bootstrap.servers": ",".join(each[12:] for each in plain), "log_level": 3}
        await in_thread(lambda: create(before, "t", 3))
        first = Load(before)
        for number in (1, 2, 3):
            await restart(number, plain[number - 1], secure[number - 1], between="PLAINTEXT")
        await add_user(Harness(brokers.running[1]), "alice", "secret")
        for number in (1, 2, 3):
            await restart(number, plain[number - 1], secure[number - 1], between="SASL_SSL")
        after = {
            "bootstrap.servers": ",".join(each[11:] for each in secure),
            "security.protocol": "SASL_SSL",
            "ssl.ca.location": str(authority.file),
            "sasl.mechanism": "SCRAM-SHA-512",
            "sasl.username": "alice",
            "sasl.password": "secret",
            "log_level": 3,
        }
        second = Load(after)
        await eventually_async(lambda: second.acknowledged > 50)
        await in_thread(first.stop)
        for number in (1, 2, 3):
            await restart(number, secure[number - 1], between="SASL_SSL")
        sent = second.acknowledged
        await eventually_async(lambda: second.acknowledged > sent + 50)
        await in_thread(second.stop)
        assert (first.failures, second.failures) == ([], [])
        count = first.acknowledged + second.acknowledged
        assert len(await in_thread(lambda: consume(after, "t", count))) == count

    run(tmp_path, scenario, authorization_mode="report", **named(authority.settings()))
