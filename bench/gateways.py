"""`penstock gateway` processes before a broker or a cluster, one or several that share a port."""

from __future__ import annotations

import time
import urllib.request
from collections.abc import Sequence

from bench import interpreter
from bench.ports import NotReady
from bench.servers import START_TIMEOUT_S, Server
from bench.target import Target

LIMITS = (
    "gateway.max.connections=20000",
    "gateway.client.max.connections=20000",
    "gateway.client.max.requests=20000",
)
"""No limit per address: all load comes from one address."""


class Gateway(Server):
    name = "Gateway"

    def __init__(self, target: Target, workers: int = 1) -> None:
        super().__init__()
        self._target = target
        self._workers = workers

    def command(self) -> Sequence[str]:
        places = ("--bootstrap", self._target.bootstrap, "--http-port", str(self.port))
        chosen = [part for setting in LIMITS for part in ("--set", setting)]
        program = interpreter.program("penstock.cli.main", "gateway")
        return (*program, *places, "--workers", str(self._workers), *chosen)

    def wait(self) -> None:
        """Wait until the gateway has connected to the cluster."""
        deadline = time.monotonic() + START_TIMEOUT_S
        while not self._answers():
            assert self.process is not None
            if self.process.poll() is not None or time.monotonic() > deadline:
                raise NotReady("the gateway does not answer; see its log")
            time.sleep(0.05)

    def _answers(self) -> bool:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/v1/topics", timeout=5) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False
