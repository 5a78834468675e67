"""A share group of a simulated cluster: its model, and its coordinator as members and administrators reach it.

When the outcome of a reset is unknown, the group is given up and another one takes its place.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

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
        self.begin_anew(topic)

    def begin_anew(self, topic: ShareTopic) -> None:
        """Take another group id: nothing is known of the old group any more."""
        self._generation += 1
        self.topic = topic
        name = f"workers-{self._number}.{self._generation}"
        loop = self._stage.world.loop
        self.model = ShareModel(name, topic.deleted_before, is_committed=self._is_committed, now=loop.time)
        self.is_configured = self.is_leaving = False
        self.members_inside = set()
        for place in topic.places:
            self.model.add(place)

    # --- requests

    async def configure(self, routing: RoutingClient, **configs: object) -> None:
        """Set configs of the group; underscores of the names stand for dots."""
        changes = [
            {"name": "share." + name.replace("_", "."), "config_operation": _SET, "value": str(value)}
            for name, value in configs.items()
        ]
        resource = {"resource_type": _GROUP_RESOURCE, "resource_name": self.model.group, "configs": changes}
        if "record_lock_duration_ms" in configs:
            self.model.lock_durations.add(int(str(configs["record_lock_duration_ms"])))
        if "delivery_count_limit" in configs:
            self.model.limits.add(int(str(configs["delivery_count_limit"])))
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
        """The share-partition and the session of a member, if the share-partition is the one from before."""
        broker = self._broker(node_id)
        if broker is None or before is None:
            return None
        leader = broker._share.partitions.find(self.key(place))
        session = broker._share.sessions._sessions.get((self.model.group, member))
        if leader is not before or session is None or not session.is_open:
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
