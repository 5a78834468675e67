"""A simulated member of a consumer group: it keeps up its membership, reads its partitions and commits what
it has read.

A member leaves, or dies without a LeaveGroup, and comes back later, a static one with its instance id. A
member that was removed from the group goes on until it is told; the model judges what it may do.
"""

from __future__ import annotations

from dataclasses import dataclass

from penstock.errors import BrokerError, ErrorCode
from simulation.clients.client import NoAnswer
from simulation.clients.readers import EARLIEST, Reader
from simulation.groups.classic_membership import ClassicMembership
from simulation.groups.consumer_membership import ConsumerMembership
from simulation.groups.group_client import Commit, GroupClient, Identity
from simulation.groups.membership import NOT_NOW, Membership
from simulation.models.group_model import GroupModel, Place, Protocols
from simulation.models.history import InvariantViolated
from simulation.models.offset_model import OffsetWrite
from simulation.models.topic_model import TopicModel, TopicState
from simulation.scenarios.stage import Stage

REFUSED = frozenset(
    {
        ErrorCode.illegal_generation,
        ErrorCode.unknown_member_id,
        ErrorCode.fenced_instance_id,
        ErrorCode.stale_member_epoch,
        ErrorCode.rebalance_in_progress,
        ErrorCode.coordinator_load_in_progress,
        ErrorCode.group_id_not_found,
        ErrorCode.unknown_topic_or_partition,
        ErrorCode.unknown_topic_id,
        ErrorCode.unsupported_version,
    }
)
"""Errors after which a commit certainly did not happen."""


@dataclass(slots=True)
class _Progress:
    position: int | None = None
    committed: int | None = None
    is_at_end: bool = False

    @property
    def is_done(self) -> bool:
        return self.is_at_end and self.position is not None and self.committed == self.position


