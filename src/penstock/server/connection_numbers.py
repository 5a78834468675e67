"""The order in which connections were accepted: of two, the one with the higher number is the newer one."""

from __future__ import annotations


class ConnectionNumbers:
    def __init__(self) -> None:
        self.newest = 0

    def next(self) -> int:
        self.newest += 1
        return self.newest
