"""Endpoints that change a group: reset its committed offsets, delete them, and remove a member."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from starlette.responses import Response

from penstock.gateway.authorization import RequiredPermission, on_group, on_topic
from penstock.gateway.http.endpoint import JSON, Call, DeclaredResponse, Endpoint, path
from penstock.gateway.http.problems import Problem
from penstock.gateway.http.responses import json_response
from penstock.gateway.http.shared_schemas import (
    BOOLEAN,
    GROUP_ID,
    INTEGER,
    LONG_MAX,
    OFFSET,
    PARTITION,
    STRING,
    TOPIC_NAME,
    an_array,
    an_object,
    nullable,
)
from penstock.gateway.share_groups import is_share_group, start_offsets
from penstock.internal_client.records import EARLIEST, LATEST

Offsets = dict[tuple[str, int], int]

_GROUP = path("group", GROUP_ID, "The group.")
_TOPIC = path("topic", TOPIC_NAME, "The topic.")
_PLACE = an_object({"topic": TOPIC_NAME, "partition": PARTITION, "offset": OFFSET})
_CHANGED = an_object(
    {
        "topic": STRING,
        "partition": INTEGER,
        "offset": INTEGER,
        "before": {
            **nullable(INTEGER),
            "description": "In a dry run: the present committed offset; null without one.",
        },
    },
    required=("topic", "partition", "offset"),
)
_RESET = an_object(
    {
        "topic": {**TOPIC_NAME, "description": "With `to`, `time_ms` or `shift`: the topic to reset."},
        "partitions": {
            **an_array(PARTITION, minItems=1, maxItems=10_000),
            "description": "With `topic`: only these partitions.",
        },
        "to": {"type": "string", "enum": ["earliest", "latest"]},
        "time_ms": {"type": "integer", "minimum": 0, "maximum": LONG_MAX},
        "shift": {
            "type": "integer",
            "minimum": -LONG_MAX,
            "maximum": LONG_MAX,
            "description": "Move committed offsets by this many records, within the bounds of each partition.",
        },
        "from_group": {**GROUP_ID, "description": "Copy the committed offsets of this group."},
        "offsets": an_array(_PLACE, minItems=1, maxItems=10_000),
        "dry_run": {**BOOLEAN, "description": "Show the new offsets and change nothing."},
    },
    required=(),
)
_WAYS = ("to", "time_ms", "shift", "from_group", "offsets")


async def reset_group(call: Call) -> Response:
    group, groups = call.parameters["group"], call.context.backend.groups
    backend = call.context.backend
    is_shared = await is_share_group(backend, group)
    before = await (start_offsets(backend, group) if is_shared else groups.all_committed(group))
    offsets = await _wanted_offsets(call, before)
    for topic in {topic for topic, _ in offsets}:
        await call.require("READ", "TOPIC", topic)
    places: list[dict[str, Any]] = [
        {"topic": topic, "partition": partition, "offset": offset}
        for (topic, partition), offset in offsets.items()
    ]
    if call.body.get("dry_run", False):
        for each in places:
            each["before"] = before.get(each["topic"], {}).get(each["partition"])
    else:
        await (backend.share_groups if is_shared else groups).reset(group, offsets)
    return json_response({"offsets": places})


async def _wanted_offsets(call: Call, before: Mapping[str, Mapping[int, int]]) -> Offsets:
    body = call.body
    ways = [name for name in _WAYS if name in body]
    if len(ways) != 1:
        raise _invalid("give exactly one of to, time_ms, shift, from_group and offsets")
    way = ways[0]
    if way == "offsets":
        if "topic" in body or "partitions" in body:
            raise _invalid("each entry of offsets has its topic: leave out topic and partitions")
        wanted = {(each["topic"], each["partition"]): each["offset"] for each in body["offsets"]}
        if len(wanted) != len(body["offsets"]):
            raise Problem(400, "a partition is named twice", error="INVALID_REQUEST", pointer="/offsets")
        return wanted
    if way == "from_group":
        return await _copied(call)
    if "topic" not in body:
        raise _invalid(f"{way} needs a topic")
    return await _moved(call, before.get(body["topic"], {}))


async def _copied(call: Call) -> Offsets:
    body = call.body
    await call.require("DESCRIBE", "GROUP", body["from_group"])
    found = await call.context.backend.groups.all_committed(body["from_group"])
    copied = {
        (topic, partition): offset
        for topic, of_topic in found.items()
        for partition, offset in of_topic.items()
        if body.get("topic", topic) == topic and partition in body.get("partitions", (partition,))
    }
    if not copied:
        raise Problem(404, "the group to copy from has no such committed offsets", error="GROUP_ID_NOT_FOUND")
    return copied


async def _moved(call: Call, committed: Mapping[int, int]) -> Offsets:
    body, backend = call.body, call.context.backend
    name = body["topic"]
    count = len((await backend.topics.get(name, fresh=True)).partitions)
    partitions = body.get("partitions", range(count))
    for partition in partitions:
        if partition >= count:
            raise Problem(
                404,
                f"{name} has {count} partitions, from 0 to {count - 1}",
                error="UNKNOWN_TOPIC_OR_PARTITION",
            )
    if "shift" in body:
        starts = await backend.records.offsets(name, partitions, EARLIEST)
        ends = await backend.records.offsets(name, partitions, LATEST)
        return {
            (name, each): min(
                ends[each], max(starts[each], committed.get(each, starts[each]) + body["shift"])
            )
            for each in partitions
        }
    time_ms = body.get("time_ms", EARLIEST if body.get("to") == "earliest" else LATEST)
    found = await backend.records.offsets(name, partitions, time_ms)
    return {(name, partition): offset for partition, offset in found.items()}


async def delete_offsets(call: Call) -> Response:
    group, topic = call.parameters["group"], call.parameters["topic"]
    await call.context.backend.groups.delete_offsets(group, topic)
    return Response(status_code=204)


async def remove_member(call: Call) -> Response:
    await call.context.backend.groups.remove_member(call.parameters["group"], call.parameters["member"])
    return Response(status_code=204)


def _invalid(detail: str) -> Problem:
    return Problem(400, detail, error="INVALID_REQUEST")


ENDPOINTS = (
    Endpoint(
        "POST",
        "/v1/groups/{group}/reset",
        "resetGroup",
        "Groups",
        "Reset the offsets of a group without members: to offsets, to the start, the end or a time of a topic, by a "
        "number of records, or to the offsets of another group.",
        reset_group,
        {200: DeclaredResponse("The new offsets.", an_object({"offsets": an_array(_CHANGED)}))},
        parameters=(_GROUP,),
        bodies={JSON: _RESET},
        needs=(
            on_group("READ"),
            RequiredPermission("READ", "TOPIC", field="topic"),
        ),
    ),
    Endpoint(
        "DELETE",
        "/v1/groups/{group}/topics/{topic}",
        "deleteGroupOffsets",
        "Groups",
        "Delete the committed offsets of a topic that no member of the group reads.",
        delete_offsets,
        {204: DeclaredResponse("Deleted.")},
        parameters=(_GROUP, _TOPIC),
        needs=(on_group("DELETE"), on_topic("READ")),
    ),
    Endpoint(
        "DELETE",
        "/v1/groups/{group}/members/{member}",
        "removeGroupMember",
        "Groups",
        "Remove a member from its group, which rebalances. A consumer that still runs joins again.",
        remove_member,
        {204: DeclaredResponse("Removed.")},
        parameters=(_GROUP, path("member", GROUP_ID, "The member's id.")),
        needs=(on_group("READ"),),
    ),
)
