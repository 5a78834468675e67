"""Clients of both protocols for property tests: they behave as real clients do, with the delays that those
may have.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import count
from typing import TYPE_CHECKING, Any

from consumer_driver import CLASSIC_SESSION_MS, REBALANCE_MS, Driver

from penstock.errors import ErrorCode
from penstock.groups.classic.group import ClassicGroup
from penstock.groups.consumer_protocol import decode_assignment, decode_subscription, encode_assignment
from penstock.groups.group import (
    ConsumerHeartbeat,
    ConsumerHeartbeatResult,
    GroupStep,
    JoinResult,
    LeavingMember,
    SyncRequest,
    SyncResult,
)
from penstock.groups.records import Assignment
from penstock.model import TopicId

if TYPE_CHECKING:
    from collections.abc import Mapping

Pairs = frozenset[tuple[TopicId, int]]
NOTHING: Pairs = frozenset()


def pairs(assignment: Mapping[TopicId, Iterable[int]]) -> Pairs:
    return frozenset((topic, number) for topic, numbers in assignment.items() for number in numbers)


def assignment_of(owned: Pairs) -> Assignment:
    topics = {topic for topic, _ in owned}
    return {topic: frozenset(number for each, number in owned if each == topic) for topic in topics}


class World(Driver):
    """A driver that keeps every response until its client takes it."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.numbers = count(100)
        self.answers: dict[object, Any] = {}

    def take(self, step: GroupStep) -> dict[object, Any]:
        answers = super().take(step)
        self.answers.update(answers)
        return answers

    def compact(self, end: int, *, keeps_tombstones: bool) -> None:
        self.log.compact(end, keeps_tombstones=keeps_tombstones)

    def restart(self) -> None:
        self.answers.clear()
        super().restart()

    @property
    def member_ids(self) -> set[str]:
        if isinstance(self.group, ClassicGroup):
            return {member.member_id for member in self.group.saved().members}
        return set(self.consumer.remembered.members)


class NewClient:
    """A client of ConsumerGroupHeartbeat. It takes assigned partitions at once, and delays revocations."""

    def __init__(
        self, world: World, topics: frozenset[str], regex: str | None, instance_id: str | None
    ) -> None:
        self.world = world
        self.member_id = f"new{next(world.numbers)}"
        self.instance_id = instance_id
        self.topics, self.regex = topics, regex
        self.epoch = 0
        self.owned = self.told = NOTHING
        self.is_alive = True
        self._says_all = True
        self._has_news = False
        self._reported: Pairs | None = None
        self._answer: ConsumerHeartbeatResult | None = None

    @property
    def is_waiting(self) -> bool:
        return self._answer is not None

    def subscribe(self, topics: frozenset[str], regex: str | None) -> None:
        self.topics, self.regex = topics, regex
        self._has_news = True

    def give_up(self) -> None:
        self.owned &= self.told

    def send(self) -> None:
        says_all = self._says_all or self._has_news or self.epoch == 0
        self._has_news = False
        says_owned = says_all or self.owned != self._reported
        self._reported = self.owned
        self._answer = self._ask(
            self.epoch,
            self.topics if says_all else None,
            (self.regex or "") if says_all else None,
            REBALANCE_MS if says_all else -1,
            assignment_of(self.owned) if says_owned else None,
        )

    def _ask(
        self,
        epoch: int,
        topics: frozenset[str] | None = None,
        regex: str | None = None,
        rebalance_timeout_ms: int = -1,
        owned: Assignment | None = None,
    ) -> ConsumerHeartbeatResult:
        return self.world.heartbeat(
            ConsumerHeartbeat(
                member_id=self.member_id,
                member_epoch=epoch,
                instance_id=self.instance_id,
                rack_id=None,
                client_id="client",
                client_host="host",
                rebalance_timeout_ms=rebalance_timeout_ms,
                subscribed_topics=topics,
                subscribed_regex=regex,
                server_assignor=None,
                owned=owned,
            )
        )

    def drop(self) -> None:
        self._answer = None
        self._says_all = True

    def deliver(self) -> None:
        answer, self._answer = self._answer, None
        assert answer is not None
        match answer.error:
            case ErrorCode.none:
                assert answer.member_epoch >= self.epoch, "an epoch went back"
                self.epoch = answer.member_epoch
                self._says_all = False
                if answer.assignment is not None:
                    self.told = pairs(answer.assignment)
                    self.owned |= self.told
            case ErrorCode.unreleased_instance_id:
                pass
            case ErrorCode.fenced_instance_id:
                self.is_alive = False
            case ErrorCode.unknown_member_id | ErrorCode.fenced_member_epoch | ErrorCode.group_id_not_found:
                self.start_over()
            case other:
                raise AssertionError(other)

    def start_over(self) -> None:
        self.epoch = 0
        self.owned = self.told = NOTHING
        self._says_all = True

    def leave(self, epoch: int) -> None:
        self._ask(epoch)
        self.is_alive = False


