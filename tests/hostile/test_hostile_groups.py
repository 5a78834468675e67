"""Group members that are forged, too many or too large (K31), and invalid commits (K32)."""

from __future__ import annotations

import struct
import threading
from collections import Counter
from contextlib import ExitStack
from typing import Any

import pytest
from watch import MIB, Watch, create_topic

from support import raw
from support.broker_process import BrokerProcess
from support.eventually import eventually

MAX_MEMBERS = 1_000
SETTINGS = (
    "group.initial.rebalance.delay.ms=0",
    "group.min.session.timeout.ms=100",
    f"group.max.size={MAX_MEMBERS}",
    f"group.max.metadata.bytes={2 * MIB}",
    "offsets.topic.num.partitions=3",
)
TOPIC = "read"
OFFSET_METADATA_TOO_LARGE, ILLEGAL_GENERATION, UNKNOWN_MEMBER_ID = 12, 22, 25
INVALID_GROUP_ID, INVALID_SESSION_TIMEOUT, REBALANCE_IN_PROGRESS, INVALID_REQUEST = 24, 26, 27, 42
MEMBER_ID_REQUIRED, GROUP_MAX_SIZE_REACHED, INCONSISTENT_GROUP_PROTOCOL = 79, 81, 23
INT_MAX, LONG_MAX = 2**31 - 1, 2**63 - 1


@pytest.fixture(scope="module", autouse=True)
def topics(broker: BrokerProcess) -> None:
    with raw.RawClient(broker.port) as client:
        assert create_topic(client, TOPIC, partitions=4).error_code == 0
        assert client.call(raw.FIND_COORDINATOR, 1, key="g", key_type=0).error_code == 0


def joining(group: str, member_id: str = "", *, session_ms: int = 30_000, **changed: Any) -> dict[str, Any]:
    return {
        "group_id": group,
        "session_timeout": session_ms,
        "rebalance_timeout": session_ms,
        "member_id": member_id,
        "protocol_type": "consumer",
        "protocols": [{"name": "range", "metadata": b"topics"}],
        **changed,
    }


def join(client: raw.RawClient, group: str, member_id: str = "", **changed: Any) -> Any:
    return client.call(raw.JOIN_GROUP, 3, **joining(group, member_id, **changed))


def sync(client: raw.RawClient, group: str, member_id: str, generation: int, /, **assignments: bytes) -> Any:
    given = [{"member_id": name, "assignment": content} for name, content in assignments.items()]
    return client.call(
        raw.SYNC_GROUP, 1, group_id=group, generation_id=generation, member_id=member_id, assignments=given
    )


def beat(client: raw.RawClient, group: str, member_id: str, generation: int) -> int:
    answer = client.call(raw.HEARTBEAT, 1, group_id=group, generation_id=generation, member_id=member_id)
    return int(answer.error_code)


def commit(client: raw.RawClient, group: str, version: int = 9, **fields: Any) -> int:
    partition = {"partition_index": 0, "committed_offset": 5, "committed_metadata": "", **fields}
    topics = [{"name": TOPIC, "partitions": [partition]}]
    answer = client.call(
        raw.OFFSET_COMMIT, version, group_id=group, generation_id_or_member_epoch=-1, topics=topics
    )
    return int(answer.topics[0].partitions[0].error_code)


def committed(client: raw.RawClient, group: str) -> int:
    topics = [{"name": TOPIC, "partition_indexes": [0]}]
    answer = client.call(raw.OFFSET_FETCH, 7, group_id=group, topics=topics)
    assert answer.error_code == 0
    return int(answer.topics[0].partitions[0].committed_offset)


def settle(client: raw.RawClient, group: str) -> tuple[str, int]:
    """Join as an ordinary member, once the group accepts it, and return id and generation."""
    settled: list[tuple[str, int]] = []

    def is_in() -> bool:
        joined = join(client, group, settled[-1][0] if settled else "", session_ms=6_000)
        if joined.error_code != 0:
            return False
        settled.append((joined.member_id, joined.generation_id))
        content = {member.member_id: b"yours" for member in joined.members}
        return bool(sync(client, group, *settled[-1], **content).assignment == b"yours")

    eventually(is_in)
    return settled[-1]


