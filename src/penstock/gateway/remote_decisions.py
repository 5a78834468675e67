"""Decisions of a broker's authorizer, for a stand-alone gateway whose clients log in.

The gateway fetches decisions from a broker before it needs them, and keeps them for a second, so that a changed ACL
applies soon. A permission whose decision was not fetched is denied. Brokers authorize the gateway's requests again.
Loop thread only.
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

_Key = tuple[bool, str | None, str, str, str, str]


class RemoteDecisions:
    def __init__(self, inspection: InspectionCalls, clock: Clock) -> None:
        self._inspection = inspection
        self._clock = clock
        self._kept: dict[_Key, tuple[bool, float]] = {}
        """Decisions, each with the time at which it has to be fetched again. The key is: True for a decision about a
        list entry, user, host, operation, resource type and resource name.
        """

    def authorize(self, host: str, operation: str, kind: str, name: str) -> bool:
        """Return the decision that was fetched for a request; False if there is none."""
        return self._is_allowed(False, host, (operation, kind, name))

    def shows(self, host: str, operation: str, kind: str, name: str) -> bool:
        """Return the decision that was fetched for an entry of a list; False if there is none."""
        return self._is_allowed(True, host, (operation, kind, name))

    async def learn(self, host: str, checks: Iterable[Check]) -> None:
        """Fetch decisions about the client of the running task from a broker. For denied topics, also fetch the
        decision about DESCRIBE, for `shows`.

        Raises Unreachable, or Problem if the brokers do not let this gateway act for users.
        """
        wanted = tuple(checks)
        await self._learn(False, host, wanted)
        refused = {check[2] for check in wanted if check[1] == "TOPIC" and not self.authorize(host, *check)}
        await self._learn(True, host, [("DESCRIBE", "TOPIC", name) for name in refused])

    async def learn_shown(self, host: str, checks: Iterable[Check]) -> None:
        """Fetch decisions about entries of a list from a broker. Brokers do not record denials among them."""
        await self._learn(True, host, checks)

    def _is_allowed(self, is_filter: bool, host: str, check: Check) -> bool:
        decision = self._kept.get((is_filter, _user(), host, *check))
        return decision is not None and decision[0]

    async def _learn(self, is_filter: bool, host: str, checks: Iterable[Check]) -> None:
        user, now = _user(), self._clock.monotonic()
        keys = {check: (is_filter, user, host, *check) for check in checks}
        unknown = [check for check, key in keys.items() if not self._is_fresh(key, now)]
        for start in range(0, len(unknown), CHECKS_PER_QUESTION):
            part = unknown[start : start + CHECKS_PER_QUESTION]
            allowed = await self._ask(is_filter, user, host, list(chain.from_iterable(part)))
            if len(self._kept) + len(part) > MAX_KEPT:
                self._kept.clear()
            until = now + KEPT_SECONDS
            for check, is_allowed in zip(part, allowed, strict=True):
                self._kept[keys[check]] = is_allowed, until

    def _is_fresh(self, key: _Key, now: float) -> bool:
        decision = self._kept.get(key)
        return decision is not None and decision[1] > now

    async def _ask(self, is_filter: bool, user: str | None, host: str, checks: list[str]) -> list[bool]:
        try:
            return await self._inspection.authorize(user, host, checks, is_filter=is_filter)
        except BrokerError as error:
            if error.code is not ErrorCode.cluster_authorization_failed:
                raise
            raise Problem(503, f"the gateway may not act for its users: {error}") from error


def _user() -> str | None:
    actor = acting_for.get()
    return None if actor is None else actor.user
