"""Endpoints for one topic: create, describe, change, truncate and delete."""

from __future__ import annotations

import asyncio
from dataclasses import asdict
from typing import Any

from starlette.responses import Response

from penstock.config.resources import ConfigResourceType
from penstock.gateway.authorization import RequiredPermission, on_topic
from penstock.gateway.config_endpoints import CONFIG_CHANGES, CONFIGS, show_configs
from penstock.gateway.http.endpoint import JSON, Call, DeclaredResponse, Endpoint, path, query
from penstock.gateway.http.problems import Problem
from penstock.gateway.http.responses import json_response
from penstock.gateway.http.shared_schemas import (
    BOOLEAN,
    CONFIG_VALUES,
    INTEGER,
    NUMBER,
    OFFSET,
    PARTITION,
    STRING,
    TOPIC_NAME,
    an_array,
    an_object,
)
from penstock.gateway.partition_times import NO_TIMES, read_times
from penstock.internal_client.drain_progress import read_progress
from penstock.internal_client.records import EARLIEST, LATEST
from penstock.internal_client.topic_routes import TopicRoute
from penstock.internal_client.topics import NewTopic

TAG = "Topics"
_TOPIC = path("topic", TOPIC_NAME, "The topic.")
_COUNT = {"type": "integer", "minimum": 1, "maximum": 100_000}
_SUMMARY = an_object(
    {"name": STRING, "id": STRING, "partitions": INTEGER, "replication_factor": INTEGER, "internal": BOOLEAN}
)
_PARTITION_STATE = an_object(
    {
        "partition": INTEGER,
        "leader": {"type": ["integer", "null"], "description": "null while there is no leader."},
        "leader_epoch": INTEGER,
        "replicas": an_array(INTEGER),
        "in_sync": an_array(INTEGER),
        "log_start_offset": {"type": ["integer", "null"]},
        "high_watermark": {"type": ["integer", "null"]},
        "bytes": {"type": ["integer", "null"], "description": "Bytes on the disk of the leader."},
        "first_time_ms": {"type": ["integer", "null"], "description": "Time of the first record."},
        "last_time_ms": {"type": ["integer", "null"], "description": "Time of the newest record."},
        "record_rate": {**NUMBER, "description": "Records written per second, over the last two seconds."},
        "phase": {
            **STRING,
            "description": "active; or draining, sealing, sealed or dropping for a partition that is being removed.",
        },
    }
)
_PROGRESS = an_object(
    {
        "topic": STRING,
        "active": {**INTEGER, "description": "Number of partitions that new clients use."},
        "done": {**BOOLEAN, "description": "Whether all partitions that are being removed are sealed."},
        "going": an_array(
            an_object(
                {
                    "partition": INTEGER,
                    "phase": STRING,
                    "since_ms": INTEGER,
                    "records": {"type": ["integer", "null"]},
                    "bytes": {"type": ["integer", "null"]},
                    "waits_for": an_array(STRING),
                    "writers": an_array(
                        an_object(
                            {
                                "client_id": STRING,
                                "host": STRING,
                                "principal": STRING,
                                "last_write_ms": INTEGER,
                            }
                        )
                    ),
                    "behind": an_array(an_object({"group": STRING, "offset": INTEGER})),
                }
            )
        ),
    }
)
_DESCRIPTION = an_object(
    {"name": STRING, "id": STRING, "internal": BOOLEAN, "partitions": an_array(_PARTITION_STATE)}
)
_BEFORE = an_object({"partition": PARTITION, "offset": {**OFFSET, "minimum": -1}})


async def create_topic(call: Call) -> Response:
    body = call.body
    new = NewTopic(
        body["name"], body.get("partitions", -1), body.get("replication_factor", -1), body.get("configs")
    )
    topics = call.context.backend.topics
    if body.get("validate_only", False):
        await topics.create(new, validate_only=True)
        return json_response({"name": new.name, "valid": True})
    await topics.create(new)
    answer = json_response(_summary(await topics.get(new.name, fresh=True)), 201)
    answer.headers["location"] = f"/v1/topics/{new.name}"
    return answer


