"""Endpoints for consumer groups and transactions."""

from __future__ import annotations

from typing import Any

from starlette.responses import Response

from penstock.errors import BrokerError, ErrorCode
from penstock.gateway.authorization import RequiredPermission, on_group
from penstock.gateway.http.endpoint import Call, DeclaredResponse, Endpoint, path
from penstock.gateway.http.responses import json_response
from penstock.gateway.http.shared_schemas import (
    GROUP_ID,
    INTEGER,
    STRING,
    an_array,
    an_object,
)
from penstock.gateway.share_groups import SHARE_PARTITION, describe_share_group
from penstock.internal_client.groups import GroupDetails

_GROUP = path("group", GROUP_ID, "The group.")
_TRANSACTIONAL_ID = path("transactional_id", GROUP_ID, "The transactional id.")
_MEMBER = an_object(
    {
        "id": STRING,
        "client_id": STRING,
        "host": STRING,
        "instance_id": {"type": ["string", "null"], "description": "group.instance.id of a static member."},
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
        "assignor": {
            "type": "string",
            "description": "Assignor or protocol; empty for a group without members.",
        },
        "lag": INTEGER,
        "members": an_array(_MEMBER),
        "offsets": an_array(_GROUP_OFFSET),
        "share_partitions": {
            **an_array(SHARE_PARTITION),
            "description": "Partitions of a share group; empty for a group of another type.",
        },
    }
)
_TRANSACTION = an_object({"transactional_id": STRING, "producer_id": INTEGER, "state": STRING})


async def describe_group(call: Call) -> Response:
    backend, group = call.context.backend, call.parameters["group"]
    try:
        return json_response(_shown(await backend.groups.describe(group)))
    except BrokerError as error:
        if error.code is not ErrorCode.group_id_not_found:
            raise
        return json_response(await describe_share_group(backend, group))


def _shown(described: GroupDetails) -> dict[str, Any]:
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
            "instance_id": each.instance_id,
            "partitions": {topic: list(numbers) for topic, numbers in each.partitions.items()},
        }
        for each in described.members
    ]
    return {
        "id": described.summary.id,
        "type": described.summary.type,
        "state": described.summary.state,
        "assignor": described.assignor,
        "lag": sum(each.lag for each in described.offsets),
        "members": members,
        "offsets": offsets,
        "share_partitions": [],
    }


async def delete_group(call: Call) -> Response:
    await call.context.backend.groups.delete(call.parameters["group"])
    return Response(status_code=204)


async def list_transactions(call: Call) -> Response:
    all_transactions = await call.context.backend.transactions.all()
    await call.learn("DESCRIBE", "TRANSACTIONAL_ID", (each.transactional_id for each in all_transactions))
    found = [
        {"transactional_id": each.transactional_id, "producer_id": each.producer_id, "state": each.state}
        for each in all_transactions
        if call.allows("DESCRIBE", "TRANSACTIONAL_ID", each.transactional_id)
    ]
    return json_response({"transactions": found})


async def abort_transaction(call: Call) -> Response:
    await call.context.backend.transactions.abort(call.parameters["transactional_id"])
    return Response(status_code=204)


ENDPOINTS = (
    Endpoint(
        "GET",
        "/v1/groups/{group}",
        "describeGroup",
        "Groups",
        "A group: its members, its offsets and its lag.",
        describe_group,
        {200: DeclaredResponse("The group.", _DESCRIPTION)},
        parameters=(_GROUP,),
        needs=(on_group("DESCRIBE"),),
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
        {200: DeclaredResponse("Ordered by id.", an_object({"transactions": an_array(_TRANSACTION)}))},
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
