"""`penstock cluster up|status|kill|start|down`: ZooKeeper and brokers on this machine, as real processes."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.cli.cluster import zookeeper_process
from penstock.cli.cluster.local_cluster import ClusterFile, Form, LocalBroker, LocalCluster, LocalZooKeeper
from penstock.cli.cluster.local_plan import plan_broker, plan_cluster, with_settings
from penstock.cli.cluster.start import ClusterStart
from penstock.cli.cluster.zookeeper_process import find_jars, find_java
from penstock.cli.failures import Failure
from penstock.cli.main import run
from penstock.cli.processes.process_id import ProcessId, end_all, identify
from penstock.errors import ConfigError
from penstock.extras import how_to_install
from support.eventually import eventually
from support.ports import free_range

COMMAND_SECONDS = 60
QUICK = ("--set", "durability=os", "--set", "offsets.topic.num.partitions=3")


class Cluster:
    """Commands for one cluster directory; a command that should fail returns its error output."""

    def __init__(self, directory: Path, brokers: int) -> None:
        self.directory = directory
        self.brokers = brokers
        self.port, self.http_port = free_port_ranges(brokers)

    def penstock(self, *arguments: str, code: int = 0) -> str:
        ended = subprocess.run(
            self.command(*arguments), capture_output=True, text=True, timeout=COMMAND_SECONDS, check=False
        )
        assert ended.returncode == code, ended.stdout + ended.stderr
        return ended.stdout if code == 0 else ended.stderr

    def command(self, *arguments: str) -> list[str]:
        place = ["--data-dir", str(self.directory)] if arguments[0] == "cluster" else []
        return [sys.executable, "-m", "penstock.cli.main", *arguments, *place]

    def up_command(self, *options: str) -> list[str]:
        ports = ("--base-port", str(self.port), "--http-base-port", str(self.http_port))
        return ["cluster", "up", "--brokers", str(self.brokers), *ports, *QUICK, *options]

    def status(self) -> dict[str, Any]:
        status: dict[str, Any] = json.loads(self.penstock("cluster", "status", "--json"))
        return status

    def command_line_of(self, node_id: int) -> bytes:
        process = ClusterFile(self.directory).load().broker(node_id).process
        assert process is not None
        return Path(f"/proc/{process.pid}/cmdline").read_bytes()

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.port}"

    def processes(self) -> list[ProcessId]:
        known = ClusterFile(self.directory).load_if_there()
        if known is None:
            return []
        recorded = [known.zookeeper.process, *(broker.process for broker in known.brokers)]
        return [process for process in recorded if process is not None]

    def nothing_runs(self) -> bool:
        return not any(process.is_alive for process in self.processes())


def free_port_ranges(length: int) -> tuple[int, int]:
    """Two ranges of consecutive free ports, with one free port below."""
    first = free_range(1 + 2 * length) + 1
    return first, first + length


def make_cluster(directory: Path, brokers: int) -> Iterator[Cluster]:
    try:
        find_java()
        find_jars()
    except Failure as missing:
        pytest.skip(f"{missing} (penstock[cluster] brings both)")
    cluster = Cluster(directory, brokers)
    yield cluster
    end_all(cluster.processes(), signal.SIGKILL, COMMAND_SECONDS)


@pytest.fixture
def cluster(starts_clusters: None, tmp_path: Path) -> Iterator[Cluster]:
    yield from make_cluster(tmp_path / "cluster", 3)


@pytest.fixture
def small_cluster(starts_clusters: None, tmp_path: Path) -> Iterator[Cluster]:
    yield from make_cluster(tmp_path / "cluster", 1)


def test_cluster_survives_kill_start_down_and_up(cluster: Cluster) -> None:
    said = cluster.penstock(*cluster.up_command("--detach"))
    for number in range(3):
        assert f"broker {number + 1} at 127.0.0.1:{cluster.port + number}, " in said
    status = cluster.status()
    assert [(broker["node_id"], broker["port"], broker["http_port"]) for broker in status["brokers"]] == [
        (number + 1, cluster.port + number, cluster.http_port + number) for number in range(3)
    ]
    assert all(broker["alive"] and broker["member"] for broker in status["brokers"])
    assert status["controller"] in (1, 2, 3)
    assert status["zookeeper"]["alive"]

    bootstrap = ("--bootstrap", cluster.bootstrap)
    cluster.penstock(
        "topic", "create", "orders", "--partitions", "3", "--replication-factor", "1", *bootstrap
    )
    command = cluster.command_line_of(2)
    cluster.penstock("cluster", "kill", "2")
    assert "broker 2 is not running" in cluster.penstock("cluster", "kill", "2", code=1)
    [killed] = [broker for broker in cluster.status()["brokers"] if not broker["alive"]]
    assert (killed["node_id"], killed["pid"]) == (2, None)
    cluster.penstock("cluster", "start", "2")
    assert cluster.command_line_of(2) == command
    assert "is already running" in cluster.penstock("cluster", "start", "2")
    assert [broker["alive"] for broker in cluster.status()["brokers"]] == [True] * 3
    assert "there is no broker 7\nBroker ids are 1, 2, 3." in cluster.penstock("cluster", "kill", "7", code=2)

    cluster.penstock("cluster", "down")
    assert cluster.nothing_runs()
    stopped = cluster.status()
    assert [broker["alive"] for broker in stopped["brokers"]] == [False] * 3
    assert (stopped["controller"], stopped["offline_partitions"]) == (None, None)

    refusal = cluster.penstock("cluster", "up", "--brokers", "5", code=2)
    assert "was created with --brokers 3, not 5" in refusal
    cluster.penstock(*cluster.up_command("--detach"))
    again = cluster.status()
    assert (again["cluster_id"], again["partitions"]) == (status["cluster_id"], 3)
    elsewhere = json.loads(run_plain("cluster", "status", "--json", *bootstrap))
    assert elsewhere["under_replicated_partitions"] == elsewhere["offline_partitions"] == 0
    assert [broker["node_id"] for broker in elsewhere["brokers"]] == [1, 2, 3]
    cluster.penstock("cluster", "down")


def run_plain(*arguments: str) -> str:
    command = [sys.executable, "-m", "penstock.cli.main", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=COMMAND_SECONDS, check=True).stdout


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_in_the_foreground_a_signal_stops_everything(small_cluster: Cluster, number: signal.Signals) -> None:
    with subprocess.Popen(
        small_cluster.command(*small_cluster.up_command()), stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert any("all brokers serve after" in line for line in process.stdout)
        assert all(each.is_alive for each in small_cluster.processes())
        process.send_signal(number)
        rest, _ = process.communicate(timeout=COMMAND_SECONDS)
    assert (process.returncode, rest) == (0, "stopped 1 broker\n")
    assert small_cluster.nothing_runs()
    log = ClusterFile(small_cluster.directory).log_path(1).read_text()
    assert json.loads(log.splitlines()[-1])["message"] == "stopped"


def test_a_signal_while_it_starts_leaves_nothing_running(small_cluster: Cluster) -> None:
    with subprocess.Popen(
        small_cluster.command(*small_cluster.up_command("--detach")), stdout=subprocess.PIPE, text=True
    ) as process:
        eventually(
            small_cluster.processes, "a process of the cluster runs", within_s=COMMAND_SECONDS, poll_s=0
        )
        process.send_signal(signal.SIGTERM)
        said, _ = process.communicate(timeout=COMMAND_SECONDS)
    assert (process.returncode, said) == (130, "")
    assert small_cluster.nothing_runs()


def test_the_foreground_ends_when_another_command_stops_the_cluster(small_cluster: Cluster) -> None:
    with subprocess.Popen(
        small_cluster.command(*small_cluster.up_command()),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert any("all brokers serve after" in line for line in process.stdout)
        small_cluster.penstock("cluster", "down")
        _, complaint = process.communicate(timeout=COMMAND_SECONDS)
    assert process.returncode == 0
    assert "broker 1 ended" in complaint


def test_a_taken_port_is_named_and_nothing_is_started(small_cluster: Cluster) -> None:
    with socket.create_server(("127.0.0.1", small_cluster.http_port)):
        complaint = small_cluster.penstock(*small_cluster.up_command("--detach"), code=1)
    assert f"cannot listen on 127.0.0.1:{small_cluster.http_port} (Address already in use)" in complaint
    assert small_cluster.processes() == []


def test_without_the_extra_its_command_is_named_and_no_cluster_is_saved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(zookeeper_process, "find_spec", lambda name: None)
    monkeypatch.setattr(zookeeper_process, "SYSTEM_JARS", str(tmp_path))
    monkeypatch.delenv("ZOOKEEPER_HOME", raising=False)
    file = ClusterFile(tmp_path / "cluster")
    port, http_port = free_port_ranges(1)
    with pytest.raises(Failure, match="no ZooKeeper jars were found in") as raised:
        ClusterStart(file).run(lambda _: plan_cluster(Form(1, port, http_port)))
    assert how_to_install("cluster") in str(raised.value.hint)
    assert file.load_if_there() is None


def test_failed_broker_start_shows_its_log_and_leaves_no_process(
    small_cluster: Cluster,
) -> None:
    directory = ClusterFile(small_cluster.directory).broker_directory(1)
    directory.mkdir(parents=True)
    (directory / "data").touch()
    complaint = small_cluster.penstock(*small_cluster.up_command("--detach"), code=1)
    assert "broker 1 did not start: the process ended with exit code 2" in complaint
    assert "cannot use the data directory" in complaint
    assert len(small_cluster.processes()) == 2
    assert small_cluster.nothing_runs()


def test_failed_zookeeper_start_is_reported_and_leaves_no_process(
    small_cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    java = tmp_path / "jdk/bin/java"
    java.parent.mkdir(parents=True)
    java.write_text("#!/bin/sh\necho no memory\nexit 1\n")
    java.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "jdk"))
    complaint = small_cluster.penstock(*small_cluster.up_command("--detach"), code=1)
    assert "ZooKeeper did not start at port" in complaint
    assert "no memory" in complaint
    assert small_cluster.nothing_runs()


@pytest.mark.usefixtures("starts_processes")
def test_process_is_identified_by_its_start_time() -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        known = identify(child.pid)
        assert known.is_alive
        other = ProcessId(child.pid, "another time")
        assert not other.is_alive
        assert end_all([other], signal.SIGKILL, 5)
        assert child.poll() is None
        assert end_all([known], signal.SIGKILL, 5)
        assert not known.is_alive


@pytest.mark.usefixtures("starts_processes")
def test_a_process_that_does_not_heed_a_signal_is_killed() -> None:
    program = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(flush=True); input()"
    with subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as child:
        assert child.stdout is not None
        child.stdout.readline()
        known = identify(child.pid)
        assert not end_all([known], signal.SIGTERM, 0.05)
        assert not known.is_alive


def test_brokers_get_ports_one_after_another_and_zookeeper_one_below() -> None:
    base, http_base = free_port_ranges(2)
    planned = plan_cluster(Form(2, base, http_base))
    assert planned.brokers == (LocalBroker(1, base, http_base), LocalBroker(2, base + 1, http_base + 1))
    assert planned.zookeeper == LocalZooKeeper(f"127.0.0.1:{base - 1}", base - 1)
    assert plan_broker(planned) == LocalBroker(3, base + 2, http_base + 2)
    assert plan_cluster(Form(1, base, http_base, "zk:2181/x")).zookeeper == LocalZooKeeper("zk:2181/x")


@pytest.mark.parametrize(("base", "http_base"), [(100, 101), (65_535, 100)])
def test_ports_that_overlap_or_do_not_exist_are_refused(base: int, http_base: int) -> None:
    with pytest.raises(Failure):
        plan_cluster(Form(2, base, http_base, "zk:2181"))


def test_settings_of_a_single_broker_and_wrong_ones_are_refused() -> None:
    cluster = LocalCluster(Form(), (LocalBroker(1, 2, 3),), LocalZooKeeper("zk:2181"), {"durability": "os"})
    assert with_settings(cluster, {"num.partitions": "3"}).settings == {
        "durability": "os",
        "num.partitions": "3",
    }
    with pytest.raises(Failure, match="cannot be set for all brokers"):
        with_settings(cluster, {"node.id": "1"})
    with pytest.raises(ConfigError):
        with_settings(cluster, {"durability": "never"})


def test_a_cluster_is_read_back_as_it_was_saved(tmp_path: Path) -> None:
    file = ClusterFile(tmp_path)
    broker = LocalBroker(1, 2, 3, ProcessId(os.getpid(), "then"))
    cluster = LocalCluster(Form(), (broker,), LocalZooKeeper("zk:2181", 2181), {"durability": "os"})
    file.save(cluster)
    assert file.load() == cluster
    with pytest.raises(Failure, match="contains no cluster"):
        ClusterFile(tmp_path / "elsewhere").load()


def test_a_status_needs_to_know_of_which_cluster(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PENSTOCK_BOOTSTRAP", raising=False)
    assert run(["cluster", "status"]) == 2
    assert "no cluster is named" in capsys.readouterr().err
    assert run(["cluster", "status", "--bootstrap", "127.0.0.1:1"]) == 1
    assert "cannot reach a broker at 127.0.0.1:1" in capsys.readouterr().err


def test_without_a_cluster_nothing_is_stopped_or_created(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for command in (["down"], ["start", "1"], ["kill", "1"], ["status"]):
        assert run(["cluster", *command, "--data-dir", str(tmp_path / "elsewhere")]) == 2
        assert "contains no cluster" in capsys.readouterr().err
    assert not (tmp_path / "elsewhere").exists()
