"""A simulated consumer with a rack: the leader may redirect it to an in-sync follower in that rack (KIP-392).

It reads there until it is refused, or asks the leader again after a while as clients do. Everything that
it is shown counts as committed, and its position never goes back, whichever replica serves it.
"""

from __future__ import annotations

from penstock.errors import BrokerError
from simulation.clients.client import NoAnswer, SimulatedClient
from simulation.clients.readers import LeaderFollower
from simulation.models.topic_model import TopicModel
from simulation.scenarios.stage import Stage

RACKS = ("rack-a", "rack-b")
RACK_AWARE = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
_NO_BROKER = -1
_MAX_BYTES = (1, 2_000, 100_000, 100_000)


class RackReader(LeaderFollower):
    def __init__(self, stage: Stage, number: int) -> None:
        super().__init__(stage, number, name=f"rack-reader-{number}")
        self._rack = self._random.choice(RACKS)
        self._preferred: dict[tuple[TopicModel, int], int] = {}
        """The follower that the leader named."""

    async def _read(self, leader: SimulatedClient, epoch: int, topic: TopicModel, partition: int) -> None:
        place = (topic, partition)
        follower = self._preferred.get(place, _NO_BROKER)
        if follower == _NO_BROKER or self._random.random() < 0.1:
            self._preferred.pop(place, None)
            await self._read_from(leader, _NO_BROKER, epoch, topic, partition)
            return
        try:
            client = await self._routing.broker(follower)
            await self._read_from(client, follower, epoch, topic, partition)
        except (BrokerError, NoAnswer) as error:
            self._preferred.pop(place, None)
            self._stage.note(
                self.name, "follower refused", topic.partitions[partition].name, follower, str(error)
            )

    async def _read_from(
        self, client: SimulatedClient, follower: int, epoch: int, topic: TopicModel, partition: int
    ) -> None:
        model, position = topic.partitions[partition], self._positions.get((topic, partition), 0)
        was_damaged = self._stage.is_damaged(topic.name, partition)
        result = await client.fetch(
            topic.name,
            partition,
            position,
            max_bytes=self._random.choice(_MAX_BYTES),
            max_wait_ms=self._random.choice((0, 100)),
            leader_epoch=epoch,
            rack=self._rack,
        )
        if result.preferred_read_replica != _NO_BROKER:
            self._preferred[topic, partition] = result.preferred_read_replica
            self._stage.note(self.name, "sent to", model.name, result.preferred_read_replica)
            return
        read = self.decode(topic, partition, position, result, was_damaged=was_damaged)
        if read is not None:
            self._stage.note(
                self.name, "read", model.name, position, read.end, result.high_watermark, follower
            )
            topic.on_read(partition, read)
            self._positions[topic, partition] = read.end
