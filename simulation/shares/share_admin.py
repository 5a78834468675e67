"""An administrator of a simulated share group: changes its settings, its offsets and its topic."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from penstock.errors import BrokerError, ErrorCode
from simulation.clients.client import NoAnswer
from simulation.models.partition_history import Place
from simulation.scenarios.stage import Stage
from simulation.shares.dead_letter_topic import DeadLetterTopic
from simulation.shares.share_group import ShareGroup
from simulation.shares.share_order import draw_order
from simulation.shares.share_topic import ShareTopic, ShareWriter

LOCK_DURATIONS_MS = (300, 1_000, 3_000)
_LIMITS = (2, 5, 100, 100)
_MAX_LOCKS = (2, 10, 1_000)
_MOST_PARTITIONS = 3
_LATEST = -1


def draw_settings(random: Random) -> dict[str, object]:
    return {
        "record_lock_duration_ms": random.choice(LOCK_DURATIONS_MS),
        "delivery_count_limit": random.choice(_LIMITS),
        "partition_max_record_locks": random.choice(_MAX_LOCKS),
        "renew_acknowledge_enable": str(random.random() < 0.8).lower(),
    }


class ShareAdmin:
    def __init__(
        self,
        stage: Stage,
        groups: Sequence[ShareGroup],
        writer: ShareWriter,
        letters: DeadLetterTopic | None = None,
        *,
        may_replace: bool,
    ) -> None:
        """`may_replace` says that the topic may be replaced by another one."""
        self.name = "share-admin"
        self._stage = stage
        self._groups = groups
        self._writer = writer
        self._letters = letters
        self._may_replace = may_replace
        self._random = stage.world.random(self.name)
        self._routing = stage.routing(self.name)

    async def step(self) -> None:
        for group in self._groups:
            if not group.is_configured:
                await self.configure(group)
            elif group.is_leaving and not group.members_inside:
                await self._reset(group)
        [act] = self._random.choices(
            (
                self._nothing,
                self._change,
                self._ask_to_leave,
                self._delete_records,
                self._grow,
                self._replace,
            ),
            weights=(100, 4, 2, 1, 0.5, 0.3),
        )
        await act(self._random.choice(self._groups))

    async def _nothing(self, group: ShareGroup) -> None:
        """Change nothing."""

    async def configure(self, group: ShareGroup) -> None:
        """Set up a new group, before its first member joins."""
        isolation = "read_committed" if group.model.is_committed else "read_uncommitted"
        settings = draw_settings(self._random) | {
            "auto_offset_reset": "earliest",
            "isolation_level": isolation,
        }
        if self._writer.contents is not None:
            settings |= draw_order(self._writer.contents)
        if self._letters is not None:
            settings |= self._letters.settings()
        await group.configure(self._routing, **settings)
        # A leader that does not know the settings yet would begin at the end of a partition.
        group.is_configured = all(
            member.knows_group(group.model.group) for member in self._stage.members if member.is_serving
        )
        self._stage.note(self.name, "configure", group.model.group, settings)

    async def _change(self, group: ShareGroup) -> None:
        if group.is_configured:
            drawn = draw_settings(self._random)
            name = self._random.choice(list(drawn))
            if self._writer.contents is not None:
                drawn = draw_order(self._writer.contents)
                name = self._writer.contents.choice(list(drawn))
            if self._letters is not None and self._letters.random.random() < 0.5:
                drawn = self._letters.back_off()
                [name] = drawn
            self._stage.note(self.name, "change", group.model.group, name, drawn[name])
            await group.configure(self._routing, **{name: drawn[name]})

    # --- offsets

    async def _ask_to_leave(self, group: ShareGroup) -> None:
        group.is_leaving = group.is_configured

    async def _reset(self, group: ShareGroup) -> None:
        """Reset the offsets of a group whose members have left; after an unknown outcome the group is given up."""
        topic = group.topic
        offsets = {place: self._random.randint(0, await self._end(place)) for place in topic.places}
        partitions = [
            {"partition_index": index, "start_offset": start} for (_, index), start in offsets.items()
        ]
        fields = {
            "group_id": group.model.group,
            "topics": [{"topic_name": topic.name, "partitions": partitions}],
        }
        group.model.begin_reset(offsets)
        group.begin()
        try:
            response = await group.ask_coordinator(self._routing, "AlterShareGroupOffsets", 0, fields)
        except BrokerError as error:
            if error.code is ErrorCode.non_empty_group:
                group.is_leaving = False  # a member that died is still in the group
                if group.model.refuse_reset(offsets):
                    group.begin_anew(topic)
            elif error.code not in (ErrorCode.not_coordinator, ErrorCode.coordinator_load_in_progress):
                group.begin_anew(topic)
            raise
        except NoAnswer:
            group.begin_anew(topic)
            raise
        leaders = [leader for _, leader in group.leaders()]
        self._stage.note(self.name, "reset", group.model.group, offsets)
        codes = [each.error_code for each in response.responses[0].partitions]
        if any(codes):
            group.begin_anew(topic)
            return
        for place, start in offsets.items():
            group.model.reset(place, start, leaders)
        group.is_leaving = False

    # --- the topic

    async def _delete_records(self, group: ShareGroup) -> None:
        topic = group.topic
        place = self._random.choice(topic.places)
        before = self._random.randint(0, await self._end(place))
        topic.deleted_before[place] = max(topic.deleted_before.get(place, 0), before)
        source = topic.source, place[1]
        leader, _ = await self._routing.leader(*source)
        await leader.delete_records(*source, before)
        self._stage.note(self.name, "delete records", *place, before)

    async def _grow(self, group: ShareGroup) -> None:
        topic = group.topic
        if len(topic.places) < _MOST_PARTITIONS and self._may_replace:
            await (await self._routing.any_broker()).create_partitions(topic.source, len(topic.places) + 1)
            topic.places.append((topic.name, len(topic.places)))
            for each in self._groups:
                each.model.add(topic.places[-1])

    async def _replace(self, _: ShareGroup) -> None:
        """Delete the topic; the groups begin anew with another one."""
        if not self._may_replace:
            return
        old = self._writer.topic
        topic = ShareTopic(old.number + 1, len(old.places), old.configs, old.replicas, is_view=old.is_view)
        await topic.create(self._stage)
        self._writer.topic = topic
        for group in self._groups:
            group.begin_anew(topic)
        self._stage.note(self.name, "replace", old.name, topic.name)
        for name in dict.fromkeys((old.name, old.source)):
            await (await self._routing.any_broker()).delete_topic(name)

    async def _end(self, place: Place) -> int:
        try:
            leader, epoch = await self._routing.leader(*place)
            return (await leader.list_offset(*place, _LATEST, epoch)).offset
        except (BrokerError, NoAnswer):
            self._routing.mistrust(*place)
            raise
