"""Appends that are held until their batch was checked in a thread pool (its records, or if it was stored before), or
until the key index or the delayed messages have caught up.

Held appends keep their order: later appends queue after the first, so that no batch of a producer overtakes an earlier
one. One instance belongs to one replica. Loop thread only.
"""

from __future__ import annotations

from asyncio import Future
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from penstock.delay.checking import DelayRules, check_delays
from penstock.errors import BrokerError, ErrorCode, InvalidBatch
from penstock.model import Offset
from penstock.records.batch import BatchHeader
from penstock.records.validation import check_records
from penstock.replication.delayed_delivery import DelayedLog
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
    """True if the batch may have an idempotency key, so that it may have been appended before."""
    acks_all: bool = True
    """True if the batch was sent with acks=all, so that min.insync.replicas applies to it."""
    has_waited: bool = False
    """True if the batch has waited for the key index, for which it waits only once."""
    may_delay: bool = False
    """True if the batch may have delayed messages, whose headers have to be checked."""
    cancels: tuple[int, ...] = ()
    """Ids of the delayed messages that the batch cancels; set by the check."""


class HeldAppends:
    def __init__(self, log: Log, threads: Threads, append: Callable[[HeldAppend], AppendInfo]) -> None:
        self.checks_records = log.config.checks_records
        self.keyed: KeyedLog | None = None
        self.delays: DelayRules | None = None
        """Rules for delayed messages; None if the topic has none."""
        self.delayed: DelayedLog | None = None
        self._log = log
        self._threads = threads
        self._append = append
        self._held: deque[HeldAppend] = deque()
        self._is_looking = False
        """True while the first held batch is being checked."""

    @property
    def must_hold(self) -> bool:
        """True if every next batch has to be held."""
        return self.checks_records or bool(self._held) or (self.keyed is not None and self.keyed.must_wait())

    def hold(self, held: HeldAppend) -> None:
        self._held.append(held)
        self._look()

    def give_up(self, error: BrokerError) -> None:
        """Refuse all held batches."""
        held, self._held = self._held, deque()
        self._is_looking = False
        for each in held:
            each.callback(error)

    def _look(self) -> None:
        """Append held batches in order, up to the first batch that needs a check; start that check."""
        while self._held and not self._is_looking:
            held = self._held[0]
            if self.keyed is not None and not held.has_waited and self.keyed.must_wait():
                self._is_looking = True
                self.keyed.when_caught_up(partial(self._on_caught_up, held))
            elif self.checks_records or held.may_delay:
                self._is_looking = True
                self._check_records(held)
            elif held.may_be_stored and self.keyed is not None:
                self._is_looking = True
                self._find_original(held, self.keyed)
            else:
                self._settle(held, None)

    def _on_caught_up(self, held: HeldAppend) -> None:
        if self._is_first(held):  # otherwise the batch was refused meanwhile
            held.has_waited = True
            self._is_looking = False
            self._look()

    def _check_records(self, held: HeldAppend) -> None:
        limit = self._log.config.max_decompressed_bytes
        require_keys = self._log.config.requires_keys
        checks_records, rules = self.checks_records, self.delays if held.may_delay else None

        def check() -> BrokerError | None:
            try:
                if checks_records:
                    check_records(
                        held.batch, held.header, max_decompressed_bytes=limit, require_keys=require_keys
                    )
                if rules is not None:
                    checked = check_delays(held.batch, held.header, rules, held.now_ms)
                    held.batch, held.header, held.cancels = checked
            except InvalidBatch as error:
                # A new error without the traceback, which would keep the decompressed records alive.
                return InvalidBatch(error.code, str(error), error.records)
            return None

        self._threads.run("read", check).add_done_callback(partial(self._on_checked, held))

    def _on_checked(self, held: HeldAppend, checked: Future[BrokerError | None]) -> None:
        if not self._is_first(held):
            return  # refused meanwhile
        refusal: BrokerError | None = BrokerError(
            ErrorCode.kafka_storage_error, "the batch could not be checked"
        )
        try:
            refusal = checked.result()
        finally:
            rules = self.delays if held.may_delay else None
            if rules is not None and rules.retry is not None and self.delayed is not None:
                self.delayed.counts.on_retried(held.header.record_count, refusal)
            if refusal is None and held.cancels and self.delayed is not None:
                self.delayed.when_applied(partial(self._on_valid, held))
            elif refusal is None:
                self._on_valid(held)
            else:
                self._go_on(held, refusal)

    def _on_valid(self, held: HeldAppend) -> None:
        """Continue an append after the check of its records."""
        if not self._is_first(held):
            return  # refused meanwhile
        if held.may_be_stored and self.keyed is not None:
            self._find_original(held, self.keyed)
        else:
            self._go_on(held, None)

    def _find_original(self, held: HeldAppend, keyed: KeyedLog) -> None:
        keyed.find_original(held.batch, held.header, partial(self._on_original, held))

    def _on_original(self, held: HeldAppend, original: Offset | BrokerError | None) -> None:
        if not self._is_first(held):
            return  # refused meanwhile
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
            self._look()  # also after an unexpected error, so that the batches after this one continue

    def _settle(self, held: HeldAppend, outcome: AppendInfo | BrokerError | None) -> None:
        """Remove the first held batch and call back: append it if `outcome` is None, else pass `outcome` on."""
        self._is_looking = True  # an append serves waiting requests, which may append too
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
