"""Planted bugs that only certain clients notice: pipelining producers, racks, group members, reused topic
names.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import AbstractContextManager
from typing import Any
from unittest.mock import patch

from planting import planted_in_cluster

from penstock.groups.loading import Loading
from penstock.groups.shard_state import ShardState
from penstock.model import Offset, TopicId
from penstock.replication.admission import Admission
from penstock.replication.refused_batches import RefusedBatches
from penstock.replication.replica import Replica
from penstock.server.handlers import fetch
from penstock.storage.log_config import LogConfig
from penstock.storage.log_manager import LogManager
from penstock.storage.producer_state import ProducerStates


@planted_in_cluster("sequence", "I2", "I4", needs={"pipelined"})
def batches_that_overtook_one_at_the_former_leader_are_judged_alone() -> AbstractContextManager[Any]:
    """A new leader finds a gap before a batch and refuses it as out of order, or stores it."""
    return patch.object(Admission, "check_overtaking", lambda *_: None)


@planted_in_cluster("sequence", "I2", "I4", needs={"pipelined"})
def batches_behind_a_refused_one_are_judged_alone() -> AbstractContextManager[Any]:
    """A batch behind one that got a retriable error is stored, or refused as out of order."""
    return patch.object(RefusedBatches, "remember", lambda *_: None)


@planted_in_cluster("I8", needs={"rack readers"})
def followers_serve_all_they_have() -> AbstractContextManager[Any]:
    """A follower shows consumers records above the high watermark."""
    read = fetch.LogRead

    def read_all(replica: Replica, offset: Offset, limit: int, below: Offset, *rest: Any) -> Any:
        end = below if replica.partition.is_leader else replica.log.log_end_offset
        return read(replica, offset, limit, end, *rest)

    return patch.object(fetch, "LogRead", read_all)


@planted_in_cluster("one owner", "generation", needs={"members"})
def members_are_forgotten_over_a_failover() -> AbstractContextManager[Any]:
    """A new coordinator loads the offsets of a group, but not its members."""
    run = Loading.run

    async def forget(self: Loading) -> ShardState:
        state = await run(self)
        state.groups.clear()
        return state

    return patch.object(Loading, "run", forget)


@planted_in_cluster("sequence", needs={"recreated"})
def a_new_topic_inherits_the_producers_of_the_old_one() -> AbstractContextManager[Any]:
    """Producer sequences of a deleted topic count for the next topic with its name."""
    create = LogManager.create
    known: dict[tuple[int, str, int], ProducerStates] = {}

    def inherit(
        self: LogManager, topic: str, topic_id: TopicId, partitions: Iterable[int], config: LogConfig
    ) -> None:
        numbers = list(partitions)
        create(self, topic, topic_id, numbers, config)
        for number in numbers:
            log = self.get(topic_id, number)
            assert log is not None
            log.producers = known.setdefault((id(self), topic, number), log.producers)

    return patch.object(LogManager, "create", inherit)
