"""A simulated consumer without a group protocol: it commits offsets and fetches them.

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


class Committer:
    def __init__(self, stage: Stage, number: int) -> None:
        self.name = f"committer-{number}"
        self.group = GroupModel(f"group-{number}", Protocols.CLASSIC, (), 10_000, is_weak=False)
        self._stage = stage
        self._random = stage.world.random(self.name)
        self._routing = stage.routing(self.name)
        self._commits = 0

    async def step(self) -> None:
        chosen = self._stage.choose_partition(self._random)
        if chosen is not None:
            try:
                if self._random.random() < 0.5:
                    await self._commit(Place(*chosen))
                else:
                    await self.ask(Place(*chosen))
            except (BrokerError, NoAnswer):
                self._routing.mistrust_coordinator(self.group.name)
                raise

    async def _commit(self, place: Place) -> None:
        node_id, client = await self._routing.coordinator(self.group.name)
        topic_id = await self._stage.topic_id(client, place.topic)
        if topic_id is None or place.topic.state is not TopicState.ALIVE:
            return
        self._commits += 1
        metadata = f"{self.name}/{self._commits}"
        write = self.group.begin_commit(place, self._commits, metadata)
        commit = Commit(place.topic.name, topic_id, place.partition, self._commits, metadata)
        sent = self._stage.world.loop.time()
        [code] = await GroupClient(client).commit(Identity(self.group.name), [commit])
        self._stage.note(self.name, "commit", place, metadata, node_id, code.name)
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