async def describe_topic(call: Call) -> Response:
    name = call.parameters["topic"]
    topic = await call.context.backend.topics.get(name, fresh=True)
    numbers = [number for number, partition in enumerate(topic.partitions) if partition.leader >= 0]
    records = call.context.backend.records
    starts, ends, times, phases = await asyncio.gather(
        records.offsets(name, numbers, EARLIEST),
        records.offsets(name, numbers, LATEST),
        read_times(call.context.backend.inspection, topic),
        call.context.backend.topics.phases(name),
    )
    phase_of = dict(enumerate(phases["phases"]))
    figures = call.context.view.topics.get(name)
    rates = {} if figures is None or figures.rate.is_idle else figures.partition_rates
    partitions = [
        {
            "partition": number,
            "leader": partition.leader if partition.leader >= 0 else None,
            "leader_epoch": partition.leader_epoch,
            "replicas": list(partition.replicas),
            "in_sync": list(partition.in_sync),
            "log_start_offset": starts.get(number),
            "high_watermark": ends.get(number),
            **times.get(number, NO_TIMES),
            "record_rate": round(rates.get(number, 0.0), 3),
            "phase": phase_of.get(number, "active"),
        }
        for number, partition in enumerate(topic.partitions)
    ]
    described = {"name": name, "id": str(topic.id), "internal": topic.is_internal, "partitions": partitions}
    return json_response(described)


async def alter_topic(call: Call) -> Response:
    name, topics = call.parameters["topic"], call.context.backend.topics
    count, waits_for_groups = call.body["partitions"], call.body.get("wait_for_groups", True)
    change = call.body.get("change", "set")
    if change == "set" and waits_for_groups:
        await topics.set_partitions(name, count)
    else:
        await topics.reduce_partitions(name, count, change, waits_for_groups=waits_for_groups)
    return json_response(_summary(await topics.get(name, fresh=True)))


async def drain_progress(call: Call) -> Response:
    count = call.parameters.get("partitions", 0)
    progress = await read_progress(call.context.backend.inspection, call.parameters["topic"], count)
    going = [
        {
            "partition": each.partition,
            "phase": each.phase,
            "since_ms": each.since_ms,
            "records": each.records,
            "bytes": each.size_bytes,
            "waits_for": list(each.waits_for),
            "writers": [asdict(writer) for writer in each.writers],
            "behind": [{"group": group, "offset": offset} for group, offset in each.behind],
        }
        for each in progress.going
    ]
    return json_response(
        {"topic": progress.topic, "active": progress.active, "done": progress.is_done, "going": going}
    )


async def delete_topic(call: Call) -> Response:
    await call.context.backend.topics.delete(call.parameters["topic"])
    return Response(status_code=204)


async def truncate_topic(call: Call) -> Response:
    before = {each["partition"]: each["offset"] for each in call.body["partitions"]}
    if len(before) != len(call.body["partitions"]):
        raise Problem(400, "a partition is named twice", error="INVALID_REQUEST", pointer="/partitions")
    truncated = await call.context.backend.records.delete_before(call.parameters["topic"], before)
    return json_response(
        {
            "partitions": [
                {
                    "partition": number,
                    "log_start_offset": each.log_start_offset,
                    **({"removed_pending": each.removed_pending} if each.removed_pending else {}),
                }
                for number, each in truncated.items()
            ]
        }
    )


async def topic_configs(call: Call) -> Response:
    return await show_configs(call, ConfigResourceType.TOPIC, call.parameters["topic"])


async def alter_topic_configs(call: Call) -> Response:
    name = call.parameters["topic"]
    await call.context.backend.configs.alter(ConfigResourceType.TOPIC, name, call.body)
    return await show_configs(call, ConfigResourceType.TOPIC, name)


def _summary(topic: TopicRoute) -> dict[str, Any]:
    return {
        "name": topic.name,
        "id": str(topic.id),
        "partitions": topic.active_count,
        "replication_factor": max(len(partition.replicas) for partition in topic.partitions),
        "internal": topic.is_internal,
    }


