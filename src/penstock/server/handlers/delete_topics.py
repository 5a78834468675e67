"""DeleteTopics: deletes topics that are given by name or, from version 6 on, by id."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from penstock.cluster.image import ClusterImage, TopicImage
from penstock.cluster.internal_topics import refuse_internal
from penstock.config import DELETE_TOPIC_ENABLE
from penstock.errors import BrokerError, ErrorCode
from penstock.model import TopicId
from penstock.server.dispatch import Api, Fields, Request
from penstock.server.handlers.administration import NO_TIME, carried_out, code_of, message_of
from penstock.server.handlers.mutation_quota import count_mutations, too_many_mutations
from penstock.server.security import Operation, ResourceType

FIRST_VERSION_WITH_DISABLED_CODE = 3
FIRST_STRICT = 5


async def handle(request: Request, message: Any) -> Fields:
    targets = list(_targets(request.context.image, message))
    _refuse_repeated(targets)
    for target in targets:
        _check(request, target)
        if target.error is None:
            target.error = too_many_mutations(request, FIRST_STRICT)
    wanted = [target for target in targets if target.error is None]
    change = request.context.administration.delete_topics(
        [target.name for target in wanted if target.name is not None]
    )
    results = await carried_out(request, change, len(wanted), message.timeout)
    count_mutations(request, results, FIRST_STRICT)
    for target, result in zip(wanted, results, strict=True):
        target.error = result if isinstance(result, BrokerError) else None
    return {"throttle_time": NO_TIME, "responses": [_result(target) for target in targets]}


API = Api(20, 1, 6, handle)


@dataclass(slots=True)
class _Target:
    """Topic to delete: its name and id, each None if unknown, and the error of the deletion."""

    name: str | None
    topic_id: TopicId | None
    asked_by_id: bool = False
    error: BrokerError | None = None


def _targets(image: ClusterImage, message: Any) -> Iterator[_Target]:
    for name in getattr(message, "topic_names", ()):
        yield _by_name(image, name)
    for asked in getattr(message, "topics", ()):
        if asked.name is not None and asked.topic_id is not None:
            error = BrokerError(ErrorCode.invalid_request, "a topic must be given by name or by id, not both")
            yield _Target(asked.name, asked.topic_id, error=error)
        elif asked.topic_id is not None:
            yield _by_id(image, asked.topic_id)
        elif asked.name is not None:
            yield _by_name(image, asked.name)
        else:
            yield _Target(
                None,
                None,
                error=BrokerError(ErrorCode.invalid_request, "a topic must be given by name or by id"),
            )


def _by_name(image: ClusterImage, name: str) -> _Target:
    topic = image.topic(name)
    return _Target(name, topic.id if topic else None)


def _by_id(image: ClusterImage, topic_id: TopicId) -> _Target:
    topic: TopicImage | None = image.topic_by_id(topic_id)
    if topic is None:
        error = BrokerError(ErrorCode.unknown_topic_id, f"there is no topic with id {topic_id}")
        return _Target(None, topic_id, asked_by_id=True, error=error)
    return _Target(topic.name, topic_id, asked_by_id=True)


def _refuse_repeated(targets: list[_Target]) -> None:
    """Set an error on topics that are in the request twice, which may be once by name and once by id."""
    counts = Counter(target.name for target in targets if target.error is None)
    for target in targets:
        if counts[target.name] > 1 and target.error is None:
            target.error = BrokerError(ErrorCode.invalid_request, "the topic is in the request twice")


def _check(request: Request, target: _Target) -> None:
    if target.error is not None or target.name is None:
        return
    if not request.allowed(Operation.DELETE, ResourceType.TOPIC, target.name):
        target.error = BrokerError(ErrorCode.topic_authorization_failed)
        if target.asked_by_id and not request.shows(Operation.DESCRIBE, ResourceType.TOPIC, target.name):
            target.name = None
    elif not request.context.config[DELETE_TOPIC_ENABLE]:
        new = request.version >= FIRST_VERSION_WITH_DISABLED_CODE
        code = ErrorCode.topic_deletion_disabled if new else ErrorCode.invalid_request
        target.error = BrokerError(code, "topic deletion is disabled (delete.topic.enable=false)")
    else:
        try:
            refuse_internal(target.name)
        except BrokerError as error:
            target.error = error


def _result(target: _Target) -> Fields:
    return {
        "name": target.name,
        "topic_id": target.topic_id,
        "error_code": code_of(target.error),
        "error_message": message_of(target.error),
    }
