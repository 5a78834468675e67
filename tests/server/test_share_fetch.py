"""ShareFetch and ShareAcknowledge over the wire: sessions, acquisition, locks and waiting fetches."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from penstock.cluster.memory import MemoryEnsemble
from penstock.errors import ErrorCode
from penstock.records.iteration import read_batches
from support.eventually import eventually_async
from support.harness import Harness, serve
from support.share_wire import (
    ACCEPT,
    GAP,
    REJECT,
    RELEASE,
    RENEW,
    SETTINGS,
    ShareMember,
    acquired,
    configure,
    first_take,
    partition_of,
    run,
)


def test_records_are_acquired_once_and_accepted(tmp_path: Path) -> None:
    async def scenario(broker: Harness, member: ShareMember) -> None:
        answer = await member.fetch("t", max_wait=2_000)
        assert acquired(answer) == [(0, 9, 1)]
        assert answer.acquisition_lock_timeout.total_seconds() == 30
        records = partition_of(answer).records
        assert [header.record_count for header, _ in read_batches(memoryview(records))] == [10]
        other = ShareMember(broker, "m2")
        assert await other.take("t") == []
        done = await member.acknowledge("t", [(0, 9, [ACCEPT])])
        assert partition_of(done).error_code == 0
        assert await other.take("t") == []
        [leader] = broker.context.share.partitions.all
        assert leader.partition is not None
        assert (leader.partition.start_offset, leader.partition.acquired) == (10, 0)

    run(tmp_path, scenario)


def test_released_records_are_delivered_again_with_a_higher_count(tmp_path: Path) -> None:
    async def scenario(broker: Harness, member: ShareMember) -> None:
        assert await first_take(member) == [(0, 9, 1)]
        types = [ACCEPT] * 3 + [RELEASE] * 2 + [REJECT] * 2 + [GAP] + [ACCEPT] * 2
        assert partition_of(await member.acknowledge("t", [(0, 9, types)])).error_code == 0
        other = ShareMember(broker, "m2")
        assert await other.take("t") == [(3, 4, 2)]

    run(tmp_path, scenario)


def test_batch_with_several_released_records_is_sent_once(tmp_path: Path) -> None:
    async def scenario(broker: Harness, member: ShareMember) -> None:
        assert await first_take(member) == [(0, 19, 1)]
        types = [RELEASE, ACCEPT] * 10
        assert partition_of(await member.acknowledge("t", [(0, 19, types)])).error_code == 0
        answer = await member.fetch("t")
        assert acquired(answer) == [(offset, offset, 2) for offset in range(0, 20, 2)]
        records = partition_of(answer).records
        assert [header.base_offset for header, _ in read_batches(memoryview(records))] == [0, 10]

    run(tmp_path, scenario, batches=2)


def test_delivery_limit_archives_records(tmp_path: Path) -> None:
    async def scenario(broker: Harness, member: ShareMember) -> None:
        for count in (1, 2):
            assert await first_take(member) == [(0, 0, count)]
            await member.acknowledge("t", [(0, 0, [RELEASE])])
        assert await member.take("t") == []

    run(tmp_path, scenario, records=1, delivery_count_limit=2)


def test_lock_expires_and_wakes_a_waiting_fetch(tmp_path: Path) -> None:
    async def scenario(broker: Harness, member: ShareMember) -> None:
        assert await first_take(member) == [(0, 9, 1)]
        other = ShareMember(broker, "m2")
        assert await asyncio.wait_for(other.take("t", max_wait=60_000), 15) == [(0, 9, 2)]
        late = await member.acknowledge("t", [(0, 9, [ACCEPT])])
        assert partition_of(late).error_code == ErrorCode.invalid_record_state

    run(tmp_path, scenario, record_lock_duration_ms=100)


@pytest.mark.slow
def test_renewed_lock_is_not_given_to_another_member(tmp_path: Path) -> None:
    async def scenario(broker: Harness, member: ShareMember) -> None:
        assert await first_take(member) == [(0, 9, 1)]
        other = ShareMember(broker, "m2")
        waiting = asyncio.ensure_future(other.take("t", max_wait=2_500))
        # Without renewals the lock would end while the other member waits.
        while not waiting.done():
            done = await member.acknowledge("t", [(0, 9, [RENEW])], is_renew_ack=True)
            assert partition_of(done).error_code == 0
            await asyncio.sleep(0.1)
        assert waiting.result() == []
        assert partition_of(await member.acknowledge("t", [(0, 9, [ACCEPT])])).error_code == 0

    run(tmp_path, scenario, record_lock_duration_ms=2_000)


def test_record_limit_mode_acquires_exactly_max_records(tmp_path: Path) -> None:
    async def scenario(broker: Harness, member: ShareMember) -> None:
        assert await first_take(member, share_acquire_mode=1, max_records=3) == [(0, 2, 1)]
        assert await member.take("t", share_acquire_mode=1, max_records=12) == [(3, 14, 1)]
        assert await member.take("t", share_acquire_mode=0, max_records=1) == [(15, 19, 1)]

    run(tmp_path, scenario, batches=3)


def test_only_the_first_batch_may_exceed_the_limit_of_bytes(tmp_path: Path) -> None:
    async def scenario(broker: Harness, member: ShareMember) -> None:
        assert await first_take(member, max_bytes=1) == [(0, 9, 1)]
        answer = await member.fetch("t", max_bytes=1)
        assert acquired(answer) == [(10, 19, 1)]
        size = len(partition_of(answer).records)
        assert await member.take("t", max_bytes=2 * size) == [(20, 39, 1)]
        assert await member.take("t", max_bytes=2 * size - 1) == [(40, 49, 1)]

    run(tmp_path, scenario, batches=6)


def test_acquired_ranges_end_at_batch_boundaries(tmp_path: Path) -> None:
    async def scenario(broker: Harness, member: ShareMember) -> None:
        expected = [(0, 19, 1), (20, 29, 1)]
        assert await first_take(member, batch_size=20) == expected

    run(tmp_path, scenario, batches=3)


def test_record_lock_limit_counts_locked_records_and_not_their_offset_span(tmp_path: Path) -> None:
    async def scenario(broker: Harness, member: ShareMember) -> None:
        assert await first_take(member, share_acquire_mode=1, max_records=1) == [(0, 0, 1)]
        other = ShareMember(broker, "m2")
        taken = 0
        while ranges := await other.take("t"):
            for first, last, _ in ranges:
                taken += last - first + 1
                assert last - first + 1 <= 9
                await other.acknowledge("t", [(first, last, [ACCEPT])])
        assert taken == 299

    run(tmp_path, scenario, batches=30, partition_max_record_locks=10)


def test_acknowledgements_in_a_fetch_are_answered_without_records(tmp_path: Path) -> None:
    async def scenario(broker: Harness, member: ShareMember) -> None:
        assert await first_take(member) == [(0, 9, 1)]
        loop = asyncio.get_running_loop()
        before = loop.time()
        answer = await member.fetch("t", [(0, 9, [ACCEPT])], max_wait=20_000)
        assert loop.time() - before < 15
        assert partition_of(answer).acknowledge_error_code == 0
        assert acquired(answer) == []

    run(tmp_path, scenario)


def test_appended_records_wake_the_oldest_fetch(tmp_path: Path) -> None:
    async def scenario(broker: Harness, member: ShareMember) -> None:
        assert await first_take(member) == [(0, 0, 1)]
        others = [ShareMember(broker, f"m{place}") for place in range(2, 5)]
        [leader] = broker.context.share.partitions.all
        waiting: list[asyncio.Future[Any]] = []
        for other in others:
            waiting.append(asyncio.ensure_future(other.take("t", max_wait=60_000)))
            await eventually_async(lambda: len(leader._waiting) == len(waiting))
        for place in range(3):
            offset = await broker.append("t", b"new")
            assert await waiting[place] == [(offset, offset, 1)]
            assert not any(each.done() for each in waiting[place + 1 :])

    run(tmp_path, scenario, records=1)


def test_next_request_of_a_session_ends_its_wait(tmp_path: Path) -> None:
    async def scenario(broker: Harness, member: ShareMember) -> None:
        assert await first_take(member) == [(0, 9, 1)]
        [leader] = broker.context.share.partitions.all
        waiting = asyncio.ensure_future(member.fetch("t", max_wait=20_000))
        await eventually_async(lambda: leader._waiting)
        done = await member.acknowledge("t", [(0, 9, [ACCEPT])], share_session_epoch=member.epoch + 1)
        assert partition_of(done).error_code == 0
        assert acquired(await asyncio.wait_for(waiting, 15)) == []

    run(tmp_path, scenario)


# --- sessions


def test_end_of_the_connection_releases_the_records_of_its_members_only(tmp_path: Path) -> None:
    async def scenario(broker: Harness, member: ShareMember) -> None:
        other = ShareMember(broker, "m2")
        assert await first_take(member, max_records=1) == [(0, 9, 1)]
        assert await other.take("t", max_records=1) == [(10, 19, 1)]
        broker.context.share.sessions.close_all_of(member.broker.session)
        third = ShareMember(broker, "m3")
        assert await third.take("t") == [(0, 9, 2)]
        gone = await member.acknowledge("t", [(0, 9, [ACCEPT])])
        assert gone.error_code == ErrorCode.share_session_not_found
        assert partition_of(await other.acknowledge("t", [(10, 19, [ACCEPT])])).error_code == 0

    run(tmp_path, scenario, batches=2)


def test_final_epoch_acknowledges_and_then_releases(tmp_path: Path) -> None:
    async def scenario(broker: Harness, member: ShareMember) -> None:
        assert await first_take(member) == [(0, 9, 1)]
        answer = await member.fetch("t", [(0, 4, [ACCEPT])], share_session_epoch=-1)
        assert partition_of(answer).acknowledge_error_code == 0
        other = ShareMember(broker, "m2")
        assert await other.take("t") == [(5, 9, 2)]
        again = await member.fetch("t", share_session_epoch=-1)
        assert again.error_code == ErrorCode.share_session_not_found

    run(tmp_path, scenario)


def test_session_of_another_connection_is_not_found(tmp_path: Path) -> None:
    async def scenario(broker: Harness, member: ShareMember) -> None:
        await first_take(member)
        thief = ShareMember(broker, member.member_id)
        answer = await thief.fetch("t", share_session_epoch=member.epoch)
        assert answer.error_code == ErrorCode.share_session_not_found

    run(tmp_path, scenario)


def test_wrong_session_epochs_are_refused(tmp_path: Path) -> None:
    async def scenario(broker: Harness, member: ShareMember) -> None:
        await first_take(member)
        for epoch in (member.epoch + 1, member.epoch + 7, 2**31 - 1):
            answer = await member.fetch("t", share_session_epoch=epoch)
            assert answer.error_code == ErrorCode.invalid_share_session_epoch
        first = await member.acknowledge("t", [(0, 0, [ACCEPT])], share_session_epoch=0)
        assert first.error_code == ErrorCode.invalid_share_session_epoch
        opening = await member.fetch("t", [(0, 0, [ACCEPT])], share_session_epoch=0)
        assert opening.error_code == ErrorCode.invalid_request

    run(tmp_path, scenario)


def test_session_limit_is_answered_after_the_wait(tmp_path: Path) -> None:
    async def whole(broker: Harness) -> None:
        await broker.create("t", 1)
        first, second = ShareMember(broker, "m1"), ShareMember(broker, "m2")
        assert (await first.fetch("t")).error_code == 0
        loop = asyncio.get_running_loop()
        before = loop.time()
        refused = await second.fetch("t", max_wait=200)
        assert refused.error_code == ErrorCode.share_session_limit_reached
        assert loop.time() - before > 0.15
        assert (await first.fetch("t", share_session_epoch=-1)).error_code == 0
        assert (await second.fetch("t")).error_code == 0

    serve(tmp_path, whole, SETTINGS | {"group.share.max.share.sessions": "1"})


@pytest.mark.parametrize("member_id", ["", "x" * 37, "x" * 10_000])
def test_invalid_member_ids_are_refused(tmp_path: Path, member_id: str) -> None:
    async def scenario(broker: Harness, member: ShareMember) -> None:
        answer = await member.fetch("t", member_id=member_id, share_session_epoch=0)
        assert answer.error_code == ErrorCode.invalid_request
        answer = await member.fetch("t", group_id=None, share_session_epoch=0)
        assert answer.error_code == ErrorCode.invalid_request

    run(tmp_path, scenario)


# --- start offsets and restarts


def test_share_group_with_auto_offset_reset_latest_starts_at_the_log_end(tmp_path: Path) -> None:
    async def scenario(broker: Harness, member: ShareMember) -> None:
        assert await member.take("t", max_wait=300) == []
        offset = await broker.append("t", b"new")
        assert await member.take("t", max_wait=2_000) == [(offset, offset, 1)]

    run(tmp_path, scenario, auto_offset_reset="latest")


def test_state_survives_a_restart_of_the_broker(tmp_path: Path) -> None:
    async def before(broker: Harness) -> None:
        await broker.create("t", 1)
        await configure(broker, auto_offset_reset="earliest")
        member = ShareMember(broker)
        await member.join("t")
        await broker.append("t", *[b"value"] * 10)
        assert await first_take(member) == [(0, 9, 1)]
        await member.acknowledge("t", [(0, 1, [ACCEPT]), (4, 5, [RELEASE]), (7, 7, [REJECT])])

    async def after(broker: Harness) -> None:
        member = ShareMember(broker, "m2")
        await member.join("t")
        assert await first_take(member) == [(2, 3, 1), (4, 5, 2), (6, 6, 1), (8, 9, 1)]

    ensemble = MemoryEnsemble()
    serve(tmp_path, before, SETTINGS, ensemble)
    serve(tmp_path, after, SETTINGS, ensemble)
