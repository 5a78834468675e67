"""A member of the classic group protocol: it joins and syncs, assigns as the leader, and revokes everything
to rebalance.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from penstock.errors import BrokerError, ErrorCode
from penstock.groups.consumer_protocol import (
    Subscription,
    TopicPartitions,
    decode_assignment,
    encode_assignment,
    encode_subscription,
)
from simulation.clients.client import NoAnswer, check_error
from simulation.groups.group_client import Identity
from simulation.groups.membership import NOT_NOW, Membership
from simulation.models.group_model import Place

_NO_GENERATION = -1


class ClassicMembership(Membership):
    _member_id = ""
    _generation = _NO_GENERATION
    _is_joined = False
    _known_partitions: Mapping[str, int] | None = None
    """The partitions to assign, if this member is the leader."""
    _assigned: TopicPartitions = MappingProxyType({})

    @property
    def identity(self) -> Identity:
        return Identity(self._group.name, self._member_id, self._generation, self._instance_id)

    @property
    def reader(self) -> Identity | None:
        return None

    @property
    def is_settled(self) -> bool:
        return self._is_joined

    @property
    def _rebalance_ms(self) -> int:
        return self._group.session_ms + 200

    async def report(self) -> None:
        self._reports_at = self._seconds() + self._stage.report_seconds
        try:
            await self._find()
            if self._is_joined:
                await self._beat()
            else:
                await self._join()
        except BrokerError as error:
            self._note("report", error.code.name)
            await self._on_refusal(error)
        except NoAnswer:
            self._is_lost = True
            raise

    async def leave(self) -> None:
        try:
            await self._before_giving_up(set(self.held))
            self._give_up(set(self.held))
            if self._member_id:
                await self._coordinator.leave(self.identity)
        except (NoAnswer, BrokerError) as error:
            self._note("leave", type(error).__name__)

    async def _beat(self) -> None:
        sent = self._seconds()
        await self._coordinator.heartbeat(self.identity)
        self._prolong(sent)
        self._take_assigned()
        if (
            self._known_partitions is not None
            and self._random.random() < 0.3
            and await self._partitions() != self._known_partitions
        ):
            await self._rejoin("partitions changed")

    async def _rejoin(self, why: str) -> None:
        self.interruptions += 1
        self._note("rejoin", why)
        await self._before_giving_up(set(self.held))
        self._is_joined = False
        self._give_up(set(self.held))
        self._reports_at = 0.0

    async def _on_refusal(self, error: BrokerError) -> None:
        if error.code in NOT_NOW:
            self._is_lost = True
        elif error.code is ErrorCode.rebalance_in_progress:
            await self._rejoin(error.code.name)
        elif error.code in (
            ErrorCode.unknown_member_id,
            ErrorCode.illegal_generation,
            ErrorCode.fenced_instance_id,
        ):
            self.interruptions += 1
            self._is_joined = False
            self._give_up(set(self.held))
            self._generation = _NO_GENERATION
            if error.code is not ErrorCode.illegal_generation:
                self._member_id = ""
        else:
            raise error

    async def _join(self) -> None:
        version = self._random.randint(0, 3)
        subscription = encode_subscription(Subscription(version, self._group.topics, owned={}))
        response = await self._coordinator.join(
            self.identity, subscription, self._group.session_ms, self._rebalance_ms
        )
        if response.error_code == ErrorCode.member_id_required:
            self._member_id = response.member_id
            self._reports_at = 0.0
            return
        check_error(response.error_code)
        self._member_id, self._generation = response.member_id, response.generation_id
        self._note("joined", self._member_id, self._generation)
        self._known_partitions = None
        if response.leader != self._member_id:
            await self._sync({})
        elif getattr(response, "skip_assignment", False):
            # A static leader that came back does not know what its former process assigned, and would not
            # notice new partitions.
            self._known_partitions = self._group.assigned_partitions
            await self._sync({})
        else:
            self._known_partitions = await self._partitions()
            await self._sync(self._assign(response.members, self._known_partitions))
            self._group.assigned_partitions = self._known_partitions

    async def _sync(self, assignments: dict[str, bytes]) -> None:
        sent = self._seconds()
        assignment = await self._coordinator.sync(self.identity, assignments, self._rebalance_ms)
        self._prolong(sent)
        self._assigned = decode_assignment(assignment)
        self._is_joined = True
        self._note("synced", self._generation)
        self._take_assigned()

    def _take_assigned(self) -> None:
        """Take the partitions of an assignment, unless the response was late or a topic is not known to exist
        yet.
        """
        places = {
            Place(topic, partition)
            for name, partitions in self._assigned.items()
            if (topic := self._stage.living(name)) is not None
            for partition in partitions
            if partition < len(topic.partitions)
        }
        if self._client.is_authoritative:
            self._group.on_generation(self._generation, self._instance_id or self._member_id, places)
        self._take(places)

    @staticmethod
    def _assign(joined: Sequence[Any], partitions: Mapping[str, int]) -> dict[str, bytes]:
        """Assign ranges of partitions to all members, which read the same topics. Only the leader knows the
        members.
        """
        members = sorted(
            joined, key=lambda member: getattr(member, "group_instance_id", None) or member.member_id
        )
        assignments: dict[str, dict[str, frozenset[int]]] = {member.member_id: {} for member in members}
        for name, count in partitions.items():
            for place, member in enumerate(members):
                first, last = place * count // len(members), (place + 1) * count // len(members)
                if last > first:
                    assignments[member.member_id][name] = frozenset(range(first, last))
        return {member_id: encode_assignment(parts, 0) for member_id, parts in assignments.items()}

    async def _partitions(self) -> dict[str, int]:
        topics = await self._client.topics()
        return {name: count for name, count in sorted(topics.items()) if name in self._group.topics}
