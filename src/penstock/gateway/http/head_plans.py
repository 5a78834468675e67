"""Cache of request heads: the endpoint, the parameters and the content type that follow from a head.

Clients send the same head again and again, apart from its query, Content-Length and Idempotency-Key. The
result of all checks depends only on the head and the config, so a head that passes them is kept with its
result, the plan. A head that fails a check has no plan. Loop thread only.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from penstock.gateway.http.cross_origin import CrossOrigin
from penstock.gateway.http.endpoint import Endpoint
from penstock.gateway.http.exchange import HttpExchange, RawHeaders
from penstock.gateway.http.problems import Problem
from penstock.gateway.http.request_parts import (
    collect_headers,
    content_type_of,
    read_parameters,
)
from penstock.gateway.http.routing import RouteTable

MAX_PLANS = 1_024
MAX_HEAD_BYTES = 2_048
"""Maximum size of the headers of a head that is kept."""
_LENGTH, _KEY = b"content-length", b"idempotency-key"
_SAFE = ("GET", "HEAD")


class HeadPlan(NamedTuple):
    endpoint: Endpoint
    in_path: Mapping[str, str]
    parameters: dict[str, Any] | None
    """Parameters of a request without query and Idempotency-Key; None if they are invalid without these."""
    content_type: str
    """Media type of the body; empty for a request without a body."""
    response_headers: RawHeaders
    """Headers of the response that depend on the origin of the request."""


class HeadPlans:
    def __init__(self, endpoints: Sequence[Endpoint], table: RouteTable, cross_origin: CrossOrigin) -> None:
        self._paths = {endpoint.path.encode() for endpoint in endpoints if endpoint.begin is not None}
        self._table = table
        self._cross_origin = cross_origin
        self._plans: dict[object, HeadPlan] = {}

    def find(self, exchange: HttpExchange) -> tuple[HeadPlan, dict[str, Any]] | None:
        """Return the plan and the parameters of a plain request; None if `GatewayApplication.serve` has to serve
        or refuse it.
        """
        if exchange.raw_path not in self._paths:
            return None
        fields, has_body, has_key = [], False, False
        for field in exchange.headers:
            if field[0] == _LENGTH:
                has_body = field[1] != b"0"
            elif field[0] == _KEY:
                has_key = True
            else:
                fields.append(field)
        key = exchange.method, exchange.raw_path, has_body, tuple(fields)
        try:
            plan = self._plans.get(key) or self._make(exchange, fields, has_body, key)
            if plan is None:
                return None
            parameters = plan.parameters
            if exchange.query_string or has_key:
                headers = collect_headers(exchange.headers) if has_key else {}
                parameters = read_parameters(plan.endpoint, plan.in_path, exchange.query_string, headers)
        except Problem:
            return None
        return None if parameters is None else (plan, parameters)

    def _make(
        self, exchange: HttpExchange, fields: RawHeaders, has_body: bool, key: object
    ) -> HeadPlan | None:
        headers = collect_headers(fields)
        response_headers: list[tuple[bytes, bytes]] = []
        self._cross_origin.apply(headers, response_headers)
        if exchange.method not in _SAFE:
            self._cross_origin.check(headers)
        endpoint, in_path = self._table.find(exchange.method, exchange.raw_path)
        if endpoint.begin is None or (endpoint.bodies and endpoint.is_body_required and not has_body):
            return None
        is_foreign = self._cross_origin.is_foreign(headers)
        content_type = content_type_of(endpoint, headers, is_foreign=is_foreign) if has_body else ""
        try:
            parameters = read_parameters(endpoint, in_path, b"", headers)
        except Problem:
            parameters = None
        plan = HeadPlan(endpoint, in_path, parameters, content_type, response_headers)
        if sum(len(name) + len(value) for name, value in fields) <= MAX_HEAD_BYTES:
            if len(self._plans) >= MAX_PLANS:
                self._plans.clear()
            self._plans[key] = plan
        return plan
