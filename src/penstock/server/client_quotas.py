"""Quotas of clients on this broker: each request is charged after it was handled, and a client over its quota is muted.

The response is sent at once and has the throttle time; then the broker reads nothing from the connection until that
time is over (KIP-219). Connections of other brokers have no quotas.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import NamedTuple, Protocol

from penstock.clock import Clock
from penstock.errors import BrokerError, ErrorCode
from penstock.net.response import Answer, Parts, PendingResponse
from penstock.security.acl import Principal
from penstock.security.quota import Buckets, Limit, QuotaKey, Quotas, ip_limit_of, limit_of
from penstock.server.throttle_time import write_throttle_time
from penstock.wire.apis import FETCH, PRODUCE

MAX_THROTTLE_SECONDS = 10.0
"""Longest time in seconds for which a client is muted after one request. The rest of a longer delay applies to its next
requests.
"""
_MAX_LIMITS = 10_000
_PERCENT = 100.0
_OF_REQUESTS = (QuotaKey.REQUEST_PERCENTAGE, QuotaKey.PRODUCER_BYTE_RATE, QuotaKey.CONSUMER_BYTE_RATE)
USERS = "User"
"""Principal type that has quotas. Brokers, and the gateway in a broker, have another principal type."""


class Throttled(Protocol):
    """Client connection as `ClientQuotas` uses it."""

    @property
    def principal(self) -> Principal: ...

    @property
    def mute(self) -> Callable[[float], None] | None:
        """Function that stops reading from the connection for a number of seconds."""
        ...


class MeasuredRequest(NamedTuple):
    api_key: int
    version: int
    client_id: str
    frame_bytes: int
    seconds: float
    """Time in seconds that the handler took on the event loop."""


class ClientQuotas:
    def __init__(self, clock: Clock, on_throttled: Callable[[str], None] = lambda _: None) -> None:
        """`on_throttled` is called with the user of each throttled request."""
        self._on_throttled = on_throttled
        self.throttled_requests = 0
        self.throttled_seconds = 0.0
        self.refused_connections = 0
        self._monotonic = clock.monotonic
        self._quotas: Quotas = {}
        self._buckets = {key: Buckets() for key in QuotaKey}
        self._limits: dict[tuple[QuotaKey, str, str], Limit | None] = {}
        self._limited: dict[tuple[str, str], bool] = {}

    def configure(self, quotas: Quotas) -> None:
        self._quotas = quotas
        self._limits.clear()
        self._limited.clear()

    def has_limits(self, user: str, client_id: str) -> bool:
        """True if a request, produce or fetch quota applies to the client; for most clients none does."""
        known = (user, client_id)
        try:
            return self._limited[known]
        except KeyError:
            if len(self._limited) >= _MAX_LIMITS:
                self._limited.clear()
            found = any(self._limit(key, user, client_id) is not None for key in _OF_REQUESTS)
            self._limited[known] = found
            return found

    def on_request(self, session: Throttled, request: MeasuredRequest, answer: Answer) -> None:
        """Charge a request, and mute the client once the request has its response."""
        if session.principal.kind != USERS:
            return
        user, client_id = session.principal.name, request.client_id
        wait = self._charge(QuotaKey.REQUEST_PERCENTAGE, user, client_id, request.seconds * _PERCENT)
        if request.api_key == PRODUCE:
            size = request.frame_bytes
            wait = max(wait, self._charge(QuotaKey.PRODUCER_BYTE_RATE, user, client_id, size))
        if not isinstance(answer, PendingResponse):
            self._finish(session, request, answer, wait)
        elif answer.is_done:
            self._finish(session, request, answer.parts, wait)
        else:
            answer.when_done(partial(self._on_done, session, request, answer, wait))

    def wait_of_user(self, user: str, client_id: str, *, writes: bool) -> float:
        """Seconds until an HTTP user is within its quotas: the request quota, and the produce quota (`writes`) or the
        fetch quota.
        """
        key = QuotaKey.PRODUCER_BYTE_RATE if writes else QuotaKey.CONSUMER_BYTE_RATE
        keys = (key, QuotaKey.REQUEST_PERCENTAGE)
        return max(self._charge(each, user, client_id, 0.0) for each in keys)

    def on_gateway_request(self, user: str, client_id: str, seconds: float) -> None:
        """Charge the time of a request to the user on whose behalf a gateway sent it. The connection is not muted,
        because many users share it; instead, the gateway in this broker refuses later requests of the user.
        """
        self._charge(QuotaKey.REQUEST_PERCENTAGE, user, client_id, seconds * _PERCENT)

    def _on_done(
        self, session: Throttled, request: MeasuredRequest, answer: PendingResponse, wait: float
    ) -> None:
        self._finish(session, request, answer.parts, wait)

    def _finish(self, session: Throttled, request: MeasuredRequest, parts: Parts | None, wait: float) -> None:
        if request.api_key == FETCH and parts is not None:
            size, user = sum(map(len, parts)), session.principal.name
            wait = max(wait, self._charge(QuotaKey.CONSUMER_BYTE_RATE, user, request.client_id, size))
        if wait <= 0:
            return
        throttle_ms = math.ceil(min(wait, MAX_THROTTLE_SECONDS) * 1000)
        self.throttled_requests += 1
        self.throttled_seconds += throttle_ms / 1000
        self._on_throttled(session.principal.name)
        if parts:
            write_throttle_time(request.api_key, request.version, parts, throttle_ms)
        if session.mute is not None:
            session.mute(throttle_ms / 1000)

    def admits_mutation(self, principal: Principal, client_id: str) -> None:
        """Raise BrokerError THROTTLING_QUOTA_EXCEEDED if the client is over its controller mutation quota (KIP-599)."""
        wait = self._charge(QuotaKey.CONTROLLER_MUTATION_RATE, principal.name, client_id, 0.0)
        if wait > 0:
            raise BrokerError(
                ErrorCode.throttling_quota_exceeded,
                f"the quota controller_mutation_rate is exceeded; try again in {math.ceil(min(wait, 3600) * 1000)} ms",
            )

    def on_mutations(self, principal: Principal, client_id: str, partitions: int) -> float:
        """Charge a number of created or deleted partitions, and return the seconds that the client has to wait."""
        return self._charge(QuotaKey.CONTROLLER_MUTATION_RATE, principal.name, client_id, partitions)

    def admits_connection(self, ip: str) -> bool:
        """Charge a new connection to an IP address. Returns False if the address is over its quota."""
        limit = ip_limit_of(self._quotas, ip)
        if limit is None:
            return True
        buckets, now = self._buckets[QuotaKey.CONNECTION_CREATION_RATE], self._monotonic()
        if buckets.wait_seconds(limit, now) > 0:
            self.refused_connections += 1
            return False
        buckets.charge(limit, 1.0, now)
        return True

    def charge(self, key: QuotaKey, user: str, client_id: str, amount: float) -> float:
        """Charge an amount, and return the seconds that the client has to wait."""
        return self._charge(key, user, client_id, amount)

    def _charge(self, key: QuotaKey, user: str, client_id: str, amount: float) -> float:
        limit = self._limit(key, user, client_id)
        return 0.0 if limit is None else self._buckets[key].charge(limit, amount, self._monotonic())

    def _limit(self, key: QuotaKey, user: str, client_id: str) -> Limit | None:
        known = (key, user, client_id)
        try:
            return self._limits[known]
        except KeyError:
            if len(self._limits) >= _MAX_LIMITS:
                self._limits.clear()
            limit = self._limits[known] = limit_of(self._quotas, key, user, client_id[:300])
            return limit
