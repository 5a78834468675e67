"""The share coordinator: maps share-partitions to shards of `__share_group_state`.

The base class loads and holds the shards. Loop thread only.
"""

from __future__ import annotations

from penstock.cluster.internal_topics import SHARE_STATE_TOPIC, new_share_state_topic
from penstock.config import SHARE_PRUNE_INTERVAL_MS
from penstock.model import BrokerId, ShareKey
from penstock.queues.record_codec import decode_record, encode_record
from penstock.queues.state_shard import ShareStateShard
from penstock.replication.replica import Replica
from penstock.state_log.appender import Appender
from penstock.state_log.coordinator import Coordinator
from penstock.state_log.replaying import Replaying
from penstock.state_log.shards import CoordinatorContext


class ShareCoordinator(Coordinator[ShareStateShard]):
    def __init__(self, context: CoordinatorContext) -> None:
        super().__init__(context, SHARE_STATE_TOPIC, new_share_state_topic)

    def leader_of(self, key: ShareKey) -> BrokerId:
        """Return the broker that stores the state, or NO_LEADER; BrokerError if the internal topic does not exist."""
        return self._shards.leader_of(key.name)

    def shard_of(self, key: ShareKey) -> ShareStateShard:
        """Return the shard of a share-partition; BrokerError if it is on another broker or not loaded."""
        return self._shards.of(key.name)

    def leads(self, name: str) -> bool:
        """True if this broker stores the state of the share-partition with this name."""
        return self._shards.leader_of(name) == self._context.node_id

    def shard_named(self, name: str) -> ShareStateShard:
        """Return the shard as `shard_of` does, by the name of a share-partition."""
        return self._shards.of(name)

    async def _load(self, index: int, replica: Replica) -> ShareStateShard:
        appender = Appender(replica, self._context.clock, encode_record)
        shard = ShareStateShard(index, appender, self)
        replaying = Replaying(replica, self._context.threads, decode_record, shard.apply)
        await replaying.run()
        self._note_passed_over(shard, replaying.unknown, replaying.damaged_parts)
        return shard

    async def _on_loaded(self, shard: ShareStateShard) -> None:
        shard.resume()

    @property
    def _sweep_interval_ms(self) -> int:
        return self.config[SHARE_PRUNE_INTERVAL_MS]

    async def _sweep(self, shard: ShareStateShard) -> None:
        await shard.sweep()
