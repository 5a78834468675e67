from __future__ import annotations

import pytest
from starlette.responses import Response

from penstock.gateway.http.endpoint import Call, Endpoint
from penstock.gateway.http.problems import Problem
from penstock.gateway.http.routing import RouteTable


async def nothing(call: Call) -> Response:
    return Response()


def endpoint(method: str, path: str) -> Endpoint:
    return Endpoint(method, path, f"{method} {path}", "", "", nothing, {})


TABLE = RouteTable(
    [
        endpoint("GET", "/a"),
        endpoint("POST", "/a"),
        endpoint("GET", "/a/{one}"),
        endpoint("DELETE", "/a/{one}/b/{two}"),
    ]
)


@pytest.mark.parametrize(
    ("method", "path", "name", "values"),
    [
        ("GET", b"/a", "GET /a", {}),
        ("HEAD", b"/a", "GET /a", {}),
        ("POST", b"/a", "POST /a", {}),
        ("GET", b"/a/x", "GET /a/{one}", {"one": "x"}),
        ("GET", b"/a/x%2Fb%2Fy", "GET /a/{one}", {"one": "x/b/y"}),
        ("GET", b"/a/%252F", "GET /a/{one}", {"one": "%2F"}),
        ("GET", b"/a/%E2%82%AC", "GET /a/{one}", {"one": "\u20ac"}),
        ("DELETE", b"/a/x/b/y", "DELETE /a/{one}/b/{two}", {"one": "x", "two": "y"}),
    ],
)
def test_path_is_routed_to_its_endpoint(method: str, path: bytes, name: str, values: dict[str, str]) -> None:
    found, in_path = TABLE.find(method, path)
    assert (found.name, in_path) == (name, values)


@pytest.mark.parametrize(
    "path", [b"/", b"/A", b"/a/", b"//a", b"/a/x/", b"/a/x/c/y", b"/b", b"", b"/%61", b"/a/x/b/"]
)
def test_unknown_path_gets_404(path: bytes) -> None:
    with pytest.raises(Problem) as caught:
        TABLE.find("GET", path)
    assert caught.value.status == 404


def test_unsupported_method_gets_405_with_allowed_ones() -> None:
    with pytest.raises(Problem) as caught:
        TABLE.find("DELETE", b"/a")
    assert caught.value.status == 405
    assert caught.value.headers["allow"] == "GET, HEAD, OPTIONS, POST"


def test_path_segment_that_is_not_utf8_is_refused() -> None:
    with pytest.raises(Problem) as caught:
        TABLE.find("GET", b"/a/%ff")
    assert caught.value.status == 400


def test_endpoint_declared_twice_is_refused() -> None:
    with pytest.raises(ValueError, match="twice"):
        RouteTable([endpoint("GET", "/a"), endpoint("GET", "/a")])
