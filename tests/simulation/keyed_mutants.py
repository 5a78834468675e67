"""Planted bugs of the key index, which hide a record or show one too early or twice, and of the gateway's sender."""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any
from unittest.mock import patch

from planting import planted_in_cluster

from penstock.internal_client.producer import DeliveryAttempt
from penstock.replication import keyed_log
from penstock.replication.keyed_log import KeyedLog
from penstock.storage.derived.index import DerivedIndex
from penstock.storage.derived.part import EntryPart
from penstock.storage.keys.lookup import find_original
from penstock.storage.log import Log
from penstock.storage.log_view import LogView
from penstock.wire.produce import ProduceResult


@planted_in_cluster("I3", "I5", needs={"keyed"})
def lookups_see_what_is_not_committed() -> AbstractContextManager[Any]:
    """A lookup by key returns records above the high watermark."""
    of = LogView.of

    def to_the_end(log: Log) -> LogView:
        return replace(of(log), below=log.log_end_offset)

    return patch.object(LogView, "of", to_the_end)


@planted_in_cluster("I2", needs={"keyed"})
def idempotency_keys_are_not_looked_up() -> AbstractContextManager[Any]:
    """A record with a known idempotency key is stored again."""
    return patch.object(KeyedLog, "must_check", lambda *_: False)


@planted_in_cluster("I2", needs={"keyed"})
def originals_are_sought_among_the_committed() -> AbstractContextManager[Any]:
    """An idempotency key is looked up among committed records only."""

    def find_committed(index: DerivedIndex, view: LogView, key: Any, own_key: Any) -> Any:
        original = find_original(index, view, key, own_key)
        return original if original is not None and original.offset < view.below else None

    return patch.object(keyed_log, "find_original", find_committed)


@planted_in_cluster("I5", needs={"keyed"})
def the_tail_of_a_new_leader_is_not_indexed() -> AbstractContextManager[Any]:
    """The index of a new leader lacks the records behind the last closed segment."""
    catch_up = DerivedIndex.catch_up

    def skip(self: DerivedIndex, view: LogView, awaited: Any) -> Any:
        is_first = self._generation != view.generation
        found = catch_up(self, view, awaited)
        if is_first:
            for source in self._sources.values():
                if isinstance(source, EntryPart):
                    source.clear()
        return found

    return patch.object(DerivedIndex, "catch_up", skip)


@planted_in_cluster("I2", needs={"keyed"})
def a_first_attempt_without_an_answer_uses_up_its_sequence() -> AbstractContextManager[Any]:
    """A batch whose first attempt, without a task, got no answer is repeated with the next sequence."""
    set_exception = DeliveryAttempt.set_exception

    def advance(self: DeliveryAttempt, error: BaseException) -> None:
        if not self._batch[0].is_alone:
            self._queue.producer.advance(1)
        set_exception(self, error)

    return patch.object(DeliveryAttempt, "set_exception", advance)


@planted_in_cluster("I1", "I3", needs={"keyed"})
def a_refused_first_attempt_counts_as_delivered() -> AbstractContextManager[Any]:
    """The senders of a batch get an offset, although the first attempt, without a task, was refused."""

    def believe(self: DeliveryAttempt, result: ProduceResult) -> None:
        self._is_over = True
        self._owner.on_delivered(self._queue, max(0, result.base_offset))

    return patch.object(DeliveryAttempt, "set_result", believe)
