"""A full disk as HTTP clients and the command line see it: named at once, nothing stored, and over when space
is freed.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from served import client_of, serving

from penstock.cli.main import run
from penstock.errors import BrokerError, DiskFull, ErrorCode
from penstock.gateway.http.problems import problem_of
from support.broker_process import BrokerProcess
from support.eventually import eventually

FLOOR = "log.dir.min.free.bytes"
AT_ONCE_SECONDS = 8.0
"""Seconds below gateway.delivery.timeout.ms, with room for a busy machine."""
MESSAGE = {"from_user": "ann", "to_user": "bob", "message": "hi"}


@pytest.fixture
def full(starts_processes: None, tmp_path: Path) -> Iterator[BrokerProcess]:
    with serving(tmp_path, (f"{FLOOR}={2**60}", "log.retention.check.interval.ms=200")) as broker:
        yield broker


@pytest.fixture
def http(full: BrokerProcess) -> Iterator[httpx.Client]:
    with client_of(full) as client:
        client.post("/v1/topics", json={"name": "orders"}).raise_for_status()
        yield client


def test_full_disk_gets_507_at_once(http: httpx.Client) -> None:
    http.get("/receive", params={"user_id": "bob"}).raise_for_status()
    for path, body, headers in (
        ("/send", MESSAGE, {}),
        ("/send", MESSAGE, {"idempotency-key": "once"}),
        ("/v1/topics/orders/messages", {"messages": [{"value": "a"}, {"value": "b"}]}, {}),
    ):
        started = time.monotonic()
        answer = http.post(path, json=body, headers=headers)
        assert (answer.status_code, answer.json()["retriable"]) == (507, True), answer.text
        assert time.monotonic() - started < AT_ONCE_SECONDS
        assert "nothing was stored: disk full" in answer.json()["detail"]
        assert "outcome" not in answer.json()
        assert answer.headers["retry-after"]
    http.patch("/v1/brokers/1/configs", json={FLOOR: "0"}).raise_for_status()

    def sent() -> httpx.Response | None:
        response = http.post("/send", json=MESSAGE)
        return None if response.status_code == 507 else response

    stored = eventually(sent, "there is space again")
    assert stored is not None
    assert stored.status_code == 200, stored.text
    received = http.get("/receive", params={"user_id": "bob"}).json()["messages"]
    assert [each["message_id"] for each in received] == [stored.json()["message_id"]]
    assert http.get("/v1/topics/orders/messages").json()["messages"] == []


def test_command_line_names_broker_with_full_disk(
    full: BrokerProcess, http: httpx.Client, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "lines"
    file.write_text("one\ntwo\n")
    arguments = ["produce", "orders", str(file), "--timeout", "4", "--bootstrap", full.bootstrap]
    assert run(arguments) == 1
    told = capsys.readouterr().err
    assert "waiting for acknowledgements: the disk of broker 1 is full" in told
    assert "2 of 2 records were not stored in orders: the disk of broker 1 is full" in told
    assert FLOOR in told
    assert "penstock topic truncate" in told


def test_other_storage_errors_are_not_reported_as_full_disk() -> None:
    problem = problem_of(BrokerError(ErrorCode.kafka_storage_error, "the log failed"))
    assert problem is not None
    assert problem.status == 503
    assert not DiskFull.matches(ErrorCode.kafka_storage_error, "the log failed: disk full: no")
    assert not DiskFull.matches(ErrorCode.not_enough_replicas, "disk full: x")
