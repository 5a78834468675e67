"""Reassignments by the CLI: how they start, wait and are refused; tests/docs runs them on real brokers."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest

from penstock.cli.cluster import reassignment, reassignment_rounds
from penstock.cli.cluster.reassignment import PlannedReassignment, execute, reassignments_of
from penstock.cli.cluster.reassignment_rounds import DecommissionedBroker, reassign
from penstock.cli.cluster.replicas import ClusterReplicas
from penstock.cli.cluster.view import BrokerView, ClusterSnapshot
from penstock.cli.failures import Failure
from penstock.cli.main import run
from penstock.cluster.balance import plan_drain
from penstock.cluster.replica_layout import Assignment, Location
from penstock.config import Address
from penstock.errors import BrokerError, ErrorCode
from penstock.internal_client.client import InternalClient
from penstock.internal_client.routes import Routes
from penstock.model import BrokerId, TopicPartition
from penstock.net.network import TcpNetwork

ALTER_PARTITION_REASSIGNMENTS, ELECT_LEADERS = 45, 43
FIRST, SECOND = TopicPartition("orders", 0), TopicPartition("orders", 1)
Replicas = tuple[BrokerId, ...]


def ids(*numbers: int) -> Replicas:
    return tuple(map(BrokerId, numbers))


def replicas(
    assignment: dict[TopicPartition, Replicas],
    reassigning: frozenset[TopicPartition] = frozenset(),
    sizes: dict[TopicPartition, dict[BrokerId, int]] | None = None,
    leaders: dict[TopicPartition, int] | None = None,
    present: dict[TopicPartition, Replicas] | None = None,
) -> ClusterReplicas:
    brokers = {number: BrokerView(number, Address(f"host-{number}", 9092), None) for number in (1, 2, 3)}
    leading = {name: int(replicas[0]) for name, replicas in assignment.items()} | (leaders or {})
    view = ClusterSnapshot("c", 1, brokers, ())
    return ClusterReplicas(view, assignment | (present or {}), assignment, reassigning, sizes or {}, leading)


class Responding(Routes):
    """Routes to brokers that accept everything but the first partition; `requests` has what was sent."""

    def __init__(self, code: ErrorCode = ErrorCode.none) -> None:
        super().__init__(TcpNetwork(), [], "test")
        self.requests: list[tuple[int, Any]] = []
        self._code = code

    async def at_any(self, request: Any) -> Any:
        return await request(self)

    async def request(self, api_key: int, version: int, fields: Any) -> Any:
        self.requests.append((api_key, fields))
        first = SimpleNamespace(partition_index=0, error_code=self._code, error_message=None)
        responses = [SimpleNamespace(name="orders", partitions=[first])]
        return SimpleNamespace(error_code=ErrorCode.none, error_message=None, responses=responses)


@pytest.fixture
def follow(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Show these cluster states one after the other, and the last one from then on."""

    def show(*states: ClusterReplicas) -> None:
        shown = list(states)

        async def read_replicas(client: InternalClient) -> ClusterReplicas:
            return shown.pop(0) if len(shown) > 1 else shown[0]

        monkeypatch.setattr(reassignment, "read_replicas", read_replicas)
        monkeypatch.setattr(reassignment_rounds, "read_replicas", read_replicas)
        monkeypatch.setattr(reassignment, "POLL_SECONDS", 0)

    return show


def test_changed_replicas_are_reassigned_and_running_moves_awaited() -> None:
    now = replicas(
        {FIRST: ids(1), SECOND: ids(1)},
        reassigning=frozenset({SECOND}),
        sizes={FIRST: {BrokerId(1): 100}, SECOND: {BrokerId(1): 30, BrokerId(2): 70}},
        present={SECOND: ids(2)},
    )
    moves = reassignments_of(now, {FIRST: ids(2, 1), SECOND: ids(1)})
    assert moves == [
        PlannedReassignment(FIRST, ids(1), ids(2, 1), 100),
        PlannedReassignment(SECOND, ids(2), ids(1), 40),
    ]
    assert [move.added for move in moves] == [ids(2), ids(1)]


async def test_moves_are_begun_waited_for_and_the_preferred_replicas_lead(
    follow: Callable[..., None],
) -> None:
    before = replicas({FIRST: ids(1), SECOND: ids(2)}, reassigning=frozenset({SECOND}))
    after = {FIRST: ids(3), SECOND: ids(2)}
    follow(replicas(after, reassigning=frozenset({FIRST})), replicas(after))
    routes = Responding()
    await execute(InternalClient(routes), before, reassignments_of(before, after))
    (begun, request), (elected, election) = routes.requests
    assert (begun, elected) == (ALTER_PARTITION_REASSIGNMENTS, ELECT_LEADERS)
    assert request["topics"] == [
        {"name": "orders", "partitions": [{"partition_index": 0, "replicas": ids(3)}]}
    ]
    assert election["topic_partitions"] == [{"topic": "orders", "partitions": [0, 1]}]


async def test_cancelled_reassignment_ends_the_wait(follow: Callable[..., None]) -> None:
    before = replicas({FIRST: ids(1)})
    follow(before)
    with pytest.raises(Failure, match="orders-0 to brokers 2 was cancelled or replaced by another client"):
        await execute(InternalClient(Responding()), before, reassignments_of(before, {FIRST: ids(2)}))


async def test_a_topic_that_is_deleted_meanwhile_is_not_waited_for(follow: Callable[..., None]) -> None:
    before = replicas({FIRST: ids(1)})
    follow(replicas({}))
    routes = Responding(ErrorCode.unknown_topic_or_partition)
    await execute(InternalClient(routes), before, reassignments_of(before, {FIRST: ids(2)}))
    assert routes.requests


