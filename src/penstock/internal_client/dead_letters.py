"""Dead letters of queues, and of consumer groups with retries: list, redrive and purge them.

A redrive copies dead letters to a topic and marks them in the dead-letter topic within one transaction, so an
interrupted and repeated redrive sends nothing twice. A mark is a record with the header `penstock-dead-settled` in the
partition of the letters, with their offsets as its value. Two redrives of a queue at a time fence each other.
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
"""Number of dead letters that one transaction redrives."""
_GROUP_HEADER: Final = "__dlq.errors.group"
_OWN: Final = ("__dlq.errors.", "penstock-dead-")
_READ_BYTES: Final = 1 << 20
_MAX_BATCH_BYTES: Final = 16 * 1024 * 1024
_TIMEOUT_MS: Final = 60_000
_DELIVERY_SECONDS: Final = 30.0
_CLOCK: Final = SystemClock()


class DeadLetter(NamedTuple):
    """A dead letter that was not redriven or purged yet."""

    partition: int
    record: Record
    headers: Mapping[str, str]

    @property
    def id(self) -> str:
        """Partition and offset in the dead-letter topic."""
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
        """Topic of the dead letters."""

    @property
    def sent_to(self) -> str:
        """Topic that a redrive sends them to."""


class RetryGroup(NamedTuple):
    """A consumer group whose dead letters return to its retry topic, which only this group reads."""

    name: str
    dead_letter: str
    sent_to: str


@dataclass(frozen=True, slots=True)
class Selection:
    """The dead letters of a redrive; all of them by default."""

    expression: str | None = None
    """CEL expression that a letter must match, as in the filter of a view."""
    since_ms: int = 0
    """Time before which letters are left out."""
    max_letters: int | None = None


Progress = Callable[[int, int], None]
"""Called with the number of letters that were redriven, and that are selected."""


class DeadLetterCalls:
    def __init__(self, routes: Routes) -> None:
        self._routes = routes
        self._topics = TopicCalls(routes)
        self._records = RecordCalls(routes)
        self._transactions = TransactionCalls(routes)
        self._queues = QueueCalls(routes)
        self._policies = RetryPolicyCalls(routes)

    async def owner(self, name: str) -> LetterOwner:
        """The queue of this name, or the consumer group with a retry policy; GROUP_ID_NOT_FOUND for neither."""
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
        """Read the dead letters of a queue, the oldest of each partition first."""
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
        """Copy dead letters to a topic, by default the queue's, and mark them; returns their number.

        `rate` limits the letters per second. A repetition continues where an interruption was.
        """
        target = to or queue.sent_to
        if target == queue.dead_letter:
            raise BrokerError(ErrorCode.invalid_request, "a redrive to the dead-letter topic has no effect")
        await self._topics.get(target, fresh=True)
        # The producer comes first: an earlier redrive is fenced, and its transaction ends before letters are read.
        producer = await self._begin(queue)
        letters = await self.find(queue, selection)
        total, done = len(letters), 0
        began = asyncio.get_running_loop().time()
        size = BATCH if rate is None else max(1, min(BATCH, int(rate)))  # a second's letters at most
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
        """Mark all dead letters of a queue, so that they are not listed or redriven any more."""
        producer = await self._begin(queue)
        letters = await self.find(queue, Selection())
        for start in range(0, len(letters), BATCH):
            if start:
                producer = await self._begin(queue)
            await self._in_transaction(producer, self._marks(queue, letters[start : start + BATCH]))
        if letters:
            await self._begin(queue)  # as after a redrive
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
        """Marks of letters, one record for each partition of the dead-letter topic."""
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
        """Read the letters of one partition that have no mark."""
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
    """Records of the batches that are no markers and belong to no aborted transaction."""
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
        dropped.add(RETRY_ATTEMPTS)  # attempts begin anew
    kept = tuple(each for each in record.headers if not each[0].startswith(_OWN) and each[0] not in dropped)
    headers = (*kept, (FROM_HEADER, f"{queue.dead_letter}-{letter.id}".encode()))
    return NewRecord(record.key, record.value, _CLOCK.now_ms(), headers)


def _partition_of(letter: DeadLetter, partitions: int) -> int:
    if letter.record.key is not None:
        return partition_for(letter.record.key, partitions)
    text = letter.headers.get("__dlq.errors.partition", "0")
    return int(text) % partitions if text.isascii() and text.isdigit() else 0
