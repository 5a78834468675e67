"""Routing of a path and a method to an endpoint.

A path is split at its slashes first, and then each segment is decoded once. So `%2F` and `%252F` cannot add a
segment. Handlers get a segment as text, and never use it in another path.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from urllib.parse import unquote_to_bytes

from penstock.gateway.http.endpoint import Endpoint
from penstock.gateway.http.problems import Problem


@dataclass(slots=True)
class _Resource:
    segments: tuple[str | None, ...]
    """Segments of the path; None for a parameter."""
    names: tuple[str, ...]
    methods: dict[str, Endpoint]


class RouteTable:
    def __init__(self, endpoints: Sequence[Endpoint]) -> None:
        self._fixed: dict[bytes, _Resource] = {}
        self._with_parameters: dict[int, list[_Resource]] = {}
        self._plain_forms = [
            (endpoint.method, re.compile(re.sub(r"\{\w+\}", "[^/]+", endpoint.path).encode()))
            for endpoint in endpoints
            if endpoint.is_plain and "{" in endpoint.path
        ]
        resources: dict[str, _Resource] = {}
        for endpoint in endpoints:
            resource = resources.get(endpoint.path)
            if resource is None:
                resource = resources[endpoint.path] = _make(endpoint.path)
                if resource.names:
                    self._with_parameters.setdefault(len(resource.segments), []).append(resource)
                else:
                    self._fixed[endpoint.path.encode()] = resource
            if resource.methods.setdefault(endpoint.method, endpoint) is not endpoint:
                raise ValueError(f"{endpoint.method} {endpoint.path} is declared twice")

    def find(self, method: str, raw_path: bytes) -> tuple[Endpoint, dict[str, str]]:
        """Return the endpoint and the values of its path parameters; raises Problem if there is none."""
        resource = self._fixed.get(raw_path)
        values: dict[str, str] = {}
        if resource is None:
            resource, values = self._search(raw_path)
        endpoint = resource.methods.get(method)
        if endpoint is None and method == "HEAD":
            endpoint = resource.methods.get("GET")
        if endpoint is None:
            allowed = ", ".join(allow(resource.methods))
            raise Problem(
                405,
                f"{method} is not supported at this path; supported: {allowed}",
                error="METHOD_NOT_ALLOWED",
                headers={"allow": allowed},
            )
        return endpoint, values

    def is_plain(self, method: str, path: bytes) -> bool:
        """True if the endpoint of this method and path (without query) is declared plain."""
        resource = self._fixed.get(path)
        if resource is not None:
            endpoint = resource.methods.get(method)
            return endpoint is not None and endpoint.is_plain
        return any(known == method and form.fullmatch(path) for known, form in self._plain_forms)

    def methods(self, raw_path: bytes) -> list[str]:
        """Return the methods that are supported at a path."""
        resource = self._fixed.get(raw_path) or self._search(raw_path)[0]
        return allow(resource.methods)

    def _search(self, raw_path: bytes) -> tuple[_Resource, dict[str, str]]:
        segments = raw_path.split(b"/")[1:]
        for resource in self._with_parameters.get(len(segments), ()):
            values = []
            for expected, found in zip(resource.segments, segments, strict=True):
                if expected is None:
                    values.append(found)
                elif found != expected.encode():
                    break
            else:
                return resource, dict(zip(resource.names, map(_decode, values), strict=True))
        raise Problem(404, "there is no such path; GET / lists all of them", error="NOT_FOUND")


def allow(methods: Iterable[str]) -> list[str]:
    return sorted({*methods, "OPTIONS", *(("HEAD",) if "GET" in methods else ())})


def _make(path: str) -> _Resource:
    segments = path.split("/")[1:]
    names = tuple(segment[1:-1] for segment in segments if segment.startswith("{"))
    return _Resource(tuple(None if segment.startswith("{") else segment for segment in segments), names, {})


def _decode(segment: bytes) -> str:
    try:
        text = unquote_to_bytes(segment).decode()
    except UnicodeDecodeError:
        raise Problem(
            400, "the path has percent-encoded bytes that are not UTF-8", error="INVALID_REQUEST"
        ) from None
    if not text:
        raise Problem(404, "the path contains an empty name", error="NOT_FOUND")
    return text
