"""The coordinator inside a whole broker: its topic, its shards, restarts, and disks that refuse writes."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from shard_bench import join_request

from penstock.clock import SystemClock
from penstock.cluster.image import ImageChange
from penstock.cluster.internal_topics import OFFSETS_TOPIC
from penstock.cluster.topics import NewPartitions
from penstock.config import BrokerConfig
from penstock.errors import BrokerError, ErrorCode, StorageError
from penstock.groups import coordinator
from penstock.groups.consumer_protocol import Subscription, encode_subscription
from penstock.groups.coordinator import GroupCoordinator
from penstock.groups.group import ConsumerHeartbeat, JoinResult, LeavingMember, SyncRequest
from penstock.groups.loading import Loading
from penstock.groups.offsets import CommittedOffset, OffsetCommit
from penstock.groups.records import Assignment, OffsetKey
from penstock.groups.shard import GroupShard
from penstock.groups.shard_state import ShardState
from penstock.model import BrokerId, TopicPartition
from penstock.observability.exposition import render
from penstock.observability.logs import Logger
from penstock.observability.metrics import GroupLag
from penstock.records.building import NewRecord, build_batch
from penstock.server.broker import Broker
from penstock.server.environment import real_environment
from penstock.state_log import shards
from penstock.state_log.partitioning import partition_of
from support.eventually import eventually_async
from support.group_commits import committing
from support.harness import Harness, new_topic
from support.metrics_snapshot import take_snapshot

P0 = TopicPartition("orders", 0)


@asynccontextmanager
async def serving(directory: Path, **settings: str) -> AsyncIterator[Harness]:
    """A broker on the directory, from start to clean stop, with the topic `orders`."""
    given = {name.replace("_", "."): value for name, value in settings.items()}
    config = BrokerConfig(
        {
            "port": "0",
            "http.port": "-1",
            "log.dir": str(directory),
            "offsets.topic.num.partitions": "5",
            "group.initial.rebalance.delay.ms": "0",
            **given,
        }
    )
    lines: list[str] = []
    log = Logger(SystemClock(), lines.append, lambda now, level, text, fields: f"{level} {text} {fields}")
    broker = Broker(config, real_environment(config), log)
    await broker.start()
    try:
        harness = Harness(broker)
        if "orders" not in harness.context.image.topics:
            await harness.create("orders")
        yield harness
    finally:
        await broker.stop()
    assert not [line for line in lines if "Traceback" in line and "not now" not in line]


async def shard_of(harness: Harness, group: str = "g") -> GroupShard:
    groups = harness.context.groups
    await groups.find(group)
    await eventually_async(lambda: not groups.is_loading)
    return groups.shard_of(group)


def code_of(groups: GroupCoordinator, group: str = "g") -> ErrorCode:
    with pytest.raises(BrokerError) as caught:
        groups.shard_of(group)
    return caught.value.code


def reload(groups: GroupCoordinator, index: int) -> None:
    groups._shards.unload(index)
    groups._shards.follow_leadership()


def commit_of(
    harness: Harness, offset: int, member_id: str = "", generation: int = -1, group: str = "g"
) -> OffsetCommit:
    topic = harness.context.image.topic("orders")
    assert topic is not None
    value = CommittedOffset(offset, -1, "", topic.id, 1)
    return OffsetCommit(group, member_id, None, generation, {OffsetKey(group, "orders", 0): value})


async def commit(harness: Harness, offset: int, group: str = "g") -> None:
    await committing(await shard_of(harness, group), commit_of(harness, offset, group=group))


async def committed(harness: Harness, group: str = "g") -> int | None:
    found = (await shard_of(harness, group)).fetch_offsets(group, None, -1, [P0])
    return found[P0].offset if P0 in found else None


async def join_group(harness: Harness, group: str = "g") -> JoinResult:
    shard = await shard_of(harness, group)
    joined = await shard.join(group, join_request())
    request = SyncRequest(joined.member_id, None, joined.generation, None, None, {joined.member_id: b"mine"})
    await shard.sync(group, request)
    return joined


async def test_offsets_topic_is_created_once_for_the_first_group(tmp_path: Path) -> None:
    async with serving(tmp_path, offsets_topic_segment_bytes="2000000") as harness:
        groups = harness.context.groups
        assert OFFSETS_TOPIC not in harness.context.image.topics
        assert code_of(groups) is ErrorCode.not_coordinator
        found = await asyncio.gather(*(groups.find(f"g{number}") for number in range(20)))
        assert set(found) == {harness.context.node_id}
        topic = harness.context.image.topics[OFFSETS_TOPIC]
        assert len(topic.partitions) == 5
        assert topic.configs["cleanup.policy"] == "compact"
        assert topic.configs["segment.bytes"] == "2000000"
        assert groups.shard_of("g").partition == partition_of("g", 5)


async def test_groups_and_offsets_survive_a_restart(tmp_path: Path) -> None:
    async with serving(tmp_path) as harness:
        joined = await join_group(harness)
        await commit(harness, 5, "simple")
        mine = commit_of(harness, 7, joined.member_id, joined.generation)
        await committing(await shard_of(harness), mine)
        before = (await shard_of(harness)).describe("g")
    async with serving(tmp_path) as harness:
        shard = await shard_of(harness)
        assert shard.describe("g") == before
        assert shard.heartbeat("g", joined.member_id, None, joined.generation) is ErrorCode.none
        assert await committed(harness) == 7
        assert await committed(harness, "simple") == 5


async def test_member_of_the_new_protocol_does_not_notice_a_restart(tmp_path: Path) -> None:
    def heartbeat(epoch: int) -> ConsumerHeartbeat:
        topics = frozenset({"orders"}) if epoch == 0 else None
        owned: Assignment | None = {} if epoch == 0 else None
        return ConsumerHeartbeat("m1", epoch, None, None, "c", "/h", 10_000, topics, None, None, owned)

    async with serving(tmp_path) as harness:
        joined = await (await shard_of(harness)).consumer_heartbeat("g", heartbeat(0))
        assert joined.assignment
        before = (await shard_of(harness)).describe("g")
    async with serving(tmp_path) as harness:
        shard = await shard_of(harness)
        assert shard.describe("g") == before
        again = await shard.consumer_heartbeat("g", heartbeat(joined.member_epoch))
        assert (again.error, again.member_epoch) == (ErrorCode.none, joined.member_epoch)
        assert shard.describe("g") == before


async def test_topic_that_grows_while_a_shard_is_loading_is_reassigned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with serving(tmp_path) as harness:
        request = ConsumerHeartbeat(
            "m1", 0, None, None, "c", "/h", 10_000, frozenset({"orders"}), None, None, {}
        )
        joined = await (await shard_of(harness)).consumer_heartbeat("g", request)
        groups, index = harness.context.groups, partition_of("g", 5)

        class GrowingMeanwhile(Loading):
            async def run(self) -> ShardState:
                state = await super().run()
                await harness.context.administration.create_partitions([NewPartitions("orders", 3)])
                return state

        monkeypatch.setattr(coordinator, "Loading", GrowingMeanwhile)
        reload(groups, index)
        shard = await shard_of(harness)
        await eventually_async(lambda: shard.describe("g").epoch > joined.member_epoch)
        (member,) = shard.describe("g").members
        assert [len(partitions) for partitions in member.target.values()] == [3]


async def test_request_gets_load_in_progress_while_a_shard_is_loaded(tmp_path: Path) -> None:
    async with serving(tmp_path) as harness:
        await commit(harness, 5)
    async with serving(tmp_path) as harness:
        groups = harness.context.groups
        index = partition_of("g", 5)
        reload(groups, index)
        assert code_of(groups) is ErrorCode.coordinator_load_in_progress
        assert groups.is_loading
        assert await committed(harness) == 5


async def test_shard_that_a_request_waits_for_is_loaded_first(tmp_path: Path) -> None:
    async with serving(tmp_path) as harness:
        names = {partition_of(f"g{number}", 5): f"g{number}" for number in range(30)}
        assert len(names) == 5
        for name in names.values():
            await commit(harness, 5, name)
        groups = harness.context.groups
        for index in names:
            groups._shards.unload(index)
        groups._shards.follow_leadership()
        for asked in (names[4], names[3]):
            assert code_of(groups, asked) is ErrorCode.coordinator_load_in_progress
        await eventually_async(lambda: not groups.is_loading)
        assert [shard.partition for shard in groups.shards][:2] == [3, 4]


async def test_clean_stop_responds_to_waiting_requests(tmp_path: Path) -> None:
    async with serving(tmp_path) as harness:
        await join_group(harness)
        shard = await shard_of(harness)
        waiting = asyncio.ensure_future(shard.join("g", join_request(new_member_id="m2")))
        await asyncio.sleep(0)
    assert (await waiting).error is ErrorCode.not_coordinator
    assert code_of(harness.context.groups) is ErrorCode.not_coordinator


async def test_shard_is_unloaded_with_leadership_and_loaded_with_its_state(tmp_path: Path) -> None:
    async with serving(tmp_path) as harness:
        await join_group(harness)
        await commit(harness, 5, "h")
        metadata, groups = harness.context.metadata, harness.context.groups
        ours = metadata.image
        topic = ours.topics[OFFSETS_TOPIC]
        moved = tuple(replace(partition, leader=BrokerId(99)) for partition in topic.partitions)
        theirs = ours.with_topics([replace(topic, partitions=moved)])
        waiting = asyncio.ensure_future(groups.shard_of("g").join("g", join_request(new_member_id="m2")))
        await asyncio.sleep(0)
        metadata.image = theirs
        groups.on_image(ImageChange(ours, theirs, frozenset({OFFSETS_TOPIC})))
        assert (await waiting).error is ErrorCode.not_coordinator
        assert code_of(groups) is ErrorCode.not_coordinator
        assert await groups.find("g") == 99
        metadata.image = ours
        groups.on_image(ImageChange(theirs, ours, frozenset({OFFSETS_TOPIC})))
        assert code_of(groups) is ErrorCode.coordinator_load_in_progress
        assert [member.member_id for member in (await shard_of(harness)).describe("g").members] == ["m1"]
        assert await committed(harness, "h") == 5


async def test_disk_without_space_makes_groups_wait_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shards, "RETRY_SECONDS", 0.01)
    async with serving(tmp_path) as harness:
        joined = await join_group(harness)
        before = (await shard_of(harness)).describe("g")
        harness.context.logs.full = True
        with pytest.raises(BrokerError) as caught:
            await (await shard_of(harness)).leave("g", [LeavingMember(joined.member_id, None)])
        assert caught.value.code is ErrorCode.coordinator_not_available
        harness.context.logs.full = False
        shard = await shard_of(harness)
        assert shard.describe("g") == before
        assert shard.heartbeat("g", joined.member_id, None, joined.generation) is ErrorCode.none


async def test_memory_of_a_lost_shard_is_freed_before_its_last_member_deadline(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shards, "RETRY_SECONDS", 0.01)
    async with serving(tmp_path) as harness:
        joined = await join_group(harness)
        lost = weakref.ref(await shard_of(harness))
        harness.context.logs.full = True
        with pytest.raises(BrokerError):
            await harness.context.groups.shard_of("g").leave("g", [LeavingMember(joined.member_id, None)])
        harness.context.logs.full = False
        await shard_of(harness)
        gc.collect()
        assert lost() is None


async def test_failed_log_takes_its_groups_out_of_service_until_the_next_start(tmp_path: Path) -> None:
    async with serving(tmp_path) as harness:
        await commit(harness, 5)
        index = partition_of("g", 5)
        harness.context.replicas.get(OFFSETS_TOPIC, index).log.fail(OSError("broken"))
        with pytest.raises(BrokerError):
            await commit(harness, 6)
        assert code_of(harness.context.groups) is ErrorCode.coordinator_not_available
        assert not harness.context.groups.is_loading
    async with serving(tmp_path) as harness:
        assert await committed(harness) == 5


async def test_log_that_cannot_be_read_now_is_read_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shards, "RETRY_SECONDS", 0.01)
    tries: list[Loading] = []

    class FailingFirst(Loading):
        async def run(self) -> ShardState:
            tries.append(self)
            if len(tries) < 3:
                raise StorageError("not now")
            return await super().run()

    async with serving(tmp_path) as harness:
        await commit(harness, 5)
        monkeypatch.setattr(coordinator, "Loading", FailingFirst)
        groups, index = harness.context.groups, partition_of("g", 5)
        reload(groups, index)
        assert await committed(harness) == 5
        assert len(tries) == 3


async def test_recreated_topic_has_no_committed_offsets(tmp_path: Path) -> None:
    async with serving(tmp_path) as harness:
        await commit(harness, 5)
        await harness.context.administration.delete_topics(["orders"])
        await harness.create("orders")
        assert await committed(harness) is None
        await commit(harness, 1)
        assert await committed(harness) == 1
    async with serving(tmp_path) as harness:
        assert await committed(harness) == 1


async def test_periodic_sweep_removes_a_group_without_offsets(tmp_path: Path) -> None:
    async with serving(tmp_path, offsets_retention_check_interval_ms="1") as harness:
        shard = await shard_of(harness)
        await shard.join("g", join_request(requires_known_member_id=True, session_timeout_ms=6_000))
        assert "g" in shard.groups
        await committing(shard, commit_of(harness, 5, group="h"))
        await shard.delete_offsets("h", [P0])
        await eventually_async(lambda: "h" not in shard.groups)
        assert "g" in shard.groups


async def test_group_id_that_the_log_cannot_hold_is_invalid(tmp_path: Path) -> None:
    async with serving(tmp_path) as harness:
        await shard_of(harness)
        assert code_of(harness.context.groups, "x" * 40_000) is ErrorCode.invalid_group_id


async def test_metrics_count_group_states_members_commits_and_lag(tmp_path: Path) -> None:
    async with serving(tmp_path, metrics_max_groups="1") as harness:
        await harness.append("orders", *[b"v"] * 10)
        joined = await join_group(harness)
        mine = commit_of(harness, 4, joined.member_id, joined.generation)
        await committing(await shard_of(harness), mine)
        await commit(harness, 4, "later by name")
        snapshot = take_snapshot(harness.context.metrics)
        assert snapshot.group_lags == [GroupLag("g", "orders", 0, 6)]
        states = dict(snapshot.group_states)
        assert (states["Stable"], states["Empty"], states["Reconciling"]) == (1, 1, 0)
        readings = {reading.name: value for reading, value in snapshot.readings}
        assert readings["penstock_group_members"] == 1
        assert readings["penstock_offset_commits"] == 2
        text = render(snapshot).decode()
        assert 'penstock_group_lag{group="g",partition="0",topic="orders"} 6.0' in text
        assert 'penstock_groups{state="Stable"} 1.0' in text


async def test_lag_metric_counts_partitions_without_a_commit(tmp_path: Path) -> None:
    async with serving(tmp_path) as harness:
        await harness.context.administration.create_partitions([NewPartitions("orders", 2)])
        await harness.context.replicas.settled()
        await harness.append("orders", *[b"v"] * 10)
        await harness.append("orders", *[b"v"] * 3, partition=1)
        await commit(harness, 4, "g")
        subscription = encode_subscription(Subscription(0, frozenset({"orders"}), {}))
        request = join_request(protocols=(("range", subscription),))
        await (await shard_of(harness, "members without a commit")).join("members without a commit", request)
        assert sorted(take_snapshot(harness.context.metrics).group_lags, key=repr) == [
            GroupLag("g", "orders", 0, 6),
            GroupLag("g", "orders", 1, 3),
            GroupLag("members without a commit", "orders", 0, 10),
            GroupLag("members without a commit", "orders", 1, 3),
        ]


# --- protection of the internal topic


async def test_clients_cannot_change_the_offsets_topic(tmp_path: Path) -> None:
    async with serving(tmp_path) as harness:
        await shard_of(harness)
        for name in (OFFSETS_TOPIC, "__transaction_state", "__consumer.offsets"):
            await check_untouchable(harness, name)
        assert len(harness.context.image.topics[OFFSETS_TOPIC].partitions) == 5


async def check_untouchable(harness: Harness, name: str) -> None:
    code = ErrorCode.invalid_topic_exception
    batch = bytes(build_batch([NewRecord(b"k", b"v", 1)]))
    produce = {
        "transactional_id": None,
        "acks": -1,
        "timeout": 1000,
        "topic_data": [{"name": name, "partition_data": [{"index": 0, "records": batch}]}],
    }
    response = await harness.ask(0, 9, produce)
    assert response.responses[0].partition_responses[0].error_code == code
    response = await harness.ask(20, 5, {"topic_names": [name], "timeout": 1000})
    assert response.responses[0].error_code == code
    truncate = [{"name": name, "partitions": [{"partition_index": 0, "offset": 0}]}]
    response = await harness.ask(21, 2, {"topics": truncate, "timeout": 1000})
    assert response.topics[0].partitions[0].error_code == code
    create = {"topics": [new_topic(name, 1)], "timeout": 1000, "validate_only": False}
    response = await harness.ask(19, 7, create)
    assert response.topics[0].error_code == code
    grow = {
        "topics": [{"name": name, "count": 9, "assignments": None}],
        "timeout": 1000,
        "validate_only": False,
    }
    response = await harness.ask(37, 3, grow)
    assert response.results[0].error_code == code


async def test_metadata_request_does_not_create_the_internal_offsets_topic(tmp_path: Path) -> None:
    async with serving(tmp_path) as harness:
        asked: Mapping[str, object] = {
            "topics": [{"name": OFFSETS_TOPIC, "topic_id": None}],
            "allow_auto_topic_creation": True,
            "include_topic_authorized_operations": False,
        }
        response = await harness.ask(3, 12, asked)
        assert response.topics[0].error_code == ErrorCode.unknown_topic_or_partition
        await shard_of(harness)
        response = await harness.ask(3, 12, asked)
        assert response.topics[0].is_internal
        described: SimpleNamespace = await harness.ask(
            75, 0, {"topics": [], "response_partition_limit": 100, "cursor": None}
        )
        assert {topic.name: topic.is_internal for topic in described.topics} == {
            OFFSETS_TOPIC: True,
            "orders": False,
        }
