"""Wrong acknowledgements of share groups: the right error code, and no effect."""

from __future__ import annotations

import asyncio
import tracemalloc
from pathlib import Path
from typing import Any

import pytest

from penstock.errors import ErrorCode, ProtocolError
from penstock.server.security import Operation, ResourceType
from penstock.wire.share_fetch import (
    SHARE_ACKNOWLEDGE,
    SHARE_FETCH,
    decode_share_acknowledge,
    decode_share_fetch,
)
from support.eventually import eventually_async
from support.harness import Harness
from support.share_wire import (
    ACCEPT,
    REJECT,
    RELEASE,
    RENEW,
    ShareMember,
    commits_held_back,
    first_take,
    partition_of,
    run,
)

INVALID = [
    ("reversed", [(5, 4, [ACCEPT])]),
    ("not ascending", [(5, 6, [ACCEPT]), (2, 3, [ACCEPT])]),
    ("overlapping", [(2, 5, [ACCEPT]), (5, 6, [ACCEPT])]),
    ("no types", [(0, 3, [])]),
    ("too few types", [(0, 3, [ACCEPT] * 3)]),
    ("too many types", [(0, 3, [ACCEPT] * 5)]),
    ("a million types", [(0, 3, [ACCEPT] * 1_000_000)]),
    ("unknown type", [(0, 3, [5])]),
    ("negative type", [(0, 3, [-1])]),
    ("renewal without the flag", [(0, 3, [RENEW])]),
    ("beyond what was acquired", [(0, 10, [ACCEPT])]),
    ("far beyond", [(0, 2**63 - 1, [ACCEPT])]),
    ("negative offset", [(-5, 3, [ACCEPT])]),
]


@pytest.mark.parametrize("acks", [acks for _, acks in INVALID], ids=[name for name, _ in INVALID])
@pytest.mark.parametrize("by_fetch", [False, True], ids=["acknowledge", "fetch"])
def test_malformed_acknowledgements_are_refused_and_change_nothing(
    tmp_path: Path, acks: Any, by_fetch: bool
) -> None:
    async def scenario(broker: Harness, member: ShareMember) -> None:
        assert await first_take(member) == [(0, 9, 1)]
        if by_fetch:
            code = partition_of(await member.fetch("t", acks)).acknowledge_error_code
        else:
            code = partition_of(await member.acknowledge("t", acks)).error_code
        assert code == ErrorCode.invalid_request
        assert partition_of(await member.acknowledge("t", [(0, 9, [ACCEPT])])).error_code == 0

    run(tmp_path, scenario)


def test_renewal_is_an_unknown_type_in_version_1(tmp_path: Path) -> None:
    async def scenario(broker: Harness, member: ShareMember) -> None:
        member.version = 1
        assert await first_take(member) == [(0, 9, 1)]
        answer = await member.acknowledge("t", [(0, 9, [RENEW])])
        assert partition_of(answer).error_code == ErrorCode.invalid_request

    run(tmp_path, scenario)


def test_acknowledgement_of_records_of_others_or_settled_ones_is_refused(tmp_path: Path) -> None:
    async def scenario(broker: Harness, member: ShareMember) -> None:
        other = ShareMember(broker, "m2")
        assert await first_take(member, max_records=1) == [(0, 9, 1)]
        assert await other.take("t", max_records=1) == [(10, 19, 1)]
        for acks in ([(0, 19, [ACCEPT])], [(10, 12, [ACCEPT])], [(0, 3, [ACCEPT]), (15, 15, [REJECT])]):
            answer = await member.acknowledge("t", acks)
            assert partition_of(answer).error_code == ErrorCode.invalid_record_state
        assert partition_of(await member.acknowledge("t", [(5, 9, [ACCEPT])])).error_code == 0
        answer = await member.acknowledge("t", [(0, 5, [ACCEPT])])
        assert partition_of(answer).error_code == ErrorCode.invalid_record_state
        assert partition_of(await member.acknowledge("t", [(0, 4, [ACCEPT])])).error_code == 0
        assert (
            partition_of(await member.acknowledge("t", [(0, 4, [ACCEPT])])).error_code == 0
        )  # below the start
        assert partition_of(await other.acknowledge("t", [(10, 19, [ACCEPT])])).error_code == 0

    run(tmp_path, scenario, batches=2)


def test_released_and_never_acquired_records_are_refused(tmp_path: Path) -> None:
    async def scenario(broker: Harness, member: ShareMember) -> None:
        assert await first_take(member, share_acquire_mode=1, max_records=4) == [(0, 3, 1)]
        assert partition_of(await member.acknowledge("t", [(1, 2, [RELEASE])])).error_code == 0
        answer = await member.acknowledge("t", [(1, 1, [ACCEPT])])
        assert partition_of(answer).error_code == ErrorCode.invalid_record_state
        answer = await member.acknowledge("t", [(3, 4, [ACCEPT])])
        assert partition_of(answer).error_code == ErrorCode.invalid_request
        assert await member.take("t", share_acquire_mode=1, max_records=4) == [(1, 2, 2)]

    run(tmp_path, scenario)


def test_record_whose_acknowledgement_is_being_stored_is_refused(tmp_path: Path) -> None:
    async def scenario(broker: Harness, member: ShareMember) -> None:
        assert await first_take(member) == [(0, 9, 1)]
        with commits_held_back() as held:
            first = asyncio.ensure_future(member.acknowledge("t", [(2, 4, [ACCEPT])]))
            await eventually_async(lambda: bool(held))
            member.epoch += 1  # the first request is not answered yet
            answer = await member.acknowledge("t", [(4, 5, [RELEASE])])
            assert partition_of(answer).error_code == ErrorCode.invalid_record_state
            for callback in held:
                callback(None)
            assert partition_of(await first).error_code == 0
        assert partition_of(await member.acknowledge("t", [(5, 5, [ACCEPT])])).error_code == 0

    run(tmp_path, scenario)


