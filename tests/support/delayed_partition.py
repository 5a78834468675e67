"""One partition of a topic with delayed messages on a broker in the test's own process."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from penstock.cluster.memory import MemoryEnsemble
from penstock.records.building import NewRecord, build_batch
from penstock.records.iteration import Record, iterate, read_batches
from penstock.replication.delayed_delivery import DelayedLog
from penstock.wire.produce import ProducePartition, ProduceRequest, ProduceTopic
from penstock.wire.produce_client import decode_produce_response, encode_produce_request
from support.eventually import eventually_async
from support.harness import Harness, serve
from support.manual_clock import ManualClock
from support.transaction_wire import READ_UNCOMMITTED, ask_raw, fetch

HOUR_MS = 3_600_000
TOPIC = "reminders"
Header = tuple[str, bytes]


class Partition:
    """One partition of a topic with delayed messages, and the clock of its broker."""

    def __init__(self, broker: Harness, clock: ManualClock) -> None:
        self.broker = broker
        self.clock = clock

    async def create(self, **configs: str) -> None:
        await self.broker.create(TOPIC, 1, delivery_delay="true", **configs)

    @property
    def delayed(self) -> DelayedLog:
        delayed = self.broker.context.replicas.get(TOPIC, 0).delayed
        assert delayed is not None
        return delayed

    async def send(self, *records: tuple[bytes, list[Header]], topic: str = TOPIC, **batch: Any) -> Any:
        """Produce one batch; the result of its partition."""
        made = [NewRecord(b"k", value, 1_000, tuple(headers)) for value, headers in records]
        content = memoryview(build_batch(made, **batch))
        data = [ProduceTopic(topic, None, [ProducePartition(0, content)])]
        frame = encode_produce_request(7, 9, "test", ProduceRequest(None, -1, 5_000, data))
        return decode_produce_response(await ask_raw(self.broker, frame), 9).topics[0].partitions[0]

    async def delay(self, value: bytes, ms: int, **batch: Any) -> int:
        result = await self.send((value, [("penstock-delay-ms", b"%d" % ms)]), **batch)
        assert result.error_code == 0, result.error_message
        return int(result.base_offset)

    async def seen(self, topic: str = TOPIC) -> list[Record]:
        """Every record that a reader sees, from the start of the log."""
        records: list[Record] = []
        position = self.broker.context.replicas.get(TOPIC, 0).log.log_start_offset
        while position < self.broker.context.replicas.get(TOPIC, 0).log.high_watermark:
            found = await fetch(self.broker, topic, position, isolation=READ_UNCOMMITTED)
            assert isinstance(found.records, bytes | bytearray | memoryview)
            batches = list(read_batches(memoryview(found.records)))
            assert batches, f"the reader does not get behind offset {position}"
            for header, batch in batches:
                if not header.is_control:
                    records += [each for each in iterate(batch, header) if each.offset >= position]
                position = header.next_offset
        return records

    async def values(self, topic: str = TOPIC) -> list[bytes | None]:
        return [record.value for record in await self.seen(topic)]

    async def pass_time(self, ms: int) -> None:
        """Move the clock, and wait until everything that is due was delivered."""
        self.clock.advance(ms)
        await self.settle()

    async def settle(self) -> None:
        delayed = self.delayed
        log = self.broker.context.replicas.get(TOPIC, 0).log

        def is_settled() -> bool:
            delayed.on_high_watermark()
            first = delayed.pending.first()
            is_due = first is not None and first.due_ms <= self.clock.now_ms()
            return (
                not is_due and delayed.applied_offset == log.high_watermark and not delayed.pending.in_flight
            )

        await eventually_async(is_settled, "all due messages are delivered")


def run(
    tmp_path: Path,
    scenario: Callable[[Partition], Awaitable[None]],
    clock: ManualClock | None = None,
    ensemble: MemoryEnsemble | None = None,
) -> None:
    clock = clock or ManualClock()

    async def body(broker: Harness) -> None:
        await scenario(Partition(broker, clock))

    serve(tmp_path, body, ensemble=ensemble, clock=clock)
