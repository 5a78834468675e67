"""Audit log in the internal topic `__audit_log`, one record for each line. Clients with READ on the topic can consume
it.

A batch has a producer id and a sequence, so it is stored once although it is sent again after an error. After
`PATIENCE_SECONDS` without success its lines count as lost, and the next batch has a new producer id. Loop thread only.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

from penstock.clock import Clock
from penstock.cluster.administration import Administration
from penstock.cluster.image import TopicImage
from penstock.cluster.internal_topics import AUDIT_TOPIC, new_audit_topic
from penstock.errors import BrokerError, ErrorCode
from penstock.internal_client.retries import retry
from penstock.records.building import NewRecord, build_batch
from penstock.server.topic_writer import TopicWriter

PATIENCE_SECONDS = 10.0
MAX_BATCH_BYTES = 500_000


class AuditTopic:
    def __init__(self, writer: TopicWriter, administration: Administration, clock: Clock) -> None:
        self._writer = writer
        self._administration = administration
        self._clock = clock
        self._producer_id: int | None = None
        self._sequence = 0

    async def send(self, lines: Sequence[bytes]) -> None:
        """Write lines to the topic. Raises PenstockError or OSError for lines that may be lost."""
        for chunk in _chunks(lines):
            now_ms = self._clock.now_ms()
            records = [NewRecord(None, line.rstrip(b"\n"), now_ms) for line in chunk]
            try:
                await retry(partial(self._write, records), PATIENCE_SECONDS)
            except BaseException:
                self._producer_id = None
                raise
            self._sequence += len(records)

    async def _write(self, records: Sequence[NewRecord]) -> None:
        try:
            topic = self._writer.metadata.image.topic(AUDIT_TOPIC) or await self._create()
            if self._producer_id is None:
                self._producer_id, self._sequence = await self._writer.producer_id(), 0
            batch = build_batch(
                records, producer_id=self._producer_id, producer_epoch=0, base_sequence=self._sequence
            )
            await self._writer.write(topic, 0, batch)
        except BrokerError as error:
            # Retriable: the leader of the partition may be changing.
            raise BrokerError(ErrorCode.leader_not_available, str(error)) from error
        except TimeoutError as error:
            raise BrokerError(ErrorCode.request_timed_out, "the audit topic does not respond") from error

    async def _create(self) -> TopicImage:
        [made] = await self._administration.create_topics([new_audit_topic(self._writer.metadata.config)])
        if not isinstance(made, BrokerError):
            return made
        raise made


def _chunks(lines: Sequence[bytes]) -> Iterator[list[bytes]]:
    chunk: list[bytes] = []
    size = 0
    for line in lines:
        if chunk and size + len(line) > MAX_BATCH_BYTES:
            yield chunk
            chunk, size = [], 0
        chunk.append(line)
        size += len(line)
    if chunk:
        yield chunk
