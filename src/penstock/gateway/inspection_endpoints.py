"""Endpoints for single brokers: client connections, the log, and reassignments of the cluster."""

from __future__ import annotations

from starlette.responses import Response

from penstock.gateway.authorization import on_cluster
from penstock.gateway.http.endpoint import Call, DeclaredResponse, Endpoint, path, query
from penstock.gateway.http.problems import Problem
from penstock.gateway.http.responses import json_response
from penstock.gateway.http.shared_schemas import (
    BOOLEAN,
    INTEGER,
    NUMBER,
    PARTITION,
    STRING,
    an_array,
    an_object,
)
from penstock.internal_client import open_connections
from penstock.model import BrokerId

MAX_LINES = 500
_CONNECTION = an_object(
    {
        "id": {**STRING, "description": "Broker and number, to close the connection."},
        "broker": INTEGER,
        "client_id": STRING,
        "software": {**STRING, "description": "Name and version, for clients that give them."},
        "principal": STRING,
        "address": STRING,
        "is_broker": BOOLEAN,
        "age_seconds": NUMBER,
        "received_bytes": INTEGER,
        "sent_bytes": INTEGER,
    }
)
_CONNECTION_LIST = an_object(
    {
        "connections": an_array(_CONNECTION),
        "total": {
            **INTEGER,
            "description": "Open connections of all brokers; a broker lists its oldest 1,000.",
        },
    }
)
_LINE = {
    "type": "object",
    "properties": {"time": STRING, "level": STRING, "message": STRING},
    "required": ["time", "level", "message"],
}
_MOVE = an_object(
    {
        "topic": STRING,
        "partition": INTEGER,
        "replicas": an_array(INTEGER),
        "adding": an_array(INTEGER),
        "removing": an_array(INTEGER),
    }
)


async def list_connections(call: Call) -> Response:
    shown, total = await open_connections.list_connections(call.context.backend.inspection)
    return json_response({"connections": shown, "total": total})


async def close_connection(call: Call) -> Response:
    await open_connections.close_connection(call.context.backend.inspection, call.parameters["connection"])
    return Response(status_code=204)


async def broker_log(call: Call) -> Response:
    node_id = BrokerId(call.parameters["broker"])
    inspection = call.context.backend.inspection
    if node_id not in await inspection.broker_ids():
        raise Problem(404, f"there is no broker {node_id}", error="BROKER_ID_NOT_REGISTERED")
    return json_response({"lines": await inspection.log_lines(node_id, call.parameters["limit"])})


async def list_reassignments(call: Call) -> Response:
    found = await call.context.backend.reassignments.all()
    moves = [
        {
            "topic": partition.topic,
            "partition": partition.partition,
            "replicas": list(move.replicas),
            "adding": list(move.adding),
            "removing": list(move.removing),
        }
        for partition, move in sorted(found.items(), key=lambda each: (each[0].topic, each[0].partition))
    ]
    return json_response({"reassignments": moves})


ENDPOINTS = (
    Endpoint(
        "GET",
        "/v1/connections",
        "listConnections",
        "Cluster",
        "The Kafka connections of clients and brokers.",
        list_connections,
        {200: DeclaredResponse("The connections, ordered by broker, the oldest first.", _CONNECTION_LIST)},
        needs=(on_cluster("DESCRIBE"),),
    ),
    Endpoint(
        "DELETE",
        "/v1/connections/{connection}",
        "closeConnection",
        "Cluster",
        "Close a connection. A client that still runs connects again.",
        close_connection,
        {204: DeclaredResponse("Closed.")},
        parameters=(
            path(
                "connection",
                {
                    "type": "string",
                    "pattern": "^[0-9]{1,9}-[0-9]{1,15}$",
                    "maxLength": 30,
                    "x-expected": "give the id of a connection, as 1-42",
                },
                "The connection's id.",
            ),
        ),
        needs=(on_cluster("ALTER"),),
    ),
    Endpoint(
        "GET",
        "/v1/brokers/{broker}/log",
        "brokerLog",
        "Cluster",
        "The last lines of a broker's log.",
        broker_log,
        {200: DeclaredResponse("Oldest first.", an_object({"lines": an_array(_LINE)}))},
        parameters=(
            path("broker", PARTITION, "The broker's id."),
            query(
                "limit",
                {"type": "integer", "minimum": 1, "maximum": MAX_LINES, "default": 200},
                "The maximum number of lines.",
            ),
        ),
        needs=(on_cluster("DESCRIBE"),),
    ),
    Endpoint(
        "GET",
        "/v1/cluster/reassignments",
        "listReassignments",
        "Cluster",
        "Reassignments of partitions in progress.",
        list_reassignments,
        {
            200: DeclaredResponse(
                "The reassignments, ordered by partition.", an_object({"reassignments": an_array(_MOVE)})
            )
        },
        needs=(on_cluster("DESCRIBE"),),
    ),
)
