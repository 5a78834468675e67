"""A simulated administrator of groups: lists, describes and deletes groups, deletes offsets, and commits as
no member.
"""

from __future__ import annotations

from penstock.cluster.internal_topics import OFFSETS_TOPIC
from penstock.errors import BrokerError, ErrorCode
from simulation.groups.group_client import Commit, GroupClient, Identity
from simulation.groups.group_member import REFUSED
from simulation.groups.membership import NOT_NOW
from simulation.models.group_model import GroupModel, Place
from simulation.models.history import InvariantViolated
from simulation.scenarios.stage import Stage

_UNDONE = frozenset(
    {
        ErrorCode.non_empty_group,
        ErrorCode.group_id_not_found,
        ErrorCode.group_subscribed_to_topic,
        ErrorCode.unknown_topic_or_partition,
        ErrorCode.coordinator_load_in_progress,
    }
)
"""Errors after which a deletion certainly did not happen."""


class GroupAdminActor:
    def __init__(self, stage: Stage) -> None:
        self.name = "group-admin"
        self._stage = stage
        self._random = stage.world.random(self.name)
        self._client = stage.routing(self.name).first
        self._coordinator = GroupClient(self._client)
        self._commits = 0
        self._segment_bytes = self._random.choice((None, 1_024, 5_000))

    async def step(self) -> None:
        if self._segment_bytes is not None:
            await self._shorten_segments(self._segment_bytes)
            return
        group = self._random.choice(self._stage.groups)
        acts = (self._look, self._look_at_offset, self._commit, self._delete_offset, self._delete)
        [act] = self._random.choices(acts, weights=(2, 6, 2, 1, 1))
        await act(group)

    async def _shorten_segments(self, segment_bytes: int) -> None:
        """Make the segments of the offsets topic small, so that it is compacted within a seed."""
        try:
            await self._client.set_topic_config(OFFSETS_TOPIC, "segment.bytes", str(segment_bytes))
        except BrokerError as error:
            self._stage.note(self.name, "segments", error.code.name)
            if error.code is not ErrorCode.unknown_topic_or_partition:
                raise
        else:
            self._stage.note(self.name, "segments", segment_bytes)
            self._segment_bytes = None

    async def _look(self, group: GroupModel) -> None:
        self._stage.note(self.name, "list", *await self._coordinator.list())
        self._stage.note(self.name, "describe", repr(await self._coordinator.describe(group.name)))

    async def _look_at_offset(self, group: GroupModel) -> None:
        place = self._choose()
        topic_id = None if place is None else await self._stage.topic_id(self._client, place.topic)
        if place is None or topic_id is None:
            return
        began = group.now()
        shown = await self._coordinator.fetch_offset(group.name, place.topic.name, topic_id, place.partition)
        self._stage.note(self.name, "offset", place, shown)
        if self._stage.living(place.topic.name) is place.topic:
            group.offset(place).on_read(shown, began, group.now())

    async def _commit(self, group: GroupModel) -> None:
        """Commit as no member, which is accepted while the group is empty."""
        place = self._choose()
        topic_id = None if place is None else await self._stage.topic_id(self._client, place.topic)
        if place is None or topic_id is None:
            return
        await self._client.connect()
        self._commits += 1
        offset = self._random.randint(0, place.topic.partitions[place.partition].visible_end)
        write = group.begin_commit(place, offset, f"{self.name}/{self._commits}")
        commit = Commit(place.topic.name, topic_id, place.partition, offset, write.metadata)
        [code] = await self._coordinator.commit(Identity(group.name), [commit])
        self._stage.note(self.name, "commit", group.name, place, offset, code.name)
        if code is ErrorCode.none:
            write.confirm(group.now())
        elif code in REFUSED:
            group.offset(place).on_refusal(write)
        elif code not in NOT_NOW:
            raise InvariantViolated("T27", f"{write} got {code.name}")

    async def _delete_offset(self, group: GroupModel) -> None:
        place = self._choose()
        if place is None:
            return
        await self._client.connect()
        write = group.begin_commit(place, None, self.name)
        try:
            await self._coordinator.delete_offset(group.name, place.topic.name, place.partition)
        except BrokerError as error:
            self._stage.note(self.name, "delete offset", group.name, place, error.code.name)
            if error.code in _UNDONE:
                group.offset(place).on_refusal(write)
        else:
            self._stage.note(self.name, "delete offset", group.name, place, "ok")
            write.confirm(group.now())

    async def _delete(self, group: GroupModel) -> None:
        await self._client.connect()
        deletion = group.begin_deletion(self.name)
        try:
            await self._coordinator.delete(group.name)
        except BrokerError as error:
            self._stage.note(self.name, "delete", group.name, error.code.name)
            if error.code in _UNDONE:
                group.end_deletion(deletion, done=False)
        else:
            self._stage.note(self.name, "delete", group.name, "ok")
            group.end_deletion(deletion, done=True)

    def _choose(self) -> Place | None:
        chosen = self._stage.choose_partition(self._random)
        return None if chosen is None else Place(*chosen)
