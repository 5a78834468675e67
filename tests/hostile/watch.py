"""Invariants of a broker under attack: it lives, serves other clients, keeps its memory, and logs no errors.

An innocent client produces and fetches on its own connection during the attack. Its slowest round trip and
the peak memory of the broker measure the damage.
"""

from __future__ import annotations

import json
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psutil

from penstock.records.building import NewRecord, build_batch
from support import raw
from support.broker_process import BrokerProcess
from support.eventually import eventually
from support.stopwatch import Stopwatch

MIB = 2**20
INNOCENT_TOPIC = "innocent"
PAUSE_SECONDS = 0.01
MAX_LINE_CHARACTERS = 2_000
PRODUCE_VERSION, FETCH_VERSION = 9, 12


def now_ms() -> int:
    return int(time.time() * 1000)


def produce(
    client: raw.RawClient, topic: str, batch: bytes | bytearray, *, partition: int = 0, acks: int = -1
) -> Any:
    """Produce one batch to one partition, and return the response of the partition."""
    data = [{"name": topic, "partition_data": [{"index": partition, "records": bytes(batch)}]}]
    answer = client.call(raw.PRODUCE, PRODUCE_VERSION, acks=acks, timeout=10_000, topic_data=data)
    return answer.responses[0].partition_responses[0]


def fetch(client: raw.RawClient, topic: str, offset: int, *, partition: int = 0, max_bytes: int = MIB) -> Any:
    """Fetch one partition from an offset, and return the response of the partition."""
    partitions = [{"partition": partition, "fetch_offset": offset, "partition_max_bytes": max_bytes}]
    answer = client.call(
        raw.FETCH,
        FETCH_VERSION,
        max_wait=500,
        min_bytes=1,
        max_bytes=max_bytes,
        topics=[{"topic": topic, "partitions": partitions}],
    )
    assert answer.error_code == 0
    return answer.responses[0].partitions[0]


def log_end(client: raw.RawClient, topic: str, partition: int = 0) -> int:
    """Log end offset of a partition."""
    answer = client.call(
        raw.LIST_OFFSETS,
        7,
        replica_id=-1,
        topics=[{"name": topic, "partitions": [{"partition_index": partition, "timestamp": -1}]}],
    )
    result = answer.topics[0].partitions[0]
    assert result.error_code == 0
    return int(result.offset)


def create_topic(client: raw.RawClient, name: str, *, partitions: int = 1, **configs: str) -> Any:
    """Create a topic (config names with underscores for dots), and return the response of the topic."""
    topic = {
        "name": name,
        "num_partitions": partitions,
        "replication_factor": 1,
        "configs": [{"name": key.replace("_", "."), "value": value} for key, value in configs.items()],
    }
    return client.call(raw.CREATE_TOPICS, 5, topics=[topic], timeout=10_000).topics[0]


class InnocentClient(threading.Thread):
    """Produces a record and fetches it, again and again, on one connection."""

    def __init__(self, broker: BrokerProcess, process: psutil.Process) -> None:
        super().__init__(daemon=True)
        self.slowest_seconds = 0.0
        self.peak_rss = 0
        self.round_trips = 0
        self.problem: BaseException | None = None
        self._port = broker.port
        self._process = process
        self._stopping = threading.Event()

    def run(self) -> None:
        try:
            stopwatch = Stopwatch(self._process.pid)
            with raw.RawClient(self._port, patience_seconds=60) as client:
                while not self._stopping.wait(PAUSE_SECONDS):
                    stopwatch.restart()
                    self._round_trip(client)
                    self.slowest_seconds = max(self.slowest_seconds, stopwatch.seconds)
                    self.peak_rss = max(self.peak_rss, self._process.memory_info().rss)
                    self.round_trips += 1
        except Exception as problem:  # noqa: BLE001 - told to the test at its end
            self.problem = problem

    def _round_trip(self, client: raw.RawClient) -> None:
        value = f"value {self.round_trips}".encode()
        stored = produce(client, INNOCENT_TOPIC, build_batch([NewRecord(b"key", value, now_ms())]))
        assert stored.error_code == 0, stored
        fetched = fetch(client, INNOCENT_TOPIC, stored.base_offset)
        assert fetched.error_code == 0, fetched
        assert value in fetched.records

    def finish(self) -> None:
        self._stopping.set()
        self.join(90)
        assert not self.is_alive(), "the innocent client is stuck"
        if self.problem is not None:
            raise AssertionError("the innocent client was harmed") from self.problem


