"""A share group (KIP-932), which behaves like that of Apache Kafka.

Members report by heartbeats and get their assignment in the response. Nothing is revoked, because members
share partitions; the leader of a partition gives each record to one member at a time. A partition is assigned
once it has a share state.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence

from penstock.cluster.image import ClusterImage
from penstock.errors import BrokerError, ErrorCode
from penstock.groups.deadlines import Deadlines
from penstock.groups.group import (
    DescribedMember,
    GroupDescription,
    GroupKind,
    GroupState,
    GroupStep,
    JoinRequest,
    JoinResult,
    LeaveResult,
    LeavingMember,
    ShareHeartbeat,
    ShareHeartbeatResult,
    SyncRequest,
    SyncResult,
    Ticket,
)
from penstock.groups.heartbeat_group import HeartbeatGroup
from penstock.groups.records import ShareCurrentValue, ShareMemberValue, ShareTopic
from penstock.groups.settings import GroupSettings
from penstock.groups.share.state import ShareMember, ShareState
from penstock.model import TopicId

JOIN_EPOCH = 0
LEAVE_EPOCH = -1
PROTOCOL_TYPE = "share"
ASSIGNOR = "simple"


class ShareGroup(HeartbeatGroup[ShareState, Deadlines]):
    kind: GroupKind = GroupKind.SHARE

    def __init__(self, group_id: str, settings: GroupSettings, wall_ms: Callable[[], int]) -> None:
        super().__init__(group_id, ShareState(group_id), Deadlines(), settings, wall_ms)

    def loaded(self, image: ClusterImage, now_ms: int) -> None:
        self.remembered.see(image)
        for member_id in self.remembered.members:
            self._heard_from(member_id, now_ms)
        self._note_empty()

    # --- heartbeats

    def share_heartbeat(
        self, request: ShareHeartbeat, image: ClusterImage, ticket: Ticket, now_ms: int
    ) -> GroupStep:
        self.remembered.see(image)
        try:
            if request.member_epoch == LEAVE_EPOCH:
                result = self._leave(request)
            else:
                result = self._beat(request, now_ms)
        except BrokerError as error:
            result = ShareHeartbeatResult(error.code, str(error))
        return GroupStep(self.remembered.take_records(), [(ticket, result)])

    def _beat(self, request: ShareHeartbeat, now_ms: int) -> ShareHeartbeatResult:
        remembered = self.remembered
        known = self._known(request)
        if known is None and len(remembered.members) >= self._settings.share_max_size:
            raise BrokerError(
                ErrorCode.group_max_size_reached,
                f"the group has {len(remembered.members)} members, the maximum (group.share.max.size)",
            )
        value = _said_by(request, None if known is None else known.value)
        changed = known is None or known.value.subscribed_topics != value.subscribed_topics
        member = remembered.set_value(request.member_id, value)
        self._empty_since_ms = None
        remembered.update_target(changed)
        before = member.current
        target = remembered.targets.get(member.member_id, {})
        rejoins = request.member_epoch == JOIN_EPOCH
        if before.member_epoch != remembered.assignment_epoch or before.assigned != target:
            previous = JOIN_EPOCH if rejoins and known is None else before.member_epoch
            current = ShareCurrentValue(remembered.assignment_epoch, previous, target)
            remembered.set_current(member, current)
        self._heard_from(member.member_id, now_ms)
        sends_assignment = rejoins or request.subscribed_topics is not None or before.assigned != target
        sends_assignment = sends_assignment or request.member_epoch != member.current.member_epoch
        return ShareHeartbeatResult(
            ErrorCode.none,
            member_id=member.member_id,
            member_epoch=member.current.member_epoch,
            heartbeat_interval_ms=self._settings.share_heartbeat_interval_ms(self.group_id),
            assignment=target if sends_assignment else None,
        )

    def _known(self, request: ShareHeartbeat) -> ShareMember | None:
        """Return the member that sent the heartbeat; None for a new member. BrokerError if the heartbeat must
        be refused.
        """
        member = self.remembered.members.get(request.member_id)
        if request.member_epoch == JOIN_EPOCH:
            return member
        if member is None:
            raise BrokerError(ErrorCode.unknown_member_id, f"member {request.member_id} is not in the group")
        current = member.current
        # The previous epoch is accepted: the response with the new one may have been lost.
        if request.member_epoch not in (current.member_epoch, current.previous_member_epoch):
            raise BrokerError(
                ErrorCode.fenced_member_epoch,
                f"member epoch is {current.member_epoch}, not {request.member_epoch}: rejoin with epoch 0",
            )
        return member

    def _leave(self, request: ShareHeartbeat) -> ShareHeartbeatResult:
        if request.member_id not in self.remembered.members:
            raise BrokerError(ErrorCode.unknown_member_id, f"member {request.member_id} is not in the group")
        self._remove([request.member_id])
        return ShareHeartbeatResult(
            ErrorCode.none, member_id=request.member_id, member_epoch=request.member_epoch
        )

    def _forget(self, member_id: str) -> None:
        self._deadlines.discard(member_id)
        self.remembered.remove(member_id)

    def _heard_from(self, member_id: str, now_ms: int) -> None:
        self._deadlines.set(member_id, now_ms + self._settings.share_session_timeout_ms(self.group_id))

    # --- share states

    def uninitialized(self, topics: Collection[str] | None = None) -> dict[TopicId, ShareTopic]:
        """Partitions without a share state, of `topics` or, if that is None, of the subscribed topics."""
        return self.remembered.uninitialized(self.remembered.subscribed if topics is None else topics)

    def initializing(self, topics: Mapping[TopicId, ShareTopic]) -> GroupStep:
        """Record that share states are being created."""
        self.remembered.set_topics(self.remembered.topics.initialized, topics)
        return GroupStep(self.remembered.take_records())

    def initialized(self, topics: Mapping[TopicId, ShareTopic]) -> GroupStep:
        """Record that these partitions have share states, and assign them to members."""
        known = dict(self.remembered.topics.initialized)
        for topic_id, topic in topics.items():
            before = known.get(topic_id)
            partitions = topic.partitions | (before.partitions if before else frozenset())
            known[topic_id] = ShareTopic(topic.name, partitions)
        self.remembered.set_topics(known)
        self.remembered.update_target(changed=False)
        return GroupStep(self.remembered.take_records())

    def forget_topics(self, topics: Sequence[TopicId]) -> GroupStep:
        """Record that the share states of these topics were deleted."""
        known = {
            topic_id: topic
            for topic_id, topic in self.remembered.topics.initialized.items()
            if topic_id not in topics
        }
        self.remembered.set_topics(known)
        self.remembered.update_target(changed=False)
        return GroupStep(self.remembered.take_records())

    def begin_reset(self) -> tuple[int, GroupStep]:
        """Begin a new group epoch, which becomes the state epoch of states that are reset, and return it."""
        epoch = self.remembered.begin_epoch()
        return epoch, GroupStep(self.remembered.take_records())

    # --- requests of other kinds

    def join(self, request: JoinRequest, ticket: Ticket, now_ms: int) -> GroupStep:
        return GroupStep([], [(ticket, JoinResult(ErrorCode.inconsistent_group_protocol, request.member_id))])

    def sync(self, request: SyncRequest, ticket: Ticket, now_ms: int) -> GroupStep:
        return GroupStep([], [(ticket, SyncResult(ErrorCode.unknown_member_id))])

    def heartbeat(self, member_id: str, instance_id: str | None, generation: int, now_ms: int) -> ErrorCode:
        return ErrorCode.unknown_member_id

    def leave(self, members: Sequence[LeavingMember], ticket: Ticket, now_ms: int) -> GroupStep:
        return GroupStep([], [(ticket, LeaveResult((ErrorCode.unknown_member_id,) * len(members)))])

    def check_commit(
        self,
        member_id: str,
        instance_id: str | None,
        generation: int,
        now_ms: int,
        *,
        is_transactional: bool = False,
    ) -> None:
        raise BrokerError(ErrorCode.group_id_not_found, "a share group has no committed offsets")

    def check_fetch(self, member_id: str | None, member_epoch: int) -> None:
        raise BrokerError(ErrorCode.group_id_not_found, "a share group has no committed offsets")

    # --- views

    @property
    def state(self) -> GroupState:
        return GroupState.EMPTY if self.is_empty else GroupState.STABLE

    @property
    def topics(self) -> frozenset[str]:
        return self.remembered.subscribed

    def describe(self) -> GroupDescription:
        return GroupDescription(
            self.group_id,
            self.kind,
            self.state,
            protocol_type=PROTOCOL_TYPE,
            protocol_name=ASSIGNOR,
            members=tuple(self._described(member) for member in self.remembered.members.values()),
            epoch=self.remembered.epoch,
            assignment_epoch=self.remembered.assignment_epoch,
        )

    def _described(self, member: ShareMember) -> DescribedMember:
        value = member.value
        return DescribedMember(
            member.member_id,
            None,
            value.client_id,
            value.client_host,
            rack_id=value.rack_id,
            member_epoch=member.current.member_epoch,
            subscribed_topics=tuple(sorted(value.subscribed_topics)),
            current=member.current.assigned,
            target=self.remembered.targets.get(member.member_id, {}),
            is_classic=False,
        )


def _said_by(request: ShareHeartbeat, known: ShareMemberValue | None) -> ShareMemberValue:
    topics = request.subscribed_topics
    if topics is None:
        topics = known.subscribed_topics if known is not None else frozenset()
    rack_id = request.rack_id
    if rack_id is None and known is not None:
        rack_id = known.rack_id
    return ShareMemberValue(rack_id, request.client_id, request.client_host, topics)
