"""Commands of docs/operations.md, run in order on real brokers while clients write and read."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from example_load import Load

from penstock.cli.cluster.local_cluster import ClusterFile
from penstock.cli.cluster.zookeeper_process import find_jars, find_java
from penstock.cli.failures import Failure
from penstock.cli.processes.process_id import end_all, identify
from support.console_examples import Example, examples
from support.ports import free_range

DOCUMENT = Path(__file__).parents[2] / "docs/operations.md"
COMMAND_SECONDS = 40
PORTS = re.compile(r"\b(1909\d|1919\d|1808\d)\b")
PARTITIONS_AT_LAST = 6


class Ground:
    """A directory for the examples, with free ports in place of the document's ports."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._first = free_range(30)
        self.bootstrap = ",".join(f"localhost:{self._shifted(port)}" for port in range(19_092, 19_097))

    def _shifted(self, port: int) -> int:
        return self._first + ("1909", "1919", "1808").index(str(port)[:4]) * 10 + port % 10

    def here(self, text: str) -> str:
        return PORTS.sub(lambda found: str(self._shifted(int(found[0]))), text)

    def run(self, example: Example) -> str:
        environment = {name: value for name, value in os.environ.items() if not name.startswith("PENSTOCK_")}
        environment |= {
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "PENSTOCK_BOOTSTRAP": self.bootstrap,
            "LC_ALL": "C",
        }
        return subprocess.run(
            ["bash", "-c", example.command],
            cwd=self.directory,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=COMMAND_SECONDS,
            check=False,
        ).stdout

    def end(self) -> None:
        cluster = ClusterFile(self.directory / "demo").load_if_there()
        known = (
            []
            if cluster is None
            else [cluster.zookeeper.process, *(each.process for each in cluster.brokers)]
        )
        started = [
            identify(int(pid)) for file in self.directory.glob("*pid*") for pid in file.read_text().split()
        ]
        end_all([*started, *filter(None, known)], signal.SIGKILL, COMMAND_SECONDS)


@pytest.fixture
def ground(starts_clusters: None, tmp_path: Path) -> Iterator[Ground]:
    try:
        find_java()
        find_jars()
    except Failure as missing:
        pytest.skip(f"{missing} (penstock[cluster] brings both)")
    made = Ground(tmp_path)
    yield made
    made.end()


def test_examples_of_operations_work_and_clients_lose_nothing(ground: Ground) -> None:
    load = Load(ground.bootstrap, "orders")
    try:
        for example in examples(DOCUMENT):
            here = Example(ground.here(example.command), tuple(map(ground.here, example.expected)))
            if here.command.startswith("penstock broker") and not load.is_over:
                load.stop()
            output = ground.run(here)
            expected = "\n".join(here.expected)
            assert here.matches(output), f"$ {here.command}\n{output}\nbut the document says\n{expected}"
            if here.command.startswith("penstock topic create orders"):
                load.start()
    finally:
        load.stop()
    assert load.errors == []
    assert load.acknowledged
    assert load.acknowledged <= load.read
    assert load.partitions_read == set(range(PARTITIONS_AT_LAST))
