"""Planted bugs of the short paths of Produce and OffsetCommit; the general paths are right."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any
from unittest.mock import patch

from planting import planted_in_broker, planted_in_cluster

from penstock.groups.offsets import OffsetCommit
from penstock.groups.shard import GroupShard
from penstock.replication.admission import Admission
from penstock.server.handlers.offset_commit import PlainResponse
from penstock.server.known_requests import KnownCommit
from penstock.server.produce_waits import ProduceWait, ProduceWaits
from penstock.state_log.shard import Waiter
from penstock.storage.producer_state import ProducerStates


@planted_in_cluster("sequence", "I2", "I4", needs={"pipelined"})
def plain_batches_behind_a_refused_one_are_judged_alone() -> AbstractContextManager[Any]:
    """The short path skips the check for an earlier batch of the producer that was refused."""
    return _on_plain_path(Admission, "check_refused", lambda *_: None)


@planted_in_broker("I1", "I8")
def plain_requests_are_answered_before_the_flush() -> AbstractContextManager[Any]:
    """The short path responds as soon as the batch is in the page cache."""

    def add(self: ProduceWaits, wait: ProduceWait) -> None:
        wait.respond(None)

    return patch.object(ProduceWaits, "add", add)


@planted_in_broker("I2")
def plain_duplicates_are_appended() -> AbstractContextManager[Any]:
    """The short path checks the sequence of a batch and does not recognise a retry."""
    check = ProducerStates.check

    def forget(self: ProducerStates, header: Any) -> None:
        check(self, header)

    return _on_plain_path(ProducerStates, "check", forget)


@planted_in_cluster("I12")
def known_commits_are_answered_before_the_flush() -> AbstractContextManager[Any]:
    """The short path responds when the offset is added to the next batch."""
    commit = GroupShard.commit

    def answer(self: GroupShard, request: OffsetCommit, response: Waiter) -> None:
        if isinstance(response, PlainResponse):
            response.set_result(None)
        commit(self, request, response)

    return patch.object(GroupShard, "commit", answer)


@planted_in_cluster("I12")
def known_commits_repeat_the_known_offset() -> AbstractContextManager[Any]:
    """The short path recognises a request and does not read its offset."""
    offset_in = KnownCommit.offset_in

    def known(self: KnownCommit, frame: memoryview, position: int, version: int) -> int | None:
        found = offset_in(self, frame, position, version)
        return None if found is None else self.partition.offset

    return patch.object(KnownCommit, "offset_in", known)


@contextmanager
def _on_plain_path(owner: type, name: str, wrong: Callable[..., Any]) -> Iterator[None]:
    """Replace a method while a batch is appended on the short path, which has no callback for held batches."""
    append, right = Admission.append, getattr(owner, name)
    is_plain = False

    def tracked(self: Admission, batch: memoryview, now_ms: int, callback: Any, *rest: Any) -> Any:
        nonlocal is_plain
        is_plain = callback is None
        try:
            return append(self, batch, now_ms, callback, *rest)
        finally:
            is_plain = False

    def replaced(*arguments: Any) -> Any:
        return wrong(*arguments) if is_plain else right(*arguments)

    with patch.object(Admission, "append", tracked), patch.object(owner, name, replaced):
        yield