def test_share_session_epoch_wraps_around_to_1(tmp_path: Path) -> None:
    async def scenario(broker: Harness, member: ShareMember) -> None:
        assert await first_take(member) == [(0, 9, 1)]
        [session] = broker.context.share.sessions._sessions.values()
        session.epoch = member.epoch = 2**31 - 1
        assert partition_of(await member.acknowledge("t", [(0, 0, [ACCEPT])])).error_code == 0
        member.epoch = 1
        assert partition_of(await member.acknowledge("t", [(1, 1, [ACCEPT])])).error_code == 0

    run(tmp_path, scenario)


def test_topic_without_the_right_to_read_is_refused_alone(tmp_path: Path) -> None:
    async def scenario(broker: Harness, member: ShareMember) -> None:
        assert await first_take(member) == [(0, 9, 1)]
        broker.deny((Operation.READ, ResourceType.TOPIC, "t"))
        fetched = partition_of(await member.fetch("t", [(0, 0, [ACCEPT])]))
        assert fetched.error_code == ErrorCode.topic_authorization_failed
        assert fetched.acknowledge_error_code == ErrorCode.topic_authorization_failed
        answer = await member.acknowledge("t", [(0, 0, [ACCEPT])])
        assert partition_of(answer).error_code == ErrorCode.topic_authorization_failed
        broker.deny((Operation.READ, ResourceType.GROUP, "g"))
        assert (await member.fetch("t")).error_code == ErrorCode.group_authorization_failed

    run(tmp_path, scenario)


@pytest.mark.parametrize("api", [SHARE_FETCH, SHARE_ACKNOWLEDGE])
def test_claimed_array_length_allocates_no_memory(api: int) -> None:
    """A frame ends after the length of an array that claims two thousand million entries."""
    decode = decode_share_fetch if api == SHARE_FETCH else decode_share_acknowledge
    fixed = 5 * 4 + 2 if api == SHARE_FETCH else 1  # the numbers before the array of topics
    huge = b"\xff\xff\xff\xff\x07"
    for frame in (b"\x02g\x02m" + bytes(4 + fixed) + huge, b"\x02g" + huge, huge):
        tracemalloc.start()
        try:
            with pytest.raises(ProtocolError):
                decode(memoryview(frame), 0, 2)
            assert tracemalloc.get_traced_memory()[1] < 100_000
        finally:
            tracemalloc.stop()


def test_acknowledgement_renewals_can_be_disabled(tmp_path: Path) -> None:
    async def scenario(broker: Harness, member: ShareMember) -> None:
        assert await first_take(member) == [(0, 9, 1)]
        answer = await member.acknowledge("t", [(0, 9, [RENEW])], is_renew_ack=True)
        assert partition_of(answer).error_code == ErrorCode.invalid_record_state

    run(tmp_path, scenario, renew_acknowledge_enable="false")


@pytest.mark.parametrize("limit", ["max_wait", "min_bytes", "max_bytes", "max_records"])
def test_share_fetch_that_renews_must_have_zero_limits(tmp_path: Path, limit: str) -> None:
    async def scenario(broker: Harness, member: ShareMember) -> None:
        assert await first_take(member) == [(0, 9, 1)]
        zeros: dict[str, Any] = {"max_wait": 0, "min_bytes": 0, "max_bytes": 0, "max_records": 0}
        answer = await member.fetch("t", [(0, 9, [RENEW])], is_renew_ack=True, **zeros | {limit: 1})
        assert answer.error_code == ErrorCode.invalid_request
        member.epoch += 1  # the epoch moves on with a refused request too
        answer = await member.fetch("t", [(0, 9, [RENEW])], is_renew_ack=True, **zeros)
        assert partition_of(answer).acknowledge_error_code == 0

    run(tmp_path, scenario)


def test_unknown_topics_and_partitions_get_separate_errors(tmp_path: Path) -> None:
    async def scenario(broker: Harness, member: ShareMember) -> None:
        topics = member.topics("t", partition=7)
        answer = await member.fetch(None, topics=topics)
        assert partition_of(answer).error_code == ErrorCode.unknown_topic_or_partition
        named = member.topics("t", [(0, 0, [ACCEPT])], partition=7)
        answer = await member.acknowledge("t", [], topics=named)
        assert partition_of(answer).error_code == ErrorCode.unknown_topic_or_partition
        other = ShareMember(broker, "m2")
        named[0]["topic_id"] = topics[0]["topic_id"] = type(member.topic_id("t"))(int=5)
        answer = await other.fetch(None, topics=topics)
        assert partition_of(answer).error_code == ErrorCode.unknown_topic_id
        answer = await other.acknowledge("t", [], topics=named)
        assert partition_of(answer).error_code == ErrorCode.unknown_topic_id

    run(tmp_path, scenario)


def test_partition_of_a_group_without_state_is_refused(tmp_path: Path) -> None:
    async def scenario(broker: Harness, member: ShareMember) -> None:
        stranger = ShareMember(broker, "m9", group="unknown")
        answer = await stranger.fetch("t", max_wait=2_000)
        assert partition_of(answer).error_code == ErrorCode.invalid_request

    run(tmp_path, scenario)
