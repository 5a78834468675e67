"""Coordinator of the objects of one kind: maps their names to shards of the kind's internal topic.

The base class keeps the shards and starts their loading. Loop thread only.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Final, Generic, TypeVar

import msgspec

from penstock.cluster.internal_topics import new_objects_topic
from penstock.objects.kind import ObjectKind
from penstock.objects.record_codec import ObjectCodec
from penstock.objects.shard import ObjectShard
from penstock.replication.replica import Replica
from penstock.state_log.appender import Appender
from penstock.state_log.coordinator import Coordinator
from penstock.state_log.replaying import Replaying
from penstock.state_log.shards import CoordinatorContext

S = TypeVar("S", bound=msgspec.Struct)

_SWEEP_INTERVAL_MS: Final = 3_600_000


class ObjectCoordinator(Coordinator[ObjectShard[S]], Generic[S]):
    def __init__(self, context: CoordinatorContext, kind: ObjectKind[S]) -> None:
        super().__init__(context, kind.topic, partial(new_objects_topic, kind.topic))
        self.kind = kind
        self._codec = ObjectCodec(kind.state)

    def shard_of(self, name: str) -> ObjectShard[S]:
        """Return the shard of a name; raises BrokerError if another broker has it or it is not loaded yet."""
        return self._shards.of(name)

    async def _load(self, index: int, replica: Replica) -> ObjectShard[S]:
        appender = Appender(replica, self._context.clock, self._codec.encode_record)
        shard = ObjectShard(index, appender, self, self.kind)
        replaying = Replaying(
            replica, self._context.threads, self._codec.decode_record, shard.apply, newest_only=True
        )
        await replaying.run()
        self._note_passed_over(shard, replaying.unknown, replaying.damaged_parts)
        return shard

    async def _on_loaded(self, shard: ObjectShard[S]) -> None:
        shard.resume()

    @property
    def _sweep_interval_ms(self) -> int:
        return _SWEEP_INTERVAL_MS

    async def _sweep(self, shard: ObjectShard[S]) -> None:
        """Do nothing: objects do not expire."""
        await asyncio.sleep(0)
