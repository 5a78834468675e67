"""Appends that wait until their batch was looked at in a pool: its records, or whether it was stored before.

They keep their order: while one is held, later ones queue behind it, so that a producer's next batch never overtakes.
Loop thread only, for a replica.
"""

from __future__ import annotations

from asyncio import Future
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from penstock.errors import BrokerError, ErrorCode, InvalidBatch
from penstock.model import Offset
from penstock.records.batch import BatchHeader
from penstock.records.validation import check_records
from penstock.replication.keyed_log import KeyedLog
from penstock.storage.log import AppendInfo, Log
from penstock.threads import Threads

AppendCallback = Callable[[AppendInfo | BrokerError], None]


@dataclass(slots=True, eq=False)
class HeldAppend:
    batch: memoryview
    header: BatchHeader
    now_ms: int
    callback: AppendCallback
    may_be_stored: bool = False
    """Whether the batch has an idempotency key, and so may have been appended before."""
    acks_all: bool = True
    """Whether min.insync.replicas applies to the batch."""


class HeldAppends:
    def __init__(self, log: Log, threads: Threads, append: Callable[[HeldAppend], AppendInfo]) -> None:
        self.checks_records = log.config.checks_records
        self.keyed: KeyedLog | None = None
        self._log = log
        self._threads = threads
        self._append = append
        self._held: deque[HeldAppend] = deque()
        self._is_looking = False
        """Whether the first of them is being looked at."""

    @property
    def must_hold(self) -> bool:
        """Whether the next append has to be held, whatever it is."""
        return self.checks_records or bool(self._held)

    def hold(self, held: HeldAppend) -> None:
        self._held.append(held)
        self._look()

    def give_up(self, error: BrokerError) -> None:
        """Append nothing more of what is still being looked at."""
        held, self._held = self._held, deque()
        self._is_looking = False
        for each in held:
            each.callback(error)

    def _look(self) -> None:
        """Append what is held, in order, up to the first that has to be looked at in a pool."""
        while self._held and not self._is_looking:
            held = self._held[0]
            if self.checks_records:
                self._is_looking = True
                self._check_records(held)
            elif held.may_be_stored and self.keyed is not None:
                self._is_looking = True
                self._find_original(held, self.keyed)
            else:
                self._settle(held, None)

    def _check_records(self, held: HeldAppend) -> None:
        limit = self._log.config.max_decompressed_bytes
        require_keys = self._log.config.requires_keys

        def check() -> BrokerError | None:
            try:
                check_records(
                    held.batch, held.header, max_decompressed_bytes=limit, require_keys=require_keys
                )
            except InvalidBatch as error:
                # Not the same one: its traceback keeps alive what was decompressed.
                return InvalidBatch(error.code, str(error), error.records)
            return None

        self._threads.run("read", check).add_done_callback(partial(self._on_checked, held))

    def _on_checked(self, held: HeldAppend, checked: Future[BrokerError | None]) -> None:
        if not self._is_first(held):
            return  # given up meanwhile
        refusal: BrokerError | None = BrokerError(
            ErrorCode.kafka_storage_error, "the batch could not be checked"
        )
        try:
            refusal = checked.result()
        finally:
            if refusal is None and held.may_be_stored and self.keyed is not None:
                self._find_original(held, self.keyed)
            else:
                self._go_on(held, refusal)

    def _find_original(self, held: HeldAppend, keyed: KeyedLog) -> None:
        keyed.find_original(held.batch, held.header, partial(self._on_original, held))

    def _on_original(self, held: HeldAppend, original: Offset | BrokerError | None) -> None:
        if not self._is_first(held):
            return  # given up meanwhile
        if original is None or isinstance(original, BrokerError):
            self._go_on(held, original)
        else:
            start = self._log.log_start_offset
            self._go_on(held, AppendInfo(original, original, -1, start, duplicate=True))

    def _is_first(self, held: HeldAppend) -> bool:
        return bool(self._held) and self._held[0] is held

    def _go_on(self, held: HeldAppend, outcome: AppendInfo | BrokerError | None) -> None:
        try:
            self._settle(held, outcome)
        finally:
            self._look()  # whatever went wrong, those that wait behind are not held up for ever

    def _settle(self, held: HeldAppend, outcome: AppendInfo | BrokerError | None) -> None:
        """Say what was found out of the first that is held, or append it."""
        self._is_looking = True  # an append answers others, who may go on to append
        result: AppendInfo | BrokerError = BrokerError(
            ErrorCode.kafka_storage_error, "the batch could not be appended"
        )
        try:
            result = outcome or self._append(held)
        except BrokerError as error:
            result = error
        finally:
            self._held.popleft()
            self._is_looking = False
            held.callback(result)
