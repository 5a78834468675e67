"""Decisions of a broker's authorizer, for a gateway in a process of its own whose clients log in.

A decision is asked for before it is needed and kept for a second, so that a changed rule applies soon. What was
not asked for is refused. Brokers authorize the requests themselves once more. Loop thread only.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain

from penstock.clock import Clock
from penstock.errors import BrokerError, ErrorCode
from penstock.gateway.authorization import Check
from penstock.gateway.http.problems import Problem
from penstock.internal_client.inspection import InspectionCalls
from penstock.net.acting import acting_for

KEPT_SECONDS = 1.0
CHECKS_PER_QUESTION = 1_000
MAX_KEPT = 100_000

_Key = tuple[str | None, str, str, str, str]


class RemoteDecisions:
    def __init__(self, inspection: InspectionCalls, clock: Clock) -> None:
        self._inspection = inspection
        self._clock = clock
        self._kept: dict[_Key, tuple[bool, float]] = {}
        """Decisions by user, host, operation, resource type and name, with the time at which each is forgotten."""

    def authorize(self, host: str, operation: str, kind: str, name: str) -> bool:
        """Return a decision that was learned; False for any other."""
        decision = self._kept.get((_user(), host, operation, kind, name))
        return decision is not None and decision[0]

    async def learn(self, host: str, checks: Iterable[Check]) -> None:
        """Ask a broker for decisions about the client of the running task. Raises Unreachable, or a Problem if the
        brokers do not know this gateway.
        """
        user, now = _user(), self._clock.monotonic()
        unknown = [check for check in dict.fromkeys(checks) if not self._is_fresh((user, host, *check), now)]
        for start in range(0, len(unknown), CHECKS_PER_QUESTION):
            part = unknown[start : start + CHECKS_PER_QUESTION]
            allowed = await self._ask(user, host, list(chain.from_iterable(part)))
            if len(self._kept) + len(part) > MAX_KEPT:
                self._kept.clear()
            until = now + KEPT_SECONDS
            for check, is_allowed in zip(part, allowed, strict=True):
                self._kept[(user, host, *check)] = is_allowed, until

    def _is_fresh(self, key: _Key, now: float) -> bool:
        decision = self._kept.get(key)
        return decision is not None and decision[1] > now

    async def _ask(self, user: str | None, host: str, checks: list[str]) -> list[bool]:
        try:
            return await self._inspection.authorize(user, host, checks)
        except BrokerError as error:
            if error.code is not ErrorCode.cluster_authorization_failed:
                raise
            raise Problem(503, f"the gateway may not act for its users: {error}") from error


def _user() -> str | None:
    actor = acting_for.get()
    return None if actor is None else actor.user
