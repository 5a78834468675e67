"""`penstock broker --processes N` as real processes: one command, one cluster, and brokers that die."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import psutil
import pytest

from penstock.cli.main import run
from penstock.cli.processes.machine_directory import FILE, LOCK, MachineDirectory
from penstock.cli.processes.machine_directory import Machine as MachineBrokers
from support.eventually import eventually
from support.machine_processes import RECORDS, TOPIC, Machine
from support.ports import free_range


@pytest.fixture
def machine(starts_processes: None, tmp_path: Path) -> Iterator[Machine]:
    one = Machine(tmp_path)
    yield one
    one.kill()


def test_two_processes_are_one_cluster_and_stop_together(machine: Machine) -> None:
    machine.start_all(2)
    machine.create_topic()
    assert set(machine.leaders().values()) == {1, 2}
    assert {len(each.replicas) for each in machine.metadata().topics[TOPIC].partitions.values()} == {1}
    machine.produce()
    assert machine.consume(RECORDS, "readers") == list(range(RECORDS))
    eventually(lambda: machine.health().status_code == 200)
    metrics = httpx.get(f"http://127.0.0.1:{machine.broker.http_port}/metrics", timeout=10).text
    for broker in (1, 2):
        assert f'penstock_event_loop_lag_seconds_count{{broker="{broker}"}}' in metrics
    sent = httpx.post(
        f"http://127.0.0.1:{machine.broker.http_port}/send",
        json={"from_user": "ann", "to_user": "bob", "message": "hi"},
        timeout=30,
    )
    assert sent.status_code == 200
    children = list(machine.children.values())
    assert len(children) == 2
    machine.broker.stop()
    assert not psutil.wait_procs(children, 1)[1]
    text = machine.broker.log_path.read_text()
    assert text.count("penstock serves Kafka clients") == 1
    assert "leadership not handed over" not in text


def test_killed_broker_is_started_again_with_its_data(machine: Machine) -> None:
    machine.start_all(2)
    machine.create_topic()
    machine.produce()
    eventually(lambda: machine.health().status_code == 200, ignoring=httpx.TransportError)
    killed = machine.children[2]
    killed.kill()
    eventually(lambda: machine.health().status_code == 503, ignoring=httpx.TransportError)
    eventually(lambda: machine.children.get(2, killed).pid != killed.pid)
    eventually(lambda: machine.health().status_code == 200, ignoring=httpx.TransportError)
    machine.produce(RECORDS)
    assert machine.consume(2 * RECORDS) == list(range(2 * RECORDS))
    machine.broker.stop()


def test_brokers_of_a_killed_supervisor_end_before_another_serves(machine: Machine) -> None:
    machine.start_all(2)
    machine.create_topic()
    machine.produce()
    orphans = list(machine.children.values())
    hung = orphans[0]
    hung.suspend()
    machine.broker.kill()
    _, left = psutil.wait_procs(orphans[1:], 60)
    assert not left, "a broker runs without its supervisor"
    machine.broker.spawn()
    lock = machine.broker.data_dir / LOCK
    eventually(lambda: holds(machine.broker.pid, lock), "the new supervisor waits for the lock")
    assert not machine.children, "a broker was started beside one of the former supervisor"
    hung.resume()
    psutil.wait_procs([hung], 60)
    machine.broker.wait_until_ready()
    machine.produce(RECORDS)
    assert machine.consume(2 * RECORDS) == list(range(2 * RECORDS))
    machine.broker.stop()


def holds(pid: int, path: Path) -> bool:
    """Whether a process has a file open."""
    return str(path) in {os.path.realpath(link) for link in Path(f"/proc/{pid}/fd").iterdir()}


def test_second_supervisor_is_refused(machine: Machine) -> None:
    machine.start(2)
    for processes in ("1", "2"):
        ended = subprocess.run(
            [*machine.broker._command(), "--processes", processes], capture_output=True, text=True, timeout=60
        )
        assert ended.returncode == 2
        assert f"(pid {machine.broker.pid})" in ended.stderr
        assert "Stop it first" in ended.stderr
    machine.broker.stop()


def test_from_one_process_to_three_and_back_keeps_topics_and_data(machine: Machine) -> None:
    machine.start(1)
    machine.create_topic()
    machine.produce()
    assert machine.consume(RECORDS, "readers") == list(range(RECORDS))
    machine.broker.stop()

    machine.start_all(3)
    assert set(machine.leaders().values()) == {1}
    balance = ["cluster", "balance", "--bootstrap", machine.bootstrap]
    subprocess.run([sys.executable, "-m", "penstock.cli.main", *balance], check=True, timeout=60)
    eventually(lambda: set(machine.leaders().values()) == {1, 2, 3})
    machine.produce(RECORDS)
    assert machine.consume(RECORDS, "readers") == list(range(RECORDS, 2 * RECORDS))
    machine.broker.stop()

    machine.start(1)
    directory = MachineDirectory(str(machine.broker.data_dir))
    eventually(
        lambda: (recorded := directory.load()) and recorded.brokers == (1,), details=machine.broker.log_tail
    )
    eventually(lambda: set(machine.leaders().values()) == {1})
    machine.produce(2 * RECORDS)
    assert machine.consume(RECORDS, "readers") == list(range(2 * RECORDS, 3 * RECORDS))
    machine.broker.stop()
    assert not (machine.broker.data_dir / "processes" / "2").exists()

    machine.start(1)
    assert not machine.children
    assert not (machine.broker.data_dir / FILE).exists()
    assert machine.consume(3 * RECORDS) == list(range(3 * RECORDS))
    machine.broker.stop()


def test_taken_ports_are_refused_before_a_process_starts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first = free_range(3)
    options = [
        "--data-dir",
        str(tmp_path),
        "--processes",
        "2",
        "--port",
        str(first),
        "--http-port",
        str(first + 2),
    ]
    for port, option in ((first + 1, "--port"), (first + 2, "--http-port")):
        with socket.socket() as taken:
            taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            taken.bind(("127.0.0.1", port))
            taken.listen()
            assert run(["broker", *options]) == 2
        error = capsys.readouterr().err
        assert f"cannot listen on 127.0.0.1:{port}" in error
        assert option in error


def test_broker_that_does_not_start_ends_the_command(machine: Machine) -> None:
    second = machine.broker.data_dir / "processes" / "2"
    second.mkdir(parents=True)
    (second / "meta.json").write_text("damaged")
    ended = subprocess.run(
        [*machine.broker._command(), "--processes", "2"], capture_output=True, text=True, timeout=60
    )
    assert ended.returncode == 2
    assert "meta.json" in ended.stderr
    assert "broker 2 did not start" in ended.stderr
    assert "Traceback" not in ended.stderr


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["2", "--port", "0"], "--port cannot be 0"),
        (["2", "--http-port", "0"], "--http-port cannot be 0"),
        (["2", "--port", "65535"], "port 65536"),
        (["3", "--port", "9092", "--http-port", "9094"], "HTTP and for broker 3"),
        (["0"], "processes"),
    ],
)
def test_wrong_ports_are_refused_before_a_process_starts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], options: list[str], message: str
) -> None:
    assert run(["broker", "--data-dir", str(tmp_path), "--processes", *options]) == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / FILE).exists()


def test_data_directory_of_another_node_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    directory = MachineDirectory(str(tmp_path))
    directory.lock()
    directory.save(MachineBrokers(1, (1, 2)))
    directory.unlock()
    assert run(["broker", "--data-dir", str(tmp_path), "--processes", "2", "--node-id", "3"]) == 2
    assert "Start with --node-id 1" in capsys.readouterr().err


def test_interrupt_from_a_terminal_stops_all_brokers_cleanly(machine: Machine) -> None:
    machine.start_all(2)
    children = list(machine.children.values())
    # A terminal sends the signal to its whole process group, and a second signal would end a broker at once.
    assert os.getpgid(machine.broker.pid) not in {os.getpgid(child.pid) for child in children}
    os.kill(machine.broker.pid, signal.SIGINT)
    assert not psutil.wait_procs(children, 60)[1]
    assert machine.broker._process is not None
    assert machine.broker._process.wait(60) == 0
    machine.broker._process = None
    assert (machine.broker.data_dir / "clean-stop").exists()
    assert (machine.broker.data_dir / "processes" / "2" / "clean-stop").exists()
