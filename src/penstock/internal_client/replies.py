"""Requests through queues and their replies.

The replies of a queue go to the topic `QUEUE-replies`, which has `index.by.key`. A request names the place of
its reply in one header: topic, partition and a random key. The requester waits for that key at the leader of
the partition. The key is also the idempotency key of the reply, so one reply is stored even if a message is
delivered and answered several times. Loop thread only.
"""

from __future__ import annotations

import asyncio
import re
from typing import Final, NamedTuple

from penstock.errors import BrokerError, ErrorCode
from penstock.internal_client.errors import OutcomeUnknown
from penstock.internal_client.keyed_reads import KeyedRead, KeyedReads
from penstock.internal_client.partitioner import partition_for
from penstock.internal_client.producer import IdempotentProducer
from penstock.internal_client.topics import NewTopic, TopicCalls
from penstock.net.acting import Actor
from penstock.records.building import NewRecord
from penstock.records.content import Headers
from penstock.records.iteration import Record, iterate, read_batches

REPLY_TO: Final = "penstock-reply-to"
IDEMPOTENCY_KEY: Final = "penstock-idempotency-key"
MAX_REPLY_BYTES: Final = 16 * 1024 * 1024
_RETENTION_MS: Final = 3_600_000
_WAIT_MS: Final = 10_000
"""Milliseconds after which a wait looks up the leader of the partition again."""
_PLACE = re.compile(r"([a-zA-Z0-9._-]{1,249})/([0-9]{1,9})/([a-zA-Z0-9._-]{1,100})", re.ASCII)


class ReplyPlace(NamedTuple):
    """Place of the reply to a request: topic, partition and key."""

    topic: str
    partition: int
    key: str

    def __str__(self) -> str:
        return f"{self.topic}/{self.partition}/{self.key}"


def reply_topic(queue: str) -> str:
    return f"{queue}-replies"


def parse_reply_place(text: str, queue: str) -> ReplyPlace:
    """Parse a place. Raises ValueError if it does not belong to the queue.

    The sender of a message chooses the header, so a reply is accepted for the reply topic of the queue only.
    """
    found = _PLACE.fullmatch(text)
    if found is None or found[1] != reply_topic(queue):
        raise ValueError(f"{text[:80]!r} is not a reply address of queue {queue!r}")
    return ReplyPlace(found[1], int(found[2]), found[3])


class ReplyCalls:
    def __init__(self, topics: TopicCalls, reads: KeyedReads, producer: IdempotentProducer) -> None:
        self._topics = topics
        self._reads = reads
        self._producer = producer

    async def place(self, queue: str, key: str) -> ReplyPlace:
        """Return the place of the reply with this random key. Creates the reply topic if it does not exist."""
        topic = reply_topic(queue)
        try:
            route = await self._topics.get(topic)
        except BrokerError as error:
            if error.code is not ErrorCode.unknown_topic_or_partition:
                raise
            await self._create(topic)
            route = await self._topics.get(topic, fresh=True)
        return ReplyPlace(topic, partition_for(key.encode(), route.active_count), key)

    async def _create(self, topic: str) -> None:
        configs = {"index.by.key": "true", "retention.ms": str(_RETENTION_MS)}
        try:
            await self._topics.create(NewTopic(topic, configs=configs))
        except BrokerError as error:
            if error.code is not ErrorCode.topic_already_exists:
                raise

    async def wait(self, place: ReplyPlace, seconds: float) -> Record | None:
        """Wait for the reply. Returns None if none arrives in time."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + seconds
        while True:
            left_ms = max(0, round((deadline - loop.time()) * 1000))
            wanted = KeyedRead(
                place.topic,
                place.partition,
                place.key.encode(),
                max_records=1,
                max_wait_ms=min(left_ms, _WAIT_MS),
            )
            found = await self._reads.read(wanted, max(1.0, left_ms / 1000))
            for header, batch in read_batches(memoryview(found.records)):
                for record in iterate(batch, header, max_decompressed_bytes=MAX_REPLY_BYTES):
                    return record
            if left_ms == 0:
                return None

    async def reply(
        self,
        place: ReplyPlace,
        value: bytes | None,
        headers: Headers,
        now_ms: int,
        actor: Actor | None = None,
    ) -> bool:
        """Store a reply. Returns False if another reply to the request was stored before."""
        own = (*headers, (IDEMPOTENCY_KEY, place.key.encode()))
        record = NewRecord(place.key.encode(), value, now_ms, own)
        try:
            await self._producer.send(place.topic, place.partition, record, is_alone=True, actor=actor)
        except (BrokerError, OutcomeUnknown) as error:
            # Only the idempotency key can be refused: the record has nothing else that is checked. A refused
            # repetition settles an attempt whose response was lost: this reply was not stored by it.
            refusal = error.__cause__ if isinstance(error, OutcomeUnknown) else error
            if isinstance(refusal, BrokerError) and refusal.code is ErrorCode.invalid_record:
                return False
            raise
        return True