class OldClient:
    """A client of the classic protocol: revokes all its partitions before it joins (eager), or only those
    that it loses (cooperative).
    """

    def __init__(self, world: World, topics: frozenset[str], is_eager: bool) -> None:
        self.world = world
        self.member_id = ""
        self.topics = topics
        self.owned = NOTHING
        self.is_alive = True
        self.is_joined = False
        """Whether the client has a generation and only sends heartbeats."""
        self.generation = self.newest_generation = -1
        self._group_number = world.replacements
        self._is_eager = is_eager
        self._has_news = False
        self._joined: JoinResult | None = None
        self._ticket: object | None = None

    @property
    def is_waiting(self) -> bool:
        return self._ticket is not None

    def subscribe(self, topics: frozenset[str], regex: str | None) -> None:
        self.topics = topics
        self._has_news = True

    def give_up(self) -> None:
        """Revoke nothing here: a classic client revokes when a response asks for it."""

    def send(self) -> None:
        if self.is_joined and not self._has_news:
            self._heard(self.world.classic_beat(self.member_id, self.generation))
        elif self._joined is None or self._has_news:
            self._join()
        else:
            self._sync(self._joined)

    def _join(self) -> None:
        self._rejoin()
        self._has_news = False
        if self._is_eager:
            self.owned = NOTHING
        names = self.world.image.topic_names
        owned: dict[str, set[int]] = {}
        for topic, number in self.owned:
            if topic in names:
                owned.setdefault(names[topic], set()).add(number)
        self._ticket = object()
        self.world.ask_classic_join(
            self.member_id,
            *self.topics,
            owned=owned,
            new_member_id=f"old{next(self.world.numbers)}",
            ticket=self._ticket,
            session_timeout_ms=CLASSIC_SESSION_MS,
        )

    def _sync(self, joined: JoinResult) -> None:
        request = SyncRequest(
            self.member_id, None, self.generation, "consumer", joined.protocol_name, self._decide(joined)
        )
        self._ticket = object()
        self.world.take(self.world.group.sync(request, self._ticket, self.world.now_ms))

    def _decide(self, joined: JoinResult) -> dict[str, bytes]:
        """Assign as a leader: members keep the partitions they have and read; free partitions go to the first
        subscriber.
        """
        image = self.world.image
        subscriptions = {member_id: decode_subscription(data) for member_id, _, data in joined.members}
        taken = {
            (name, number)
            for subscription in subscriptions.values()
            for name, numbers in subscription.owned.items()
            for number in numbers
        }
        given: dict[str, dict[str, set[int]]] = {member_id: {} for member_id in subscriptions}
        for member_id, subscription in subscriptions.items():
            for name in subscription.topics & image.topics.keys():
                numbers = set(range(len(image.topics[name].partitions)))
                free = {number for number in numbers if (name, number) not in taken}
                taken |= {(name, number) for number in free}
                given[member_id][name] = free | (set(subscription.owned.get(name, ())) & numbers)
        return {
            member_id: encode_assignment({name: frozenset(n) for name, n in of_member.items() if n}, 1)
            for member_id, of_member in given.items()
        }

    def drop(self) -> None:
        self._ticket = None
        self._rejoin()

    def deliver(self) -> None:
        if self._ticket not in self.world.answers:
            return
        answer = self.world.answers.pop(self._ticket)
        self._ticket = None
        if answer.error is not ErrorCode.none:
            self._heard(answer.error)
        elif isinstance(answer, JoinResult):
            if self._group_number != self.world.replacements:
                self._group_number, self.newest_generation = self.world.replacements, -1
            assert answer.generation >= self.newest_generation, "a generation went back"
            self.newest_generation = answer.generation
            self.member_id, self.generation, self._joined = answer.member_id, answer.generation, answer
        else:
            assert isinstance(answer, SyncResult)
            self._assigned(answer.assignment)

    def _assigned(self, encoded: bytes) -> None:
        topics = self.world.image.topics
        told = pairs(
            {
                topics[name].id: numbers
                for name, numbers in decode_assignment(encoded).items()
                if name in topics
            }
        )
        must_tell = bool(self.owned - told)
        self.owned = told
        self.is_joined = True
        if must_tell:
            self._rejoin()

    def _heard(self, error: ErrorCode) -> None:
        match error:
            case ErrorCode.none:
                pass
            case ErrorCode.rebalance_in_progress:
                self._rejoin()
            case ErrorCode.unknown_member_id:
                self.member_id = ""
                self.start_over()
            case ErrorCode.illegal_generation:
                self.start_over()
            case other:
                raise AssertionError(other)

    def start_over(self) -> None:
        self.generation, self.owned = -1, NOTHING
        self._rejoin()

    def _rejoin(self) -> None:
        self.is_joined = False
        self._joined = None

    def leave(self, epoch: int) -> None:
        leaving = [LeavingMember(self.member_id, None)]
        self.world.take(self.world.group.leave(leaving, object(), self.world.now_ms))
        self.is_alive = False
