"""Common parts of ShareFetch and ShareAcknowledge: checks, sessions, acknowledgements and leader hints."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Final
from uuid import UUID

from penstock.clock import monotonic_ms
from penstock.config import GROUP_SHARE_MAX_SHARE_SESSIONS
from penstock.errors import BrokerError, ErrorCode
from penstock.model import ShareKey, TopicId, TopicPartition
from penstock.queues import acknowledgement_checks
from penstock.queues.share_leader import ShareLeader
from penstock.queues.states import Acknowledgement, AcknowledgeType
from penstock.server.dispatch import Request
from penstock.server.projection_kinds import projection_of
from penstock.server.security import Operation, ResourceType
from penstock.server.share_sessions import (
    FINAL_EPOCH,
    INITIAL_EPOCH,
    ReadTopic,
    ReadTopics,
    ShareRoutes,
    ShareSession,
)
from penstock.wire.leader_hints import NodeEndpoint
from penstock.wire.share_fetch import RENEW_FROM, ShareRequest, ShareResult

MAX_MEMBER_ID_CHARACTERS: Final = 36
_MOVED = (ErrorCode.not_leader_or_follower, ErrorCode.fenced_leader_epoch)


def check_names(request: Request, asked: ShareRequest) -> tuple[str, str]:
    """Return group id and member id. Raises BrokerError if they are invalid or the client may not read the group."""
    if not asked.group_id:
        raise BrokerError(ErrorCode.invalid_request, "the group id must not be empty")
    if not asked.member_id or len(asked.member_id) > MAX_MEMBER_ID_CHARACTERS:
        raise BrokerError(
            ErrorCode.invalid_request, f"the member id must have 1 to {MAX_MEMBER_ID_CHARACTERS} characters"
        )
    request.require(Operation.READ, ResourceType.GROUP, asked.group_id)
    return asked.group_id, asked.member_id


def open_session(request: Request, asked: ShareRequest) -> ShareSession:
    """Open or continue the session of a request. Raises BrokerError if the session does not exist or the epoch is
    wrong.
    """
    group_id, member_id = check_names(request, asked)
    sessions = request.context.share.sessions
    if asked.epoch == INITIAL_EPOCH:
        if any(partition.acknowledgements for partition in asked.partitions):
            raise BrokerError(
                ErrorCode.invalid_request, "the first request of a session cannot acknowledge records"
            )
        limit = request.context.config[GROUP_SHARE_MAX_SHARE_SESSIONS]
        return sessions.open(request.session, group_id, member_id, limit)
    return sessions.resume(request.session, group_id, member_id, asked.epoch)


def key_of(session: ShareSession, topic_id: UUID, partition: int) -> ShareKey:
    return ShareKey(session.group_id, TopicId(topic_id), partition)


class ShareTargets:
    """Share-partitions of a request, found by topic id. For partitions that this broker does not lead, it collects
    errors and hints about the leader.
    """

    def __init__(self, request: Request, session: ShareSession | None = None) -> None:
        """`session` caches topics and share-partitions from earlier requests; None for a request without a session."""
        self._request = request
        self._session = session
        self._moved: set[int] = set()
        self._found: dict[ShareKey, ShareLeader] = {}
        """Share-partitions that were found in this turn of the loop."""
        self._is_fresh = False
        """True if the routes of the session were checked in this turn of the loop."""

    def forget(self) -> None:
        """Forget the found share-partitions, so that they are looked up again in a new turn of the loop."""
        self._found = {}
        self._is_fresh = False

    def leader(self, key: ShareKey) -> ShareLeader:
        """Share-partition with this key. Raises BrokerError if this broker does not serve it."""
        self._refresh()
        found = self._found.get(key)
        if found is None or found.error is not None:
            found = self._look_up(key)
            self._found = {**self._found, key: found}
        return found

    def leaders(
        self, on_error: Callable[[ShareKey, BrokerError], None]
    ) -> list[tuple[ShareKey, ShareLeader]]:
        """All share-partitions of the session, in an order that changes with each session epoch. `on_error` is called
        for those that this broker does not serve.
        """
        session = self._session
        assert session is not None
        self._refresh()
        if session.routes is not None and self._found is session.routes.leaders:
            return session.turned(list(self._found.items()))
        found: dict[ShareKey, ShareLeader] = {}
        for key in session.turned(list(session.partitions)):
            try:
                leader = self.leader(key)
                if leader.error is not None:
                    raise leader.error
                found[key] = leader
            except BrokerError as error:
                on_error(key, error)
        self._keep(session, found)
        return list(found.items())

    def _keep(self, session: ShareSession, found: dict[ShareKey, ShareLeader]) -> None:
        """Remember the found share-partitions as routes of the session, if this broker serves all of its partitions."""
        topics = session.read_topics
        if topics is not None and len(found) == len(session.partitions):
            names = dict.fromkeys(topics.topics[key.topic_id].name for key in found)
            by_partition = {key: found[key] for key in session.partitions}
            session.routes = ShareRoutes(topics.image, by_partition, tuple(names))

    def _refresh(self) -> None:
        """Use the routes of the session if they are still valid and the client may still read the topics; forget them
        otherwise.
        """
        session = self._session
        if self._is_fresh or session is None:
            return
        self._is_fresh = True
        routes = session.routes
        if routes is None:
            return
        context = self._request.context
        session.routes = None
        try:
            if routes.check(context.image, context.replicas):
                for name in routes.topics:
                    self._request.require(Operation.READ, ResourceType.TOPIC, name)
                session.routes, self._found = routes, routes.leaders
        except BrokerError:
            return  # the share-partitions are looked up one by one

    def _look_up(self, key: ShareKey) -> ShareLeader:
        context, topics = self._request.context, self._known_topics()
        topic = topics.get(key.topic_id)
        if topic is None:
            topic = topics[key.topic_id] = self._find_topic(key.topic_id)
        self._request.require(Operation.READ, ResourceType.TOPIC, topic.name)
        replica = context.replicas.get(topic.source, key.partition)
        return context.share.partitions.get(key, replica, topic.projection)

    def _known_topics(self) -> dict[TopicId, ReadTopic]:
        """Topics that requests of the session have already found in the current cluster image."""
        image, session = self._request.context.image, self._session
        if session is None:
            return {}
        if session.read_topics is None or session.read_topics.image is not image:
            session.read_topics = ReadTopics(image, {})
        return session.read_topics.topics

    def _find_topic(self, topic_id: TopicId) -> ReadTopic:
        image = self._request.context.image
        topic = image.topic_by_id(topic_id)
        if topic is None:
            raise BrokerError(ErrorCode.unknown_topic_id, "there is no topic with this id")
        return ReadTopic(topic.name, topic.view_of or topic.name, projection_of(image, topic.name))

    def fail(self, result: ShareResult, error: BrokerError) -> None:
        """Set the fetch error of a result, with the current leader if the partition has another leader now."""
        result.error_code, result.error_message = error.code, str(error)
        self.hint(result, error)

    def hint(self, result: ShareResult, error: BrokerError) -> None:
        if error.code not in _MOVED:
            return
        image = self._request.context.image
        topic = image.topic_by_id(TopicId(result.topic_id))
        name = None if topic is None else topic.view_of or topic.name
        state = None if name is None else image.partition(TopicPartition(name, result.partition))
        if state is not None:
            result.leader_id, result.leader_epoch = state.leader, state.leader_epoch
            self._moved.add(state.leader)

    @property
    def endpoints(self) -> list[NodeEndpoint]:
        """Addresses of the leaders that the results name as hints."""
        brokers = self._request.context.image.brokers
        return [
            NodeEndpoint(broker.node_id, broker.host, broker.port, broker.rack)
            for broker_id, broker in brokers.items()
            if broker_id in self._moved
        ]


def lock_ms_of(request: Request, session: ShareSession) -> int:
    return request.context.share.partitions.settings_of(session.group_id).partition.lock_ms


class Acknowledging:
    """The acknowledgements of one request; a callback runs when each of them is durable or refused."""

    def __init__(
        self, request: Request, asked: ShareRequest, session: ShareSession, targets: ShareTargets
    ) -> None:
        self.results: dict[ShareKey, ShareResult] = {}
        """Result of each partition with acknowledgements in the request; its error is in the acknowledge fields."""
        self._request = request
        self._asked = asked
        self._session = session
        self._targets = targets
        self._pending = 0
        self._done: Callable[[], None] | None = None

    def run(self) -> None:
        """Apply all acknowledgements. Afterwards `is_pending` is True while some of them are not durable yet."""
        for key, acknowledgements in self._by_partition().items():
            result = self.results[key] = ShareResult(key.topic_id, key.partition)
            self._pending += 1
            try:
                self._check_renewals(acknowledgements)
                self._targets.leader(key).acknowledge(
                    self._session.member_id,
                    acknowledgements,
                    monotonic_ms(self._request.context.clock),
                    AcknowledgeType.RENEW if self._request.version >= RENEW_FROM else AcknowledgeType.REJECT,
                    partial(self._on_stored, result),
                )
            except BrokerError as error:
                self._on_stored(result, error)

    def _by_partition(self) -> dict[ShareKey, list[Acknowledgement]]:
        asked: dict[ShareKey, list[Acknowledgement]] = {}
        for topic_id, partition, acknowledgements in self._asked.partitions:
            if acknowledgements:
                key = key_of(self._session, topic_id, partition)
                asked.setdefault(key, []).extend(Acknowledgement(*each) for each in acknowledgements)
        return asked

    def _check_renewals(self, acknowledgements: Iterable[Acknowledgement]) -> None:
        if not self._asked.is_renew and acknowledgement_checks.has_renewals(tuple(acknowledgements)):
            if self._request.version < RENEW_FROM:
                return  # refused as an unknown type
            raise BrokerError(ErrorCode.invalid_request, "a request that renews locks must set IsRenewAck")

    @property
    def is_pending(self) -> bool:
        return self._pending > 0

    def when_done(self, callback: Callable[[], None]) -> None:
        self._done = callback

    def _on_stored(self, result: ShareResult, error: BrokerError | None) -> None:
        if error is not None:
            result.acknowledge_error_code, result.acknowledge_error_message = error.code, str(error)
            self._targets.hint(result, error)
        self._pending -= 1
        if self._pending == 0 and self._done is not None:
            self._done()


def end_session(request: Request, asked: ShareRequest, session: ShareSession) -> None:
    """Close the session if the request has the final epoch. Call this after the acknowledgements of the request were
    applied.
    """
    if asked.epoch == FINAL_EPOCH:
        request.context.share.sessions.close(session)
