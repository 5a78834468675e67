"""The list of consumer groups with members and lag."""

from __future__ import annotations

from typing import Any

from starlette.responses import Response

from penstock.gateway.http.endpoint import Call, DeclaredResponse, Endpoint, query
from penstock.gateway.http.responses import json_response
from penstock.gateway.http.shared_schemas import INTEGER, STRING, an_array, an_object, nullable
from penstock.gateway.list_parameters import find_all, list_parameters, page_of
from penstock.gateway.view.figures import GroupFigures
from penstock.gateway.view.listing import Place
from penstock.gateway.view.sampler import lags
from penstock.internal_client.groups import GroupSummary
from penstock.internal_client.slices import collect, in_slices

SORTS = ("name", "lag", "members", "state")
LISTED_GROUP = an_object(
    {
        "id": STRING,
        "type": STRING,
        "state": STRING,
        "members": nullable(INTEGER),
        "topics": {**nullable(INTEGER), "description": "Topics with a committed offset or a subscription."},
        "lag": {
            **nullable(INTEGER),
            "description": "Offsets between committed offsets and ends; null if the brokers did not report it.",
        },
    }
)
_LIST = an_object({"groups": an_array(LISTED_GROUP), "total": INTEGER, "cursor": nullable(STRING)})


async def list_groups(call: Call) -> Response:
    view = call.context.view
    await view.refresh()
    if not view.has_groups:
        return await _list_without_figures(call)
    await in_slices(lags(view))
    wanted = call.parameters.get("state")
    ordered = sorted(view.groups.values(), key=lambda group: group.id)
    groups = [each for each in ordered if wanted is None or each.state.lower() == wanted.lower()]
    found = await find_all(groups, call, "GROUP", lambda group: group.id)
    sort = call.parameters["sort"]
    page = page_of(found, call, lambda group: group.id, lambda group: _place(group, sort))
    shown = await collect(show_group(group) for group in page.items)
    return json_response({"groups": shown, "total": len(found), "cursor": page.cursor})


def _place(group: GroupFigures, sort: str) -> Place:
    if sort == "name":
        return 0.0, group.id
    if sort == "state":
        return float(group.state != "Stable"), f"{group.state} {group.id}"
    return -float(group.lag if sort == "lag" else group.members), group.id


def show_group(group: GroupFigures) -> dict[str, Any]:
    return {
        "id": group.id,
        "type": group.type,
        "state": group.state,
        "members": group.members,
        "topics": len(group.offsets),
        "lag": group.lag,
    }


async def _list_without_figures(call: Call) -> Response:
    """List groups from their coordinators only, without members and lag, if the brokers do not give their figures
    to the gateway.
    """
    wanted = call.parameters.get("state")
    known = [
        each
        for each in await call.context.backend.groups.all()
        if wanted is None or each.state.lower() == wanted.lower()
    ]
    found = await find_all(known, call, "GROUP", lambda group: group.id)
    page = page_of(found, call, lambda group: group.id, lambda group: (0.0, group.id))
    shown = await collect(_show_summary(group) for group in page.items)
    return json_response({"groups": shown, "total": len(found), "cursor": page.cursor})


def _show_summary(group: GroupSummary) -> dict[str, Any]:
    unknown = {"members": None, "topics": None, "lag": None}
    return {"id": group.id, "type": group.type, "state": group.state, **unknown}


ENDPOINTS = (
    Endpoint(
        "GET",
        "/v1/groups",
        "listGroups",
        "Groups",
        "Consumer groups with their members and lag; all of them, or a page.",
        list_groups,
        {200: DeclaredResponse("Ordered as `sort` says.", _LIST)},
        parameters=(
            *list_parameters(SORTS),
            query("state", {"type": "string", "minLength": 1, "maxLength": 50}, "Only groups in this state."),
        ),
    ),
)
