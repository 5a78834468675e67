from __future__ import annotations

import asyncio

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mailbox_stage import Stage

from penstock.errors import BrokerError
from penstock.gateway.http.problems import Problem
from penstock.gateway.mailbox import MailboxMessage
from penstock.gateway.records import Limits
from penstock.internal_client.errors import OutcomeUnknown
from penstock.internal_client.partitioner import partition_for
from penstock.records.iteration import Record

ALL = Limits(1_000, 1 << 20)
USERS = [f"user-{number}" for number in range(6)]
WAYS = ["gateway", "kafka"]
"""The form of sent messages."""


async def test_messages_come_in_order_after_the_last_one_seen() -> None:
    stage = Stage()
    ids = [await stage.mailbox.send("ann", "bob", f"m{number}", None) for number in range(5)]
    await stage.mailbox.send("ann", "carl", "other", None)
    assert ids == sorted(ids)
    assert await stage.received("bob") == [f"m{number}" for number in range(5)]
    assert await stage.received("bob", ids[2]) == ["m3", "m4"]
    assert await stage.received("bob", limit=2) == ["m0", "m1"]
    assert await stage.received("bob", ids[4]) == []


async def test_id_of_another_user_is_refused() -> None:
    stage = Stage()
    mine = await stage.mailbox.send("ann", "bob", "m", None)
    for user, last in (("carl", mine), ("bob", mine[:-1] + "v"), ("bob", "nonsense")):
        with pytest.raises(Problem) as caught:
            await stage.received(user, last)
        assert caught.value.status == 400


async def test_id_of_expired_message_continues_with_the_oldest() -> None:
    stage = Stage(partitions=1)
    ids = [await stage.mailbox.send("ann", "bob", f"m{number}", None) for number in range(5)]
    stage.topic.log_start = 3
    assert await stage.received("bob", ids[0]) == ["m3", "m4"]


