"""Standalone Spark with a master and two workers on this machine, the second with a disk of its own.

The second worker runs in a mount namespace, where its working directory and /var/tmp are file systems that no other
process sees. Where mounting is not permitted, it runs as the first one does.
"""

from __future__ import annotations

import os
import shlex
import socket
import subprocess
import sys
from contextlib import ExitStack, suppress
from pathlib import Path

import psutil
import pyspark

from penstock.pipeline.java import java_home
from penstock.testing.process import free_ports
from support.eventually import eventually

WAIT_SECONDS = 600.0


class StandaloneSpark:
    def __init__(self, directory: Path, stack: ExitStack) -> None:
        os.environ |= {
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_DAEMON_MEMORY": "256m",
            "JAVA_HOME": java_home(),
            "PYSPARK_PYTHON": sys.executable,
        }
        self._directory = directory
        self._stack = stack
        self._workers: list[subprocess.Popen[bytes]] = []
        port, ui_port = free_ports(2)
        self.master = f"spark://127.0.0.1:{port}"
        place = ["--host", "127.0.0.1", "--port", str(port), "--webui-port", str(ui_port)]
        self._start(_spark_class("org.apache.spark.deploy.master.Master", *place))
        eventually(lambda: _answers(port), "the master answers", within_s=WAIT_SECONDS)
        for number in (1, 2):
            self._workers.append(self._start(self._worker(number)))

    @property
    def has_private_disk(self) -> bool:
        return subprocess.run(["unshare", "-m", "true"], capture_output=True, check=False).returncode == 0

    def executors(self, part: str) -> list[psutil.Process]:
        """Processes below the workers whose command line has this part."""
        found = []
        for worker in self._workers:
            with suppress(psutil.NoSuchProcess):
                found += psutil.Process(worker.pid).children(recursive=True)
        return [each for each in found if any(part in word for word in _words(each))]

    def _worker(self, number: int) -> list[str]:
        local = self._directory / f"worker-{number}"
        local.mkdir()
        command = _spark_class(
            "org.apache.spark.deploy.worker.Worker",
            *("--host", "127.0.0.1", "-c", "1", "-m", "1500m", "--work-dir", str(local), self.master),
        )
        if number == 1 or not self.has_private_disk:
            return command
        mounts = " && ".join(f"mount -t tmpfs tmpfs {shlex.quote(str(each))}" for each in (local, "/var/tmp"))
        return ["unshare", "-m", "sh", "-c", f"{mounts} && exec {shlex.join(command)}"]

    def _start(self, command: list[str]) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self._stack.callback(process.wait)
        self._stack.callback(process.kill)
        return process


def _spark_class(*arguments: str) -> list[str]:
    return [str(Path(pyspark.__file__).parent / "bin" / "spark-class"), *arguments]


def _words(process: psutil.Process) -> list[str]:
    try:
        return list(process.cmdline())
    except psutil.Error:
        return []


def _answers(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), 1).close()
    except OSError:
        return False
    return True
