"""CreateTopics: creates topics, or only checks the request (`validate_only`)."""

from __future__ import annotations

from typing import Any

from penstock.cluster.image import VIEW_OF, TopicImage
from penstock.cluster.internal_topics import refuse_internal
from penstock.cluster.topics import CreatableTopic
from penstock.config import TOPIC_OPTIONS, Option, TopicConfig
from penstock.errors import BrokerError, ErrorCode
from penstock.server.dispatch import Api, Fields, Request
from penstock.server.handlers.administration import NO_TIME, carried_out, code_of, message_of
from penstock.server.handlers.config_fields import config_fields, topic_config
from penstock.server.handlers.mutation_quota import count_mutations, too_many_mutations
from penstock.server.security import CLUSTER_NAME, Operation, ResourceType, refusal

FIRST_STRICT = 6
"""First version with the error THROTTLING_QUOTA_EXCEEDED (KIP-599)."""
CONFIG_FIELDS = ("name", "value", "read_only", "config_source", "is_sensitive")


async def handle(request: Request, message: Any) -> Fields:
    refusals = [
        _refusal(request, asked) or too_many_mutations(request, FIRST_STRICT) for asked in message.topics
    ]
    wanted = [
        _new_topic(asked) for asked, refused in zip(message.topics, refusals, strict=True) if refused is None
    ]
    change = request.context.administration.create_topics(wanted, validate_only=message.validate_only)
    made = await carried_out(request, change, len(wanted), message.timeout)
    if not message.validate_only:
        count_mutations(request, made, FIRST_STRICT)
    outcomes = iter(made)
    topics = [
        _result(request, asked.name, refused or next(outcomes))
        for asked, refused in zip(message.topics, refusals, strict=True)
    ]
    return {"throttle_time": NO_TIME, "topics": topics}


API = Api(19, 2, 7, handle)


def may_create(request: Request, topic: str) -> bool:
    return request.has_right(Operation.CREATE, ResourceType.CLUSTER, CLUSTER_NAME) or request.allowed(
        Operation.CREATE, ResourceType.TOPIC, topic
    )


def _refusal(request: Request, asked: Any) -> BrokerError | None:
    topic = asked.name
    if not may_create(request, topic):
        return refusal(request.caller.principal, Operation.CREATE, ResourceType.TOPIC, topic)
    try:
        refuse_internal(topic)
        for config in asked.configs:
            if config.name == VIEW_OF and config.value:
                # Readers of the view get records of its source.
                request.require(Operation.READ, ResourceType.TOPIC, config.value)
    except BrokerError as error:
        return error
    return None


def _new_topic(asked: Any) -> CreatableTopic:
    return CreatableTopic(
        asked.name,
        asked.num_partitions,
        asked.replication_factor,
        [(assigned.partition_index, assigned.broker_ids) for assigned in asked.assignments],
        {config.name: config.value for config in asked.configs},
    )


def _result(request: Request, name: str, outcome: TopicImage | BrokerError) -> Fields:
    fields = {
        "name": name,
        "error_code": code_of(outcome),
        "error_message": message_of(outcome),
        "topic_id": None,
        "topic_config_error_code": 0,
        "num_partitions": -1,
        "replication_factor": -1,
        "configs": (),
    }
    if isinstance(outcome, BrokerError):
        return fields
    fields["topic_id"] = outcome.id
    if not request.shows(Operation.DESCRIBE_CONFIGS, ResourceType.TOPIC, name):
        return fields | {"topic_config_error_code": int(ErrorCode.topic_authorization_failed)}
    config, shown = topic_config(request.context, outcome), request.context.image.shown(outcome)
    return fields | {
        "num_partitions": len(shown.partitions),
        "replication_factor": len(shown.partitions[0].replicas),
        "configs": [_config_fields(request, config, option) for option in TOPIC_OPTIONS.values()],
    }


def _config_fields(request: Request, config: TopicConfig, option: Option[Any]) -> Fields:
    """Fields of a setting as in DescribeConfigs, reduced to those that CreateTopics has."""
    described = config_fields(request.context, config, option, read_only=False)
    return {name: described[name] for name in CONFIG_FIELDS}
