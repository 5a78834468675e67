"""Share sessions (KIP-932): the partitions that a member of a share group fetches from this broker.

A session belongs to the connection that opened it and ends with it; a request on another connection does not find it.
When a session ends, all records that the member has acquired on this broker are released. Loop thread only.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field
from typing import Final, NamedTuple, Protocol, TypeVar

from penstock.cluster.image import ClusterImage
from penstock.errors import BrokerError, ErrorCode
from penstock.model import ShareKey, TopicId
from penstock.queues.share_leader import ShareLeader
from penstock.queues.share_partitions import SharePartitions
from penstock.replication.projections import Projection
from penstock.replication.replica_manager import ReplicaManager

FINAL_EPOCH: Final = -1
INITIAL_EPOCH: Final = 0
MAX_PARTITIONS: Final = 10_000
"""Maximum number of partitions in one session. It bounds the work of a fetch, which checks every partition of the
session.
"""
_MAX_EPOCH: Final = 2**31 - 1

Owner = Hashable
T = TypeVar("T")


class OpenFetch(Protocol):
    """A fetch of a session that waits for records."""

    def end(self) -> None:
        """Respond to the fetch now, because the next request of the session has come."""


class ReadTopic(NamedTuple):
    """Topic that a session reads: its name, the name of the topic that stores its records, and its projection if it is
    a view or has delayed messages.
    """

    name: str
    source: str
    projection: Projection | None


class ReadTopics(NamedTuple):
    """Topics of a session, valid only for one cluster image."""

    image: ClusterImage
    topics: dict[TopicId, ReadTopic]


class ShareRoutes(NamedTuple):
    """Share-partitions of a session, cached while this broker serves all of them."""

    image: ClusterImage
    leaders: dict[ShareKey, ShareLeader]
    topics: tuple[str, ...]
    """Names of the topics, for checks of the client's rights."""

    def check(self, image: ClusterImage, replicas: ReplicaManager) -> bool:
        """True if this broker still serves all of the share-partitions. Raises BrokerError if it does not lead one of
        the partitions.
        """
        if self.image is not image:
            return False
        for leader in self.leaders.values():
            name = leader.replica.name
            is_held = replicas.get(name.topic, name.partition) is leader.replica
            if leader.error is not None or not is_held or not leader.is_leading:
                return False
        return True


@dataclass(slots=True, eq=False)
class ShareSession:
    group_id: str
    member_id: str
    owner: Owner
    epoch: int = 1
    """Session epoch that the next request must have."""
    partitions: OrderedDict[ShareKey, None] = field(default_factory=OrderedDict)
    touched: set[ShareKey] = field(default_factory=set)
    """Partitions of which the member may have acquired records."""
    waiting: OpenFetch | None = None
    is_open: bool = True
    """False once the session was closed or replaced."""
    read_topics: ReadTopics | None = None
    routes: ShareRoutes | None = None
    """The partitions as they were last found; None if other brokers lead some of them, or the partitions have changed
    since.
    """

    def forget(self, keys: Iterable[ShareKey]) -> None:
        for key in keys:
            self.partitions.pop(key, None)
            self.routes = None

    def turned(self, found: list[T]) -> list[T]:
        """The same list, rotated by the session epoch: each fetch begins with another partition, so that no partition
        starves.
        """
        if len(found) < 2:
            return found
        start = self.epoch % len(found)
        return found[start:] + found[:start]


class ShareSessions:
    def __init__(self, partitions: SharePartitions) -> None:
        self._partitions = partitions
        self._sessions: dict[tuple[str, str], ShareSession] = {}
        self._by_owner: dict[Owner, set[tuple[str, str]]] = {}
        self._users: Counter[ShareKey] = Counter()
        """Number of sessions that have each share-partition in `touched`."""

    def __len__(self) -> int:
        return len(self._sessions)

    def open(self, owner: Owner, group_id: str, member_id: str, limit: int) -> ShareSession:
        """Open a session, which replaces the member's old one. Raises BrokerError if there are too many sessions.

        The member keeps the records that it acquired in the old session, and may still acknowledge them.
        """
        name = (group_id, member_id)
        old = self._sessions.get(name)
        if old is None and len(self._sessions) >= limit:
            raise BrokerError(
                ErrorCode.share_session_limit_reached,
                f"{limit} share sessions are open, which is the maximum; retry later",
            )
        session = ShareSession(group_id, member_id, owner)
        if old is not None:
            session.touched = old.touched  # already counted in `_users`
            self._forget(old)
        self._sessions[name] = session
        self._by_owner.setdefault(owner, set()).add(name)
        return session

    def add(self, session: ShareSession, keys: Iterable[ShareKey]) -> None:
        """Add the partitions that a request names to its session. Raises BrokerError if the session would become too
        large.
        """
        known = session.partitions
        named = dict.fromkeys(key for key in keys if key not in known or key not in session.touched)
        if not named:
            return
        if len(session.partitions) + len(named.keys() - session.partitions.keys()) > MAX_PARTITIONS:
            raise BrokerError(
                ErrorCode.share_session_limit_reached, f"a session has at most {MAX_PARTITIONS} partitions"
            )
        session.partitions.update(named)
        session.routes = None
        for key in named.keys() - session.touched:
            session.touched.add(key)
            self._users[key] += 1
            leader = self._partitions.find(key)
            if leader is not None:
                leader.verify()

    def resume(self, owner: Owner, group_id: str, member_id: str, epoch: int) -> ShareSession:
        """Session of a request that does not open one. Raises BrokerError if there is no session on the connection, or
        if `epoch` is neither the next epoch nor the final one.
        """
        session = self._sessions.get((group_id, member_id))
        if session is None or session.owner is not owner:
            raise BrokerError(
                ErrorCode.share_session_not_found, "the member has no session on this connection"
            )
        self._end_waiting(session)
        if epoch != FINAL_EPOCH:
            if epoch != session.epoch:
                raise BrokerError(
                    ErrorCode.invalid_share_session_epoch, f"session epoch is {session.epoch}, not {epoch}"
                )
            session.epoch = 1 if epoch == _MAX_EPOCH else epoch + 1
        return session

    def close(self, session: ShareSession, *, is_lost: bool = False) -> None:
        """Close a session and release the records that its member has acquired: at once, or after the back-off if the
        connection was lost (`is_lost`).
        """
        if not session.is_open:
            return
        self._forget(session)
        for key in session.touched:
            self._users[key] -= 1
            leader = self._partitions.find(key)
            if leader is not None:
                leader.release_member(session.member_id, is_lost=is_lost)
            if self._users[key] <= 0:
                del self._users[key]
                if leader is not None:
                    leader.retire()

    def close_all_of(self, owner: Owner) -> None:
        """Close the sessions of a connection that has ended."""
        for name in tuple(self._by_owner.get(owner, ())):
            self.close(self._sessions[name], is_lost=True)

    def _forget(self, session: ShareSession) -> None:
        name = (session.group_id, session.member_id)
        session.is_open = False
        self._end_waiting(session)
        if self._sessions.get(name) is session:
            del self._sessions[name]
        names = self._by_owner.get(session.owner)
        if names is not None:
            names.discard(name)
            if not names:
                del self._by_owner[session.owner]

    @staticmethod
    def _end_waiting(session: ShareSession) -> None:
        waiting, session.waiting = session.waiting, None
        if waiting is not None:
            waiting.end()
