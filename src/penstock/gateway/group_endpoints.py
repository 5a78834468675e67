"""Endpoints for consumer groups and transactions."""

from __future__ import annotations

from starlette.responses import Response

from penstock.gateway.authorization import RequiredPermission, on_group
from penstock.gateway.http.endpoint import JSON, Call, DeclaredResponse, Endpoint, path
from penstock.gateway.http.problems import Problem
from penstock.gateway.http.responses import json_response
from penstock.gateway.http.shared_schemas import (
    GROUP_ID,
    INTEGER,
    LONG_MAX,
    OFFSET,
    PARTITION,
    STRING,
    TOPIC_NAME,
    an_array,
    an_object,
)
from penstock.internal_client.records import EARLIEST, LATEST

_GROUP = path("group", GROUP_ID, "The group.")
_TRANSACTIONAL_ID = path("transactional_id", GROUP_ID, "The transactional id.")
_SUMMARY = an_object({"id": STRING, "type": STRING, "state": STRING})
_MEMBER = an_object(
    {
        "id": STRING,
        "client_id": STRING,
        "host": STRING,
        "partitions": {"type": "object", "additionalProperties": an_array(INTEGER)},
    }
)
_GROUP_OFFSET = an_object(
    {
        "topic": STRING,
        "partition": INTEGER,
        "committed": {"type": ["integer", "null"], "description": "null without a committed offset."},
        "start": INTEGER,
        "end": INTEGER,
        "lag": {
            "type": "integer",
            "description": "Offsets between `committed` and `end`; without a committed offset from `start` on.",
        },
    }
)
_DESCRIPTION = an_object(
    {
        "id": STRING,
        "type": STRING,
        "state": STRING,
        "lag": INTEGER,
        "members": an_array(_MEMBER),
        "offsets": an_array(_GROUP_OFFSET),
    }
)
_TRANSACTION = an_object({"transactional_id": STRING, "producer_id": INTEGER, "state": STRING})
_PLACE = an_object({"topic": TOPIC_NAME, "partition": PARTITION, "offset": OFFSET})
_RESET = an_object(
    {
        "topic": {**TOPIC_NAME, "description": "With `to` or `time_ms`: all partitions of this topic."},
        "to": {"type": "string", "enum": ["earliest", "latest"]},
        "time_ms": {"type": "integer", "minimum": 0, "maximum": LONG_MAX},
        "offsets": an_array(_PLACE, minItems=1, maxItems=10_000),
    },
    required=(),
)


async def list_groups(call: Call) -> Response:
    shown = [
        {"id": each.id, "type": each.type, "state": each.state}
        for each in await call.context.backend.groups.all()
        if call.allows("DESCRIBE", "GROUP", each.id)
    ]
    return json_response({"groups": shown})


async def describe_group(call: Call) -> Response:
    described = await call.context.backend.groups.describe(call.parameters["group"])
    offsets = [
        {
            "topic": each.topic,
            "partition": each.partition,
            "committed": each.committed,
            "start": each.log_start,
            "end": each.log_end,
            "lag": each.lag,
        }
        for each in described.offsets
    ]
    members = [
        {
            "id": each.id,
            "client_id": each.client_id,
            "host": each.host,
            "partitions": {topic: list(numbers) for topic, numbers in each.partitions.items()},
        }
        for each in described.members
    ]
    return json_response(
        {
            "id": described.summary.id,
            "type": described.summary.type,
            "state": described.summary.state,
            "lag": sum(each.lag for each in described.offsets),
            "members": members,
            "offsets": offsets,
        }
    )


async def reset_group(call: Call) -> Response:
    offsets = await _wanted_offsets(call)
    for topic in {topic for topic, _ in offsets}:
        call.require("READ", "TOPIC", topic)
    await call.context.backend.groups.reset(call.parameters["group"], offsets)
    places = [
        {"topic": topic, "partition": partition, "offset": offset}
        for (topic, partition), offset in offsets.items()
    ]
    return json_response({"offsets": places})


