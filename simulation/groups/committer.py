"""A simulated consumer without a group protocol: it commits offsets and fetches them.

Its offsets are unique, so it may leave out metadata. Half of the committers do, and repeat their request for one
partition in one version, as real consumers do: such requests take the short path of OffsetCommit.

Only the recorded coordinator, while it knows that it is the coordinator, has to return the latest offsets:
a replaced one may answer from what it had.
"""

from __future__ import annotations

from penstock.cluster.internal_topics import OFFSETS_TOPIC
from penstock.errors import BrokerError, ErrorCode
from simulation.clients.client import NoAnswer
from simulation.groups.group_client import Commit, GroupClient, Identity
from simulation.groups.group_member import REFUSED
from simulation.groups.membership import NOT_NOW
from simulation.models.group_model import GroupModel, Place, Protocols
from simulation.models.history import InvariantViolated
from simulation.models.topic_model import TopicState
from simulation.scenarios.stage import Stage

VERSIONS = (2, 10)
STAYING = 0.8
"""Probability that a committer without metadata stays with its partition."""


class Committer:
    def __init__(self, stage: Stage, number: int) -> None:
        self.name = f"committer-{number}"
        self.group = GroupModel(f"group-{number}", Protocols.CLASSIC, (), 10_000, is_weak=False)
        self._stage = stage
        self._random = stage.world.random(self.name)
        self._routing = stage.routing(self.name)
        self._commits = 0
        self._habits = stage.world.random(f"{self.name}-habits")
        self._only_version = self._habits.randint(*VERSIONS) if self._habits.random() < 0.5 else None
        """Version of all commits, without metadata; None for a committer with metadata in any version."""
        self._last: Place | None = None

    async def step(self) -> None:
        chosen = self._stage.choose_partition(self._random)
        if chosen is not None:
            place = self._usual(Place(*chosen))
            try:
                if self._random.random() < 0.5:
                    await self._commit(place)
                else:
                    await self.ask(place)
            except (BrokerError, NoAnswer):
                self._routing.mistrust_coordinator(self.group.name)
                raise

    def _usual(self, chosen: Place) -> Place:
        """Partition of the next step: a committer that repeats itself mostly stays with its last one."""
        is_staying = self._only_version is not None and self._habits.random() < STAYING
        if not is_staying or self._last is None or self._last.topic.state is not TopicState.ALIVE:
            self._last = chosen
        return self._last

    async def _commit(self, place: Place) -> None:
        node_id, client = await self._routing.coordinator(self.group.name)
        topic_id = await self._stage.topic_id(client, place.topic)
        if topic_id is None or place.topic.state is not TopicState.ALIVE:
            return
        self._commits += 1
        metadata = f"{self.name}/{self._commits}" if self._only_version is None else ""
        write = self.group.begin_commit(place, self._commits, metadata)
        commit = Commit(place.topic.name, topic_id, place.partition, self._commits, metadata)
        sent = self._stage.world.loop.time()
        who = Identity(self.group.name)
        [code] = await GroupClient(client).commit(who, [commit], self._only_version)
        self._stage.note(self.name, "commit", place, self._commits, metadata, node_id, code.name)
        if code is ErrorCode.none:
            write.confirm(self.group.now())
            self._stage.check_internal(OFFSETS_TOPIC, self.group.name, sent, write)
            return
        self._routing.mistrust_coordinator(self.group.name)
        if code in REFUSED:
            self.group.offset(place).on_refusal(write)
        elif code not in NOT_NOW:
            raise InvariantViolated("T27", f"{write} got {code.name}")

    async def ask(self, place: Place) -> None:
        node_id, client = await self._routing.coordinator(self.group.name)
        topic_id = await self._stage.topic_id(client, place.topic)
        if topic_id is None or place.topic.state is not TopicState.ALIVE:
            return
        leads = self._stage.coordinates(node_id, self.group.name)
        began = self.group.now()
        shown = await GroupClient(client).fetch_offset(
            self.group.name, place.topic.name, topic_id, place.partition
        )
        self._stage.note(self.name, "offset", place, shown, node_id)
        if (
            place.topic.state is TopicState.ALIVE
            and leads
            and self._stage.coordinates(node_id, self.group.name)
        ):
            self.group.offset(place).on_read(shown, began, self.group.now())

    async def audit(self) -> None:
        """Check in peace that every acknowledged commit is there."""
        for place in self.group.places:
            if place.topic.state is TopicState.ALIVE:
                try:
                    await self.ask(place)
                except (BrokerError, NoAnswer):
                    self._routing.mistrust_coordinator(self.group.name)
                    raise
