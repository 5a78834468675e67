"""Endpoints for sessions: login of a browser, and one-time tickets for WebSockets and event streams."""

from __future__ import annotations

from starlette.responses import Response

from penstock.gateway.http.endpoint import JSON, Call, DeclaredResponse, Endpoint
from penstock.gateway.http.problems import Problem
from penstock.gateway.http.responses import json_response
from penstock.gateway.http.shared_schemas import INTEGER, STRING, an_object
from penstock.gateway.http.users import COOKIE, HttpUsers, refusal
from penstock.security.http_session import HttpLogin

_TAG = "Sessions"
_ATTRIBUTES = "Path=/; Secure; HttpOnly; SameSite=Strict"
_NAME = {"type": "string", "minLength": 1, "maxLength": 1_024}
_SESSION = DeclaredResponse(
    "The session.",
    an_object(
        {
            "user": STRING,
            "csrf": {"type": "string", "description": "Value of the header X-Penstock-Csrf for changes."},
            "expires_ms": INTEGER,
        }
    ),
)


async def open_session(call: Call) -> Response:
    users = _users(call)
    login = await users.check_password(call.client, call.body["user"], call.body["password"])
    cookie = await users.accounts.open_session(login)
    opened = await users.accounts.check_session(cookie)
    if opened is None:
        raise refusal("the user has just changed")
    response = _shown(opened)
    response.headers["set-cookie"] = f"{COOKIE}={cookie}; {_ATTRIBUTES}"
    return response


async def show_session(call: Call) -> Response:
    return _shown(_login(call))


async def close_session(call: Call) -> Response:
    await _users(call).accounts.end_session(_login(call))
    response = Response(status_code=204)
    response.headers["set-cookie"] = f"{COOKIE}=; Max-Age=0; {_ATTRIBUTES}"
    return response


async def issue_ticket(call: Call) -> Response:
    return json_response({"ticket": await _users(call).accounts.issue_ticket(_login(call))})


def _users(call: Call) -> HttpUsers:
    if call.context.users is None:
        raise Problem(404, "clients do not log in here; http.authentication.enable is off")
    return call.context.users


def _login(call: Call) -> HttpLogin:
    _users(call)
    assert call.login is not None, "the application logs clients in"
    return call.login


def _shown(login: HttpLogin) -> Response:
    return json_response({"user": login.user, "csrf": login.csrf, "expires_ms": login.expires_ms})


ENDPOINTS = (
    Endpoint(
        "POST",
        "/v1/session",
        "openSession",
        _TAG,
        "Log in as a browser: the response sets the cookie of the session.",
        open_session,
        {200: _SESSION},
        bodies={JSON: an_object({"user": _NAME, "password": _NAME})},
        needs_user=False,
    ),
    Endpoint(
        "GET",
        "/v1/session",
        "session",
        _TAG,
        "The user of this request.",
        show_session,
        {200: _SESSION},
    ),
    Endpoint(
        "DELETE",
        "/v1/session",
        "closeSession",
        _TAG,
        "Log out: the session of the cookie ends, at all gateways.",
        close_session,
        {204: DeclaredResponse("Logged out.")},
    ),
    Endpoint(
        "POST",
        "/v1/session/tickets",
        "issueTicket",
        _TAG,
        "A ticket for one WebSocket or event stream, as its parameter `ticket`, within 30 seconds.",
        issue_ticket,
        {200: DeclaredResponse("The ticket.", an_object({"ticket": STRING}))},
    ),
)
