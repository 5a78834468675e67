"""Dead letters of queues, and of consumer groups with retries: list, redrive and purge them.

A redrive copies dead letters to a topic and marks them in the dead-letter topic within one transaction, so
that a redrive that is interrupted and repeated sends nothing twice. A mark is a record with the header
`penstock-dead-settled` in the same partition, with the offsets of the letters as its value. Of two concurrent
redrives of a queue, the later one fences the earlier one.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, Protocol

from penstock.clock import SystemClock
from penstock.delay.retrying import RETRY_ATTEMPTS
from penstock.errors import BrokerError, ConfigError, ErrorCode
from penstock.filters.matching import Filter
from penstock.internal_client.partitioner import partition_for
from penstock.internal_client.produce_loop import PartitionProducer, batches_of
from penstock.internal_client.queues import QueueCalls
from penstock.internal_client.records import EARLIEST, LATEST, RecordCalls
from penstock.internal_client.retry_policies import RetryPolicyCalls
from penstock.internal_client.routes import Routes
from penstock.internal_client.topics import TopicCalls
from penstock.internal_client.transactions import ProducerIdentity, TransactionCalls
from penstock.records.batch import CONTROL_FLAG, HEADER_SIZE, TRANSACTIONAL_FLAG, read_header
from penstock.records.building import NewRecord, build_batch
from penstock.records.control import read_marker
from penstock.records.iteration import Record, iterate, read_batches

SETTLED_HEADER: Final = "penstock-dead-settled"
FROM_HEADER: Final = "penstock-redriven-from"
BATCH: Final = 200
"""Maximum number of dead letters that one transaction redrives."""
_GROUP_HEADER: Final = "__dlq.errors.group"
_OWN: Final = ("__dlq.errors.", "penstock-dead-")
_READ_BYTES: Final = 1 << 20
_MAX_BATCH_BYTES: Final = 16 * 1024 * 1024
_TIMEOUT_MS: Final = 60_000
_DELIVERY_SECONDS: Final = 30.0
_CLOCK: Final = SystemClock()


class DeadLetter(NamedTuple):
    """Dead letter that was neither redriven nor purged."""

    partition: int
    record: Record
    headers: Mapping[str, str]

    @property
    def id(self) -> str:
        """Partition and offset in the dead-letter topic, as in `3-1042`."""
        return f"{self.partition}-{self.record.offset}"

    @property
    def reason(self) -> str:
        return self.headers.get("penstock-dead-reason", "")

    @property
    def detail(self) -> str:
        return self.headers.get("__dlq.errors.message", "")

    @property
    def attempts(self) -> int:
        text = self.headers.get("__dlq.errors.delivery.count", "0")
        return int(text) if text.isascii() and text.isdigit() else 0

    @property
    def origin(self) -> str:
        names = ("topic", "partition", "offset")
        return "-".join(self.headers.get(f"__dlq.errors.{name}", "?") for name in names)


class LetterOwner(Protocol):
    """A queue, or a consumer group with a retry policy."""

    @property
    def name(self) -> str: ...

    @property
    def dead_letter(self) -> str:
        """Name of the dead-letter topic."""

    @property
    def sent_to(self) -> str:
        """Name of the topic to which a redrive copies the dead letters."""


class RetryGroup(NamedTuple):
    """A consumer group whose dead letters return to its retry topic, which only this group reads."""

    name: str
    dead_letter: str
    sent_to: str


@dataclass(frozen=True, slots=True)
class Selection:
    """Criteria that select dead letters; the default selects all."""

    expression: str | None = None
    """CEL expression that a dead letter must match, as in the filter of a view."""
    since_ms: int = 0
    """Time in milliseconds since the epoch. Dead letters with an earlier timestamp are left out."""
    max_letters: int | None = None


Progress = Callable[[int, int], None]
"""Callback that receives the number of dead letters redriven so far, and the number selected."""


class DeadLetterCalls:
    def __init__(self, routes: Routes) -> None:
        self._routes = routes
        self._topics = TopicCalls(routes)
        self._records = RecordCalls(routes)
        self._transactions = TransactionCalls(routes)
        self._queues = QueueCalls(routes)
        self._policies = RetryPolicyCalls(routes)

    async def owner(self, name: str) -> LetterOwner:
        """Return the queue of this name, or the consumer group of this name with a retry policy. Raises
        GROUP_ID_NOT_FOUND if there is neither.
        """
        try:
            return await self._queues.get(name)
        except BrokerError as error:
            if error.code is not ErrorCode.group_id_not_found:
                raise
        try:
            policy = await self._policies.get(name)
        except BrokerError as failure:
            if failure.code is not ErrorCode.resource_not_found:
                raise
            raise BrokerError(
                ErrorCode.group_id_not_found,
                f"there is neither a queue {name[:80]!r} nor a consumer group of this name with a retry policy; "
                "`penstock queue list` shows the queues",
            ) from None
        return RetryGroup(name, policy.dead_letter, policy.topic)

    async def find(self, queue: LetterOwner, selection: Selection) -> list[DeadLetter]:
        """Read the selected dead letters of a queue: by partition, the oldest first."""
        route = await self._topics.get(_topic_of(queue), fresh=True)
        partitions = range(len(route.partitions))
        found: list[DeadLetter] = []
        for partition in partitions:
            limit = None if selection.max_letters is None else selection.max_letters - len(found)
            if limit is not None and limit <= 0:
                break
            found += await self._read(queue, partition, selection, limit)
        return found

    async def redrive(
        self,
        queue: LetterOwner,
        selection: Selection,
        *,
        to: str | None = None,
        rate: float | None = None,
        progress: Progress | None = None,
    ) -> int:
        """Copy dead letters to the topic `to`, by default that of the queue, and mark them. Returns their
        number.

        `rate` is the maximum number of dead letters per second. A redrive that was interrupted continues when
        it is repeated.
        """
        target = to or queue.sent_to
        if target == queue.dead_letter:
            raise BrokerError(ErrorCode.invalid_request, "a redrive to the dead-letter topic has no effect")
        await self._topics.get(target, fresh=True)
        # The producer is obtained first: it fences an earlier redrive, whose transaction ends before letters
        # are read.
        producer = await self._begin(queue)
        letters = await self.find(queue, selection)
        total, done = len(letters), 0
        began = asyncio.get_running_loop().time()
        size = BATCH if rate is None else max(1, min(BATCH, int(rate)))  # At most the letters of one second.
        for start in range(0, total, size):
            batch = letters[start : start + size]
            if start:
                producer = await self._begin(queue)
            await self._redrive_batch(queue, target, producer, batch)
            done += len(batch)
            if progress is not None:
                progress(done, total)
            if rate:
                ahead = done / rate - (asyncio.get_running_loop().time() - began)
                await asyncio.sleep(max(0.0, ahead))
        if done:
            await self._begin(queue)  # waits until the last transaction is complete, so that readers see it
        return done

    async def purge(self, queue: LetterOwner) -> int:
        """Mark all dead letters of a queue, so that they are no longer listed or redriven. Returns their number."""
        producer = await self._begin(queue)
        letters = await self.find(queue, Selection())
        for start in range(0, len(letters), BATCH):
            if start:
                producer = await self._begin(queue)
            await self._in_transaction(producer, self._marks(queue, letters[start : start + BATCH]))
        if letters:
            await self._begin(queue)  # Waits for the last transaction, as after a redrive.
        return len(letters)

    async def _begin(self, queue: LetterOwner) -> ProducerIdentity:
        return await self._transactions.begin(f"redrive-{queue.name}", _TIMEOUT_MS, is_held=False)

    async def _redrive_batch(
        self, queue: LetterOwner, target: str, producer: ProducerIdentity, letters: Sequence[DeadLetter]
    ) -> None:
        partitions = (await self._topics.get(target)).active_count
        wanted = self._marks(queue, letters)
        for letter in letters:
            record = _redriven(queue, letter)
            place = target, _partition_of(letter, partitions)
            wanted.setdefault(place, []).append(record)
        await self._in_transaction(producer, wanted)

    async def _in_transaction(
        self, producer: ProducerIdentity, wanted: Mapping[tuple[str, int], Sequence[NewRecord]]
    ) -> None:
        deadline = asyncio.get_running_loop().time() + _DELIVERY_SECONDS
        try:
            for (topic, partition), records in wanted.items():
                writer = PartitionProducer(self._routes, topic, partition, producer)
                for batch in batches_of(records, BATCH):
                    await writer.write(batch, deadline)
        except BaseException:
            await self._transactions.end(producer, is_commit=False)
            raise
        await self._transactions.end(producer, is_commit=True)

    @staticmethod
    def _marks(queue: LetterOwner, letters: Sequence[DeadLetter]) -> dict[tuple[str, int], list[NewRecord]]:
        """Mark records for letters: one record for each partition of the dead-letter topic, by topic and partition."""
        offsets: dict[int, list[int]] = {}
        for letter in letters:
            offsets.setdefault(letter.partition, []).append(letter.record.offset)
        headers = ((SETTLED_HEADER, queue.name.encode()),)
        return {
            (queue.dead_letter, partition): [
                NewRecord(None, json.dumps(chosen).encode(), _CLOCK.now_ms(), headers)
            ]
            for partition, chosen in offsets.items()
        }

    # --- reading

    async def _read(
        self, queue: LetterOwner, partition: int, selection: Selection, limit: int | None
    ) -> list[DeadLetter]:
        """Read the selected letters of one partition that have no mark."""
        topic = queue.dead_letter
        start = (await self._records.offsets(topic, [partition], EARLIEST))[partition]
        end = (await self._records.offsets(topic, [partition], LATEST))[partition]
        letters: dict[int, DeadLetter] = {}
        settled: set[int] = set()
        while start < end:
            result = await self._records.fetch(topic, partition, start, _READ_BYTES)
            first_aborted = {
                each.producer_id: each.first_offset for each in result.aborted_transactions or ()
            }
            behind = start
            content = memoryview(result.records)  # type: ignore[arg-type]
            for record in _committed(content, first_aborted):
                if record.offset < start:
                    continue
                self._sort(queue, partition, record, letters, settled)
            for header, _ in read_batches(content):
                behind = max(behind, header.next_offset)
            if behind == start:
                break
            start = behind
        matches = _matcher(selection, partition)
        kept = [
            letter for offset, letter in sorted(letters.items()) if offset not in settled and matches(letter)
        ]
        return kept if limit is None else kept[:limit]

    @staticmethod
    def _sort(
        queue: LetterOwner,
        partition: int,
        record: Record,
        letters: dict[int, DeadLetter],
        settled: set[int],
    ) -> None:
        headers = {name: (value or b"").decode(errors="replace") for name, value in record.headers}
        if SETTLED_HEADER in headers:
            if headers[SETTLED_HEADER] == queue.name:
                settled.update(_offsets_in(record.value))
        elif headers.get(_GROUP_HEADER) == queue.name:
            letters[record.offset] = DeadLetter(partition, record, headers)


def _topic_of(queue: LetterOwner) -> str:
    if not queue.dead_letter:
        raise BrokerError(
            ErrorCode.resource_not_found,
            f"{queue.name} has no dead-letter topic; `penstock queue alter --dead-letter TOPIC` sets it for a queue, "
            "`penstock retry-policy set` for a consumer group",
        )
    return queue.dead_letter


def _offsets_in(value: bytes | None) -> list[int]:
    try:
        found = json.loads(value or b"[]")
    except ValueError:
        return []
    return [each for each in found if isinstance(each, int)] if isinstance(found, list) else []


def _committed(content: memoryview, aborted: Mapping[int, int]) -> list[Record]:
    """Records of batches that are neither control batches nor part of an aborted transaction."""
    found: list[Record] = []
    ongoing = dict(aborted)
    for header, batch in read_batches(content):
        if header.attributes & CONTROL_FLAG:
            marker = read_marker(batch, header)
            if marker is not None and not marker.is_commit:
                ongoing.pop(header.producer_id, None)
            continue
        first = ongoing.get(header.producer_id)
        if header.attributes & TRANSACTIONAL_FLAG and first is not None and header.base_offset >= first:
            continue
        found += iterate(batch, header, max_decompressed_bytes=_MAX_BATCH_BYTES)
    return found


def _matcher(selection: Selection, partition: int) -> Callable[[DeadLetter], bool]:
    try:
        chosen = None if selection.expression is None else Filter(selection.expression, partition)
    except ConfigError as error:
        raise BrokerError(ErrorCode.invalid_request, f"the filter is invalid: {error}") from None

    def matches(letter: DeadLetter) -> bool:
        record = letter.record
        if record.timestamp < selection.since_ms:
            return False
        if chosen is None:
            return True
        new = NewRecord(record.key, record.value, record.timestamp, record.headers)
        batch = memoryview(build_batch([new], base_offset=record.offset))
        found, failed = chosen.select(batch[HEADER_SIZE:], read_header(batch))
        return bool(found) and not failed

    return matches


def _redriven(queue: LetterOwner, letter: DeadLetter) -> NewRecord:
    record = letter.record
    dropped = {FROM_HEADER}
    if isinstance(queue, RetryGroup):
        dropped.add(RETRY_ATTEMPTS)  # The number of attempts begins anew.
    kept = tuple(each for each in record.headers if not each[0].startswith(_OWN) and each[0] not in dropped)
    headers = (*kept, (FROM_HEADER, f"{queue.dead_letter}-{letter.id}".encode()))
    return NewRecord(record.key, record.value, _CLOCK.now_ms(), headers)


def _partition_of(letter: DeadLetter, partitions: int) -> int:
    if letter.record.key is not None:
        return partition_for(letter.record.key, partitions)
    text = letter.headers.get("__dlq.errors.partition", "0")
    return int(text) % partitions if text.isascii() and text.isdigit() else 0
