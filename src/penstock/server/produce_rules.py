"""Rules of a Produce request that hold on every path: the right to write, and the consequences of a refusal."""

from __future__ import annotations

from penstock.cluster.internal_topics import AUDIT_TOPIC, refuse_internal
from penstock.cluster.views import refuse_view
from penstock.errors import BrokerError, ErrorCode, ProtocolError
from penstock.model import TopicId
from penstock.server.context import BrokerContext
from penstock.server.security import Caller, Operation, ResourceType, require

FIRST_ZSTD_VERSION = 7

_WRITE = Operation.WRITE
_TOPIC = ResourceType.TOPIC


def writable_topic(context: BrokerContext, caller: Caller, name: str | None, topic_id: TopicId | None) -> str:
    """Name of a topic that the client may write to; BrokerError when there is none."""
    if name is None:
        assert topic_id is not None
        known = context.image.topic_by_id(topic_id)
        if known is None:
            raise BrokerError(ErrorCode.unknown_topic_id)
        name = known.name
    require(context.authorizer, caller, _WRITE, _TOPIC, name)
    if name != AUDIT_TOPIC or getattr(caller, "broker_id", None) is None:
        refuse_internal(name)
    if name in context.metadata.image.views:
        refuse_view(context.image, name)
    return name


def remember_refusal(
    context: BrokerContext,
    name: str | None,
    topic_id: TopicId | None,
    index: int,
    records: memoryview | None,
    error: BrokerError,
) -> None:
    """Note a batch that was not stored: after a retriable error the batches behind it are refused too."""
    if records is not None:
        key = topic_id if name is None else name
        assert key is not None, "a topic has a name or an id"
        context.replicas.refused.on_refusal((key, index), records, error.code)


def unanswerable(code: ErrorCode) -> ProtocolError:
    """Error of a refused request with acks=0. There is no response to put the error in: a closed connection makes
    the producer refresh its metadata, as in Kafka.
    """
    return ProtocolError(f"produce with acks=0 was refused: {code.name}")
