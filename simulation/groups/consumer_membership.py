"""A member of the consumer group protocol (KIP-848): it reports its partitions and receives its target
assignment.
"""

from __future__ import annotations

import re
from typing import Any
from uuid import UUID

from penstock.errors import BrokerError, ErrorCode
from penstock.groups.consumer.reconciliation import minus
from penstock.groups.records import Assignment
from penstock.model import TopicId
from simulation.clients.client import NoAnswer, check_error
from simulation.groups.group_client import Identity
from simulation.groups.membership import NOT_NOW, Membership
from simulation.models.group_model import Place

_JOINS, _LEAVES, _LEAVES_FOR_NOW = 0, -1, -2
_AS_BEFORE_MS = -1


class ConsumerMembership(Membership):
    _member_id = ""
    _uses_regex = False
    _epoch = _JOINS
    _is_certain = False
    """Whether the coordinator has the last report; otherwise the next report is complete."""
    _reported: dict[UUID, list[int]] | None = None
    _target: Assignment | None = None
    """The partitions that the coordinator has assigned."""

    @property
    def identity(self) -> Identity:
        return Identity(self._group.name, self._member_id, self._epoch, self._instance_id)

    @property
    def reader(self) -> Identity | None:
        return self.identity if self._epoch > 0 else None

    @property
    def is_settled(self) -> bool:
        return self._epoch > 0 and self._is_certain

    @property
    def _rebalance_ms(self) -> int:
        return self._group.session_ms + 200

    async def report(self) -> None:
        self._reports_at = self._seconds() + self._stage.report_seconds
        if not self._member_id:
            self._member_id = str(UUID(int=self._random.getrandbits(128)))
            self._uses_regex = self._random.random() < 0.3
        try:
            await self._find()
            await self._beat()
        except BrokerError as error:
            self._note("report", error.code.name)
            self._on_refusal(error)
        except NoAnswer:
            self._is_lost, self._is_certain = True, False
            raise

    async def leave(self) -> None:
        epoch = _LEAVES
        if self._instance_id is not None and self._random.random() < 0.7:
            epoch = _LEAVES_FOR_NOW
        try:
            await self._before_giving_up(set(self.held))
            self._give_up(set(self.held))
            who = Identity(self._group.name, self._member_id, epoch, self._instance_id)
            if self._epoch > 0:
                await self._coordinator.consumer_heartbeat(who, _AS_BEFORE_MS, None, None)
        except (NoAnswer, BrokerError) as error:
            self._note("leave", type(error).__name__)

    async def _beat(self) -> None:
        sent, known = self._seconds(), self._group.generation
        owned = self._owned()
        says_all = not self._is_certain
        response = await self._coordinator.consumer_heartbeat(
            self.identity,
            self._rebalance_ms if says_all else _AS_BEFORE_MS,
            sorted(self._group.topics) if says_all and not self._uses_regex else None,
            owned if says_all or owned != self._reported else None,
            "|".join(map(re.escape, sorted(self._group.topics))) if says_all and self._uses_regex else None,
        )
        check_error(response.error_code)
        self._prolong(sent)
        self._is_certain, self._reported = True, owned
        if response.member_epoch != self._epoch:
            self._note("epoch", self._member_id, response.member_epoch)
        if self._client.is_authoritative:
            self._group.on_epoch(response.member_epoch, self._epoch or known, self._owner)
        self._epoch = response.member_epoch
        if response.assignment is not None:
            self._on_assignment(_assignment(response.assignment))
        await self._reconcile()

    def _on_assignment(self, target: Assignment) -> None:
        """Set the target. A revocation is confirmed with a report, also of a partition never taken: the
        coordinator removes a member that does not confirm within its rebalance timeout.
        """
        if self._target is not None and minus(self._target, target):
            self._reported = None
        self._target = target

    async def _reconcile(self) -> None:
        """Take and give up partitions towards the assignment; topics whose name is not known yet have to
        wait.
        """
        if self._target is None:
            return
        wanted: set[Place] = set()
        for topic_id, partitions in self._target.items():
            topic = await self._stage.topic_of(self._client, topic_id)
            if topic is not None:
                wanted |= {Place(topic, number) for number in partitions if number < len(topic.partitions)}
        surplus = self.held - wanted
        if surplus:
            self.interruptions += 1
            await self._before_giving_up(surplus)
            self._give_up(surplus)
            self._reports_at = 0.0
        if wanted - self.held:
            self.interruptions += 1
            self._take(wanted)

    def _on_refusal(self, error: BrokerError) -> None:
        if error.code in NOT_NOW:
            self._is_lost, self._is_certain = True, False
        elif error.code in (ErrorCode.unknown_member_id, ErrorCode.fenced_member_epoch):
            self.interruptions += 1
            self._give_up(set(self.held))
            self._epoch, self._is_certain, self._target = _JOINS, False, None
        elif error.code in (ErrorCode.unreleased_instance_id, ErrorCode.group_id_not_found):
            self._give_up(set(self.held))
            self._epoch, self._is_certain, self._target = _JOINS, False, None
        else:
            raise error

    def _owned(self) -> dict[UUID, list[int]]:
        owned: dict[UUID, list[int]] = {}
        for place in sorted(self.held, key=str):
            assert place.topic.id is not None
            owned.setdefault(place.topic.id, []).append(place.partition)
        return owned


def _assignment(assignment: Any) -> Assignment:
    return {TopicId(topic.topic_id): frozenset(topic.partitions) for topic in assignment.topic_partitions}
