"""A driver of one group in place of the shard: a manual clock, an image of topics, a log that is replayed
after a step.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import count
from typing import Any, cast
from uuid import UUID

from group_log import GROUP, GroupLog

from penstock.cluster.image import ClusterImage, PartitionState, TopicImage
from penstock.config import BrokerConfig
from penstock.errors import BrokerError, ErrorCode
from penstock.groups.classic.group import ClassicGroup
from penstock.groups.consumer.group import ConsumerGroup
from penstock.groups.consumer_protocol import Subscription, decode_assignment, encode_subscription
from penstock.groups.context import GroupContext
from penstock.groups.group import (
    ConsumerHeartbeat,
    ConsumerHeartbeatResult,
    GroupStep,
    JoinRequest,
    JoinResult,
    LeaveResult,
    LeavingMember,
    SyncRequest,
    SyncResult,
)
from penstock.groups.records import Assignment, GroupRecord
from penstock.groups.settings import GroupSettings
from penstock.groups.shard_groups import ShardGroups
from penstock.model import BrokerId, LeaderEpoch, TopicId

SESSION_MS = 45_000
REBALANCE_MS = 60_000
CLASSIC_SESSION_MS = 10_000
WALL_OFFSET_MS = 1_700_000_000_000

_PARTITION = PartitionState(BrokerId(1), LeaderEpoch(0), (BrokerId(1),), (BrokerId(1),), 0)
_NEXT_ID = count(1)


def topic(name: str, partitions: int, topic_id: TopicId | None = None) -> TopicImage:
    fresh = TopicId(UUID(int=next(_NEXT_ID)))
    return TopicImage(name, topic_id or fresh, (_PARTITION,) * partitions, {}, 0)


def image_of(**topics: int) -> ClusterImage:
    return ClusterImage("cluster").with_topics(topic(name, count) for name, count in topics.items())


def settings_of(**options: object) -> GroupSettings:
    return GroupSettings(
        BrokerConfig({name.replace("_", "."): str(value) for name, value in options.items()}), {}
    )


class Driver:
    def __init__(self, image: ClusterImage | None = None, **options: object) -> None:
        self.now_ms = 1_000
        self.settings = settings_of(**options)
        self.image = image or image_of(foo=6)
        self.log = GroupLog(self)
        self.last: list[GroupRecord] = []
        self.replacements = 0
        self.groups = ShardGroups(cast(GroupContext, self))
        self.groups[GROUP] = ConsumerGroup(GROUP, self.settings, self.wall_ms)

    def wall_ms(self) -> int:
        return WALL_OFFSET_MS + self.now_ms

    @property
    def group(self) -> ConsumerGroup | ClassicGroup:
        group = self.groups[GROUP]
        assert isinstance(group, (ConsumerGroup, ClassicGroup))
        return group

    def _note_replacement(self, kind: type[ConsumerGroup | ClassicGroup]) -> None:
        """Count the groups: a member of the other protocol replaces an empty group, and its generations begin anew."""
        group = self.groups.get(GROUP)
        if isinstance(group, kind) and group.is_empty:
            self.replacements += 1

    @property
    def consumer(self) -> ConsumerGroup:
        assert isinstance(self.group, ConsumerGroup)
        return self.group

    # Requests

    def beat(
        self,
        member_id: str,
        epoch: int,
        *,
        topics: Iterable[str] | None = None,
        regex: str | None = None,
        owned: Mapping[str, Iterable[int]] | None = None,
        instance_id: str | None = None,
        assignor: str | None = None,
        rebalance_timeout_ms: int | None = None,
        rack_id: str | None = None,
    ) -> ConsumerHeartbeatResult:
        joins = epoch == 0
        if rebalance_timeout_ms is None:
            rebalance_timeout_ms = REBALANCE_MS if joins else -1
        request = ConsumerHeartbeat(
            member_id=member_id,
            member_epoch=epoch,
            instance_id=instance_id,
            rack_id=rack_id,
            client_id="client",
            client_host="host",
            rebalance_timeout_ms=rebalance_timeout_ms,
            subscribed_topics=None if topics is None else frozenset(topics),
            subscribed_regex=regex,
            server_assignor=assignor,
            owned={} if joins else self.ids(owned),
        )
        return self.heartbeat(request)

    def heartbeat(self, request: ConsumerHeartbeat) -> ConsumerHeartbeatResult:
        try:
            self._note_replacement(ClassicGroup)
            group, step = self.groups.for_consumer_heartbeat(GROUP, request, self.now_ms)
        except BrokerError as error:
            return ConsumerHeartbeatResult(error.code, str(error))
        step += group.consumer_heartbeat(request, self.image, "ticket", self.now_ms)
        result = self.take(step)["ticket"]
        assert isinstance(result, ConsumerHeartbeatResult)
        return result

    def join(self, member_id: str, *topics: str, **options: Any) -> ConsumerHeartbeatResult:
        result = self.beat(member_id, 0, topics=topics or ("foo",), **options)
        assert result.error is ErrorCode.none, result
        return result

    def ask_classic_join(
        self,
        member_id: str = "",
        *topics: str,
        owned: Mapping[str, Iterable[int]] | None = None,
        instance_id: str | None = None,
        new_member_id: str = "fresh",
        protocols: Iterable[str] = ("cooperative-sticky",),
        requires_known_member_id: bool = False,
        version: int = 1,
        session_timeout_ms: int = CLASSIC_SESSION_MS,
        protocol_type: str = "consumer",
        metadata: bytes | None = None,
        ticket: object = None,
    ) -> tuple[GroupStep, dict[object, Any]]:
        numbers = {name: frozenset(partitions) for name, partitions in (owned or {}).items()}
        subscription = Subscription(version, frozenset(topics or ("foo",)), numbers)
        encoded = encode_subscription(subscription) if metadata is None else metadata
        request = JoinRequest(
            member_id=member_id,
            instance_id=instance_id,
            client_id="client",
            client_host="host",
            protocol_type=protocol_type,
            protocols=tuple((name, encoded) for name in protocols),
            session_timeout_ms=session_timeout_ms,
            rebalance_timeout_ms=REBALANCE_MS,
            new_member_id=new_member_id,
            requires_known_member_id=requires_known_member_id,
            supports_skipping_assignment=False,
        )
        self._note_replacement(ConsumerGroup)
        group, step = self.groups.for_join(GROUP)
        step += group.join(request, ticket or object(), self.now_ms)
        return step, self.take(step)

    def classic_join(self, member_id: str = "", *topics: str, **options: Any) -> JoinResult:
        _, answers = self.ask_classic_join(member_id, *topics, **options)
        (result,) = answers.values()
        assert isinstance(result, JoinResult)
        return result

    def classic_sync(
        self, member_id: str, generation: int, instance_id: str | None = None, **options: Any
    ) -> SyncResult:
        named = {"protocol_type": "consumer", "protocol_name": None, "assignments": {}, **options}
        request = SyncRequest(member_id, instance_id, generation, **named)
        step = self.group.sync(request, "sync", self.now_ms)
        (result,) = self.take(step).values()
        assert isinstance(result, SyncResult)
        return result

    def classic_assignment(self, member_id: str, generation: int) -> dict[str, set[int]]:
        result = self.classic_sync(member_id, generation)
        assert result.error is ErrorCode.none
        return {name: set(numbers) for name, numbers in decode_assignment(result.assignment).items()}

    def classic_beat(self, member_id: str, generation: int, instance_id: str | None = None) -> ErrorCode:
        return self.group.heartbeat(member_id, instance_id, generation, self.now_ms)

    def classic_leave(self, *members: tuple[str, str | None]) -> tuple[ErrorCode, ...]:
        leaving = [LeavingMember(member_id, instance_id) for member_id, instance_id in members]
        step = self.group.leave(leaving, "leave", self.now_ms)
        result = self.take(step)["leave"]
        assert isinstance(result, LeaveResult)
        return result.errors

    # Time, topics and restarts

    def pass_ms(self, ms: int) -> None:
        """Advance the clock and handle every deadline when it is due."""
        end_ms = self.now_ms + ms
        while (deadline_ms := self.group.next_deadline_ms) is not None and deadline_ms <= end_ms:
            self.now_ms = max(self.now_ms, deadline_ms)
            self.take(self.group.tick(self.now_ms))
        self.now_ms = end_ms

    def see(self, image: ClusterImage) -> None:
        self.image = image
        if isinstance(self.group, ConsumerGroup):
            self.take(self.group.on_topics(image, self.now_ms))

    def grow(self, name: str, partitions: int) -> None:
        self.see(self.image.with_topics([topic(name, partitions, self.image.topics[name].id)]))

    def restart(self) -> None:
        """Restore the group from its log; a group without records is an empty classic group."""
        restored = self.log.restart(self.now_ms)
        if restored is None:
            self.groups.add_classic(GROUP)
        else:
            self.groups[GROUP] = restored

    def take(self, step: GroupStep) -> dict[object, Any]:
        step += self.groups.downgrade_if_due(GROUP, self.now_ms)
        self.last = step.records
        self.log.append(step.records)
        answers = dict(step.answers)
        assert len(answers) == len(step.answers), "answered twice"
        self.log.check(self.group, self.now_ms)
        return answers

    # Names and ids

    def ids(self, named: Mapping[str, Iterable[int]] | None) -> Assignment | None:
        if named is None:
            return None
        return {self.image.topics[name].id: frozenset(numbers) for name, numbers in named.items() if numbers}

    def named(self, assignment: Assignment | None) -> dict[str, set[int]] | None:
        if assignment is None:
            return None
        return {self.image.topic_names[topic_id]: set(numbers) for topic_id, numbers in assignment.items()}

    def assigned(self, member_id: str) -> dict[str, set[int]]:
        named = self.named(self.consumer.remembered.members[member_id].assigned)
        assert named is not None
        return named

    def settle(self, *member_ids: str) -> None:
        """Send truthful heartbeats of all members until nothing changes any more."""
        for _ in range(4 * len(member_ids) + 4):
            for member_id in member_ids:
                member = self.consumer.remembered.members[member_id]
                result = self.beat(member_id, member.epoch, owned=self.assigned(member_id))
                assert result.error is ErrorCode.none
