"""What load is put on: one broker, or several that are one cluster."""

from __future__ import annotations

import os
from types import TracebackType
from typing import Self

from bench.measure import cpu_seconds, rss_mb


class Target:
    """Started, used through `bootstrap`, stopped; leaving `with` removes its data."""

    name: str
    copies = 1
    """Of every partition that is made for a measurement."""

    @property
    def bootstrap(self) -> str:
        raise NotImplementedError

    @property
    def pids(self) -> list[int]:
        """The broker processes, and nothing beside them."""
        raise NotImplementedError

    def start(self) -> None:
        """Return once it answers."""
        raise NotImplementedError

    def stop(self) -> None:
        """A clean stop; the data stays."""
        raise NotImplementedError

    def remove(self) -> None:
        """The data, of one that is stopped."""
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
    """Have what earlier measurements wrote on the disk, so that no later one waits for it."""
    os.sync()
