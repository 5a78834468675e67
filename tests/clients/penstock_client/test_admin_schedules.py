"""`Admin().schedules` and its async form against a real broker."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

import pytest

from penstock import Admin, AsyncAdmin, ScheduleUnknown
from penstock.client.errors import ClientError, InvalidSetting, TopicUnknown
from support.broker_process import Address
from support.eventually import eventually


def test_schedule_is_created_listed_run_and_deleted(broker: Address, topic_name: str) -> None:
    admin = Admin(broker.bootstrap)
    admin.topics.create(topic_name, partitions=1)
    made = admin.schedules.create(
        topic_name,
        cron="0 9 * * MON-FRI",
        timezone="Europe/Berlin",
        topic=topic_name,
        key="k",
        value=b"v",
        headers={"a": "b"},
        catch_up="all",
    )
    assert (made.key, made.value, made.headers, made.catch_up) == (b"k", b"v", (("a", b"b"),), "all")
    assert len(made.next_times) == 5
    assert made.next == made.next_times[0]
    assert topic_name in [each.name for each in admin.schedules.list()]
    time = admin.schedules.run(topic_name)
    assert abs(time - datetime.now(UTC)) < timedelta(minutes=1)
    eventually(lambda: admin.schedules.describe(topic_name).fired == 1)
    assert admin.schedules.pause(topic_name).next is None
    assert admin.schedules.resume(topic_name).next is not None
    with pytest.raises(ClientError, match="DUPLICATE_RESOURCE"):
        admin.schedules.create(topic_name, cron="@daily", topic=topic_name)
    admin.schedules.delete(topic_name)
    with pytest.raises(ScheduleUnknown):
        admin.schedules.describe(topic_name)
    with pytest.raises(InvalidSetting, match="time zone"):
        admin.schedules.create("s", cron="@daily", timezone="Mars/Base", topic=topic_name)
    with pytest.raises(TopicUnknown):
        admin.schedules.create("s", cron="@daily", topic="no-such-topic")


def test_async_admin_has_the_same_methods(broker: Address, topic_name: str) -> None:
    async def scenario() -> None:
        async with AsyncAdmin(broker.bootstrap) as admin:
            await admin.topics.create(topic_name, partitions=1)
            await admin.schedules.create(topic_name, cron="@every 1h", topic=topic_name)
            await admin.schedules.run(topic_name)
            assert topic_name in [each.name for each in await admin.schedules.list()]
            await admin.schedules.delete(topic_name)

    asyncio.run(scenario())
