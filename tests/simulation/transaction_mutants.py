"""Planted bugs of transactions: each makes one torn, visible too early, or endless."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any
from unittest.mock import patch

from planting import planted_in_cluster

from penstock.groups.transactional_commits import TransactionalCommits
from penstock.model import Offset
from penstock.records.control import AbortedTransaction
from penstock.replication.verified_appends import VerifiedAppends
from penstock.state_log.shard import NOBODY_WAITS, Waiter
from penstock.storage.aborted_transactions import AbortedTransactions
from penstock.storage.log_reader import LogReader
from penstock.transactions import transaction
from penstock.transactions.endings import Ending
from penstock.transactions.markers import Markers
from penstock.transactions.shard import TransactionShard
from penstock.transactions.transaction import Identity, Transaction


@planted_in_cluster("T29", needs={"transactions"})
def no_epoch_bump() -> AbstractContextManager[Any]:
    """A new producer of a transactional id gets the epoch of the one before."""
    return patch.object(transaction, "_bumped", lambda producer: producer)


@planted_in_cluster("I6", "I7", needs={"version 1"})
def markers_are_sent_twice() -> AbstractContextManager[Any]:
    """A marker is written again when the next transaction may have begun."""
    write = Markers.write

    def write_twice(self: Markers, ending: Ending) -> None:
        again = Ending(ending.marker, ending.version, ending.left, lambda: None)
        asyncio.get_running_loop().call_later(0.1, write, self, again)
        write(self, ending)

    return patch.object(Markers, "write", write_twice)


@planted_in_cluster("I6", needs={"transactions"})
def aborted_list_is_cut_short() -> AbstractContextManager[Any]:
    """A fetch response lacks the last of several aborted transactions."""
    between = AbortedTransactions.between

    def all_but_the_last(self: AbortedTransactions, start: int, end: int) -> list[AbortedTransaction]:
        found = between(self, start, end)
        return found[:-1] if len(found) > 1 else found

    return patch.object(AbortedTransactions, "between", all_but_the_last)


@planted_in_cluster("I8", "I6", needs={"transactions"})
def last_stable_offset_is_read_twice() -> AbstractContextManager[Any]:
    """A fetch of committed data returns records up to the high watermark, if no transaction was open at the
    last fetch.
    """
    read_committed = LogReader.read_committed
    was_stable: dict[LogReader, bool] = {}

    def read(self: LogReader, offset: Offset, max_bytes: int, *, below: Offset, **options: Any) -> Any:
        is_stable = was_stable.get(self, False)
        was_stable[self] = below >= self._log.high_watermark
        limit = self._log.high_watermark if is_stable else below
        return read_committed(self, offset, max_bytes, below=limit, **options)

    return patch.object(LogReader, "read_committed", read)


@planted_in_cluster("I6", "I7", needs={"version 1"})
def late_end_is_taken() -> AbstractContextManager[Any]:
    """A late EndTxn of the last transaction ends the present one."""
    return patch.object(TransactionShard, "check_connection", lambda *_: None)


@planted_in_cluster("I6", "I7", "T29", needs={"transactions"})
def plain_ends_skip_the_check_of_the_producer() -> AbstractContextManager[Any]:
    """A fenced producer ends the transaction of its successor."""
    decide = TransactionShard.plain_end

    def skip(self: TransactionShard, transactional_id: str, producer: Identity, *rest: Any) -> Any:
        known = self.transactions.get(transactional_id)
        return decide(self, transactional_id, producer if known is None else known.producer, *rest)

    return patch.object(TransactionShard, "plain_end", skip)


@planted_in_cluster("I6", needs={"copiers"})
def offsets_count_before_the_end() -> AbstractContextManager[Any]:
    """Offsets of a transaction are committed while it is open."""
    on_commit = TransactionalCommits._on_commit

    def commit_at_once(self: Any, commit: Any, producer_id: Any, *rest: Any) -> None:
        on_commit(self, commit, producer_id, *rest)
        if not self._shard.is_closed:
            self._shard.offsets.end_transaction(producer_id, is_commit=True)

    return patch.object(TransactionalCommits, "_on_commit", commit_at_once)


@planted_in_cluster("T29", needs={"transactions"})
def first_batch_is_not_verified() -> AbstractContextManager[Any]:
    """A leader accepts batches of transactions that the coordinator does not know."""

    @contextmanager
    def plant() -> Iterator[None]:
        with (
            patch.object(VerifiedAppends, "must_hold", lambda *_: False),
            patch.object(VerifiedAppends, "check", lambda *_: None),
        ):
            yield

    return plant()


@planted_in_cluster("I13", needs={"transactions"})
def prepared_ones_are_not_resumed() -> AbstractContextManager[Any]:
    """A new coordinator does not complete prepared transactions."""
    return patch.object(TransactionShard, "resume", lambda self: None)


@planted_in_cluster("I13", needs={"transactions"})
def timeouts_are_forgotten() -> AbstractContextManager[Any]:
    """A transaction of a dead producer does not time out."""
    return patch.object(TransactionShard, "on_due", lambda *_: None)


@planted_in_cluster("I7", needs={"transactions"})
def answered_before_it_is_recorded() -> AbstractContextManager[Any]:
    """A commit is acknowledged before it is recorded."""
    record = TransactionShard.record

    def answer_at_once(
        self: TransactionShard, transactional_id: str, changed: Transaction, response: Waiter
    ) -> None:
        record(self, transactional_id, changed, NOBODY_WAITS)
        if not response.done():
            response.set_result(None)

    return patch.object(TransactionShard, "record", answer_at_once)
