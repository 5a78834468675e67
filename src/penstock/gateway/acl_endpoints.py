"""Endpoints for access control lists, and for the requests that brokers have refused."""

from __future__ import annotations

from typing import Any

from starlette.responses import Response

from penstock.gateway.authorization import on_cluster
from penstock.gateway.http.endpoint import JSON, Call, DeclaredResponse, Endpoint, query
from penstock.gateway.http.problems import Problem
from penstock.gateway.http.responses import json_response
from penstock.gateway.http.schema import Schema
from penstock.gateway.http.shared_schemas import BOOLEAN, INTEGER, STRING, an_array, an_object
from penstock.internal_client.acl_documents import read_rule, show_rule
from penstock.model import BrokerId
from penstock.security.acl import (
    AclBinding,
    AclFilter,
    Operation,
    PatternType,
    Permission,
    Principal,
    ResourcePattern,
    ResourceType,
)

TAG = "Security"
MAX_RULES = 1_000
_NAME: Schema = {"type": "string", "minLength": 1, "maxLength": 1_000}
_TYPE = {"type": "string", "enum": [each.name for each in ResourceType]}
_PATTERN = {"type": "string", "enum": [each.name for each in PatternType]}
_OPERATION = {"type": "string", "enum": [each.name for each in Operation]}
_PERMISSION = {"type": "string", "enum": [each.name for each in Permission]}
_RULE_FIELDS: dict[str, Schema] = {
    "principal": {**_NAME, "description": "As `User:alice`; `User:*` for all users."},
    "operation": _OPERATION,
    "resource_type": _TYPE,
    "name": {**_NAME, "description": "`kafka-cluster` for the cluster, `*` for all names."},
    "pattern": _PATTERN,
    "host": _NAME,
    "permission": _PERMISSION,
}
_RULE = an_object(_RULE_FIELDS)
NEW_RULE = an_object(_RULE_FIELDS, required=("principal", "operation", "resource_type", "name"))
_RULES = DeclaredResponse("The rules, ordered by resource.", an_object({"rules": an_array(_RULE)}))
_FILTERS = (
    query("principal", _NAME, "Rules of this principal, as `User:alice`."),
    query("resource_type", _TYPE, "Rules of this resource type."),
    query("name", _NAME, "Rules of this resource name."),
    query("pattern", _PATTERN, "Rules of this pattern type."),
    query("host", _NAME, "Rules of this host."),
    query("operation", _OPERATION, "Rules of this operation."),
    query("permission", _PERMISSION, "Rules that allow, or that deny."),
)
_REFUSAL = an_object(
    {
        "principal": STRING,
        "host": STRING,
        "operation": STRING,
        "resource_type": STRING,
        "name": STRING,
        "count": INTEGER,
        "first_ms": INTEGER,
        "last_ms": INTEGER,
        "broker": INTEGER,
    }
)


async def list_acls(call: Call) -> Response:
    return _rules(await call.context.backend.acls.describe(_filter(call)))


async def create_acls(call: Call) -> Response:
    rules = [read_rule(each) for each in call.body["rules"]]
    await call.context.backend.acls.create(rules)
    return _rules(sorted(rules), 201)


async def delete_acls(call: Call) -> Response:
    wanted = _filter(call)
    if wanted.names_nothing and not call.parameters.get("force"):
        raise Problem(
            400,
            "the request has no filter and would delete all rules of the cluster; give a filter, or send force=true",
        )
    return _rules(await call.context.backend.acls.delete([wanted]))


async def decide(call: Call) -> Response:
    asked = call.parameters
    resource = ResourcePattern(ResourceType[asked["resource_type"]], asked["name"])
    principal = Principal("User", asked["user"])
    [decision] = await call.context.backend.acl_decisions.decide(
        principal, asked.get("host", "127.0.0.1"), [Operation[asked["operation"]]], resource
    )
    return json_response({"allowed": decision.is_allowed, "reason": decision.reason})


async def list_refusals(call: Call) -> Response:
    inspection = call.context.backend.inspection
    mode, found = "off", list[dict[str, Any]]()
    for node_id in await inspection.broker_ids():
        try:
            answer = await inspection.refusals(BrokerId(node_id))
        except OSError:
            continue  # the broker has just left the cluster
        mode = answer["mode"]
        found += [{**each, "broker": node_id} for each in answer["refusals"]]
    found.sort(key=lambda each: -each["last_ms"])
    return json_response({"mode": mode, "refusals": found[:MAX_RULES]})


def _filter(call: Call) -> AclFilter:
    given = call.parameters
    return AclFilter(
        ResourceType[given["resource_type"]] if "resource_type" in given else None,
        given.get("name"),
        PatternType[given["pattern"]] if "pattern" in given else None,
        principal=given.get("principal"),
        host=given.get("host"),
        operation=Operation[given["operation"]] if "operation" in given else None,
        permission=Permission[given["permission"]] if "permission" in given else None,
    )


def _rules(rules: list[AclBinding], status: int = 200) -> Response:
    shown = [show_rule(rule) for rule in rules]
    return json_response({"rules": shown}, status)


ENDPOINTS = (
    Endpoint(
        "GET",
        "/v1/acls",
        "listAcls",
        TAG,
        "Access control lists: the rules that match.",
        list_acls,
        {200: _RULES},
        parameters=_FILTERS,
        needs=(on_cluster("DESCRIBE"),),
    ),
    Endpoint(
        "POST",
        "/v1/acls",
        "createAcls",
        TAG,
        "Create rules. A rule that exists already is a success.",
        create_acls,
        {201: _RULES},
        bodies={JSON: an_object({"rules": an_array(NEW_RULE, minItems=1, maxItems=MAX_RULES)})},
        needs=(on_cluster("ALTER"),),
    ),
    Endpoint(
        "DELETE",
        "/v1/acls",
        "deleteAcls",
        TAG,
        "Delete the rules that match, and return them.",
        delete_acls,
        {200: _RULES},
        parameters=(
            *_FILTERS,
            query("force", BOOLEAN, "Whether a request without a filter deletes all rules."),
        ),
        needs=(on_cluster("ALTER"),),
    ),
    Endpoint(
        "GET",
        "/v1/acls/decision",
        "decideAcl",
        TAG,
        "Whether a user may do something, and the rule that decides.",
        decide,
        {200: DeclaredResponse("The decision.", an_object({"allowed": BOOLEAN, "reason": STRING}))},
        parameters=(
            query("user", _NAME, "The user, as `alice`.", required=True),
            query("operation", _OPERATION, "The operation.", required=True),
            query("resource_type", _TYPE, "The resource type.", required=True),
            query("name", _NAME, "The resource name; `kafka-cluster` for the cluster.", required=True),
            query("host", _NAME, "The address of the client; 127.0.0.1 by default."),
        ),
        needs=(on_cluster("DESCRIBE"), on_cluster("DESCRIBE_CONFIGS")),
    ),
    Endpoint(
        "GET",
        "/v1/acls/refusals",
        "listRefusals",
        TAG,
        "Requests that were refused, or that authorization.mode=enforce would refuse.",
        list_refusals,
        {200: DeclaredResponse("Newest first.", an_object({"mode": STRING, "refusals": an_array(_REFUSAL)}))},
        needs=(on_cluster("DESCRIBE"),),
    ),
)
