"""The transaction APIs over the wire, in every version, down to the log: a raw driver of both protocols."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from penstock.cluster.internal_topics import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from penstock.errors import ErrorCode, ProtocolError
from penstock.model import BrokerId, ProducerId
from penstock.net.response import PendingResponse
from penstock.records.building import NewRecord, build_batch
from penstock.server.dispatch import Session
from penstock.server.security import ANONYMOUS, Operation, ResourceType
from penstock.state_log.partitioning import partition_of
from penstock.transactions import coordinator as coordinator_module
from penstock.transactions.transaction import Identity
from penstock.wire.framing import SIZE_PREFIX
from penstock.wire.init_producer_id import InitProducerIdRequest, encode_init_producer_id
from penstock.wire.messages import decode_response_frame
from penstock.wire.produce import ProducePartition, ProduceRequest, ProduceTopic
from penstock.wire.produce_client import decode_produce_response, encode_produce_request
from support.eventually import eventually_async
from support.harness import Harness, content_of, serve

FIND, INIT, ADD, ADD_OFFSETS, END, MARKERS, DESCRIBE, LIST, API_VERSIONS = 10, 22, 24, 25, 26, 27, 65, 66, 18
SETTINGS = {"transaction.state.log.num.partitions": "3", "offsets.topic.num.partitions": "3"}

Scenario = Callable[["Driver"], Awaitable[None]]


class Driver:
    """A transactional client that sends raw requests."""

    def __init__(self, broker: Harness) -> None:
        self.broker = broker
        self.sequences: dict[tuple[Identity, int], int] = {}

    def connect(self) -> None:
        """Continue over a newer connection."""
        numbers = self.broker.context.connection_numbers
        self.broker.session = Session("test:1", "test", ANONYMOUS, numbers.next())

    async def find(self, transactional_id: str = "t", version: int = 4) -> Any:
        if version < 4:
            return await self.broker.ask(FIND, version, {"key": transactional_id, "key_type": 1})
        asked = {"key_type": 1, "coordinator_keys": [transactional_id]}
        return (await self.broker.ask(FIND, version, asked)).coordinators[0]

    async def init(
        self,
        transactional_id: str | None = "t",
        version: int = 5,
        timeout_ms: int = 60_000,
        asking: Identity | tuple[int, int] = (-1, -1),
        is_held: bool = False,
    ) -> Any:
        producer_id, epoch = asking
        request = InitProducerIdRequest(transactional_id, timeout_ms, producer_id, epoch, is_held=is_held)
        frame = encode_init_producer_id(version, 7, "test", request)
        answer = await self.send(frame)
        return decode_response_frame(INIT, version, answer)

    async def start(self, transactional_id: str = "t", **options: Any) -> Identity:
        assert (await self.find(transactional_id)).error_code == 0
        answer = await self.init(transactional_id, **options)
        assert answer.error_code == 0
        return Identity(answer.producer_id, answer.producer_epoch)

    async def add(
        self, producer: Identity, *indexes: int, version: int = 3, topic: str = "orders"
    ) -> set[int]:
        fields = {
            "v3_and_below_transactional_id": "t",
            "v3_and_below_producer_id": producer.producer_id,
            "v3_and_below_producer_epoch": producer.epoch,
            "v3_and_below_topics": [{"name": topic, "partitions": list(indexes)}],
        }
        answer = await self.broker.ask(ADD, version, fields)
        return {
            result.partition_error_code
            for topic in answer.results_by_topic_v3_and_below
            for result in topic.results_by_partition
        }

    async def end(self, producer: Identity, commit: bool = True, version: int = 5, id: str = "t") -> Any:
        fields = {
            "transactional_id": id,
            "producer_id": producer.producer_id,
            "producer_epoch": producer.epoch,
            "committed": commit,
        }
        return await self.broker.ask(END, version, fields)

    async def produce(
        self, producer: Identity, index: int = 0, version: int = 12, transactional_id: str = "t"
    ) -> int:
        sequence = self.sequences.get((producer, index), 0)
        batch = build_batch(
            [NewRecord(b"k", b"v", self.broker.context.clock.now_ms())],
            producer_id=producer.producer_id,
            producer_epoch=producer.epoch,
            base_sequence=sequence,
            transactional=True,
        )
        partition = ProducePartition(index, memoryview(batch))
        request = ProduceRequest(transactional_id, -1, 10_000, [ProduceTopic("orders", None, [partition])])
        answer = await self.send(encode_produce_request(7, version, "test", request))
        code = decode_produce_response(answer, version).topics[0].partitions[0].error_code
        if code == 0:
            self.sequences[producer, index] = sequence + 1
        return code

    async def send(self, frame: bytes) -> memoryview:
        answer = self.broker._broker._dispatcher.dispatch(
            self.broker.session, memoryview(bytearray(frame))[SIZE_PREFIX:]
        )
        if isinstance(answer, PendingResponse):
            done = asyncio.Event()
            answer.when_done(done.set)
            await done.wait()
            assert answer.error is None, answer.error
            answer = answer.parts
        assert answer is not None
        return memoryview(content_of(answer))[SIZE_PREFIX:]

    def log(self, index: int = 0) -> Any:
        return self.broker.context.replicas.get("orders", index).log

    async def settled(self) -> None:
        """Wait until all transactions have ended in all partitions."""
        async with asyncio.timeout(10):
            while any(
                transaction.is_ending
                for shard in self.broker.context.transactions.shards
                for transaction in shard.transactions.values()
            ):
                await asyncio.sleep(0.001)

    def outcome(self, index: int = 0) -> tuple[int, int]:
        """Last stable offset and number of aborted transactions."""
        log = self.log(index)
        return log.last_stable_offset, len(log.aborted_transactions(0, log.log_end_offset))


@pytest.fixture
def run(tmp_path: Path) -> Callable[..., None]:
    def run(scenario: Scenario, **settings: str) -> None:
        async def body(broker: Harness) -> None:
            await broker.create("orders", 2)
            driver = Driver(broker)
            driver.connect()
            await scenario(driver)

        given = {name.replace("_", "."): value for name, value in settings.items()}
        serve(tmp_path, body, SETTINGS | given)

    return run


def test_coordinator_is_found_in_every_version(run: Any) -> None:
    async def scenario(driver: Driver) -> None:
        for version in range(1, 7):
            found = await driver.find(version=version)
            assert (found.error_code, found.node_id) == (0, driver.broker.context.node_id)
        topic = driver.broker.context.image.topics[TRANSACTIONS_TOPIC]
        assert (len(topic.partitions), topic.configs["cleanup.policy"]) == (3, "compact")

    run(scenario)


def test_version_1_transactions_work_in_every_request_version(run: Any) -> None:
    async def scenario(driver: Driver) -> None:
        for init, add, end, produce in [(0, 0, 0, 3), (1, 1, 1, 7), (2, 2, 2, 8), (4, 3, 4, 11)]:
            producer = await driver.start(version=init)
            for commit in (True, False):
                assert await driver.add(producer, 0, 1, version=add) == {0}
                assert await driver.produce(producer, 0, produce) == 0
                assert (await driver.end(producer, commit, end)).error_code == 0
                await driver.settled()
        # One record and one marker for each transaction, and only markers in the partition without records.
        assert driver.outcome(0) == (16, 4)
        assert driver.outcome(1) == (8, 0)

    run(scenario)


def test_version_2_needs_no_add_partitions_and_raises_the_epoch_each_time(run: Any) -> None:
    async def scenario(driver: Driver) -> None:
        producer = await driver.start()
        for round_number, commit in enumerate([True, False, True], 1):
            assert await driver.produce(producer, 0) == 0
            assert await driver.produce(producer, 1) == 0
            ended = await driver.end(producer, commit)
            assert ended.error_code == 0
            assert (ended.producer_id, ended.producer_epoch) == (producer.producer_id, round_number)
            repeated = await driver.end(producer, commit)
            assert (repeated.error_code, repeated.producer_epoch) == (0, round_number)
            producer = Identity(ended.producer_id, ended.producer_epoch)
        await driver.settled()
        assert driver.outcome(0) == driver.outcome(1) == (6, 1)

    run(scenario)


def test_late_end_of_version_2_is_fenced_and_changes_nothing(run: Any) -> None:
    async def scenario(driver: Driver) -> None:
        first = await driver.start()
        await driver.produce(first)
        ended = await driver.end(first)
        second = Identity(ended.producer_id, ended.producer_epoch)
        assert await driver.produce(second) == 0
        for commit in (True, False):
            assert (await driver.end(first, commit)).error_code == ErrorCode.producer_fenced
        assert await driver.produce(first) == ErrorCode.invalid_producer_epoch
        assert driver.outcome() == (2, 0)

    run(scenario)


@pytest.mark.parametrize("commit", [True, False])
def test_late_end_of_version_1_on_an_older_connection_is_refused(run: Any, commit: bool) -> None:
    async def scenario(driver: Driver) -> None:
        producer = await driver.start(version=4)
        await driver.add(producer, 0)
        await driver.produce(producer, version=9)
        held_up = driver.broker.session
        driver.connect()
        assert (await driver.end(producer, commit, 3)).error_code == 0
        await driver.settled()
        await driver.add(producer, 0)
        await driver.produce(producer, version=9)
        driver.broker.session = held_up
        for late in (
            lambda: driver.end(producer, commit, 3),
            lambda: driver.end(producer, not commit, 0),
            lambda: driver.add(producer, 1),
        ):
            with pytest.raises((AssertionError, ProtocolError), match="late transaction request"):
                await late()
        assert driver.log().producers.ongoing(producer.producer_id) == 2
        assert driver.broker.context.transactions.counts.late_requests == 3

    run(scenario)


def test_init_producer_id_on_a_newer_connection_than_the_transaction_is_accepted(run: Any) -> None:
    """Clients like aiokafka open a connection for coordination first."""

    async def scenario(driver: Driver) -> None:
        for_transactions = driver.broker.session
        driver.connect()
        producer = await driver.start(version=4)
        driver.broker.session = for_transactions
        await driver.add(producer, 0)
        await driver.produce(producer, version=9)
        assert (await driver.end(producer, True, 3)).error_code == 0
        assert driver.broker.context.transactions.counts.late_requests == 0

    run(scenario)


def test_batch_outside_of_a_transaction_is_not_stored(run: Any) -> None:
    async def scenario(driver: Driver) -> None:
        producer = await driver.start()
        assert await driver.produce(producer, version=9) == ErrorCode.invalid_txn_state
        assert await driver.produce(producer, version=11) == ErrorCode.transaction_abortable
        stranger = Identity(ProducerId(producer.producer_id + 1), producer.epoch)
        assert await driver.produce(stranger) == ErrorCode.invalid_producer_id_mapping
        assert await driver.produce(producer, transactional_id="another") != 0
        assert driver.log().log_end_offset == 0

    run(scenario)


@pytest.mark.parametrize(("version", "code"), [(0, 47), (1, 47), (2, 90), (4, 90), (5, 90)])
def test_zombie_gets_an_error_code_of_its_version(run: Any, version: int, code: int) -> None:
    async def scenario(driver: Driver) -> None:
        zombie = await driver.start()
        await driver.start()
        assert (await driver.end(zombie, version=version)).error_code == code
        assert await driver.add(zombie, 0, version=min(version, 3)) == {code}
        offsets = {"transactional_id": "t", "group_id": "g"} | zombie_fields(zombie)
        answer = await driver.broker.ask(ADD_OFFSETS, min(version, 4), offsets)
        assert answer.error_code == code
        refused = await driver.init(asking=zombie, version=3 if version < 2 else 5)
        assert refused.error_code == (47 if version < 2 else 90)

    run(scenario)


def zombie_fields(producer: Identity) -> dict[str, int]:
    return {"producer_id": producer.producer_id, "producer_epoch": producer.epoch}


def test_invalid_transaction_timeouts_and_ids_are_refused(run: Any) -> None:
    async def scenario(driver: Driver) -> None:
        await driver.find()
        for timeout_ms in (0, -1, 60_001, 2**31 - 1):
            assert (
                await driver.init(timeout_ms=timeout_ms)
            ).error_code == ErrorCode.invalid_transaction_timeout
        assert (await driver.init("")).error_code == ErrorCode.invalid_request
        assert (await driver.init("x" * 9_000)).error_code == ErrorCode.invalid_request
        assert (await driver.init(asking=(5, -1))).error_code == ErrorCode.invalid_request

    run(scenario, transaction_max_timeout_ms="60000")


def test_add_partitions_with_one_invalid_partition_adds_none(run: Any) -> None:
    async def scenario(driver: Driver) -> None:
        producer = await driver.start()
        not_attempted, unknown = ErrorCode.operation_not_attempted, ErrorCode.unknown_topic_or_partition
        assert await driver.add(producer, 0, 77) == {not_attempted, unknown}
        internal = await driver.add(producer, 0, topic=TRANSACTIONS_TOPIC)
        assert internal == {ErrorCode.topic_authorization_failed}
        driver.broker.deny((Operation.WRITE, ResourceType.TOPIC, "orders"))
        assert await driver.add(producer, 0) == {ErrorCode.topic_authorization_failed}
        assert not driver.broker.context.transactions.shard_of("t").transactions["t"].partitions

    run(scenario)


def test_add_offsets_adds_the_offsets_partition_of_the_group(run: Any) -> None:
    async def scenario(driver: Driver) -> None:
        producer = await driver.start()
        for version in range(5):
            fields = {"transactional_id": "t", "group_id": "g", **zombie_fields(producer)}
            assert (await driver.broker.ask(ADD_OFFSETS, version, fields)).error_code == 0
        (partition,) = driver.broker.context.transactions.shard_of("t").transactions["t"].partitions
        assert (partition.topic, partition.partition) == (OFFSETS_TOPIC, partition_of("g", 3))
        assert (await driver.end(producer, version=3)).error_code == 0
        await driver.settled()

    run(scenario)


def test_unauthorized_client_is_refused_by_every_transaction_api(run: Any) -> None:
    async def scenario(driver: Driver) -> None:
        producer = await driver.start()
        denied = ErrorCode.transactional_id_authorization_failed
        driver.broker.deny((Operation.WRITE, ResourceType.TRANSACTIONAL_ID, "t"))
        assert (await driver.init()).error_code == denied
        assert await driver.add(producer, 0) == {denied}
        assert (await driver.end(producer)).error_code == denied
        assert await driver.produce(producer) == denied
        driver.broker.deny((Operation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, "t"))
        assert (await driver.find()).error_code == denied
        (state,) = (await driver.broker.ask(DESCRIBE, 0, {"transactional_ids": ["t"]})).transaction_states
        assert state.error_code == denied
        assert not (await list_transactions(driver)).transaction_states

    run(scenario)


async def list_transactions(driver: Driver, version: int = 2, **filters: Any) -> Any:
    fields: dict[str, Any] = {"state_filters": [], "producer_id_filters": []}
    return await driver.broker.ask(LIST, version, fields | filters)


def test_transactions_are_listed_and_described(run: Any) -> None:
    async def scenario(driver: Driver) -> None:
        idle = await driver.start("idle")
        producer = await driver.start("t", timeout_ms=5_000)
        await driver.add(producer, 0, 1)
        await driver.start("held", is_held=True)
        listed = (await list_transactions(driver)).transaction_states
        assert {each.transactional_id: each.transaction_state for each in listed} == {
            "idle": "Empty",
            "t": "Ongoing",
            "held": "Empty",
        }
        cases: list[tuple[dict[str, Any], set[str]]] = [
            ({"state_filters": ["Ongoing"]}, {"t"}),
            ({"state_filters": ["Nonsense"]}, set()),
            ({"producer_id_filters": [idle.producer_id]}, {"idle"}),
            ({"duration_filter": 3_600_000}, set()),
            ({"transactional_id_pattern": "i.*|t"}, {"idle", "t"}),
        ]
        for filters, found in cases:
            answer = await list_transactions(driver, **filters)
            assert {each.transactional_id for each in answer.transaction_states} == found, filters
        assert (await list_transactions(driver, state_filters=["Nonsense"])).unknown_state_filters == (
            "Nonsense",
        )
        broken = await list_transactions(driver, transactional_id_pattern="(")
        assert broken.error_code == ErrorCode.invalid_regular_expression
        asked = {"transactional_ids": ["t", "held", "nobody"]}
        states = (await driver.broker.ask(DESCRIBE, 0, asked)).transaction_states
        described, held, nobody = states
        assert (described.transaction_state, described.producer_id) == ("Ongoing", producer.producer_id)
        assert described.transaction_timeout.total_seconds() == 5
        assert [(topic.topic, topic.partitions) for topic in described.topics] == [("orders", (0, 1))]
        assert held.transaction_timeout.total_seconds() == -0.001
        assert nobody.error_code == ErrorCode.transactional_id_not_found

    run(scenario)


def test_long_list_transactions_request_yields_to_other_requests(
    run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(coordinator_module, "TRANSACTIONS_PER_TURN", 1)

    async def scenario(driver: Driver) -> None:
        for number in range(9):
            await driver.start(f"t{number}")
        listing = asyncio.ensure_future(list_transactions(driver))
        turns = 0
        while not listing.done():
            await asyncio.sleep(0)
            turns += 1
        listed = listing.result().transaction_states
        assert {each.transactional_id for each in listed} == {f"t{number}" for number in range(9)}
        assert turns >= 9

    run(scenario)


def test_batched_add_partitions_and_write_markers_are_refused_to_clients(run: Any) -> None:
    async def scenario(driver: Driver) -> None:
        producer = await driver.start()
        transaction = {
            "transactional_id": "t",
            **zombie_fields(producer),
            "verify_only": False,
            "topics": [{"name": "orders", "partitions": [0]}],
        }
        for version in (4, 5):
            answer = await driver.broker.ask(ADD, version, {"transactions": [transaction]})
            assert answer.error_code == ErrorCode.cluster_authorization_failed
        marker = {
            **zombie_fields(producer),
            "transaction_result": True,
            "topics": [{"name": "orders", "partition_indexes": [0]}],
            "coordinator_epoch": 1,
        }
        answer = await driver.broker.ask(MARKERS, 1, {"markers": [marker]})
        refused = answer.markers[0].topics[0].partitions[0].error_code
        assert refused == ErrorCode.cluster_authorization_failed
        assert driver.log().log_end_offset == 0

    run(scenario)


def test_late_marker_on_an_abandoned_coordinator_connection_is_refused(run: Any) -> None:
    async def scenario(driver: Driver) -> None:
        producer = await driver.start(version=4)
        marker = {
            **zombie_fields(producer),
            "transaction_result": True,
            "topics": [{"name": "orders", "partition_indexes": [0]}],
            "coordinator_epoch": 1,
            "transaction_version": 1,
        }
        held_up = driver.broker.session
        held_up.broker_id = BrokerId(9)
        driver.connect()
        driver.broker.session.broker_id = BrokerId(9)
        assert (await driver.broker.ask(MARKERS, 2, {"markers": [marker]})).markers
        driver.broker.session = held_up
        with pytest.raises(AssertionError, match="uses a newer connection"):
            await driver.broker.ask(MARKERS, 2, {"markers": [marker]})
        assert driver.log().log_end_offset == 1

    run(scenario)


def test_broker_adds_and_verifies_partitions_of_many_transactions_at_once(run: Any) -> None:
    async def scenario(driver: Driver) -> None:
        producer = await driver.start()
        other = await driver.start("u")
        driver.broker.session.broker_id = BrokerId(9)

        def asked(transactional_id: str, who: Identity, verify_only: bool, *indexes: int) -> dict[str, Any]:
            topics = [{"name": "orders", "partitions": list(indexes)}]
            fields = {"transactional_id": transactional_id, "verify_only": verify_only, "topics": topics}
            return fields | zombie_fields(who)

        answer = await driver.broker.ask(
            ADD,
            5,
            {
                "transactions": [
                    asked("t", producer, False, 0, 1),
                    asked("u", other, True, 0),
                    asked("nobody", other, True, 0),
                ]
            },
        )
        assert answer.error_code == 0
        codes = [
            (
                result.transactional_id,
                {each.partition_error_code for each in result.topic_results[0].results_by_partition},
            )
            for result in answer.results_by_transaction
        ]
        assert codes == [
            ("t", {ErrorCode.none}),
            ("u", {ErrorCode.transaction_abortable}),
            ("nobody", {ErrorCode.invalid_producer_id_mapping}),
        ]

    run(scenario)


def test_held_transaction_is_ended_by_another_connection(run: Any) -> None:
    async def scenario(driver: Driver) -> None:
        producer = await driver.start(is_held=True, timeout_ms=1)
        assert await driver.produce(producer) == 0
        await asyncio.sleep(0.05)
        assert driver.outcome() == (0, 0)
        driver.connect()
        assert (await driver.end(producer)).error_code == 0
        await driver.settled()
        assert driver.outcome() == (2, 0)

    run(scenario)


@pytest.mark.slow
def test_open_transaction_of_a_silent_producer_is_aborted(run: Any) -> None:
    async def scenario(driver: Driver) -> None:
        producer = await driver.start(timeout_ms=1_000)
        assert await driver.produce(producer) == 0
        assert driver.outcome() == (0, 0)
        await eventually_async(lambda: driver.outcome() == (2, 1))
        assert (await driver.end(producer)).error_code == ErrorCode.producer_fenced

    run(scenario)


def test_metrics_count_open_and_ended_transactions(run: Any) -> None:
    async def scenario(driver: Driver) -> None:
        producer = await driver.start()
        await driver.produce(producer)
        shown = scrape(driver)
        assert (shown["transactional_ids"], shown["open_transactions"]) == (1, 1)
        assert shown["oldest_open_transaction_seconds"] >= 0
        ended = await driver.end(producer)
        await driver.end(Identity(ended.producer_id, ended.producer_epoch), commit=False)
        await driver.settled()
        shown = scrape(driver)
        assert (shown["open_transactions"], shown["ending_transactions"]) == (0, 0)
        assert (shown["transaction_commits"], shown["transaction_aborts"]) == (1, 0)

    run(scenario)


def scrape(driver: Driver) -> dict[str, float]:
    readings = driver.broker.context.metrics.readings
    return {reading.name.removeprefix("penstock_"): reading.read() for reading in readings}


def test_api_versions_announces_transaction_version_2(run: Any) -> None:
    async def scenario(driver: Driver) -> None:
        asked = {"client_software_name": "test", "client_software_version": "1"}
        for version in (3, 4):
            answer = await driver.broker.ask(API_VERSIONS, version, asked)
            finalized = {feature.name: feature.max_version_level for feature in answer.finalized_features}
            assert finalized["transaction.version"] == 2
            assert answer.finalized_features_epoch >= 0
            # Clients that use version 3 do not know that a level can be 0 (KAFKA-17011).
            assert ("transaction.version" in {each.name for each in answer.supported_features}) == (
                version > 3
            )

    run(scenario)


def test_add_offsets_checks_the_transactional_id_before_the_group(run: Any) -> None:
    async def scenario(driver: Driver) -> None:
        producer = await driver.start()
        driver.broker.deny_all()
        fields = {"transactional_id": "t", "group_id": "g", **zombie_fields(producer)}
        response = await driver.broker.ask(ADD_OFFSETS, 4, fields)
        assert response.error_code == ErrorCode.transactional_id_authorization_failed

    run(scenario)