async def _wanted_offsets(call: Call) -> dict[tuple[str, int], int]:
    body = call.body
    given = set(body)
    if given == {"offsets"}:
        wanted = {(each["topic"], each["partition"]): each["offset"] for each in body["offsets"]}
        if len(wanted) != len(body["offsets"]):
            raise Problem(400, "a partition is named twice", error="INVALID_REQUEST", pointer="/offsets")
        return wanted
    if given not in ({"topic", "to"}, {"topic", "time_ms"}):
        raise Problem(
            400, "give either offsets, or topic and to, or topic and time_ms", error="INVALID_REQUEST"
        )
    name, backend = body["topic"], call.context.backend
    topic = await backend.topics.get(name, fresh=True)
    time_ms = body.get("time_ms", EARLIEST if body.get("to") == "earliest" else LATEST)
    found = await backend.records.offsets(name, range(len(topic.partitions)), time_ms)
    return {(name, partition): offset for partition, offset in found.items()}


async def delete_group(call: Call) -> Response:
    await call.context.backend.groups.delete(call.parameters["group"])
    return Response(status_code=204)


async def list_transactions(call: Call) -> Response:
    found = [
        {"transactional_id": each.transactional_id, "producer_id": each.producer_id, "state": each.state}
        for each in await call.context.backend.transactions.all()
        if call.allows("DESCRIBE", "TRANSACTIONAL_ID", each.transactional_id)
    ]
    return json_response({"transactions": found})


async def abort_transaction(call: Call) -> Response:
    await call.context.backend.transactions.abort(call.parameters["transactional_id"])
    return Response(status_code=204)


ENDPOINTS = (
    Endpoint(
        "GET",
        "/v1/groups",
        "listGroups",
        "Groups",
        "All consumer groups.",
        list_groups,
        {200: DeclaredResponse("By id.", an_object({"groups": an_array(_SUMMARY)}))},
    ),
    Endpoint(
        "GET",
        "/v1/groups/{group}",
        "describeGroup",
        "Groups",
        "A group: its members, its committed offsets and its lag.",
        describe_group,
        {200: DeclaredResponse("The group.", _DESCRIPTION)},
        parameters=(_GROUP,),
        needs=(on_group("DESCRIBE"),),
    ),
    Endpoint(
        "POST",
        "/v1/groups/{group}/reset",
        "resetGroup",
        "Groups",
        "Reset the offsets of a group without members: to offsets, or to the start, the end or a time of a topic.",
        reset_group,
        {200: DeclaredResponse("The new offsets.", an_object({"offsets": an_array(_PLACE)}))},
        parameters=(_GROUP,),
        bodies={JSON: _RESET},
        needs=(
            on_group("READ"),
            RequiredPermission("READ", "TOPIC", field="topic"),
        ),
    ),
    Endpoint(
        "DELETE",
        "/v1/groups/{group}",
        "deleteGroup",
        "Groups",
        "Delete a group without members, and its committed offsets.",
        delete_group,
        {204: DeclaredResponse("Deleted.")},
        parameters=(_GROUP,),
        needs=(on_group("DELETE"),),
    ),
    Endpoint(
        "GET",
        "/v1/transactions",
        "listTransactions",
        "Transactions",
        "All transactional ids, and the states of their transactions.",
        list_transactions,
        {200: DeclaredResponse("By id.", an_object({"transactions": an_array(_TRANSACTION)}))},
    ),
    Endpoint(
        "POST",
        "/v1/transactions/{transactional_id}/abort",
        "abortTransaction",
        "Transactions",
        "Abort an open transaction and fence its producer.",
        abort_transaction,
        {204: DeclaredResponse("The transaction is aborted.")},
        parameters=(_TRANSACTIONAL_ID,),
        needs=(RequiredPermission("WRITE", "TRANSACTIONAL_ID", parameter="transactional_id"),),
    ),
)