ENDPOINTS = (
    Endpoint(
        "POST",
        "/v1/topics",
        "createTopic",
        TAG,
        "Create a topic.",
        create_topic,
        {
            200: DeclaredResponse(
                "The topic could be created.", an_object({"name": STRING, "valid": BOOLEAN})
            ),
            201: DeclaredResponse("Created.", _SUMMARY),
        },
        bodies={
            JSON: an_object(
                {
                    "name": TOPIC_NAME,
                    "partitions": _COUNT,
                    "replication_factor": {"type": "integer", "minimum": 1, "maximum": 100},
                    "configs": CONFIG_VALUES,
                    "validate_only": {
                        **BOOLEAN,
                        "description": "Only check whether the topic could be created.",
                    },
                },
                required=("name",),
            )
        },
        needs=(RequiredPermission("CREATE", "TOPIC", field="name"),),
    ),
    Endpoint(
        "GET",
        "/v1/topics/{topic}",
        "describeTopic",
        TAG,
        "A topic: its partitions, their leaders and their offsets.",
        describe_topic,
        {200: DeclaredResponse("The topic.", _DESCRIPTION)},
        parameters=(_TOPIC,),
        needs=(on_topic("DESCRIBE"),),
    ),
    Endpoint(
        "PATCH",
        "/v1/topics/{topic}",
        "alterTopic",
        TAG,
        "Add partitions to a topic, or let the last ones drain.",
        alter_topic,
        {200: DeclaredResponse("Changed.", _SUMMARY)},
        parameters=(_TOPIC,),
        bodies={
            JSON: an_object(
                {
                    "partitions": _COUNT,
                    "wait_for_groups": {
                        **BOOLEAN,
                        "description": "Seal a draining partition only when its groups have read it (default).",
                    },
                    "change": {
                        "type": "string",
                        "enum": ["set", "seal-now", "drop-sealed"],
                        "description": "seal-now: the partitions that are being removed refuse records immediately; "
                        "drop-sealed: sealed partitions are deleted before their retention has passed.",
                    },
                },
                required=("partitions",),
            )
        },
        needs=(on_topic("ALTER"),),
    ),
    Endpoint(
        "GET",
        "/v1/topics/{topic}/drain",
        "drainProgress",
        TAG,
        "The partitions that a smaller number of partitions removes: their writers, and groups that are behind.",
        drain_progress,
        {200: DeclaredResponse("The partitions that are removed.", _PROGRESS)},
        parameters=(
            _TOPIC,
            query(
                "partitions", _COUNT, "Show the partitions that would be removed with this number instead."
            ),
        ),
        needs=(on_topic("DESCRIBE"),),
    ),
    Endpoint(
        "DELETE",
        "/v1/topics/{topic}",
        "deleteTopic",
        TAG,
        "Delete a topic and all of its messages.",
        delete_topic,
        {204: DeclaredResponse("Deleted.")},
        parameters=(_TOPIC,),
        needs=(on_topic("DELETE"),),
    ),
    Endpoint(
        "POST",
        "/v1/topics/{topic}/truncate",
        "truncateTopic",
        TAG,
        "Delete messages before an offset; -1 is the end of the partition.",
        truncate_topic,
        {
            200: DeclaredResponse(
                "The new log start offsets of the partitions, and the number of delayed messages that were removed.",
                an_object(
                    {
                        "partitions": an_array(
                            an_object(
                                {
                                    "partition": INTEGER,
                                    "log_start_offset": INTEGER,
                                    "removed_pending": INTEGER,
                                },
                                required=("partition", "log_start_offset"),
                            )
                        )
                    }
                ),
            )
        },
        parameters=(_TOPIC,),
        bodies={JSON: an_object({"partitions": an_array(_BEFORE, minItems=1, maxItems=1_000)})},
        needs=(on_topic("DELETE"),),
    ),
    Endpoint(
        "GET",
        "/v1/topics/{topic}/configs",
        "topicConfigs",
        TAG,
        "The settings of a topic.",
        topic_configs,
        {200: CONFIGS},
        parameters=(_TOPIC,),
        needs=(on_topic("DESCRIBE_CONFIGS"),),
    ),
    Endpoint(
        "PATCH",
        "/v1/topics/{topic}/configs",
        "alterTopicConfigs",
        TAG,
        "Change settings of a topic; null returns a setting to its default.",
        alter_topic_configs,
        {200: CONFIGS},
        parameters=(_TOPIC,),
        bodies={JSON: CONFIG_CHANGES},
        needs=(on_topic("ALTER_CONFIGS"),),
    ),
)
