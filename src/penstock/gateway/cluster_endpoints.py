"""Endpoints for the cluster: its brokers and its health."""

from __future__ import annotations

from typing import Any

from starlette.responses import Response

from penstock.gateway.authorization import on_cluster
from penstock.gateway.http.endpoint import Call, DeclaredResponse, Endpoint
from penstock.gateway.http.responses import json_response
from penstock.gateway.http.shared_schemas import BOOLEAN, INTEGER, STRING, an_array, an_object
from penstock.internal_client.brokers import BrokerSummary

TAG = "Cluster"
_BROKER = an_object(
    {
        "id": INTEGER,
        "host": STRING,
        "port": INTEGER,
        "rack": {"type": ["string", "null"]},
        "controller": BOOLEAN,
    }
)
_HEALTH = an_object(
    {
        "cluster_id": STRING,
        "status": {
            "type": "string",
            "enum": ["ok", "degraded", "failing"],
            "description": "degraded: partitions are under-replicated; failing: partitions have no leader.",
        },
        "brokers": an_array(_BROKER),
        "partitions": INTEGER,
        "without_leader": INTEGER,
        "under_replicated": INTEGER,
    }
)


async def list_brokers(call: Call) -> Response:
    return json_response({"brokers": [_shown(each) for each in await call.context.backend.brokers.all()]})


async def cluster_health(call: Call) -> Response:
    health = await call.context.backend.brokers.health()
    if health.without_leader:
        status = "failing"
    else:
        status = "degraded" if health.under_replicated else "ok"
    return json_response(
        {
            "cluster_id": health.cluster_id,
            "status": status,
            "brokers": [_shown(each) for each in health.brokers],
            "partitions": health.partitions,
            "without_leader": health.without_leader,
            "under_replicated": health.under_replicated,
        }
    )


def _shown(broker: BrokerSummary) -> dict[str, Any]:
    return {
        "id": broker.node_id,
        "host": broker.host,
        "port": broker.port,
        "rack": broker.rack,
        "controller": broker.is_controller,
    }


ENDPOINTS = (
    Endpoint(
        "GET",
        "/v1/cluster",
        "clusterHealth",
        TAG,
        "The health of the cluster: its brokers, and whether all partitions have a leader and all replicas in sync.",
        cluster_health,
        {200: DeclaredResponse("The cluster.", _HEALTH)},
        needs=(on_cluster("DESCRIBE"),),
    ),
    Endpoint(
        "GET",
        "/v1/brokers",
        "listBrokers",
        TAG,
        "The brokers of the cluster.",
        list_brokers,
        {200: DeclaredResponse("The brokers, ordered by id.", an_object({"brokers": an_array(_BROKER)}))},
        needs=(on_cluster("DESCRIBE"),),
    ),
)
