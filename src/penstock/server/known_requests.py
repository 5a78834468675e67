"""Last Heartbeat and OffsetCommit of a connection, so that a repetition is recognised by its bytes and need not be
decoded.

Only decoding is saved: authorization, the coordinator and the state of the group are checked for every request. Loop
thread only.
"""

from __future__ import annotations

from typing import Final

from penstock.wire.heartbeat import HeartbeatRequest, decode_heartbeat_request
from penstock.wire.offset_commit import (
    CommitPartition,
    OffsetCommitRequest,
    decode_offset_commit_request,
    encode_offset_commit_response,
)
from penstock.wire.offset_template import MAX_TEMPLATE_BYTES, OffsetTemplate, make_template

MAX_CREDIT: Final = 8
"""Maximum number of OffsetCommit requests that are remembered in a row without a repetition. Remembering a request
costs as much as recognising a repetition saves.
"""
_SIZE_AND_CORRELATION_ID: Final = 8


class KnownHeartbeat:
    __slots__ = ("_body", "_version", "request")

    def __init__(self, version: int, body: bytes | None, request: HeartbeatRequest) -> None:
        """Remember a request with its body. With `body=None` no later frame counts as a repetition."""
        self._version = version
        self._body = body
        self.request = request

    def is_request(self, version: int, body: bytes) -> bool:
        return version == self._version and body == self._body


class KnownCommit:
    """OffsetCommit for one partition, without commit metadata."""

    __slots__ = (
        "_credit",
        "_response",
        "_size",
        "_template",
        "partition",
        "repetitions",
        "request",
        "version",
    )

    def __init__(
        self, version: int, request: OffsetCommitRequest, template: OffsetTemplate, credit: int
    ) -> None:
        self.version = version
        self.request = request
        self.partition: CommitPartition = request.topics[0].partitions[0]
        self.repetitions = 0
        self._credit = credit
        self._template = template
        encoded = encode_offset_commit_response(0, version, request.topics, [[None]], 0)
        self._size = encoded[:4]
        self._response = encoded[_SIZE_AND_CORRELATION_ID:]

    def offset_in(self, frame: memoryview, position: int, version: int) -> int | None:
        """Offset that the frame commits, if the frame differs from this request only in the offset; None otherwise."""
        offset = self._template.find(frame, position, version)
        if offset is not None:
            self.repetitions += 1
        return offset

    @property
    def credit(self) -> int:
        """Number of further requests that may be remembered for the connection after this one."""
        return min(MAX_CREDIT, self._credit + self.repetitions)

    def encode(self, correlation_id: int) -> bytes:
        """Complete response frame without an error."""
        return self._size + correlation_id.to_bytes(4, "big", signed=True) + self._response


def decode_heartbeat(
    known: KnownHeartbeat | None, frame: memoryview, position: int, version: int
) -> KnownHeartbeat:
    """The remembered request if the frame has the same bytes, else a new one."""
    body = bytes(frame[position:]) if len(frame) - position <= MAX_TEMPLATE_BYTES else None
    if known is not None and body is not None and known.is_request(version, body):
        return known
    return KnownHeartbeat(version, body, decode_heartbeat_request(frame, position, version))


def known_commit(
    known: KnownCommit | None, frame: memoryview, position: int, version: int, request: OffsetCommitRequest
) -> KnownCommit | None:
    """The request to remember for the connection, after `request` was decoded and served."""
    credit = MAX_CREDIT if known is None else known.credit
    if credit <= 0 or not _is_plain(request):
        return known
    offset = request.topics[0].partitions[0].offset
    template = make_template(
        frame,
        position,
        version,
        offset,
        decode_offset_commit_request,
        lambda other: _with_offset(request, other),
    )
    return known if template is None else KnownCommit(version, request, template, credit - 1)


def _is_plain(request: OffsetCommitRequest) -> bool:
    topics = request.topics
    return len(topics) == 1 and len(topics[0].partitions) == 1 and not topics[0].partitions[0].metadata


def _with_offset(request: OffsetCommitRequest, offset: int) -> OffsetCommitRequest:
    topic = request.topics[0]
    return request._replace(topics=[topic._replace(partitions=[topic.partitions[0]._replace(offset=offset)])])
