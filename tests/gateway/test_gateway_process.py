"""The gateway in a process of its own: in front of a broker, without one, and with one that does not respond."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from gateway_process import GatewayProcess
from served import PATIENCE_SECONDS, serving

from support.broker_process import BrokerProcess, free_ports
from support.eventually import eventually

BODY = {"from_user": "ann", "to_user": "bob", "message": "hi"}
QUICK = ("gateway.delivery.timeout.ms=1000",)


@pytest.fixture
def broker(starts_processes: None, tmp_path: Path) -> Iterator[BrokerProcess]:
    with serving(tmp_path, ("gateway.enable=false",)) as process:
        yield process


def test_message_sent_to_one_gateway_is_received_from_another(broker: BrokerProcess, tmp_path: Path) -> None:
    with (
        GatewayProcess(tmp_path, broker.bootstrap) as one,
        GatewayProcess(tmp_path, broker.bootstrap) as other,
    ):
        sent = httpx.post(f"{one.url}/send", json=BODY, timeout=PATIENCE_SECONDS).json()["message_id"]
        received = httpx.get(
            f"{other.url}/receive", params={"user_id": "bob"}, timeout=PATIENCE_SECONDS
        ).json()
        assert [each["message_id"] for each in received["messages"]] == [sent]
        assert (one.stop(), other.stop()) == (0, 0)


def test_workers_share_a_port_and_dead_worker_is_replaced(broker: BrokerProcess, tmp_path: Path) -> None:
    import psutil

    with GatewayProcess(tmp_path, broker.bootstrap, workers=2) as gateway:
        assert gateway._process is not None
        parent = psutil.Process(gateway._process.pid)
        before = {child.pid for child in parent.children()}
        assert len(before) == 2
        os.kill(min(before), signal.SIGKILL)
        while {child.pid for child in parent.children()} <= before:
            time.sleep(0.01)
        for _ in range(20):
            assert httpx.get(f"{gateway.url}/v1/brokers", timeout=PATIENCE_SECONDS).status_code == 200
        children = parent.children()
        gateway.kill()
        _, left = psutil.wait_procs(children, PATIENCE_SECONDS)
        assert not left, "workers end with the process that looks after them"


def test_worker_ends_with_its_parent_during_start(broker: BrokerProcess, tmp_path: Path) -> None:
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    options = ["--bootstrap", broker.bootstrap, "--http-port", str(free_ports(1)[0])]
    options += ["--worker-of", str(gone.pid), "--worker-socket", str(tmp_path / "socket")]
    command = [sys.executable, "-m", "penstock.cli.main", "gateway", *options]
    assert subprocess.run(command, timeout=PATIENCE_SECONDS).returncode == 0


def test_metrics_cover_all_workers_after_a_replacement(broker: BrokerProcess, tmp_path: Path) -> None:
    import psutil

    def workers() -> set[str]:
        text = httpx.get(f"{gateway.url}/metrics", timeout=PATIENCE_SECONDS).text
        return {line for line in text.splitlines() if line.startswith("penstock_http_connections{")}

    with GatewayProcess(tmp_path, broker.bootstrap, workers=3) as gateway:
        assert gateway._process is not None
        eventually(lambda: len(workers()) == 3, ignoring=httpx.TransportError)
        first, *_ = psutil.Process(gateway._process.pid).children()
        first.kill()
        eventually(lambda: len(workers()) == 2, ignoring=httpx.TransportError)
        eventually(lambda: len(workers()) == 3, ignoring=httpx.TransportError)
        assert {line.partition(" ")[0] for line in workers()} == {
            f'penstock_http_connections{{worker="{number}"}}' for number in range(3)
        }
        assert gateway.stop() == 0


@pytest.mark.usefixtures("starts_processes")
def test_unreachable_cluster_gets_503(tmp_path: Path) -> None:
    [port] = free_ports(1)
    with GatewayProcess(tmp_path, f"127.0.0.1:{port}", QUICK) as gateway:
        for answer in (
            httpx.get(f"{gateway.url}/v1/topics", timeout=PATIENCE_SECONDS),
            httpx.post(f"{gateway.url}/send", json=BODY, timeout=PATIENCE_SECONDS),
            httpx.get(f"{gateway.url}/receive?user_id=bob", timeout=PATIENCE_SECONDS),
        ):
            problem = answer.json()
            assert (answer.status_code, problem["retriable"]) == (503, True)
            assert problem["error"] == "BROKER_NOT_AVAILABLE"
            assert answer.headers["retry-after"] == "1"
        assert httpx.get(f"{gateway.url}/health").status_code == 200
        assert gateway.stop() == 0


def test_lost_response_gets_504_with_unknown_outcome(broker: BrokerProcess, tmp_path: Path) -> None:
    with GatewayProcess(tmp_path, broker.bootstrap, QUICK) as gateway, httpx.Client(timeout=60) as http:
        first = http.post(f"{gateway.url}/send", json=BODY, headers={"idempotency-key": "1"}).json()
        os.kill(broker.pid, signal.SIGSTOP)
        try:
            answer = http.post(f"{gateway.url}/send", json=BODY, headers={"idempotency-key": "2"})
        finally:
            os.kill(broker.pid, signal.SIGCONT)
        assert answer.status_code == 504
        assert answer.json()["outcome"] == "unknown"
        again = http.post(f"{gateway.url}/send", json=BODY, headers={"idempotency-key": "2"})
        assert again.status_code == 200
        found = http.get(f"{gateway.url}/receive", params={"user_id": "bob"}).json()["messages"]
        assert [each["message_id"] for each in found] == [first["message_id"], again.json()["message_id"]]


def test_taken_port_and_invalid_address_are_reported(broker: BrokerProcess) -> None:
    for arguments, says in (
        (["--http-port", str(broker.http_port)], "cannot listen"),
        (["--bootstrap", "nonsense:port"], "--bootstrap"),
        (["--http-port", "-1"], "needs a port"),
        (["--http-port", "0", "--workers", "2"], "--http-port"),
        (["--set", "gateway.allowed.origins=*"], "gateway.allowed.origins"),
    ):
        ended = subprocess.run(
            [sys.executable, "-m", "penstock.cli.main", "gateway", *arguments],
            capture_output=True,
            timeout=PATIENCE_SECONDS,
        )
        assert ended.returncode == 2
        assert says in ended.stderr.decode()
        assert "Traceback" not in ended.stderr.decode()
