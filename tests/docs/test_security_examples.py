"""Examples of docs/security.md, run in order beside a broker that one flag has made secure."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.testing.process import free_ports
from support.console_examples import examples

DOCUMENT = Path(__file__).parents[2] / "docs/security.md"
COMMAND_SECONDS = 60


class SecureBroker:
    """Broker started with `--secure` in a directory, and commands beside it."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._port, self._http_port = free_ports(2)
        self._environment = {
            name: value for name, value in os.environ.items() if not name.startswith("PENSTOCK_")
        } | {
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "XDG_CONFIG_HOME": str(directory / "home"),
            "LC_ALL": "C",
        }
        ports = f"--port {self._port} --http-port {self._http_port}"
        self._process = subprocess.Popen(
            [sys.executable, "-m", "penstock.cli.main", *f"broker --secure --data-dir data {ports}".split()],
            cwd=directory,
            env=self._environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        assert self._process.stdout is not None
        assert any("penstock serves" in line for line in self._process.stdout)

    def run(self, command: str) -> str:
        here = command.replace("localhost:8080", f"localhost:{self._http_port}")
        return subprocess.run(
            ["bash", "-c", here.replace("localhost:9092", f"localhost:{self._port}")],
            cwd=self.directory,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=COMMAND_SECONDS,
            check=False,
        ).stdout

    def stop(self) -> None:
        self._process.terminate()
        self._process.communicate(timeout=COMMAND_SECONDS)


@pytest.fixture
def broker(starts_processes: None, tmp_path: Path) -> Iterator[SecureBroker]:
    made = SecureBroker(tmp_path)
    yield made
    made.stop()


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
def test_the_examples_of_the_security_page_do_what_it_says(broker: SecureBroker) -> None:
    found = examples(DOCUMENT)
    assert len(found) > 10
    for example in found:
        output = broker.run(example.command)
        expected = "\n".join(example.expected)
        assert example.matches(output), f"$ {example.command}\n{output}\nbut the page says\n{expected}"
