"""Numbers of connections in the order of acceptance: a newer connection has a higher number."""

from __future__ import annotations


class ConnectionNumbers:
    def __init__(self) -> None:
        self.newest = 0

    def next(self) -> int:
        self.newest += 1
        return self.newest
