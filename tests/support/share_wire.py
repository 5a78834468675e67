"""A member of a share group that sends raw requests to a broker of the test's own process."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

from penstock.errors import BrokerError
from penstock.replication.replica import Replica
from penstock.server.dispatch import Session
from penstock.server.security import ANONYMOUS
from support.harness import Harness, serve

SHARE_GROUP_HEARTBEAT, SHARE_GROUP_DESCRIBE, SHARE_FETCH, SHARE_ACKNOWLEDGE = 76, 77, 78, 79
INCREMENTAL_ALTER_CONFIGS, GROUP_RESOURCE, SET = 44, 32, 0
GAP, ACCEPT, RELEASE, REJECT, RENEW = range(5)

SETTINGS = {
    "durability": "os",
    "offsets.topic.num.partitions": "1",
    "share.coordinator.state.topic.num.partitions": "1",
    "group.share.min.record.lock.duration.ms": "1",
    "group.share.min.partition.max.record.locks": "1",
}

Ack = tuple[int, int, Sequence[int]]
"""First offset, last offset and types of an acknowledgement."""


async def configure(broker: Harness, group: str = "g", **configs: Any) -> None:
    """Set configs of a group; underscores of the names stand for dots."""
    alterations = [
        {"name": "share." + name.replace("_", "."), "config_operation": SET, "value": str(value)}
        for name, value in configs.items()
    ]
    resource = {"resource_type": GROUP_RESOURCE, "resource_name": group, "configs": alterations}
    answer = await broker.ask(INCREMENTAL_ALTER_CONFIGS, 1, {"resources": [resource], "validate_only": False})
    assert answer.responses[0].error_code == 0, answer.responses[0].error_message


async def loaded(broker: Harness, group: str = "g") -> None:
    """Wait until the coordinators of share groups are loaded."""
    context = broker.context
    await context.groups.find(group)
    while context.groups.is_loading or context.share.coordinator.is_loading:
        await asyncio.sleep(0.01)


class ShareMember:
    def __init__(self, broker: Harness, member_id: str = "m1", group: str = "g", version: int = 2) -> None:
        self.broker = Harness(broker._broker)
        self.broker.session = Session(f"{member_id}:1", "test", ANONYMOUS)
        self.member_id, self.group, self.version = member_id, group, version
        self.epoch = 0
        self.member_epoch = 0

    async def join(self, *topics: str) -> Any:
        await loaded(self.broker)
        answer = await self.heartbeat(subscribed_topic_names=list(topics))
        assert answer.error_code == 0, answer.error_message
        self.member_epoch = answer.member_epoch
        return answer

    async def heartbeat(self, **fields: Any) -> Any:
        known = {
            "group_id": self.group,
            "member_id": self.member_id,
            "member_epoch": self.member_epoch,
            "rack_id": None,
            "subscribed_topic_names": None,
        }
        return await self.broker.ask(SHARE_GROUP_HEARTBEAT, 1, known | fields)

    def topic_id(self, topic: str) -> Any:
        return self.broker.context.image.topics[topic].id

    def topics(self, topic: str, acks: Sequence[Ack] = (), partition: int = 0) -> list[dict[str, Any]]:
        batches = [
            {"first_offset": first, "last_offset": last, "acknowledge_types": list(types)}
            for first, last, types in acks
        ]
        return [
            {
                "topic_id": self.topic_id(topic),
                "partitions": [{"partition_index": partition, "acknowledgement_batches": batches}],
            }
        ]

    async def fetch(self, topic: str | None, acks: Sequence[Ack] = (), **fields: Any) -> Any:
        """Send a ShareFetch with the next session epoch."""
        known = {
            "group_id": self.group,
            "member_id": self.member_id,
            "share_session_epoch": self.epoch,
            "max_wait": 0,
            "min_bytes": 1,
            "max_bytes": 1_000_000,
            "max_records": 500,
            "batch_size": 500,
            "share_acquire_mode": 0,
            "is_renew_ack": False,
            "topics": [] if topic is None else self.topics(topic, acks),
            "forgotten_topics_data": [],
        } | fields
        answer = await self.broker.ask(SHARE_FETCH, self.version, known)
        if answer.error_code == 0 and known["share_session_epoch"] == self.epoch:
            self.epoch += 1
        return answer

    async def acknowledge(self, topic: str, acks: Sequence[Ack], **fields: Any) -> Any:
        """Send a ShareAcknowledge with the next session epoch."""
        known = {
            "group_id": self.group,
            "member_id": self.member_id,
            "share_session_epoch": self.epoch,
            "is_renew_ack": False,
            "topics": self.topics(topic, acks),
        } | fields
        answer = await self.broker.ask(SHARE_ACKNOWLEDGE, self.version, known)
        if answer.error_code == 0 and known["share_session_epoch"] == self.epoch:
            self.epoch += 1
        return answer

    async def take(self, topic: str, **fields: Any) -> list[tuple[int, int, int]]:
        """Fetch and return the acquired ranges: first offset, last offset, delivery count."""
        return acquired(await self.fetch(topic, **fields))


def partition_of(answer: Any) -> Any:
    """The only partition of an answer."""
    assert answer.error_code == 0, answer.error_message
    ((partition,),) = ((topic.partitions) for topic in answer.responses)
    return partition


def acquired(answer: Any) -> list[tuple[int, int, int]]:
    assert answer.error_code == 0, answer.error_message
    return [
        (each.first_offset, each.last_offset, each.delivery_count)
        for topic in answer.responses
        for partition in topic.partitions
        for each in partition.acquired_records
    ]


Scenario = Callable[[Harness, ShareMember], Awaitable[None]]


def run(tmp_path: Path, scenario: Scenario, records: int = 10, batches: int = 1, **configs: Any) -> None:
    """Run a scenario with a topic of some batches and a member that has joined."""

    async def whole(broker: Harness) -> None:
        await broker.create("t", 1)
        configs.setdefault("auto_offset_reset", "earliest")
        await configure(broker, **configs)
        member = ShareMember(broker)
        await member.join("t")
        for _ in range(batches):
            await broker.append("t", *[b"value"] * records)
        await scenario(broker, member)

    serve(tmp_path, whole, SETTINGS)


async def first_take(member: ShareMember, **fields: Any) -> list[tuple[int, int, int]]:
    """Take records, waiting for the share-partition to be loaded."""
    return await member.take("t", max_wait=2_000, **fields)


@contextmanager
def commits_held_back() -> Iterator[list[Callable[[BrokerError | None], None]]]:
    """Hold back the commits of share states; yields the callbacks that wait for them."""
    held: list[Callable[[BrokerError | None], None]] = []
    real = Replica.when_committed

    def hold(self: Replica, info: Any, callback: Callable[[BrokerError | None], None]) -> bool:
        if self.name.topic != "__share_group_state":
            return real(self, info, callback)
        held.append(callback)
        return False

    with patch.object(Replica, "when_committed", hold):
        yield held
