"""`penstock broker` as a process: output when it serves, stops, and cannot start."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

from support.broker_process import StartBroker, free_ports, wait_for_http

START_SECONDS = 30


def run_broker(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a broker that is expected to exit by itself."""
    command = [sys.executable, "-m", "penstock.cli.main", "broker", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=START_SECONDS, check=False)


def places(directory: Path, port: int, http_port: int) -> list[str]:
    return ["--data-dir", str(directory), "--port", str(port), "--http-port", str(http_port)]


@pytest.mark.usefixtures("starts_processes")
def test_one_line_says_that_it_serves_and_a_signal_stops_it_cleanly(tmp_path: Path) -> None:
    port, http_port = free_ports(2)
    command = [
        sys.executable,
        "-m",
        "penstock.cli.main",
        "broker",
        *places(tmp_path / "data", port, http_port),
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        process.send_signal(signal.SIGINT)
        rest, errors = process.communicate(timeout=START_SECONDS)
    assert line == (
        f"penstock serves Kafka clients at 127.0.0.1:{port}, HTTP at http://127.0.0.1:{http_port}\n"
    )
    assert rest == ""
    assert process.returncode == 0
    assert all(json.loads(row)["level"] == "info" for row in errors.splitlines())


def test_metrics_and_health_are_served(start_broker: StartBroker) -> None:
    broker = start_broker()
    wait_for_http(broker.http_port)
    with urllib.request.urlopen(f"http://127.0.0.1:{broker.http_port}/health", timeout=5) as answer:
        assert json.load(answer)["status"] == "serving"
    with urllib.request.urlopen(f"http://127.0.0.1:{broker.http_port}/metrics", timeout=5) as answer:
        assert b'penstock_request_seconds_count{api="ApiVersions"}' in answer.read()


@pytest.mark.usefixtures("starts_processes")
@pytest.mark.parametrize("option", ["--port", "--http-port"])
def test_a_taken_port_is_named(option: str, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        number = taken.getsockname()[1]
        free = free_ports(1)[0]
        ports = (number, free) if option == "--port" else (free, number)
        ended = run_broker(*places(tmp_path / "data", *ports))
    assert ended.returncode == 2
    assert f"error: cannot listen on 127.0.0.1:{number}: Address already in use" in ended.stderr
    assert f"Choose another address with {option}" in ended.stderr
    assert "Traceback" not in ended.stderr


def test_a_data_directory_in_use_is_refused(start_broker: StartBroker) -> None:
    broker = start_broker()
    ended = run_broker(*places(broker.data_dir, *free_ports(2)))
    assert ended.returncode == 2
    assert "another broker" in ended.stderr
    assert "Traceback" not in ended.stderr


@pytest.mark.usefixtures("starts_processes")
def test_a_data_directory_that_is_a_file_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "data"
    file.write_text("")
    ended = run_broker(*places(file, *free_ports(2)))
    assert ended.returncode == 2
    assert f"error: cannot use the data directory {file}" in ended.stderr
    assert "Traceback" not in ended.stderr


@pytest.mark.usefixtures("starts_processes")
def test_listening_on_all_addresses_without_authentication_must_be_accepted(tmp_path: Path) -> None:
    port, http_port = free_ports(2)
    command = [
        sys.executable,
        "-m",
        "penstock.cli.main",
        "broker",
        *places(tmp_path / "data", port, http_port),
    ]
    command += ["--host", "0.0.0.0"]
    refused = subprocess.run(command, capture_output=True, text=True, timeout=START_SECONDS, check=False)
    assert refused.returncode == 2
    assert "--insecure" in refused.stderr
    command += ["--insecure"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        process.stdout.readline()
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=START_SECONDS)
    assert process.returncode == 0, errors
    assert "no authentication" in errors
