"""Incremental fetch sessions (KIP-227): the broker remembers the partitions of a consumer, and requests name only
changes.

A connection has at most one session. The session ends with the connection and can be used on no other, so a guessed
session id is useless. The number of sessions and of their partitions is bounded; a client for which there is no room
fetches without a session. Loop thread only.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from random import Random

from penstock.cluster.image import ClusterImage
from penstock.config import (
    MAX_INCREMENTAL_FETCH_SESSION_CACHE_SLOTS,
    MIN_INCREMENTAL_FETCH_SESSION_EVICTION_MS,
    BrokerConfig,
)
from penstock.errors import BrokerError, ErrorCode
from penstock.model import TopicId

FINAL_EPOCH = -1
INITIAL_EPOCH = 0
MAX_PARTITIONS = 10_000
"""Maximum number of partitions in one session. It bounds the work of a fetch, which checks every partition of the
session.
"""
PARTITIONS_PER_SLOT = 100
"""The total number of partitions in all sessions may be this many times the maximum number of sessions."""
_MAX_EPOCH = 2**31 - 1

Owner = Hashable
PartitionKey = tuple[str | None, TopicId | None, int]


@dataclass(slots=True)
class FetchTarget:
    """Partition of a fetch: its fetch offset, and the high watermark and log start offset in the last response
    (`told_*`).
    """

    topic: str | None
    topic_id: TopicId | None
    partition: int
    offset: int
    max_bytes: int
    current_leader_epoch: int = -1
    last_fetched_epoch: int = -1
    told_high_watermark: int = -1
    told_log_start_offset: int = -1

    @property
    def key(self) -> PartitionKey:
        return (self.topic, self.topic_id, self.partition)

    def is_removed(self, image: ClusterImage) -> bool:
        """Whether a smaller partition count has removed the partition.

        A Java consumer that has such a partition assigned asks again at once, for ever: its request waits like one
        that finds no records.
        """
        topic = image.topic(self.topic or "") if self.topic_id is None else image.topic_by_id(self.topic_id)
        return topic is not None and image.shown(topic).has_removed(self.partition)

    def update(self, asked: FetchTarget) -> None:
        self.offset = asked.offset
        self.max_bytes = asked.max_bytes
        self.current_leader_epoch = asked.current_leader_epoch
        self.last_fetched_epoch = asked.last_fetched_epoch


@dataclass(slots=True)
class FetchSession:
    id: int
    epoch: int
    """Session epoch that the next request must have."""
    used_ms: int
    uses_topic_ids: bool
    targets: OrderedDict[PartitionKey, FetchTarget]

    def moved_data(self, target: FetchTarget) -> None:
        """Move a partition that returned records to the end of the order, so that busy partitions do not starve the
        others.
        """
        self.targets.move_to_end(target.key)


class FetchSessions:
    def __init__(self, slots: int, max_partitions: int, eviction_ms: int, random: Random) -> None:
        self._slots = slots
        self._max_partitions = max_partitions
        self._eviction_ms = eviction_ms
        self._random = random
        self._sessions: OrderedDict[Owner, FetchSession] = OrderedDict()
        self._partitions = 0

    @classmethod
    def from_config(cls, config: BrokerConfig, random: Random) -> FetchSessions:
        slots = config[MAX_INCREMENTAL_FETCH_SESSION_CACHE_SLOTS]
        max_partitions = slots * PARTITIONS_PER_SLOT
        return cls(slots, max_partitions, config[MIN_INCREMENTAL_FETCH_SESSION_EVICTION_MS], random)

    def __len__(self) -> int:
        return len(self._sessions)

    def open(
        self, owner: Owner, targets: list[FetchTarget], uses_topic_ids: bool, now_ms: int
    ) -> FetchSession | None:
        """Replace the session of the connection by a new one; returns None if there is no room for it."""
        self.close(owner)
        if not 0 < len(targets) <= MAX_PARTITIONS or not self._make_room(len(targets), now_ms):
            return None
        session = FetchSession(
            id=self._random.randrange(1, _MAX_EPOCH),
            epoch=1,
            used_ms=now_ms,
            uses_topic_ids=uses_topic_ids,
            targets=OrderedDict((target.key, target) for target in targets),
        )
        self._sessions[owner] = session
        self._partitions += len(session.targets)
        return session

    def resume(
        self, owner: Owner, session_id: int, epoch: int, uses_topic_ids: bool, now_ms: int
    ) -> FetchSession:
        """Session of an incremental request. Raises BrokerError unless the request has the next session epoch."""
        session = self._sessions.get(owner)
        if session is None or session.id != session_id:
            raise BrokerError(ErrorCode.fetch_session_id_not_found)
        if session.epoch != epoch:
            raise BrokerError(ErrorCode.invalid_fetch_session_epoch)
        if session.uses_topic_ids != uses_topic_ids:
            raise BrokerError(ErrorCode.fetch_session_topic_id_error)
        session.epoch = 1 if epoch == _MAX_EPOCH else epoch + 1
        session.used_ms = now_ms
        self._sessions.move_to_end(owner)
        return session

    def update(
        self, session: FetchSession, changed: Iterable[FetchTarget], forgotten: Iterable[PartitionKey]
    ) -> None:
        """Add, change and remove the partitions that a request names. Raises BrokerError if the session would become
        too large.
        """
        changed = tuple(changed)
        added = sum(1 for target in changed if target.key not in session.targets)
        if not self._has_room(len(session.targets), added):
            raise BrokerError(ErrorCode.fetch_session_id_not_found)
        self._partitions -= len(session.targets)
        for target in changed:
            known = session.targets.setdefault(target.key, target)
            if known is not target:
                known.update(target)
        for key in forgotten:
            session.targets.pop(key, None)
        self._partitions += len(session.targets)

    def close(self, owner: Owner) -> None:
        session = self._sessions.pop(owner, None)
        if session is not None:
            self._partitions -= len(session.targets)

    def _has_room(self, present: int, added: int) -> bool:
        return present + added <= MAX_PARTITIONS and self._partitions + added <= self._max_partitions

    def _make_room(self, partitions: int, now_ms: int) -> bool:
        while len(self._sessions) >= self._slots or self._partitions + partitions > self._max_partitions:
            owner = next(iter(self._sessions), None)
            if owner is None or now_ms - self._sessions[owner].used_ms < self._eviction_ms:
                return False
            self.close(owner)
        return True
