"""Webhooks and queue streams while owners, leaders and gateways are killed: every message is handled, none is lost."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from linked_cluster import StartCluster
from websockets.sync.client import connect

from penstock import Admin, Queue
from penstock.internal_client.client import InternalClient, run
from penstock.internal_client.queues import NewQueue
from support.broker_process import StartBroker, free_ports, wait_for_http
from support.eventually import eventually
from support.webhook_receivers import ReceiverServer, thread_receiver

ALLOWED = "webhook.allow.private.addresses=127.0.0.0/8"
MESSAGES = 300
PATIENCE_S = 120.0


def create_queue(bootstrap: str, name: str, **settings: str) -> None:
    new = NewQueue(name, partitions=3, settings=settings)
    run(InternalClient.to(bootstrap, "test", PATIENCE_S), lambda client: client.queues.create(new))


def handle_all(bootstrap: str, receiver: ReceiverServer, kill: Callable[[], None], kills: int) -> None:
    """Send messages, kill while they are sent to the receiver, and wait until each was handled."""
    create_queue(bootstrap, "orders", back_off="100ms")
    Admin(bootstrap).webhooks.create("hook", receiver.url, queue="orders", timeout_s=1)
    with Queue("orders", bootstrap=bootstrap) as queue:
        for part in range(kills):
            for number in range(part * MESSAGES // kills, (part + 1) * MESSAGES // kills):
                queue.send(number)
            eventually(lambda: bool(receiver.received), within_s=PATIENCE_S)
            kill()
    wanted = {str(number).encode() for number in range(MESSAGES)}
    eventually(lambda: {each.body for each in receiver.received} == wanted, within_s=PATIENCE_S)
    ids = {(each.headers["webhook-id"], each.body) for each in receiver.received}
    assert len(ids) == MESSAGES, "repetitions have the id of the message"

    def depth() -> int:
        client = InternalClient.to(bootstrap, "test", PATIENCE_S)
        return run(client, lambda each: each.queues.describe("orders")).depth

    eventually(lambda: depth() == 0, within_s=PATIENCE_S)


def test_killed_broker_continues_its_webhooks(start_broker: StartBroker) -> None:
    broker = start_broker([ALLOWED])

    def kill() -> None:
        broker.kill()
        broker.start()

    with thread_receiver() as receiver:
        handle_all(broker.bootstrap, receiver, kill, 3)


def test_webhook_moves_when_its_owner_is_killed(start_cluster: StartCluster) -> None:
    cluster = start_cluster(ALLOWED, linked=False)
    owners: list[int] = []

    def kill() -> None:
        webhooks = Admin(cluster.bootstrap).webhooks
        owner = webhooks.describe("hook").owner
        owners.append(owner)
        cluster.kill_brokers([owner])
        eventually(lambda: webhooks.describe("hook").owner not in (owner, -1), within_s=PATIENCE_S)
        cluster.start_brokers([owner])
        cluster.wait_until_healed()

    with thread_receiver() as receiver:
        handle_all(cluster.bootstrap, receiver, kill, 2)
    assert owners


def test_messages_of_a_killed_gateway_return_after_their_locks(
    start_broker: StartBroker, tmp_path: Path
) -> None:
    broker = start_broker()
    create_queue(broker.bootstrap, "orders", lock_ms="2000")
    with Queue("orders", bootstrap=broker.bootstrap) as queue:
        for number in range(5):
            queue.send(number)
        [port] = free_ports(1)
        options = ["--bootstrap", broker.bootstrap, "--http-port", str(port)]
        with (tmp_path / "gateway.log").open("wb") as log:
            command = [sys.executable, "-m", "penstock.cli.main", "gateway", *options]
            gateway = subprocess.Popen(command, stdout=log, stderr=log)
        try:
            wait_for_http(port)
            with connect(f"ws://127.0.0.1:{port}/v1/queues/orders/stream") as socket:
                socket.send(json.dumps({"credit": 5}))
                held = [json.loads(socket.recv(PATIENCE_S)) for _ in range(5)]
                os.kill(gateway.pid, signal.SIGKILL)
        finally:
            gateway.kill()
            gateway.wait()
        assert sorted(each["value"] for each in held) == list(range(5))
        found: list[int] = []
        while len(found) < 5:
            with queue.receive(wait_s=PATIENCE_S) as message:
                assert message.attempt == 2
                found.append(message.value)
        assert sorted(found) == list(range(5))