def expect_usable(watch: Watch, group: str) -> None:
    """Expect that an ordinary consumer can join the group, commit, read and leave."""
    with watch.client(30) as client:
        member_id, generation = settle(client, group)
        assert beat(client, group, member_id, generation) == 0
        partition = {"partition_index": 0, "committed_offset": 42, "committed_metadata": "fine"}
        answer = client.call(
            raw.OFFSET_COMMIT,
            9,
            group_id=group,
            generation_id_or_member_epoch=generation,
            member_id=member_id,
            topics=[{"name": TOPIC, "partitions": [partition]}],
        )
        assert answer.topics[0].partitions[0].error_code == 0
        assert committed(client, group) == 42
        assert client.call(raw.LEAVE_GROUP, 0, group_id=group, member_id=member_id).error_code == 0


def send_all(client: raw.RawClient, frames: bytes) -> threading.Thread:
    sender = threading.Thread(target=client.send, args=(frames,), daemon=True)
    sender.start()
    return sender


@pytest.mark.parametrize("session_ms", [0, -1, -(2**31), 99, INT_MAX])
def test_session_timeout_out_of_bounds_is_refused(watch: Watch, session_ms: int) -> None:
    with watch.client() as client:
        answer = join(client, "sessions", session_ms=session_ms)
        assert answer.error_code == INVALID_SESSION_TIMEOUT
    expect_usable(watch, "sessions")


@pytest.mark.parametrize("rebalance_ms", [0, -1, -(2**31), INT_MAX])
def test_group_stays_usable_after_a_join_with_an_extreme_rebalance_timeout(
    watch: Watch, rebalance_ms: int
) -> None:
    with watch.client() as client:
        answer = join(client, f"rebalance{rebalance_ms}", session_ms=200, rebalance_timeout=rebalance_ms)
        assert answer.error_code == 0
    expect_usable(watch, f"rebalance{rebalance_ms}")


def test_joins_of_100000_members_stop_at_the_maximum_group_size(watch: Watch) -> None:
    asked = 100_000
    with watch.client(60) as client:
        sender = send_all(client, raw.request(raw.JOIN_GROUP, 4, **joining("many", session_ms=5_000)) * asked)
        codes = Counter(
            int(raw.decode_response(raw.JOIN_GROUP, 4, client.read_frame()).error_code) for _ in range(asked)
        )
        sender.join()
    assert set(codes) == {MEMBER_ID_REQUIRED, GROUP_MAX_SIZE_REACHED}
    assert codes[GROUP_MAX_SIZE_REACHED] > codes[MEMBER_ID_REQUIRED]
    expect_usable(watch, "many")


def test_group_stays_usable_after_ten_thousand_members_join_and_leave(watch: Watch) -> None:
    group, at_once = "coming and going", MAX_MEMBERS
    with watch.client(60) as client:
        for _ in range(10):
            sender = send_all(client, raw.request(raw.JOIN_GROUP, 4, **joining(group)) * at_once)
            answers = [raw.decode_response(raw.JOIN_GROUP, 4, client.read_frame()) for _ in range(at_once)]
            sender.join()
            assert {int(answer.error_code) for answer in answers} == {MEMBER_ID_REQUIRED}
            members = [{"member_id": answer.member_id} for answer in answers]
            left = client.call(raw.LEAVE_GROUP, 4, group_id=group, members=members)
            assert {int(member.error_code) for member in left.members} == {0}
    expect_usable(watch, group)


def test_members_that_join_and_never_return_are_removed(watch: Watch) -> None:
    for _ in range(2_000):
        with watch.client() as client:
            client.send(raw.request(raw.JOIN_GROUP, 3, **joining("abandoned", session_ms=300)))
    expect_usable(watch, "abandoned")


def test_join_with_ten_megabytes_of_metadata_is_refused(watch: Watch) -> None:
    with watch.client(30) as client:
        for size in (10 * MIB, 3 * MIB):
            large = [{"name": "range", "metadata": bytes(size)}]
            assert join(client, "large", protocols=large).error_code == GROUP_MAX_SIZE_REACHED
    expect_usable(watch, "large")


