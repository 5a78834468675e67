"""Read of a log for a fetch: on the event loop if the data is in memory, otherwise in a thread pool."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

from penstock.errors import BrokerError, ErrorCode, StorageError
from penstock.model import Offset
from penstock.records.control import AbortedTransaction
from penstock.records.log_slice import LogSlice
from penstock.replication.replica import Replica
from penstock.threads import Threads

Found = tuple[LogSlice | bytes, Sequence[AbortedTransaction] | None]
"""Records, and the aborted transactions whose records a read_committed consumer skips; None for read_uncommitted."""


class ColdRead(Protocol):
    """Read that runs in a thread pool."""

    def start(self, threads: Threads) -> asyncio.Future[Any]: ...


@dataclass(frozen=True, slots=True)
class LogRead:
    """Arguments of one `Log.read`, which runs on the event loop or, if it would wait for the disk, in a thread pool."""

    replica: Replica
    offset: Offset
    max_bytes: int
    below: Offset
    at_least_one: bool
    is_committed: bool

    def __call__(self, *, wait: bool) -> Found:
        log, at_least_one = self.replica.log, self.at_least_one
        try:
            if self.is_committed:
                return log.read_committed(
                    self.offset, self.max_bytes, below=self.below, at_least_one=at_least_one, wait=wait
                )
            return (
                log.read(self.offset, self.max_bytes, below=self.below, at_least_one=at_least_one, wait=wait),
                None,
            )
        except StorageError as error:
            raise BrokerError(ErrorCode.corrupt_message, str(error)) from error

    def start(self, threads: Threads) -> asyncio.Future[Found]:
        """Make the call in a thread pool, where it may wait for the disk."""
        return threads.run("read", partial(self, wait=True))
