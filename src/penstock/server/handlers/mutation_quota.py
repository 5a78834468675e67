"""Controller mutation quota (KIP-599): the rate at which a client creates and deletes partitions.

A client over its quota gets THROTTLING_QUOTA_EXCEEDED in request versions that have this error. In older versions its
connection is muted, as for other quotas.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from penstock.cluster.image import TopicImage
from penstock.errors import BrokerError
from penstock.server.client_quotas import MAX_THROTTLE_SECONDS
from penstock.server.dispatch import Request

NONE_BEFORE: Mapping[str, int] = {}


def too_many_mutations(request: Request, first_strict: int) -> BrokerError | None:
    """THROTTLING_QUOTA_EXCEEDED if the client is over its quota; None otherwise, and for versions below `first_strict`,
    which do not have the error.
    """
    quotas = request.context.quotas
    if quotas is None or request.version < first_strict:
        return None
    try:
        quotas.admits_mutation(request.caller.principal, request.header.client_id or "")
    except BrokerError as error:
        return error
    return None


def count_mutations(
    request: Request,
    results: Sequence[TopicImage | BrokerError],
    first_strict: int,
    before: Mapping[str, int] = NONE_BEFORE,
) -> None:
    """Charge the partitions of created, extended or deleted topics. `before` has the former partition count of extended
    topics.
    """
    quotas, session = request.context.quotas, request.session
    if quotas is None:
        return
    changed = [topic for topic in results if isinstance(topic, TopicImage)]
    partitions = sum(len(topic.partitions) - before.get(topic.name, 0) for topic in changed)
    wait = quotas.on_mutations(request.caller.principal, request.header.client_id or "", partitions)
    if wait > 0 and request.version < first_strict and session.mute is not None:
        session.mute(min(wait, MAX_THROTTLE_SECONDS))


def partition_count(request: Request, name: str) -> int:
    topic = request.context.image.topic(name)
    return 0 if topic is None else len(topic.partitions)
