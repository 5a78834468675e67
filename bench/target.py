"""Target of load: one broker, or a cluster."""

from __future__ import annotations

import os
from types import TracebackType
from typing import Self

from bench.measure import cpu_seconds, rss_mb


class Target:
    """Target that is started, used through `bootstrap`, and stopped; leaving `with` removes its data."""

    name: str
    copies = 1
    """Replication factor of the topics of a measurement."""

    @property
    def bootstrap(self) -> str:
        raise NotImplementedError

    @property
    def pids(self) -> list[int]:
        """Broker processes, without any others."""
        raise NotImplementedError

    def start(self) -> None:
        """Wait until the target responds."""
        raise NotImplementedError

    def stop(self) -> None:
        """Stop cleanly; the data stays."""
        raise NotImplementedError

    def remove(self) -> None:
        """Data directories of a stopped target."""
        raise NotImplementedError

    def show_log(self) -> None:
        raise NotImplementedError

    def cpu_seconds(self) -> float:
        return sum(cpu_seconds(pid) for pid in self.pids)

    def rss_mb(self) -> float:
        return sum(rss_mb(pid) for pid in self.pids)

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.show_log()
            self.stop()
            self.remove()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
        self.remove()


def settle_disk() -> None:
    """Write dirty pages of earlier measurements to disk, so that no later measurement waits for them."""
    os.sync()
