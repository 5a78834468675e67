"""Endpoints for users of the cluster: create, show, change, delete, and their access tokens.

A password is hashed in a thread pool of the gateway; brokers get the SCRAM credentials.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from starlette.responses import Response

from penstock.errors import BrokerError, ErrorCode
from penstock.gateway.authorization import on_cluster
from penstock.gateway.http.endpoint import JSON, Call, DeclaredResponse, Endpoint, path
from penstock.gateway.http.problems import Problem
from penstock.gateway.http.responses import json_response
from penstock.gateway.http.shared_schemas import BOOLEAN, INTEGER, STRING, USER_ID, an_array, an_object
from penstock.internal_client.users import UserDescription, new_credentials
from penstock.security.access_token import MAX_LABEL_CHARACTERS
from penstock.security.scram import MIN_ITERATIONS, ScramMechanism

TAG = "Security"
MAX_LIFETIME_MS = 100 * 366 * 24 * 3_600_000
_PASSWORD = {"type": "string", "minLength": 1, "maxLength": 1_000, "format": "password"}
_TOKEN = an_object({"id": STRING, "label": STRING, "created_ms": INTEGER, "expires_ms": INTEGER})
_MECHANISMS = {"type": "object", "additionalProperties": INTEGER, "description": "Iterations by mechanism."}
_USER = an_object(
    {"name": STRING, "disabled": BOOLEAN, "mechanisms": _MECHANISMS, "tokens": an_array(_TOKEN)}
)
_NAME = path("user", USER_ID, "The user name.")
_LABEL = {"type": "string", "maxLength": MAX_LABEL_CHARACTERS, "description": "Purpose of the token."}
_LIFETIME = {"type": "integer", "minimum": 1, "maximum": MAX_LIFETIME_MS}
_NEW_TOKEN = an_object({"user": STRING, "id": STRING, "token": STRING})


async def list_users(call: Call) -> Response:
    found = await call.context.backend.users.describe()
    return json_response({"users": [_fields(each) for each in found]})


async def create_user(call: Call) -> Response:
    name, users = call.body["name"], call.context.backend.users
    try:
        await users.describe([name])
    except BrokerError as error:
        if error.code is not ErrorCode.resource_not_found:
            raise
    else:
        text = f"user {name!r} exists; PATCH /v1/users/{{user}} changes its password"
        raise Problem(409, text, error="DUPLICATE_RESOURCE")
    mechanisms = await _set_password(call, name)
    return json_response(_fields(UserDescription(name, mechanisms)), 201)


async def describe_user(call: Call) -> Response:
    [user] = await call.context.backend.users.describe([call.parameters["user"]])
    return json_response(_fields(user))


async def alter_user(call: Call) -> Response:
    name, users = call.parameters["user"], call.context.backend.users
    [user] = await users.describe([name])
    if "password" in call.body:
        user = replace(user, mechanisms=await _set_password(call, name))
    if "disabled" in call.body:
        await users.set_disabled(name, call.body["disabled"])
        user = replace(user, is_disabled=call.body["disabled"])
    return json_response(_fields(user))


async def delete_user(call: Call) -> Response:
    [user] = await call.context.backend.users.describe([call.parameters["user"]])
    await call.context.backend.users.delete(user)
    return Response(status_code=204)


async def create_token(call: Call) -> Response:
    name, body = call.parameters["user"], call.body or {}
    token = await call.context.backend.users.create_token(
        name, body.get("label", ""), body.get("lifetime_ms", 0)
    )
    return json_response({"user": name, "id": token.id, "token": token.text()}, 201)


async def revoke_token(call: Call) -> Response:
    name, token_id, users = call.parameters["user"], call.parameters["token"], call.context.backend.users
    [user] = await users.describe([name])
    if token_id not in {each.id for each in user.tokens}:
        raise Problem(404, f"user {name!r} has no token {token_id!r}", error="RESOURCE_NOT_FOUND")
    await users.revoke_token(name, token_id)
    return Response(status_code=204)


async def _set_password(call: Call, name: str) -> dict[str, int]:
    """Set the password in the body, and return the iterations of the new credentials by SCRAM mechanism."""
    password = call.body["password"]
    credentials = await call.context.threads.run("background", lambda: new_credentials(name, password))
    await call.context.backend.users.put_credentials(credentials)
    return {str(mechanism): MIN_ITERATIONS for mechanism in ScramMechanism}


def _fields(user: UserDescription) -> dict[str, Any]:
    tokens = [
        {"id": each.id, "label": each.label, "created_ms": each.created_ms, "expires_ms": each.expires_ms}
        for each in user.tokens
    ]
    return {
        "name": user.name,
        "disabled": user.is_disabled,
        "mechanisms": user.mechanisms,
        "tokens": tokens,
    }


_GONE = {204: DeclaredResponse("Done.")}
_SEES, _CHANGES = (on_cluster("DESCRIBE"),), (on_cluster("ALTER"),)
ENDPOINTS = (
    Endpoint(
        "GET",
        "/v1/users",
        "listUsers",
        TAG,
        "Users of the cluster, without their secrets.",
        list_users,
        {200: DeclaredResponse("Ordered by name.", an_object({"users": an_array(_USER)}))},
        needs=_SEES,
    ),
    Endpoint(
        "POST",
        "/v1/users",
        "createUser",
        TAG,
        "Create a user with a password.",
        create_user,
        {201: DeclaredResponse("The user.", _USER)},
        bodies={JSON: an_object({"name": USER_ID, "password": _PASSWORD})},
        needs=_CHANGES,
    ),
    Endpoint(
        "GET",
        "/v1/users/{user}",
        "describeUser",
        TAG,
        "A user: its mechanisms and access tokens, and whether it is disabled.",
        describe_user,
        {200: DeclaredResponse("The user.", _USER)},
        (_NAME,),
        needs=_SEES,
    ),
    Endpoint(
        "PATCH",
        "/v1/users/{user}",
        "alterUser",
        TAG,
        "Change the password of a user, disable or enable it; its connections and sessions end.",
        alter_user,
        {200: DeclaredResponse("The user.", _USER)},
        (_NAME,),
        {JSON: an_object({"password": _PASSWORD, "disabled": BOOLEAN}, required=())},
        needs=_CHANGES,
    ),
    Endpoint(
        "DELETE",
        "/v1/users/{user}",
        "deleteUser",
        TAG,
        "Delete a user; its connections and sessions end.",
        delete_user,
        _GONE,
        (_NAME,),
        needs=_CHANGES,
    ),
    Endpoint(
        "POST",
        "/v1/users/{user}/tokens",
        "createToken",
        TAG,
        "Create an access token for HTTP. The response has its text, which is not stored.",
        create_token,
        {201: DeclaredResponse("The token.", _NEW_TOKEN)},
        (_NAME,),
        {JSON: an_object({"label": _LABEL, "lifetime_ms": _LIFETIME}, required=())},
        is_body_required=False,
        needs=_CHANGES,
    ),
    Endpoint(
        "DELETE",
        "/v1/users/{user}/tokens/{token}",
        "revokeToken",
        TAG,
        "Revoke an access token.",
        revoke_token,
        _GONE,
        (_NAME, path("token", USER_ID, "The id of the token.")),
        needs=_CHANGES,
    ),
)
