"""OffsetCommit: commits offsets of a group. From version 10 on, topics are given by id.

All valid offsets of a request are committed together; invalid ones are refused partition by partition. A consumer
usually repeats its request with only another offset: `handle_plain` serves such a request without decoding it, unless
the partition has to be refused.
"""

from __future__ import annotations

from penstock.cluster.image import TopicImage
from penstock.config import OFFSET_METADATA_MAX_BYTES
from penstock.errors import BrokerError, ErrorCode
from penstock.groups.offsets import CommittedOffset, OffsetCommit
from penstock.groups.records import OffsetKey
from penstock.model import TopicId
from penstock.net.response import Answer, Parts, PendingResponse
from penstock.server.audit import MAX_NAME_CHARACTERS, AuditLog
from penstock.server.context import BrokerContext
from penstock.server.dispatch import Api, Request, Session
from penstock.server.handlers.group_requests import group_shard, shard_for
from penstock.server.handlers.settled_response import SettledResponse
from penstock.server.known_requests import KnownCommit, known_commit
from penstock.server.security import Caller, Operation, ResourceType, require
from penstock.wire.offset_commit import (
    FIRST_VERSION,
    LAST_VERSION,
    NO_LEADER_EPOCH,
    OFFSET_COMMIT,
    CommitTopic,
    OffsetCommitRequest,
    decode_offset_commit_request,
    encode_offset_commit_response,
)

FIRST_VERSION_WITH_MEMBER_EPOCH = 9

Refusals = list[list[ErrorCode | None]]
"""Error of each partition of each topic; None for partitions that get the outcome of the commit."""


def handle(request: Request, frame: memoryview, position: int) -> Answer:
    asked = decode_offset_commit_request(frame, position, request.header.api_version)
    try:
        shard = shard_for(request, Operation.READ, asked.group_id, may_be_empty=True)
    except BrokerError as error:
        refusals: Refusals = [[error.code] * len(topic.partitions) for topic in asked.topics]
        return [_encode(request, asked, refusals)]
    offsets: dict[OffsetKey, CommittedOffset] = {}
    refusals = [_take(request, asked.group_id, topic, offsets) for topic in asked.topics]
    if not offsets:
        return [_encode(request, asked, refusals)]
    audit = request.context.authorization.audit
    if audit is not None and asked.generation < 0 and not asked.member_id:
        _record(audit, request, asked)
    commit = OffsetCommit(asked.group_id, asked.member_id, asked.instance_id, asked.generation, offsets)
    session, version = request.session, request.header.api_version
    session.commit = known_commit(session.commit, frame, position, version, asked)
    response = _Response(request, asked, refusals)
    shard.commit(commit, response)
    return response.answer


def _record(audit: AuditLog, request: Request, asked: OffsetCommitRequest) -> None:
    """Record in the audit log a commit that comes from no group member: from an administrator who resets offsets, or
    from a consumer with manual assignment. Such consumers commit often, so at most one line per group and second is
    recorded.
    """
    caller = request.caller
    audit.client_event(
        "offsets committed",
        sample=asked.group_id[:MAX_NAME_CHARACTERS],
        per_second=1,
        principal=str(caller.principal),
        host=caller.host,
        names=[asked.group_id[:MAX_NAME_CHARACTERS]],
    )


def handle_plain(
    context: BrokerContext,
    session: Session,
    frame: memoryview,
    position: int,
    version: int,
    correlation_id: int,
) -> Parts | PendingResponse | None:
    """Commit the offset of a request that repeats the last one with another offset. Returns None if `handle` has to
    serve the request.
    """
    known = session.commit
    if known is None or (offset := known.offset_in(frame, position, version)) is None:
        return None
    group_id, generation, member_id, instance_id, ((name, topic_id, _),) = known.request
    try:
        shard = group_shard(context, session, Operation.READ, group_id, may_be_empty=True)
        topic = _topic(context, session, name, topic_id)
    except BrokerError:
        return None
    index, _, leader_epoch, _ = known.partition
    if not 0 <= index < len(topic.partitions):
        return None
    value = _committed(topic, offset, leader_epoch, None, context.clock.now_ms())
    offsets = {OffsetKey(group_id, topic.name, index): value}
    response = PlainResponse(known, correlation_id)
    shard.commit(OffsetCommit(group_id, member_id, instance_id, generation, offsets), response)
    return response.answer


