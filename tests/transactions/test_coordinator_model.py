"""Model of transactions with zombies, a crashing coordinator and markers in any order: transactions stay
atomic.

Partitions are modelled by their contract: a batch only in a verified transaction, increasing epochs, and a
marker that ends an open transaction. The response to a producer is the outcome in every partition; no
transaction stays open.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from coordinator_bench import P0, P1, Bench, turns
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from penstock.errors import BrokerError, ErrorCode
from penstock.model import TopicPartition
from penstock.records.control import Marker
from penstock.transactions.endings import Ending
from penstock.transactions.transaction import NOBODY, VERSION_1, VERSION_2, Identity, TransactionState

numbers = st.integers(0, 1)
"""Number of producers; one of the two may be a zombie."""
mostly = st.sampled_from([True, True, True, False])


@dataclass
class Written:
    """Records that one producer wrote in one transaction."""

    commit_told: bool | None = None
    outcomes: dict[TopicPartition, bool] = field(default_factory=dict)
    partitions: set[TopicPartition] = field(default_factory=set)


@dataclass
class Partition:
    epochs: dict[int, int] = field(default_factory=dict)
    open: dict[int, Written] = field(default_factory=dict)

    def write(self, name: TopicPartition, producer: Identity, written: Written) -> None:
        if producer.epoch < self.epochs.get(producer.producer_id, -1):
            return
        self.epochs[producer.producer_id] = producer.epoch
        assert self.open.setdefault(producer.producer_id, written) is written, "two transactions at once"
        written.partitions.add(name)

    def end(self, name: TopicPartition, marker: Marker) -> None:
        if marker.producer_epoch < self.epochs.get(marker.producer_id, -1):
            return
        self.epochs[marker.producer_id] = marker.producer_epoch
        written = self.open.pop(marker.producer_id, None)
        if written is not None:
            written.outcomes[name] = marker.is_commit


@dataclass
class Producer:
    version: int
    identity: Identity = NOBODY
    written: Written = field(default_factory=Written)
    request: asyncio.Future[object] | None = None
    ends: list[tuple[Identity, bool, Written]] = field(default_factory=list)


class Transactions(RuleBasedStateMachine):
    @initialize()
    def start(self) -> None:
        self.runner = asyncio.Runner()
        self.bench = Bench()
        self.partitions = {P0: Partition(), P1: Partition()}
        self.producers: list[Producer] = []
        self.all_written: list[Written] = []
        for version in (VERSION_1, VERSION_2):
            self.producers.append(Producer(version))

    def do(self, work: Callable[[], object]) -> None:
        """Run on the loop, with all callbacks that follow at once."""

        async def body() -> None:
            work()
            await turns()

        self.runner.run(body())

    def ask(self, producer: Producer, work: Awaitable[object]) -> None:
        def ask() -> None:
            producer.request = asyncio.ensure_future(work)
            producer.request.add_done_callback(lambda done: done.cancelled() or done.exception())

        self.do(ask)

    def answer_of(self, producer: Producer) -> object:
        """Outcome of a request: a result, a BrokerError, or None if unknown."""
        request, producer.request = producer.request, None
        assert request is not None
        if not request.done():
            producer.request = request
            return None
        error = request.exception()
        if error is None:
            return request.result()
        assert isinstance(error, BrokerError)
        return error

    def next_transaction(self, producer: Producer) -> None:
        producer.written = Written()
        self.all_written.append(producer.written)

    # --- producers

    @rule(number=numbers, version=st.sampled_from([VERSION_1, VERSION_2]))
    def init(self, number: int, version: int) -> None:
        """Start a producer process, perhaps while another one still runs."""
        producer = self.producers[number] = Producer(version)
        self.next_transaction(producer)
        self.ask(producer, self.bench.shard.init_producer_id("t", NOBODY, 60_000, False))
        self.commit_all()
        answer = self.answer_of(producer)
        if isinstance(answer, Identity):
            producer.identity = answer
        producer.request = None

    @rule(number=numbers, name=st.sampled_from([P0, P1]), commits=mostly)
    def write(self, number: int, name: TopicPartition, commits: bool) -> None:
        producer = self.producers[number]
        if producer.identity == NOBODY:
            self.init(number=number, version=producer.version)
            producer = self.producers[number]
        adding = self.bench.shard.add_partitions(
            "t", producer.identity, [name], producer.version, may_wait=False
        )
        self.ask(producer, adding)
        if commits:
            self.commit_all()
        request, producer.request = producer.request, None
        if request is None or not request.done() or request.exception() is not None:
            if request is not None:
                request.cancel()
            return
        known = self.bench.shard.transactions["t"]
        if known.verify(producer.identity, name) is ErrorCode.none:
            self.partitions[name].write(name, producer.identity, producer.written)

    @rule(number=numbers, commit=st.booleans(), commits=mostly)
    def end(self, number: int, commit: bool, commits: bool) -> None:
        producer = self.producers[number]
        if producer.identity == NOBODY or not producer.written.partitions:
            return
        if producer.ends and producer.ends[-1][0] == producer.identity and producer.version == VERSION_2:
            commit = producer.ends[-1][1]  # a repeated request
        producer.ends.append((producer.identity, commit, producer.written))
        self.ask(producer, self.bench.shard.end("t", producer.identity, commit, producer.version))
        if commits:
            self.commit_all()
        answer = self.answer_of(producer)
        if isinstance(answer, Identity):
            assert producer.written.commit_told in (None, commit)
            producer.written.commit_told = commit
            producer.identity = answer
            self.next_transaction(producer)
        elif isinstance(answer, BrokerError):
            self.give_up(producer)
        elif producer.request is not None:
            producer.request.cancel()
            producer.request = None
            if producer.version == VERSION_1:
                self.give_up(
                    producer
                )  # its next requests would be recognised by connections, which this model leaves out

    def give_up(self, producer: Producer) -> None:
        producer.identity = NOBODY

    @rule(number=numbers, place=st.integers(0, 20))
    def late_end(self, number: int, place: int) -> None:
        """Send a delayed EndTxn of version 2."""
        producer = self.producers[number]
        if producer.version == VERSION_2 and producer.ends:
            identity, commit, written = producer.ends[place % len(producer.ends)]
            if written is not producer.written:
                self.ask(producer, self.bench.shard.end("t", identity, commit, VERSION_2))
                self.commit_all()
                self.answer_of(producer)
                producer.request = None

    # --- the coordinator

    @rule()
    def commit_one(self) -> None:
        if self.bench.log.waiting:
            self.do(self.bench.log.commit)

    def commit_all(self) -> None:
        while self.bench.log.waiting:
            self.do(self.bench.log.commit)

    @rule(data=st.data())
    def write_marker(self, data: st.DataObject) -> None:
        left = [(ending, name) for ending in self.bench.endings for name in sorted(ending.left)]
        if left:
            self.deliver(*data.draw(st.sampled_from(left)))

    def deliver(self, ending: Ending, name: TopicPartition) -> None:
        if not ending.is_abandoned:
            self.partitions[name].end(name, ending.marker)
            self.do(lambda: ending.settle([name]))

    @rule(keep=st.integers(0, 3))
    def crash(self, keep: int) -> None:
        self.do(lambda: self.bench.crash(keep=keep))

    @rule(ms=st.integers(1, 40_000))
    def time_passes(self, ms: int) -> None:
        self.bench.advance(ms)
        self.do(self.bench.fire)

    # --- invariants

    def teardown(self) -> None:
        if not hasattr(self, "bench"):
            return
        try:
            self.check_whole()
        finally:
            self.runner.close()

    def check_whole(self) -> None:
        self.come_to_rest()
        self.time_passes(60_000)
        self.come_to_rest()
        transaction = self.bench.shard.transactions.get("t")
        assert transaction is None or transaction.is_idle
        assert transaction is None or transaction.state is not TransactionState.ONGOING
        for name, partition in self.partitions.items():
            assert not partition.open, f"open for ever in {name}"
        for written in self.all_written:
            assert set(written.outcomes) == written.partitions
            assert len(set(written.outcomes.values())) <= 1, "torn"
            if written.commit_told is not None:
                assert set(written.outcomes.values()) <= {written.commit_told}, "not as it was told"

    def come_to_rest(self) -> None:
        for _ in range(50):
            self.commit_all()
            for ending in tuple(self.bench.endings):
                for name in sorted(ending.left):
                    self.deliver(ending, name)


TestTransactions = Transactions.TestCase
TestTransactions.settings = settings(max_examples=100, stateful_step_count=40, deadline=None)