async def test_recreated_topic_refuses_old_ids() -> None:
    stage = Stage()
    old = await stage.mailbox.send("ann", "bob", "m", None)
    from uuid import UUID

    from penstock.model import TopicId

    stage.topic.topic_id = TopicId(UUID(int=2))
    stage.clock.advance(10)
    with pytest.raises(Problem):
        await stage.received("bob", old)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from([*USERS, "grow", "shrink"]), st.sampled_from(WAYS)), max_size=40),
    st.integers(1, 7),
)
def test_reader_gets_each_message_once_while_the_partition_count_changes(
    steps: list[tuple[str, str]], page: int
) -> None:
    async def run() -> None:
        stage = Stage(partitions=1)
        sent: dict[str, list[str]] = {user: [] for user in USERS}
        seen: dict[str, list[str]] = {user: [] for user in USERS}
        last: dict[str, str | None] = dict.fromkeys(USERS)
        partitions, number = 1, 0
        await stage.received("nobody")

        async def read(user: str) -> bool:
            found = await stage.mailbox.receive(user, last[user], Limits(page, 1 << 20), 0)
            seen[user] += [each.message for each in found]
            if found:
                last[user] = found[-1].id
            return bool(found)

        for step, way in steps:
            if step == "grow":
                partitions += 3
                await stage.grow(partitions)
            elif step == "shrink":
                partitions = max(1, partitions // 2)
                if partitions < len(stage.topic.partitions):
                    await stage.shrink(partitions)
            else:
                if way == "gateway":
                    await stage.mailbox.send("x", step, str(number), None)
                else:
                    stage.append(step, str(number))
                sent[step].append(str(number))
                number += 1
                await read(step)
        for user in USERS:
            while await read(user):
                pass
            assert seen[user] == sent[user]
            assert await stage.received(user) == sent[user], "from the beginning too"

    asyncio.run(run())


async def test_messages_of_a_draining_partition_come_first_and_vanish_with_it() -> None:
    stage = Stage(partitions=4)
    user = next(user for user in USERS if partition_for(user.encode(), 4) >= 2)
    await stage.mailbox.send("ann", user, "old", None)
    await stage.shrink(2)
    new = await stage.mailbox.send("ann", user, "new", None)
    found = await stage.mailbox.receive(user, None, ALL, 0)
    assert [each.message for each in found] == ["old", "new"]
    assert found[0].id < found[1].id == new
    assert await stage.received(user, found[0].id) == ["new"]
    await stage.grow(4)
    await stage.mailbox.send("ann", user, "again", None)
    assert await stage.received(user) == ["old", "new", "again"]
    assert await stage.received(user, new) == ["again"]
    await stage.shrink(2)
    stage.topic.remove(2)
    stage.clock.advance(6)
    await stage.received("nobody")
    assert await stage.received(user) == ["new"]
    assert await stage.received(user, found[0].id) == ["new"]


async def test_retry_after_partitions_were_removed_is_stored_once() -> None:
    stage = Stage(partitions=5)
    user = next(user for user in USERS if partition_for(user.encode(), 5) >= 1)
    first = await stage.mailbox.send("ann", user, "once", "key-1")
    await stage.shrink(1)
    assert await stage.mailbox.send("ann", user, "once", "key-1") == first
    stage.topic.remove(1)
    stage.clock.advance(6)
    await stage.received("nobody")
    assert await stage.mailbox.send("ann", user, "once", "key-1") != first


async def test_retry_after_partitions_were_added_is_stored_once() -> None:
    stage = Stage(partitions=1)
    user = next(user for user in USERS if partition_for(user.encode(), 5) != 0)
    first = await stage.mailbox.send("ann", user, "once", "key-1")
    await stage.grow(5)
    assert await stage.mailbox.send("ann", user, "once", "key-1") == first
    for sender, message in (("eve", "once"), ("ann", "another")):
        with pytest.raises(BrokerError):
            await stage.mailbox.send(sender, user, message, "key-1")
    assert await stage.mailbox.send("ann", user, "twice", "key-2") != first
    assert await stage.received(user) == ["once", "twice"]


async def test_late_acknowledgement_under_old_count_is_unknown_outcome() -> None:
    stage = Stage(partitions=1)
    await stage.mailbox.send("ann", "bob", "first", None)
    stage.topic.held = asyncio.Event()
    sending = asyncio.create_task(stage.mailbox.send("ann", "bob", "late", None))
    await asyncio.sleep(0)
    await stage.grow(4)
    stage.topic.held.set()
    with pytest.raises(OutcomeUnknown):
        await sending


async def test_send_to_vanishing_cluster_is_unknown_outcome() -> None:
    stage = Stage(partitions=1)
    await stage.mailbox.send("ann", "bob", "first", None)
    stage.topic.held = asyncio.Event()
    sending = asyncio.create_task(stage.mailbox.send("ann", "bob", "late", None))
    await asyncio.sleep(0)
    stage.topic.is_away = True
    stage.clock.advance(6)
    stage.topic.held.set()
    with pytest.raises(OutcomeUnknown):
        await sending


async def test_gateways_switch_to_new_partitions_at_the_same_time() -> None:
    stage = Stage(partitions=1)
    other = stage.another_gateway()
    await stage.mailbox.send("ann", "bob", "0", None)
    await other.send("ann", "bob", "1", None)
    stage.topic.grow(4)
    stage.clock.advance(6)
    await stage.mailbox.send("ann", "bob", "2", None)
    stage.clock.advance(3)
    await other.send("ann", "bob", "3", None)
    assert [len(log) for log in stage.topic.partitions] == [4, 0, 0, 0]
    stage.clock.advance(10)
    for number, gateway in enumerate((stage.mailbox, other)):
        await gateway.receive("bob", None, ALL, 0)
        await gateway.send("ann", "bob", str(4 + number), None)
    assert len(stage.topic.partitions[partition_for(b"bob", 4)]) == 2 or partition_for(b"bob", 4) == 0
    assert await stage.received("bob") == ["0", "1", "2", "3", "4", "5"]


async def test_gateway_without_metadata_does_not_send() -> None:
    stage = Stage()
    await stage.mailbox.send("ann", "bob", "m", None)
    stage.topic.is_away = True
    stage.clock.advance(6)
    with pytest.raises(ConnectionRefusedError):
        await stage.mailbox.send("ann", "bob", "m", None)


async def test_damaged_message_is_reported_and_skipped() -> None:
    stage = Stage(partitions=1)
    sent = [await stage.mailbox.send("ann", "bob", str(number), None) for number in range(3)]
    stage.topic.damaged = 1
    assert await stage.received("bob") == ["0"]
    with pytest.raises(Problem) as caught:
        await stage.received("bob", sent[0])
    assert (caught.value.status, caught.value.error) == (500, "CORRUPT_MESSAGE")
    assert await stage.received("bob", caught.value.extra["last_message_id"]) == ["2"]


async def test_forged_layout_hides_no_other_message() -> None:
    stage = Stage(partitions=1)
    await stage.received("nobody")
    await stage.grow(4)
    user = next(user for user in USERS if partition_for(user.encode(), 4) != 0)
    for layout in (b"1", b"4", b"7", b"x"):
        stage.append(user, "forged", (("penstock-layout", layout),))
        await stage.mailbox.send("ann", user, "true", None)
    assert (await stage.received(user)).count("true") == 4


async def test_messages_of_kafka_producers_are_received() -> None:
    stage = Stage(partitions=3)
    await stage.received("bob")
    partition = partition_for(b"bob", 3)
    stage.topic.partitions[partition].append(Record(0, 5, b"bob", b"from a producer", ()))
    stage.topic.partitions[partition].append(Record(1, 5, b"bob", b"\xff", ((("from_user", None)),)))
    first, second = await stage.mailbox.receive("bob", None, ALL, 0)
    assert (first.from_user, first.message) == ("", "from a producer")
    assert (second.from_user, second.message) == ("", "\ufffd")
    await stage.grow(9)
    assert [each.id for each in await stage.mailbox.receive("bob", None, ALL, 0)] == [first.id, second.id]


async def sent_without_task(stage: Stage, user: str, message: str, key: str | None = None) -> str | None:
    """Return the id of a message that was sent without a task; None where a task has to send it."""
    reply: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    return await reply if stage.mailbox.begin_send("ann", user, message, key, reply) else None


async def test_send_without_task_gives_the_same_id() -> None:
    stage = Stage()
    assert await sent_without_task(stage, "bob", "too early") is None
    first = await stage.mailbox.send("ann", "bob", "first", "key-1")
    assert await sent_without_task(stage, "bob", "first", "key-1") == first
    second = await sent_without_task(stage, "bob", "second")
    assert second is not None
    assert await stage.received("bob", first) == ["second"]
    assert await stage.received("bob", second) == []


async def test_send_without_task_waits_for_new_partitions() -> None:
    stage = Stage(partitions=1)
    await stage.mailbox.send("ann", "bob", "first", None)
    await stage.grow(4)
    assert await sent_without_task(stage, "bob", "second", "key-1") is None
    assert await sent_without_task(stage, "bob", "second") is not None
    assert await stage.received("bob") == ["first", "second"]


async def test_late_acknowledgement_without_task_is_unknown_outcome() -> None:
    stage = Stage(partitions=1)
    await stage.mailbox.send("ann", "bob", "first", None)
    stage.topic.held = asyncio.Event()
    replies = [asyncio.get_running_loop().create_future() for _ in range(2)]
    assert stage.mailbox.begin_send("ann", "bob", "late", None, replies[0])
    await asyncio.sleep(0)
    await stage.grow(4)
    assert stage.mailbox.begin_send("ann", "bob", "lost", None, replies[1])
    stage.topic.is_away = True
    stage.clock.advance(6)
    stage.topic.held.set()
    for reply in replies:
        with pytest.raises(OutcomeUnknown):
            await reply


async def test_long_poll_without_task_continues_in_a_task() -> None:
    stage = Stage()
    await stage.mailbox.send("ann", "bob", "first", None)
    reply: asyncio.Future[list[MailboxMessage]] = asyncio.get_running_loop().create_future()
    awaited = stage.mailbox.begin_receive("carol", None, Limits(10, 1 << 20), 5_000, reply)
    assert awaited is not None
    for _ in range(5):
        await asyncio.sleep(0)
    assert not reply.done()
    await stage.mailbox.send("ann", "carol", "second", None)
    stage.clock.advance(1)
    assert [each.message for each in await reply] == ["second"]