API = Api(OFFSET_COMMIT, FIRST_VERSION, LAST_VERSION, handle_raw=handle, handle_plain=handle_plain)


class PlainResponse(SettledResponse):
    __slots__ = ("_correlation_id", "_known")

    def __init__(self, known: KnownCommit, correlation_id: int) -> None:
        super().__init__()
        self._known = known
        self._correlation_id = correlation_id

    def encode(self, outcome: ErrorCode) -> bytes:
        known = self._known
        if outcome is ErrorCode.none:
            return known.encode(self._correlation_id)
        return _encode_as(self._correlation_id, known.version, known.request, [[None]], outcome)


class _Response(SettledResponse):
    __slots__ = ("_asked", "_refusals", "_request")

    def __init__(self, request: Request, asked: OffsetCommitRequest, refusals: Refusals) -> None:
        super().__init__()
        self._request = request
        self._asked = asked
        self._refusals = refusals

    def encode(self, outcome: ErrorCode) -> bytes:
        return _encode(self._request, self._asked, self._refusals, outcome)


def _take(
    request: Request, group_id: str, asked: CommitTopic, offsets: dict[OffsetKey, CommittedOffset]
) -> list[ErrorCode | None]:
    """Add the valid offsets of a topic to `offsets`. Returns an error for each partition, None if it was added."""
    try:
        topic = _topic(request.context, request.caller, asked.name, asked.topic_id)
    except BrokerError as error:
        return [error.code] * len(asked.partitions)
    max_bytes, now_ms = request.context.config[OFFSET_METADATA_MAX_BYTES], request.context.clock.now_ms()
    shown = request.context.image.shown(topic)
    refusals: list[ErrorCode | None] = []
    for index, offset, leader_epoch, metadata in asked.partitions:
        if shown.has_removed(index):
            # The offset is dropped: a Java consumer repeats a refused commit for minutes before it rejoins its group.
            refusals.append(None)
        elif not 0 <= index < len(shown.partitions):
            refusals.append(ErrorCode.unknown_topic_or_partition)
        elif metadata and len(metadata.encode()) > max_bytes:
            refusals.append(ErrorCode.offset_metadata_too_large)
        else:
            value = _committed(topic, offset, leader_epoch, metadata, now_ms)
            offsets[OffsetKey(group_id, topic.name, index)] = value
            refusals.append(None)
    return refusals


def _committed(
    topic: TopicImage, offset: int, leader_epoch: int, metadata: str | None, now_ms: int
) -> CommittedOffset:
    return CommittedOffset(offset, max(NO_LEADER_EPOCH, leader_epoch), metadata or "", topic.id, now_ms)


def _topic(context: BrokerContext, caller: Caller, name: str | None, topic_id: TopicId | None) -> TopicImage:
    """Topic with this name or id. Raises BrokerError if it does not exist or the client may not read it."""
    if name is None:
        assert topic_id is not None
        topic = context.image.topic_by_id(topic_id)
        if topic is None:
            raise BrokerError(ErrorCode.unknown_topic_id)
        name = topic.name
    else:
        topic = context.image.topic(name)
    require(context.authorizer, caller, Operation.READ, ResourceType.TOPIC, name)
    if topic is None:
        raise BrokerError(ErrorCode.unknown_topic_or_partition)
    return topic


def _encode(
    request: Request, asked: OffsetCommitRequest, refusals: Refusals, outcome: ErrorCode = ErrorCode.none
) -> bytes:
    header = request.header
    return _encode_as(header.correlation_id, header.api_version, asked, refusals, outcome)


def _encode_as(
    correlation_id: int,
    version: int,
    asked: OffsetCommitRequest,
    refusals: Refusals,
    outcome: ErrorCode,
) -> bytes:
    if outcome is ErrorCode.stale_member_epoch and version < FIRST_VERSION_WITH_MEMBER_EPOCH:
        # Older versions have no member epochs, and no error for a wrong one.
        outcome = ErrorCode.unsupported_version
    return encode_offset_commit_response(correlation_id, version, asked.topics, refusals, outcome)