async def test_refused_reassignment_is_reported(follow: Callable[..., None]) -> None:
    before = replicas({FIRST: ids(1)})
    routes = Responding(ErrorCode.invalid_replica_assignment)
    with pytest.raises(BrokerError, match=r"orders-0: invalid_replica_assignment"):
        await execute(InternalClient(routes), before, reassignments_of(before, {FIRST: ids(2)}))


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["drain", "3"], "orders-0 would have 3 replicas on 2 brokers"),
        (["drain", "9"], "there is no broker 9"),
        (["replace", "3", "--with", "9"], "there is no broker 9"),
        (["balance", "--replication-factor", "4"], "orders-0 would have 4 replicas on 3 brokers"),
    ],
)
def test_impossible_plan_is_refused_before_anything_moves(
    arguments: list[str],
    complaint: str,
    follow: Callable[..., None],
    capsys: pytest.CaptureFixture[str],
) -> None:
    follow(replicas({FIRST: ids(1, 2, 3)}))
    assert run(["cluster", *arguments, "--bootstrap", "127.0.0.1:1"]) == 1
    assert complaint in capsys.readouterr().err


def test_partition_without_other_replicas_is_reported(
    follow: Callable[..., None], capsys: pytest.CaptureFixture[str]
) -> None:
    follow(replicas({FIRST: ids(7)}, leaders={FIRST: -1}))
    assert run(["cluster", "replace", "7", "--with", "2", "--bootstrap", "127.0.0.1:1"]) == 1
    assert (
        "broker 7 has the only in-sync replica of 1 partitions, the first is orders-0"
        in capsys.readouterr().err
    )


def test_a_dry_run_shows_what_would_move_and_how_much(
    follow: Callable[..., None], capsys: pytest.CaptureFixture[str]
) -> None:
    names = {TopicPartition("orders", number): ids(1) for number in range(3)}
    follow(replicas(names, sizes={name: {BrokerId(1): 2048} for name in names}))
    assert run(["cluster", "balance", "--dry-run", "--bootstrap", "127.0.0.1:1"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["partition", "from", "to", "bytes"]
    assert sorted(line.split()[1:] for line in lines[1:-1]) == [
        ["1", "2", "2.0", "KiB"],
        ["1", "3", "2.0", "KiB"],
    ]
    assert lines[-1] == "2 replicas to copy (4.0 KiB), 2 partitions to reassign"


def test_brokers_with_the_same_host_share_a_machine() -> None:
    assert replicas({}).locations == {BrokerId(number): Location(f"host-{number}") for number in (1, 2, 3)}


@pytest.mark.parametrize("arguments", [["balance"], ["drain", "1"], ["replace", "1", "--with", "2"]])
def test_a_cluster_has_to_be_named(
    arguments: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("PENSTOCK_BOOTSTRAP", raising=False)
    assert run(["cluster", *arguments]) == 2
    assert "no cluster is named" in capsys.readouterr().err


@pytest.mark.parametrize("throttle", [None, 1_000])
def test_replicas_created_during_a_drain_are_moved_too(
    throttle: int | None,
    follow: Callable[..., None],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    begun: list[list[TopicPartition]] = []
    throttles: list[int | None] = []
    monkeypatch.setattr(reassignment_rounds, "admin_client", lambda _: nullcontext())

    async def carried_out(_: object, __: object, moves: list[PlannedReassignment]) -> None:
        begun.append([move.name for move in moves])

    async def throttled(_: object, bytes_per_second: int | None) -> None:
        throttles.append(bytes_per_second)

    def placed_meanwhile() -> None:
        follow(replicas({FIRST: ids(2), SECOND: ids(2, 1)}), replicas({FIRST: ids(2), SECOND: ids(2, 3)}))

    monkeypatch.setattr(reassignment_rounds, "execute", carried_out)
    monkeypatch.setattr(reassignment_rounds, "set_throttle", throttled)
    follow(replicas({FIRST: ids(1)}), replicas({FIRST: ids(2)}))

    def plan(now: ClusterReplicas, current: Assignment) -> Assignment:
        return plan_drain(current, now.locations, BrokerId(1))

    removal = DecommissionedBroker(1, placed_meanwhile)
    reassign("127.0.0.1:1", plan, throttle=throttle, dry_run=False, removal=removal)
    assert begun == [[FIRST], [SECOND]]
    assert throttles == [throttle, throttle, None]
    assert capsys.readouterr().out.splitlines()[-1] == "done"


@pytest.mark.parametrize("throttle", [[], ["--throttle", "1000"]])
def test_interrupted_wait_names_the_running_reassignments(
    throttle: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    async def interrupted(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(reassignment_rounds, "_reassign", interrupted)
    run(["cluster", "balance", "--bootstrap", "127.0.0.1:1", *throttle])
    told = capsys.readouterr().err
    assert "reassignments continue in the cluster" in told
    assert ("the throttle of 1000 bytes per second stays set" in told) == bool(throttle)


async def test_no_request_names_more_partitions_than_brokers_answer(follow: Callable[..., None]) -> None:
    names = [TopicPartition("orders", number) for number in range(1_201)]
    before, after = dict.fromkeys(names, ids(1)), dict.fromkeys(names, ids(2))
    follow(replicas(after))
    routes = Responding()
    await execute(InternalClient(routes), replicas(before), reassignments_of(replicas(before), after))
    elections = [fields for key, fields in routes.requests if key == ELECT_LEADERS]
    elected = [
        number for each in elections for topic in each["topic_partitions"] for number in topic["partitions"]
    ]
    assert elected == list(range(1_201))
    assert len(elections) == 3