class GroupMember(Reader):
    def __init__(self, stage: Stage, group: GroupModel, number: int) -> None:
        super().__init__(stage, f"{group.name}-member-{number}")
        self.group = group
        self._instance_id = f"{self.name}-static" if self._random.random() < 0.3 else None
        self._coordinator = GroupClient(self._client)
        self._membership: Membership | None = None
        self._progress: dict[Place, _Progress] = {}
        self._is_at_rest = False
        self._is_confirmed = False
        """Whether the last report found the member in its group, since peace began."""
        self._lives = 0
        self._commits = 0

    @property
    def is_alive(self) -> bool:
        return self._membership is not None

    @property
    def held(self) -> frozenset[Place]:
        return frozenset() if self._membership is None else frozenset(self._membership.held)

    @property
    def rebalances(self) -> int:
        """The number of rebalances that this member has gone through."""
        return 0 if self._membership is None else self._membership.interruptions

    @property
    def is_done(self) -> bool:
        """Whether the member has read and committed everything in its partitions, and knows that they are its own:
        a restart may have lost its place in the group.
        """
        return (
            self._membership is not None
            and self._membership.is_settled
            and self._is_confirmed
            and all(place in self._progress and self._progress[place].is_done for place in self.held)
        )

    @property
    def committed_offsets(self) -> int:
        """The sum of the committed offsets of its partitions: it grows while the member makes progress."""
        return sum(self._progress[place].committed or 0 for place in self.held if place in self._progress)

    async def step(self) -> None:
        if self._membership is None:
            if not self._stage.is_at_rest and self._random.random() < 0.1:
                self._begin()
            return
        if self._stage.is_at_rest and not self._is_at_rest:
            self._is_at_rest = True
            for progress in self._progress.values():
                progress.is_at_end = False  # the last records may be newer than the last read
        if self._membership.is_due:
            await self._membership.report()
            self._is_confirmed = self._is_at_rest and self._membership.is_settled
        elif self._random.random() < 0.03 and not self._stage.is_at_rest:
            await self._end()
        elif not (self._is_at_rest and self.is_done):
            await self._consume()

    def _begin(self) -> None:
        self._lives += 1
        speaks_classic = {
            Protocols.CLASSIC: True,
            Protocols.CONSUMER: False,
            Protocols.BOTH: self._random.random() < 0.5,
        }
        kind: type[Membership] = (
            ClassicMembership if speaks_classic[self.group.protocols] else ConsumerMembership
        )
        owner = f"{self.name}/{self._lives}"
        self._membership = kind(
            self._stage,
            self.group,
            self._client,
            owner,
            self._instance_id,
            before_giving_up=self._commit_some,
        )
        self._stage.note(self.name, "begin", kind.__name__)

    async def _end(self) -> None:
        """Leave the group, or die without a LeaveGroup."""
        assert self._membership is not None
        leaves = self._random.random() < 0.5
        self._stage.note(self.name, "leave" if leaves else "die")
        if leaves:
            await self._membership.leave()
        self._membership.die()
        self._membership = None
        self._progress.clear()
        self._client.disconnect()

    # --- reading

    async def _consume(self) -> None:
        assert self._membership is not None
        held = sorted(self._membership.held, key=str)
        for gone in self._progress.keys() - set(held):
            del self._progress[gone]
        if not held:
            return
        if self._random.random() < 0.3:
            await self._commit(held)
            return
        if self._is_at_rest:
            held = [place for place in held if not self._progress.get(place, _Progress()).is_at_end] or held
        place = self._random.choice(held)
        progress = self._progress.setdefault(place, _Progress())
        if place.topic.state is not TopicState.ALIVE:
            return
        if progress.position is None:
            await self._find_position(place, progress)
        else:
            await self._read(place, progress, progress.position)

    async def _find_position(self, place: Place, progress: _Progress) -> None:
        assert self._membership is not None
        topic_id = await self._stage.topic_id(self._client, place.topic)
        if topic_id is None:
            return
        began = self.group.now()
        member = self._membership.reader if self._random.random() < 0.5 else None
        try:
            shown = await self._coordinator.fetch_offset(
                self.group.name, place.topic.name, topic_id, place.partition, member
            )
        except BrokerError as error:
            self._stage.note(self.name, "offset", place, error.code.name)
            return
        self._stage.note(self.name, "offset", place, shown)
        if place.topic.state is not TopicState.ALIVE:
            return
        if self._client.is_authoritative:
            self.group.offset(place).on_read(shown, began, self.group.now())
        if shown is not None:
            progress.position = progress.committed = shown.offset
        else:
            await self._reset(place, progress)

    async def _read(self, place: Place, progress: _Progress, position: int) -> None:
        read = await self.fetch(place.topic, place.partition, position)
        if read is None:
            await self._reset(place, progress)
        else:
            progress.is_at_end = read.end == position
            progress.position = read.end

    async def _reset(self, place: Place, progress: _Progress) -> None:
        """Go to the log start: there is no committed offset, or it is out of range."""
        if place.topic.state is TopicState.ALIVE:
            progress.position = max(await self._earliest(place.topic, place.partition), 0)

    async def _earliest(self, topic: TopicModel, partition: int) -> int:
        return (await self._client.list_offset(topic.name, partition, EARLIEST)).offset

    # --- committing

    async def _commit_some(self, places: set[Place]) -> None:
        """Commit before these partitions are given up, most of the time."""
        if places and self._random.random() < 0.7:
            try:
                await self._commit(sorted(places, key=str))
            except (NoAnswer, BrokerError) as error:
                self._stage.note(self.name, "commit", type(error).__name__)

    async def _commit(self, places: list[Place]) -> None:
        """Commit what was read and is not committed; now and then with the generation before."""
        assert self._membership is not None
        who = self._membership.identity
        known = self.group.generation
        is_forged = who.generation > 1 and self._random.random() < 0.05
        if is_forged:
            who = Identity(who.group, who.member_id, who.generation - 1, who.instance_id)
        chosen = [(place, position) for place in places if (position := self._uncommitted(place)) is not None]
        ids = {place: await self._stage.topic_id(self._client, place.topic) for place, _ in chosen}
        await self._client.connect()
        writes: list[tuple[Place, OffsetWrite]] = []
        commits: list[Commit] = []
        for place, position in chosen:
            topic_id = ids[place]
            if topic_id is not None and place.topic.state is TopicState.ALIVE:
                self._commits += 1
                metadata = f"{self.name}/{self._commits}"
                writes.append((place, self.group.begin_commit(place, position, metadata)))
                commits.append(Commit(place.topic.name, topic_id, place.partition, position, metadata))
        if not commits:
            return
        codes = await self._coordinator.commit(who, commits)
        for (place, write), code in zip(writes, codes, strict=True):
            self._stage.note(self.name, "commit", place, write.offset, write.metadata, code.name)
            if code is ErrorCode.none:
                if is_forged:
                    raise InvariantViolated("fencing", f"{write} was taken for generation {who.generation}")
                self.group.check_commit(who.generation, known, self.name)
                write.confirm(self.group.now())
                if place in self._progress:
                    self._progress[place].committed = write.offset
            elif code in REFUSED:
                self.group.offset(place).on_refusal(write)
            elif code not in NOT_NOW:
                raise InvariantViolated("T27", f"{write} got {code.name}")

    def _uncommitted(self, place: Place) -> int | None:
        progress = self._progress.get(place)
        return None if progress is None or progress.committed == progress.position else progress.position
