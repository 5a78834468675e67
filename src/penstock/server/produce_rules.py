"""Rules of Produce requests that both paths share: the right to write, and the consequences of a refusal."""

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
    """Name of the topic, given by `name` or `topic_id`. Raises BrokerError if the topic id is unknown or the client may
    not write to the topic.
    """
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
    """Record that a batch was refused: after a retriable error the producer's following batches are refused too, which
    keeps their order.
    """
    if records is not None:
        key = topic_id if name is None else name
        assert key is not None, "a topic has a name or an id"
        context.replicas.refused.on_refusal((key, index), records, error.code)


def unanswerable(code: ErrorCode) -> ProtocolError:
    """Error that closes the connection after a refused request with acks=0. Such a request has no response for the
    error; the closed connection makes the producer refresh its metadata, as in Kafka.
    """
    return ProtocolError(f"produce with acks=0 was refused: {code.name}")
