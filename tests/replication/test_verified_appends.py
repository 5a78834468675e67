"""First batches of transactions wait for the coordinator's confirmation, in order, and no longer than it is
valid.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_replica import NOW_MS, Bench, ManualThreads

from penstock.config import CleanupPolicy, Durability
from penstock.errors import BrokerError, ErrorCode
from penstock.model import LeaderEpoch, Offset, TopicPartition
from penstock.records.batch import BatchHeader, read_header
from penstock.records.building import NewRecord, build_batch
from penstock.records.control import Marker
from penstock.records.iteration import iterate, read_batches
from penstock.storage.log import AppendInfo


class Coordinator:
    """Coordinator that answers when the test says so, in the order of the questions."""

    def __init__(self) -> None:
        self.asked: list[asyncio.Future[ErrorCode]] = []

    def vouches_for(self, partition: TopicPartition, header: BatchHeader) -> bool:
        return False

    async def verify(self, partition: TopicPartition, header: BatchHeader) -> ErrorCode:
        answer: asyncio.Future[ErrorCode] = asyncio.get_running_loop().create_future()
        self.asked.append(answer)
        return await answer

    async def say(self, code: ErrorCode = ErrorCode.none) -> None:
        await ManualThreads().settle()
        self.asked.pop(0).set_result(code)
        await ManualThreads().settle()


class Stage:
    def __init__(self, directory: Path, **settings: object) -> None:
        self.bench = Bench(directory, Durability.OS, **settings)
        self.replica = self.bench.replica()
        self.coordinator = Coordinator()
        self.results: dict[str, AppendInfo | BrokerError] = {}

    def send(self, name: str, sequence: int, producer_id: int = 1, epoch: int = 0) -> None:
        """Append as Produce does; the outcome is stored under `name`."""
        batch = memoryview(
            build_batch(
                [NewRecord(b"k", name.encode(), NOW_MS)],
                producer_id=producer_id,
                producer_epoch=epoch,
                base_sequence=sequence,
                transactional=True,
            )
        )

        def finish(result: AppendInfo | BrokerError) -> None:
            assert name not in self.results, "told once"
            self.results[name] = result

        try:
            info = self.replica.append(batch, NOW_MS, finish, transaction=self.coordinator)
        except BrokerError as error:
            finish(error)
        else:
            if info is not None:
                finish(info)

    def end(
        self, producer_id: int = 1, epoch: int = 0, *, commit: bool = False, bump: bool = False
    ) -> AppendInfo:
        marker = Marker(producer_id, epoch + bump, commit, 0)
        return self.replica.append_marker(marker, is_epoch_new=bump, now_ms=NOW_MS)

    def offset(self, name: str) -> int:
        result = self.results[name]
        assert isinstance(result, AppendInfo), result
        return result.base_offset

    def code(self, name: str) -> ErrorCode:
        result = self.results[name]
        assert isinstance(result, BrokerError), result
        return result.code


def run(scenario: Callable[[Stage], Awaitable[None]], directory: Path, **settings: object) -> None:
    async def main() -> None:
        await scenario(Stage(directory, **settings))

    asyncio.run(main())


def test_batches_wait_behind_the_unverified_first_batch_of_a_transaction(tmp_path: Path) -> None:
    async def scenario(stage: Stage) -> None:
        stage.send("a", 0)
        stage.send("b", 1)
        stage.send("other", 0, producer_id=2)
        await stage.bench.threads.settle()
        assert len(stage.coordinator.asked) == 2, "one question a producer"
        assert stage.results == {}
        await stage.coordinator.say()
        assert (stage.offset("a"), stage.offset("b")) == (0, 1)
        stage.send("c", 2)
        assert stage.offset("c") == 2, "the transaction is begun: nothing is asked"
        await stage.coordinator.say()
        assert stage.offset("other") == 3

    run(scenario, tmp_path)


def test_held_batch_of_one_producer_delays_no_other_producer(tmp_path: Path) -> None:
    async def scenario(stage: Stage) -> None:
        stage.send("begun", 0, producer_id=2)
        await stage.coordinator.say()
        stage.send("held", 0)
        stage.send("at once", 1, producer_id=2)
        assert stage.offset("at once") == 1
        assert "held" not in stage.results

    run(scenario, tmp_path)


def test_refusal_applies_to_all_held_batches_of_the_epoch(tmp_path: Path) -> None:
    async def scenario(stage: Stage) -> None:
        stage.send("a", 0)
        stage.send("b", 1)
        await stage.coordinator.say(ErrorCode.not_enough_replicas)
        assert stage.code("a") is stage.code("b") is ErrorCode.not_enough_replicas
        assert stage.replica.log.log_end_offset == 0

    run(scenario, tmp_path)


def test_no_later_batch_is_stored_before_a_refused_one(tmp_path: Path) -> None:
    """Otherwise the retry of the first batch would be taken for a duplicate, and be lost."""

    async def scenario(stage: Stage) -> None:
        stage.send("first", 0)
        await stage.coordinator.say(ErrorCode.not_enough_replicas)
        stage.send("second", 1)
        await stage.coordinator.say()
        assert stage.code("second") is ErrorCode.not_enough_replicas
        stage.send("first again", 0)
        assert stage.offset("first again") == 0
        stage.send("second again", 1)
        assert stage.offset("second again") == 1

    run(scenario, tmp_path)


def test_marker_refuses_held_batches_of_its_transaction(tmp_path: Path) -> None:
    """A second question might confirm it for the next transaction, which has the same epoch."""

    async def scenario(stage: Stage) -> None:
        stage.send("a", 0)
        stage.send("b", 1)
        await stage.bench.threads.settle()
        stage.end()
        assert stage.code("a") is stage.code("b") is ErrorCode.invalid_txn_state
        await stage.coordinator.say()
        assert stage.replica.log.producers.ongoing(1) is None
        stage.send("next", 0)
        await stage.coordinator.say()
        assert stage.offset("next") == 1

    run(scenario, tmp_path)


def test_marker_of_a_new_epoch_refuses_held_batches_of_the_old_epoch(tmp_path: Path) -> None:
    async def scenario(stage: Stage) -> None:
        stage.send("old", 0)
        stage.send("new", 0, epoch=1)
        await stage.bench.threads.settle()
        stage.end(bump=True)
        assert stage.code("old") is ErrorCode.invalid_producer_epoch
        await stage.coordinator.say(ErrorCode.producer_fenced)
        assert "new" not in stage.results, "that was said of the old one"
        await stage.coordinator.say()
        assert stage.offset("new") == 1

    run(scenario, tmp_path)


def test_a_marker_does_not_disturb_the_next_transaction(tmp_path: Path) -> None:
    """The first batch of a transaction may be held when the marker of the previous one comes (version 2)."""

    async def scenario(stage: Stage) -> None:
        stage.send("before", 0)
        await stage.coordinator.say()
        stage.send("next", 0, epoch=1)
        await stage.bench.threads.settle()
        stage.end(bump=True)
        assert len(stage.coordinator.asked) == 1
        await stage.coordinator.say()
        assert stage.offset("next") == 2
        assert stage.coordinator.asked == []

    run(scenario, tmp_path)


def test_marker_does_not_overtake_a_held_batch(tmp_path: Path) -> None:
    """The batch is verified, then held in the pool; the transaction is aborted meanwhile and must not begin
    again.
    """

    async def scenario(stage: Stage) -> None:
        stage.send("a", 0)
        await stage.coordinator.say()
        assert "a" not in stage.results
        stage.end()
        await stage.bench.threads.finish_one()
        assert stage.code("a") is ErrorCode.invalid_txn_state
        assert stage.replica.log.log_end_offset == 1

    run(scenario, tmp_path, cleanup_policy=(CleanupPolicy.COMPACT,))


def test_batches_of_compacted_topics_keep_their_order(tmp_path: Path) -> None:
    async def scenario(stage: Stage) -> None:
        stage.send("a", 0)
        stage.send("b", 1)
        await stage.coordinator.say()
        await stage.bench.threads.finish_one()
        await stage.bench.threads.finish_one()
        assert (stage.offset("a"), stage.offset("b")) == (0, 1)

    run(scenario, tmp_path, cleanup_policy=(CleanupPolicy.COMPACT,))


def test_transaction_lost_by_its_coordinator_is_not_committed_with_the_next(tmp_path: Path) -> None:
    """After a power loss a coordinator may not know a transaction whose records are still here: no marker
    comes for it, and its producer gets the next epoch.
    """

    async def scenario(stage: Stage) -> None:
        log = stage.replica.log
        stage.send("lost", 0)
        await stage.coordinator.say()
        stage.send("next", 0, epoch=1)
        await stage.coordinator.say()
        assert (stage.offset("lost"), stage.offset("next")) == (0, 2)
        stage.end(epoch=1, commit=True)
        assert log.aborted_transactions(Offset(0), log.log_end_offset) == [(1, 0)]
        assert log.last_stable_offset == log.log_end_offset == 4
        stage.send("zombie", 1)
        await stage.coordinator.say()
        assert stage.code("zombie") is ErrorCode.invalid_producer_epoch

    run(scenario, tmp_path)


def test_each_producer_epoch_is_verified_separately(tmp_path: Path) -> None:
    async def scenario(stage: Stage) -> None:
        stage.send("old", 0)
        stage.send("new", 0, epoch=1)
        await stage.coordinator.say(ErrorCode.invalid_producer_epoch)
        assert stage.code("old") is ErrorCode.invalid_producer_epoch
        await stage.coordinator.say()
        assert stage.offset("new") == 0

    run(scenario, tmp_path)


def test_next_transaction_of_a_producer_is_verified_again(tmp_path: Path) -> None:
    async def scenario(stage: Stage) -> None:
        stage.send("a", 0)
        await stage.coordinator.say()
        stage.end(commit=True)
        stage.send("b", 1)
        assert "b" not in stage.results
        await stage.coordinator.say()
        assert stage.offset("b") == 2

    run(scenario, tmp_path)


def test_held_batch_fails_when_the_replica_becomes_a_follower(tmp_path: Path) -> None:
    async def scenario(stage: Stage) -> None:
        stage.send("a", 0)
        await stage.bench.threads.settle()
        stage.replica.become_follower(LeaderEpoch(2))
        assert stage.code("a") is ErrorCode.not_leader_or_follower
        await stage.bench.threads.settle()
        assert stage.coordinator.asked[0].cancelled()

    run(scenario, tmp_path)


def test_held_batch_fails_when_its_verification_raises(tmp_path: Path) -> None:
    async def scenario(stage: Stage) -> None:
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: None)
        stage.send("a", 0)
        await stage.bench.threads.settle()
        stage.coordinator.asked.pop(0).set_exception(RuntimeError("a bug"))
        await stage.bench.threads.settle()
        assert stage.code("a") is ErrorCode.coordinator_not_available

    run(scenario, tmp_path)


def test_vouched_batch_waits_only_behind_held_batches_of_its_producer(tmp_path: Path) -> None:
    async def scenario(stage: Stage) -> None:
        verified = stage.replica.verified
        stage.send("held", 0)
        assert not verified.vouch(header_of(producer_id=1))
        stage.send("behind", 1)
        assert verified.vouch(header_of(producer_id=2))
        stage.send("vouched for", 0, producer_id=2)
        assert stage.offset("vouched for") == 0
        await stage.coordinator.say()
        assert (stage.offset("held"), stage.offset("behind")) == (1, 2)

    run(scenario, tmp_path)


def test_min_insync_replicas_applies_when_a_verified_batch_is_appended(tmp_path: Path) -> None:
    async def scenario(stage: Stage) -> None:
        stage.send("held", 0)
        stage.replica.min_insync_replicas = 2
        await stage.coordinator.say()
        assert stage.code("held") is ErrorCode.not_enough_replicas
        assert stage.replica.log.log_end_offset == 0
        stage.replica.min_insync_replicas = 1
        stage.send("again", 0)
        assert stage.offset("again") == 0

    run(scenario, tmp_path)


def header_of(producer_id: int) -> BatchHeader:
    return read_header(
        memoryview(
            build_batch(
                [NewRecord(b"k", b"v", NOW_MS)],
                producer_id=producer_id,
                producer_epoch=0,
                base_sequence=0,
                transactional=True,
            )
        )
    )


def test_every_producer_gets_a_response_when_an_append_raises(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(stage: Stage) -> None:
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: None)
        stage.send("a", 0)
        stage.send("b", 1)
        with monkeypatch.context() as patched:
            patched.setattr(type(stage.replica.log), "append", _fail)
            await stage.coordinator.say()
        assert stage.code("a") is ErrorCode.kafka_storage_error
        assert stage.code("b") is ErrorCode.not_leader_or_follower  # a batch before it is missing
        stage.send("again", 0)
        assert stage.offset("again") == 0

    run(scenario, tmp_path)


def _fail(*arguments: object) -> AppendInfo:
    raise RuntimeError("a bug")


def test_unverified_batch_is_refused(tmp_path: Path) -> None:
    async def scenario(stage: Stage) -> None:
        batch = memoryview(
            build_batch(
                [NewRecord(None, b"x", NOW_MS)],
                producer_id=1,
                producer_epoch=0,
                base_sequence=0,
                transactional=True,
            )
        )
        with pytest.raises(BrokerError) as refused:
            stage.replica.append_as_leader(batch, read_header(batch), NOW_MS)
        assert refused.value.code is ErrorCode.invalid_txn_state

    run(scenario, tmp_path)


def test_repeated_marker_is_not_written_again(tmp_path: Path) -> None:
    async def scenario(stage: Stage) -> None:
        told: list[Marker] = []
        stage.replica.on_marker = lambda marker, info: told.append(marker)
        stage.send("a", 0)
        await stage.coordinator.say()
        assert stage.end(bump=True).base_offset == 1
        again = stage.end(bump=True)
        assert (again.duplicate, again.last_offset) == (True, 1)
        assert stage.replica.log.log_end_offset == 2
        assert told == [Marker(1, 1, False, 0)]

    run(scenario, tmp_path)


# --- any order of events


class Steps:
    """Producers with one transaction after the other, and a coordinator whose answers and markers come late."""

    def __init__(self, stage: Stage, *, is_epoch_new: bool) -> None:
        self.stage = stage
        self.is_epoch_new = is_epoch_new
        self.numbers = {1: 0, 2: 0}
        """Number of the transaction that each producer is in, as the producer sees it."""
        self.members: set[int] = set()
        """Producers whose transaction has the partition, as the coordinator sees it."""
        self.markers: dict[int, int] = {}
        """Markers that are decided and not written, with the epoch of the transaction."""
        self.answers: list[tuple[asyncio.Future[ErrorCode], ErrorCode]] = []
        self.sent = 0

    def epoch(self, producer_id: int) -> int:
        return self.numbers[producer_id] if self.is_epoch_new else 0

    def begin(self, producer_id: int) -> None:
        """Begin a transaction, unless the previous one has not ended everywhere."""
        if producer_id not in self.markers:
            self.members.add(producer_id)

    def send(self, producer_id: int) -> None:
        if not self.is_epoch_new and producer_id in self.markers:
            return  # with version 1 a client writes only to partitions that it knows to be in its transaction
        entry = self.stage.replica.log.producers.get(producer_id)
        epoch, sequence = self.epoch(producer_id), 0
        if entry is not None and entry.epoch == epoch and entry.batches:
            sequence = entry.batches[-1].last_sequence + 1
        self.sent += 1
        name = f"{producer_id}.{self.numbers[producer_id]}.{self.sent}"
        self.stage.coordinator.verify = self._verify  # type: ignore[method-assign]
        self.stage.send(name, sequence, producer_id, epoch)

    async def _verify(self, partition: TopicPartition, header: BatchHeader) -> ErrorCode:
        """Answer that is right when the question is asked, and comes later."""
        producer_id = header.producer_id
        is_member = producer_id in self.members and header.producer_epoch == self.epoch(producer_id)
        answer: asyncio.Future[ErrorCode] = asyncio.get_running_loop().create_future()
        self.answers.append((answer, ErrorCode.none if is_member else ErrorCode.invalid_txn_state))
        return await answer

    def answer(self, place: int) -> None:
        if self.answers:
            answer, code = self.answers.pop(place % len(self.answers))
            if not answer.done():
                answer.set_result(code)

    def end(self, producer_id: int) -> None:
        if producer_id in self.members:
            self.members.discard(producer_id)
            self.markers[producer_id] = self.epoch(producer_id)
            self.numbers[producer_id] += 1

    def write_marker(self, producer_id: int) -> None:
        epoch = self.markers.pop(producer_id, None)
        if epoch is not None:
            self.stage.end(producer_id, epoch, bump=self.is_epoch_new)


@settings(max_examples=150, deadline=None)
@given(
    steps=st.lists(
        st.tuples(
            st.sampled_from(["begin", "send", "answer", "end", "write_marker"]),
            st.integers(1, 2),
            st.booleans(),
        ),
        max_size=40,
    ),
    is_epoch_new=st.booleans(),
)
def test_no_batch_outlives_its_transaction_in_any_order_of_events(
    steps: list[tuple[str, int, bool]], is_epoch_new: bool
) -> None:
    async def scenario(stage: Stage) -> None:
        events = Steps(stage, is_epoch_new=is_epoch_new)
        for name, number, is_quiet in steps:
            getattr(events, name)(number)
            if is_quiet:
                await stage.bench.threads.settle()
        for producer_id in (1, 2):
            events.write_marker(producer_id)
        await stage.bench.threads.settle()
        while events.answers:
            events.answer(0)
            await stage.bench.threads.settle()
        assert len(stage.results) == events.sent, "everybody is told"
        log = stage.replica.log
        for producer_id in (1, 2):
            assert log.producers.ongoing(producer_id) is None or producer_id in events.members
        content = log.read(Offset(0), 1 << 20, below=log.log_end_offset, at_least_one=True).read()
        ended = {1: 0, 2: 0}
        for header, batch in read_batches(memoryview(content)):
            if header.is_control:
                ended[header.producer_id] += 1
                continue
            for record in iterate(batch, header):
                producer_id, number, _ = map(int, (record.value or b"").split(b"."))
                assert number == ended[producer_id], "a batch in a transaction that is not its own"

    with TemporaryDirectory() as directory:
        run(scenario, Path(directory))
