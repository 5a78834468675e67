"""A share group of a simulated cluster: its model, and its coordinator as members and administrators reach it.

When the outcome of a reset is unknown, the group is given up and another one takes its place.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from penstock.config import DEAD_LETTER_COPY_RECORD_ENABLE, DEAD_LETTER_TOPIC_NAME
from penstock.config.retry_backoff import parse_retry_backoff
from penstock.errors import BrokerError
from penstock.model import ShareKey, TopicId
from penstock.queues.share_leader import ShareLeader
from penstock.server.broker import Broker
from simulation.clients.client import NoAnswer, check_error
from simulation.clients.routing_client import RoutingClient
from simulation.models.partition_history import Place
from simulation.models.share_model import Grip, ShareModel
from simulation.scenarios.stage import Stage
from simulation.shares.share_topic import ShareTopic

_GROUP_RESOURCE = 32
_SET = 0
_GRACE_SECONDS = 6.0
"""Seconds in which a round of the retention may still delete records by what it knew before a group began."""
_NAMES = {
    "dead_letter_topic": DEAD_LETTER_TOPIC_NAME.name,
    "dead_letter_copy": DEAD_LETTER_COPY_RECORD_ENABLE.name,
}


class ShareGroup:
    def __init__(self, stage: Stage, topic: ShareTopic, number: int, *, is_committed: bool) -> None:
        self.topic = topic
        self.is_leaving = False
        """Whether members have to leave, because the offsets are reset."""
        self.is_configured = False
        self.members_inside: set[str] = set()
        """Members that may be in the group."""
        self._stage = stage
        self._number = number
        self._generation = 0
        self._is_committed = is_committed
        self.models: dict[str, ShareModel] = {}
        """The models of all groups that this one was, by group id."""
        self.begin_anew(topic)

    def begin_anew(self, topic: ShareTopic) -> None:
        """Take another group id: nothing is known of the old group any more."""
        self._generation += 1
        self.topic = topic
        name = f"workers-{self._number}.{self._generation}"
        loop = self._stage.world.loop
        self.model = ShareModel(name, self.deleted_before, is_committed=self._is_committed, now=loop.time)
        self.model.outcomes.have_clocks_jumped = lambda: self._stage.have_clocks_jumped
        self.models[name] = self.model
        self._began_s: float | None = None
        self._floor: dict[Place, int] = {}
        self.is_configured = self.is_leaving = False
        self.members_inside = set()
        for place in topic.places:
            self.model.add(place)

    # --- storage

    def deleted_before(self, place: Place) -> int:
        """Offset below which records may be deleted that this group has not settled."""
        return max(self.topic.deleted_before.get(place, 0), self._floor.get(place, 0))

    def begin(self) -> None:
        """Note that the group begins to read the topic, or begins again after a reset."""
        self._began_s = self._stage.world.loop.time()

    def keeps_storage(self, place: Place, log_start: int) -> bool:
        """Whether the group keeps records from being deleted; one that has just begun notes the log start."""
        if self._began_s is None or self._stage.world.loop.time() < self._began_s + _GRACE_SECONDS:
            self._floor[place] = log_start
            return False
        return True

    # --- requests

    async def configure(self, routing: RoutingClient, **configs: object) -> None:
        """Set configs of the group; underscores of the names stand for dots."""
        changes = [
            {"name": _config_name(name), "config_operation": _SET, "value": str(value)}
            for name, value in configs.items()
        ]
        resource = {"resource_type": _GROUP_RESOURCE, "resource_name": self.model.group, "configs": changes}
        if "record_lock_duration_ms" in configs:
            self.model.lock_durations.add(int(str(configs["record_lock_duration_ms"])))
        if "delivery_count_limit" in configs:
            self.model.limits.add(int(str(configs["delivery_count_limit"])))
        if "retry_backoff_ms" in configs:
            self.model.outcomes.backoffs.add(parse_retry_backoff(str(configs["retry_backoff_ms"])))
        fields = {"resources": [resource], "validate_only": False}
        response = await (await routing.any_broker()).ask("IncrementalAlterConfigs", (1,), fields)
        check_error(response.responses[0].error_code)

    async def heartbeat(self, routing: RoutingClient, member: str, epoch: int) -> int:
        """Join with epoch 0, report, or leave with -1; return the member epoch."""
        names = [self.topic.name] if epoch == 0 else None
        fields = {
            "group_id": self.model.group,
            "member_id": member,
            "member_epoch": epoch,
            "rack_id": None,
            "subscribed_topic_names": names,
        }
        response = await self.ask_coordinator(routing, "ShareGroupHeartbeat", 1, fields)
        if self._began_s is None:
            self.begin()
        return int(response.member_epoch)

    async def ask_coordinator(
        self, routing: RoutingClient, api: str, version: int, fields: dict[str, Any]
    ) -> Any:
        group = self.model.group
        try:
            _, client = await routing.coordinator(group)
            response = await client.ask(api, (version,), fields)
            check_error(response.error_code)
        except (BrokerError, NoAnswer):
            routing.mistrust_coordinator(group)
            raise
        return response

    # --- inside of brokers

    def key(self, place: Place) -> ShareKey:
        assert self.topic.id is not None
        return ShareKey(self.model.group, TopicId(self.topic.id), place[1])

    def leader_at(self, node_id: int, place: Place) -> ShareLeader | None:
        """The share-partition as this broker serves it now."""
        broker = self._broker(node_id)
        return None if broker is None else broker._share.partitions.find(self.key(place))

    def grip(self, node_id: int, place: Place, member: str, before: ShareLeader | None) -> Grip | None:
        """The share-partition and the session of a member, if the share-partition is the one from before.

        A request may be the first one, and load the share-partition; the member holds records there afterwards.
        """
        broker = self._broker(node_id)
        if broker is None:
            return None
        leader = broker._share.partitions.find(self.key(place))
        if before is None and leader is not None and leader.partition is not None:
            before = leader if leader.partition.held_by(member) else None
        session = broker._share.sessions._sessions.get((self.model.group, member))
        if leader is None or leader is not before or session is None or not session.is_open:
            return None
        host = self._stage.member(node_id)
        return Grip(broker, leader, session, lambda: host._broker is broker and host.is_serving)

    def _broker(self, node_id: int) -> Broker | None:
        host = self._stage.member(node_id)
        return host._broker if host.is_serving else None

    def leaders(self) -> Iterator[tuple[Place, ShareLeader]]:
        """The share-partitions of this group at all brokers."""
        for member in self._stage.members:
            broker = self._broker(member.node_id)
            for leader in () if broker is None else broker._share.partitions.all:
                place = (self.topic.name, leader.key.partition)
                if leader.key.group_id == self.model.group and leader.key.topic_id == self.topic.id:
                    yield place, leader


def _config_name(name: str) -> str:
    return _NAMES.get(name) or "share." + name.replace("_", ".")