def test_group_refuses_members_whose_metadata_exceeds_the_limit_together(watch: Watch) -> None:
    large = [{"name": "range", "metadata": bytes(MIB // 2)}]
    with ExitStack() as stack:
        clients = [stack.enter_context(watch.client(30)) for _ in range(8)]
        for client in clients:
            client.send(raw.request(raw.JOIN_GROUP, 3, **joining("heavy", session_ms=1_000, protocols=large)))
        answers = [raw.decode_response(raw.JOIN_GROUP, 3, client.read_frame()) for client in clients]
    assert GROUP_MAX_SIZE_REACHED in {int(answer.error_code) for answer in answers}
    expect_usable(watch, "heavy")


def test_join_with_fifty_thousand_protocols_leaves_the_group_usable(watch: Watch) -> None:
    protocols = [{"name": f"p{number}", "metadata": b""} for number in range(50_000)]
    with watch.client(30) as client:
        answer = join(client, "protocols", session_ms=300, protocols=protocols)
        assert int(answer.error_code) in (0, GROUP_MAX_SIZE_REACHED, INCONSISTENT_GROUP_PROTOCOL)
    expect_usable(watch, "protocols")


def test_unknown_members_and_forged_generations_do_not_change_a_group(watch: Watch) -> None:
    group = "steady"
    with watch.client(30) as honest, watch.client(30) as forger:
        member_id, generation = settle(honest, group)
        for name, number, code in [
            ("stranger", generation, UNKNOWN_MEMBER_ID),
            ("", generation, UNKNOWN_MEMBER_ID),
            ("x" * 32_000, generation, UNKNOWN_MEMBER_ID),
            (member_id, generation + 1, ILLEGAL_GENERATION),
            (member_id, -1, ILLEGAL_GENERATION),
            (member_id, -(2**31), ILLEGAL_GENERATION),
            (member_id, INT_MAX, ILLEGAL_GENERATION),
        ]:
            assert beat(forger, group, name, number) == code
            assert sync(forger, group, name, number, **{member_id: b"mine"}).error_code == code
        assert join(forger, group, "stranger").error_code == UNKNOWN_MEMBER_ID
        other = join(forger, group, protocol_type="connect")
        assert other.error_code == INCONSISTENT_GROUP_PROTOCOL
        left = forger.call(raw.LEAVE_GROUP, 4, group_id=group, members=[{"member_id": "stranger"}] * 10_000)
        assert {int(member.error_code) for member in left.members} == {UNKNOWN_MEMBER_ID}
        assert beat(honest, group, member_id, generation) == 0
        assert sync(honest, group, member_id, generation).assignment == b"yours"


def test_assignments_of_a_forged_sync_reach_no_member(watch: Watch) -> None:
    group = "forged"
    with watch.client(30) as leader, watch.client(30) as follower:
        first = join(leader, group)
        assert first.error_code == 0
        content = {"nobody": b"x" * MIB, "": b"y", first.member_id: b"yours"}
        synced = sync(leader, group, first.member_id, first.generation_id, **content)
        assert (synced.error_code, synced.assignment) == (0, b"yours")
        follower.send(raw.request(raw.JOIN_GROUP, 3, **joining(group)))
        eventually(
            lambda: beat(leader, group, first.member_id, first.generation_id) == REBALANCE_IN_PROGRESS,
        )
        again = join(leader, group, first.member_id)
        second = raw.decode_response(raw.JOIN_GROUP, 3, follower.read_frame())
        assert (again.error_code, second.error_code) == (0, 0)
        follower.send(
            raw.request(
                raw.SYNC_GROUP,
                1,
                group_id=group,
                generation_id=second.generation_id,
                member_id=second.member_id,
                assignments=[{"member_id": second.member_id, "assignment": b"everything"}],
            )
        )
        real = {first.member_id: b"one", second.member_id: b"two"}
        synced = sync(leader, group, first.member_id, again.generation_id, **real)
        assert synced.assignment == b"one"
        assert raw.decode_response(raw.SYNC_GROUP, 1, follower.read_frame()).assignment == b"two"


def test_sync_group_refuses_an_assignment_of_ten_megabytes(watch: Watch) -> None:
    with watch.client(30) as client:
        first = join(client, "assigned", session_ms=1_000)
        assert first.error_code == 0
        synced = sync(
            client, "assigned", first.member_id, first.generation_id, **{first.member_id: bytes(10 * MIB)}
        )
        assert synced.error_code != 0
    expect_usable(watch, "assigned")


def test_names_too_long_for_older_response_versions_are_refused(watch: Watch) -> None:
    """Compact strings can be longer than any string of an older version."""
    long = "x" * 100_000
    with watch.client() as client:
        first = client.call(raw.JOIN_GROUP, 9, **joining(long))
        assert first.error_code == INVALID_GROUP_ID
        assert client.call(raw.JOIN_GROUP, 9, **joining("long", long)).error_code != 0
        assert client.call(raw.JOIN_GROUP, 9, **joining("long", group_instance_id=long)).error_code != 0
        assert client.call(raw.JOIN_GROUP, 9, **joining("long", protocol_type=long)).error_code != 0
        protocols = [{"name": long, "metadata": b""}]
        assert client.call(raw.JOIN_GROUP, 9, **joining("long", protocols=protocols)).error_code != 0
        fields = {"subscribed_topic_names": [long], "topic_partitions": [], "rebalance_timeout": 1_000}
        for changed in ({"member_id": long}, {"instance_id": long}):
            names = {"member_id": "m", **changed}
            answer = client.call(raw.CONSUMER_GROUP_HEARTBEAT, 1, group_id="new", **names, **fields)
            assert answer.error_code != 0
        assert client.call(raw.OFFSET_COMMIT, 9, group_id=long, topics=[]).topics == ()
        assert commit(client, long) == INVALID_GROUP_ID
    expect_usable(watch, "long")


@pytest.mark.parametrize(("version", "size"), [(2, 4_097), (2, 32_767), (9, 4_097), (9, 32_767), (9, MIB)])
def test_commit_with_oversized_metadata_gets_offset_metadata_too_large(
    watch: Watch, version: int, size: int
) -> None:
    group = f"notes {version} {size}"
    with watch.client() as client:
        assert commit(client, group, version, committed_metadata="x" * size) == OFFSET_METADATA_TOO_LARGE
        assert committed(client, group) == -1
    expect_usable(watch, group)


@pytest.mark.parametrize("offset", [-1, -5, -(2**63), LONG_MAX])
def test_commit_of_an_extreme_offset_is_stored_unchanged_or_refused(watch: Watch, offset: int) -> None:
    with watch.client() as client:
        code = commit(client, "absurd", committed_offset=offset, committed_leader_epoch=-(2**31))
        assert code in (0, INVALID_REQUEST)
        assert committed(client, "absurd") == (offset if code == 0 else -1)
    expect_usable(watch, "absurd")


def test_commit_that_repeats_one_partition_50000_times_is_answered(watch: Watch) -> None:
    partition = struct.pack(">iqh", 0, 7, 0)
    content = raw.header(raw.OFFSET_COMMIT, 2) + raw.body(
        raw.OFFSET_COMMIT, 2, group_id="again", member_id=""
    )
    head = content[:-4] + struct.pack(">i", 1) + struct.pack(">h", len(TOPIC)) + TOPIC.encode()
    generation = content.index(b"again") + len(b"again")
    head = head[:generation] + struct.pack(">i", -1) + head[generation + 4 :]
    with watch.client(30) as client:
        client.send(raw.framed(head + struct.pack(">i", 50_000) + partition * 50_000))
        answer = raw.decode_response(raw.OFFSET_COMMIT, 2, client.read_frame())
        assert {int(each.error_code) for each in answer.topics[0].partitions} == {0}
        assert committed(client, "again") == 7


def test_offset_fetch_that_repeats_one_group_20000_times_gets_a_bounded_response(watch: Watch) -> None:
    with watch.client(30) as client:
        assert commit(client, "asked", committed_metadata="x" * 4_000) == 0
        groups = [{"group_id": "asked", "topics": None}] * 20_000
        client.send(raw.request(raw.OFFSET_FETCH, 8, groups=groups))
        assert len(client.read_frame()) < 20_000 * 20
        client.send(raw.request(raw.DESCRIBE_GROUPS, 5, groups=["asked"] * 50_000))
        assert len(client.read_frame()) < 1_000
