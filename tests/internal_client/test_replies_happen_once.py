"""A reply happens once: connections break while it is sent, handlers run again after their locks have expired or die,
and requesters send and ask again. Planted bugs are noticed.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from random import Random

import pytest

from penstock.config import Address
from penstock.errors import BrokerError, PenstockError
from penstock.internal_client.client import InternalClient
from penstock.internal_client.errors import OutcomeUnknown
from penstock.internal_client.keyed_reads import KeyedReads
from penstock.internal_client.producer import IdempotentProducer
from penstock.internal_client.queue_messages import ReceivedMessage, Settlement
from penstock.internal_client.queues import NewQueue
from penstock.internal_client.receipts import parse_receipt
from penstock.internal_client.replies import REPLY_TO, ReplyCalls, ReplyPlace, parse_reply_place, reply_topic
from penstock.internal_client.routes import Routes
from penstock.net.network import TcpNetwork
from penstock.records.building import NewRecord
from penstock.records.iteration import iterate, read_batches
from penstock.records.log_slice import LogSlice
from penstock.replication.keyed_log import KeyedLog
from support.breaking_network import BreakingNetwork
from support.whole_brokers import Brokers, run

QUEUE = "work"
REQUESTS = 30
HANDLERS = 4
SETTINGS = {"default_replication_factor": "2", "group_share_max_delivery_count_limit": "100"}
LOCK_MS = 250
PATIENCE_S = 60.0
BROKEN_SHARE = 0.04
FAILURES = (PenstockError, OSError, TimeoutError)
Patch = pytest.MonkeyPatch


class Peer:
    """One client process: its connections end when it dies."""

    def __init__(self, brokers: Brokers, network: BreakingNetwork) -> None:
        addresses = [Address("127.0.0.1", broker.port) for broker in brokers.running.values()]
        routes = Routes(network, addresses, "test")
        self.client = InternalClient(routes)
        self.producer = IdempotentProducer(routes)
        self.reads = KeyedReads(network, routes, "test")
        self.replies = ReplyCalls(self.client.topics, self.reads, self.producer)

    async def close(self) -> None:
        await self.producer.close()
        self.reads.close()
        await self.client.__aexit__()


class Conversation:
    """Requesters and handlers of one queue, with what each was told about replies."""

    def __init__(self, brokers: Brokers, seed: int) -> None:
        self._random = Random(seed)
        self._brokers = brokers
        self._network = BreakingNetwork(TcpNetwork(), self._random, BROKEN_SHARE)
        self._topic = ""
        self._handled = 0
        self.counted: dict[str, set[bytes]] = defaultdict(set)
        """Replies by key of which a handler was told that they count."""
        self.confused: list[str] = []
        """Replies that were refused, and whose handlers were told that the outcome is not known."""
        self.received: dict[str, set[bytes | None]] = defaultdict(set)
        """Replies by key that a requester got."""

    def _peer(self) -> Peer:
        return Peer(self._brokers, self._network)

    async def run(self) -> None:
        quiet = Peer(self._brokers, BreakingNetwork(TcpNetwork(), self._random, 0.0))
        settings = {"max_attempts": "100", "back_off": "10ms"}
        self._topic = (
            await quiet.client.queues.create(NewQueue(QUEUE, partitions=2, settings=settings))
        ).topic
        places = [await quiet.replies.place(QUEUE, f"request-{number}") for number in range(REQUESTS)]
        handlers = [asyncio.create_task(self._handle_all()) for _ in range(HANDLERS)]
        try:
            async with asyncio.timeout(PATIENCE_S):
                await asyncio.gather(self._move_leaders(), *map(self._request, places))
                await asyncio.sleep(
                    2 * LOCK_MS / 1000
                )  # messages that were handled and not settled are handled again
        finally:
            for each in handlers:
                each.cancel()
            await asyncio.gather(*handlers, return_exceptions=True)
        await self._check(quiet, places)
        await quiet.close()

    async def _move_leaders(self) -> None:
        await asyncio.sleep(0.5)
        await self._brokers.stop(1)
        await asyncio.sleep(0.5)
        await self._brokers.start(1)

    # --- requesters

    async def _request(self, place: ReplyPlace) -> None:
        peer, random = self._peer(), self._random
        record = NewRecord(place.key.encode(), b"request", 0, ((REPLY_TO, str(place).encode()),))
        is_sent = False
        while not is_sent or random.random() < 0.2:
            with suppress(*FAILURES):
                await peer.producer.send(self._topic, random.randrange(2), record)
                is_sent = True
        for _ in range(2):
            found = None
            while found is None:
                with suppress(*FAILURES):
                    found = await peer.replies.wait(place, random.choice((0.0, 0.1, 1.0)))
            self.received[place.key].add(found.value)
            await asyncio.sleep(random.uniform(0, 2 * LOCK_MS / 1000))
        await peer.close()

    # --- handlers

    async def _handle_all(self) -> None:
        while True:
            peer = self._peer()
            try:
                while self._random.random() > 0.1:
                    await self._handle_some(peer)
            except FAILURES:
                continue
            finally:
                await peer.close()

    async def _handle_some(self, peer: Peer) -> None:
        for message in await peer.client.queue_messages.receive(QUEUE, self._topic, 3, 200, LOCK_MS):
            if self._random.random() < 0.3:
                await asyncio.sleep(2 * LOCK_MS / 1000)  # another handler gets the message meanwhile
            await self._reply(peer, message)
            if self._random.random() < 0.7:
                accepted = Settlement(parse_receipt(message.receipt), 1)
                await peer.client.queue_messages.settle(QUEUE, self._topic, [accepted])

    async def _reply(self, peer: Peer, message: ReceivedMessage) -> None:
        place = parse_reply_place((dict(message.record.headers)[REPLY_TO] or b"").decode(), QUEUE)
        self._handled += 1
        value = f"reply {self._handled}".encode()
        work = asyncio.create_task(peer.replies.reply(place, value, (), 0))
        if self._random.random() < 0.2:
            await asyncio.sleep(self._random.uniform(0, 0.005))
            work.cancel()
            raise ConnectionError("the handler dies, and the outcome of its reply is not known")
        try:
            if await work:
                self.counted[place.key].add(value)
        except OutcomeUnknown as error:
            if isinstance(error.__cause__, BrokerError):
                self.confused.append(f"{value!r}: {error}")
            raise

    # --- checks

    async def _check(self, quiet: Peer, places: list[ReplyPlace]) -> None:
        stored = await self._stored(quiet, {place.partition for place in places})
        assert self._handled > REQUESTS, "no message was handled twice"
        assert not self.confused, self.confused
        for place in places:
            replies = stored[place.key]
            assert len(replies) == 1, f"{place.key} has the replies {replies}"
            assert self.received[place.key] == set(replies), f"a requester got {self.received[place.key]}"
            assert self.counted[place.key] <= set(replies), (
                f"{self.counted[place.key]} counted, not {replies}"
            )

    async def _stored(self, quiet: Peer, partitions: set[int]) -> dict[str, list[bytes | None]]:
        """Replies by key, as the topic has them."""
        topic = reply_topic(QUEUE)
        ends = await quiet.client.records.offsets(topic, sorted(partitions), -1)
        found: dict[str, list[bytes | None]] = defaultdict(list)
        for partition, end in ends.items():
            offset = 0
            while offset < end:
                part = await quiet.client.records.fetch(topic, partition, offset, 1 << 24, 0)
                assert not isinstance(part.records, LogSlice)
                for header, batch in read_batches(memoryview(part.records)):
                    offset = header.next_offset
                    for record in iterate(batch, header):
                        found[(record.key or b"").decode()].append(record.value)
        return found


def converse(directory: Path, seed: int) -> None:
    async def scenario(brokers: Brokers) -> None:
        for number in (1, 2):
            await brokers.start(number)
        await Conversation(brokers, seed).run()

    run(directory, scenario, **SETTINGS)


def test_request_has_one_reply(tmp_path: Path) -> None:
    converse(tmp_path, 1)


def reply_has_no_idempotency_key(patch: Patch) -> None:
    patch.setattr("penstock.internal_client.replies.IDEMPOTENCY_KEY", "other-header")


def broker_does_not_look_the_key_up(patch: Patch) -> None:
    patch.setattr(KeyedLog, "must_check", lambda *_: False)


def refused_reply_counts(patch: Patch) -> None:
    real = ReplyCalls.reply

    async def reply(self: ReplyCalls, *arguments: object) -> bool:
        await real(self, *arguments)  # type: ignore[arg-type]
        return True

    patch.setattr(ReplyCalls, "reply", reply)


@pytest.mark.slow
@pytest.mark.parametrize(
    "plant", [reply_has_no_idempotency_key, broker_does_not_look_the_key_up, refused_reply_counts]
)
def test_planted_bug_is_noticed(plant: Callable[[Patch], None], tmp_path: Path, monkeypatch: Patch) -> None:
    plant(monkeypatch)
    with pytest.raises(AssertionError, match=r"has the replies|counted, not|a requester got"):
        converse(tmp_path, 1)