class Watch:
    """Watch over one broker until `finish`, which fails if the broker or the innocent client was harmed."""

    def __init__(self, broker: BrokerProcess) -> None:
        self.max_seconds = 3.0
        """The longest that a round trip of the innocent client may take, without waits for a processor."""
        self.max_growth_bytes = 64 * MIB
        self.broker = broker
        self._process = psutil.Process(broker.pid)
        self._log_start = broker.log_path.stat().st_size
        self.started_rss = self._process.memory_info().rss
        self._innocent = InnocentClient(broker, self._process)
        self._innocent.start()

    def client(self, patience_seconds: float = raw.PATIENCE_SECONDS) -> raw.RawClient:
        return raw.RawClient(self.broker.port, patience_seconds=patience_seconds)

    @property
    def rss(self) -> int:
        return int(self._process.memory_info().rss)

    def established_connections(self) -> int:
        """Connections of the broker, counted by the operating system."""
        port = self.broker.port
        held = (
            entry
            for entry in self._process.net_connections("tcp")
            if entry.laddr and entry.laddr.port == port
        )
        return sum(1 for entry in held if entry.status in (psutil.CONN_ESTABLISHED, psutil.CONN_CLOSE_WAIT))

    def holds(self, client: raw.RawClient) -> bool:
        """Whether the broker holds the connection of a client, as the operating system tells."""
        peer_port = client.socket.getsockname()[1]
        return any(
            entry.status in (psutil.CONN_ESTABLISHED, psutil.CONN_CLOSE_WAIT)
            for entry in self._process.net_connections("tcp")
            if entry.raddr and entry.raddr.port == peer_port
        )

    def finish(self) -> None:
        assert self._process.is_running(), "the broker died"
        assert self._process.status() != psutil.STATUS_ZOMBIE, "the broker died"
        self._wait_for_a_round_trip()
        self._innocent.finish()
        assert self._innocent.slowest_seconds <= self.max_seconds
        growth = max(self._innocent.peak_rss, self.rss) - self.started_rss
        assert growth <= self.max_growth_bytes, f"memory grew by {growth / MIB:.0f} MiB"
        for line in self.log_lines():
            assert line["level"] != "error", line
            assert "traceback" not in line, line

    def _wait_for_a_round_trip(self) -> None:
        """Wait for one whole round trip of the innocent client after the attack."""
        seen = self._innocent.round_trips
        eventually(
            lambda: self._innocent.round_trips >= seen + 2 or self._innocent.problem is not None, within_s=60
        )

    def log_lines(self) -> list[dict[str, Any]]:
        """Log lines since the watch began; each must be a short JSON object."""
        with self.broker.log_path.open("rb") as log:
            log.seek(self._log_start)
            text = log.read().decode("ascii")
        lines = []
        for line in text.splitlines():
            assert len(line) <= MAX_LINE_CHARACTERS or '"traceback"' in line, line[:MAX_LINE_CHARACTERS]
            lines.append(json.loads(line))
        return lines

    def metrics(self) -> str:
        with urllib.request.urlopen(
            f"http://127.0.0.1:{self.broker.http_port}/metrics", timeout=10
        ) as answer:
            text: str = answer.read().decode()
            return text

    def refusals(self) -> float:
        return sum_of(self.metrics(), "penstock_refused_total")

    @contextmanager
    def counts_refusals(self, least: int = 1) -> Iterator[None]:
        """Expect that requests inside the block are counted as refused."""
        before = self.refusals()
        yield
        counted = self.refusals() - before
        assert counted >= least, f"{counted} refusals counted, at least {least} expected"

    def refuses(self, *contents: bytes) -> None:
        """Expect that the broker closes the connection for each of these contents, and counts a refusal."""
        with self.counts_refusals(len(contents)):
            for content in contents:
                with self.client() as client:
                    client.send(content)
                    client.expect_refused()


def sum_of(metrics: str, name: str) -> float:
    rows = (row for row in metrics.splitlines() if row.startswith((f"{name} ", f"{name}{{")))
    return sum(float(row.rpartition(" ")[2]) for row in rows)
