"""The tour of the README, run step by step against a new broker and a new cluster; ends at the first difference.

Run by `make demo`. Data is in a temporary directory, which is removed at the end.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from support.broker_process import BrokerProcess, wait_for_http
from support.console_examples import examples, programs

README = Path(__file__).parents[2] / "README.md"
STEP_SECONDS = 300
_TOUR = re.compile(r"^## A minute's tour$(.*?)^## ", re.MULTILINE | re.DOTALL)
_SHELL = re.compile(r"^```sh\n(.*?)^```$", re.MULTILINE | re.DOTALL)


class Demo:
    def __init__(self, directory: Path, broker: BrokerProcess) -> None:
        self._directory = directory
        self._http = f"127.0.0.1:{broker.http_port}"
        self._environment = os.environ | {
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "PENSTOCK_BOOTSTRAP": broker.bootstrap,
        }

    def step(self, command: str) -> str:
        """Run a command and show what it prints; SystemExit if it fails."""
        print(f"$ {command}", flush=True)
        ended = subprocess.run(
            ["bash", "-c", command.replace("localhost:8080", self._http)],
            cwd=self._directory,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=STEP_SECONDS,
            check=False,
        )
        print(ended.stdout.rstrip("\n"), flush=True)
        if ended.returncode:
            sys.exit(f"this command has failed with {ended.returncode}: {command}")
        return ended.stdout

    def run(self) -> None:
        for example in examples(README):
            if not example.matches(self.step(example.command)):
                expected = "\n".join(example.expected)
                sys.exit(f"the README says something else:\n{expected}")
        for program in programs(README):
            file = self._directory / "tour.py"
            file.write_text(program.code)
            self.step(f"{sys.executable} {file.name}")
        [tour] = _TOUR.findall(README.read_text())
        try:
            for block in _SHELL.findall(tour):
                for command in block.splitlines():
                    self.step(command)
        finally:
            if (self._directory / "cluster").exists():
                subprocess.run(
                    ["penstock", "cluster", "down", "--data-dir", "cluster"],
                    cwd=self._directory,
                    env=self._environment,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    check=False,
                )


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="penstock-demo-") as name:
        directory = Path(name)
        broker = BrokerProcess(directory, ["group.initial.rebalance.delay.ms=0"])
        broker.start()
        try:
            wait_for_http(broker.http_port)
            Demo(directory, broker).run()
        finally:
            broker.kill()
    print("The tour is over; everything did what the README says.")


if __name__ == "__main__":
    main()
