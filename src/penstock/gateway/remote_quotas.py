"""Quotas of HTTP users at a stand-alone gateway: a broker keeps the users' accounts.

The gateway adds up the bytes and time of each user, and sends them to the broker when it asks how long the user has to
wait, at most once a second for each user. So a user may exceed a quota for a second before it is delayed. Loop thread
only.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from penstock.clock import Clock
from penstock.errors import BrokerError
from penstock.internal_client.inspection import InspectionCalls
from penstock.net.acting import acting_for

KEPT_SECONDS = 1.0
MAX_USERS = 10_000


@dataclass(slots=True)
class _Usage:
    """Amounts of one user that were not sent to a broker yet."""

    received: int = 0
    sent: int = 0
    seconds: float = 0.0


@dataclass(slots=True)
class _Account:
    usage: _Usage = field(default_factory=_Usage)
    known_until: float = 0.0
    write_time: float = 0.0
    """Monotonic time in seconds from which the user is within its quota for writes."""
    read_time: float = 0.0


class RemoteQuotas:
    """`UserQuota` of a stand-alone gateway."""

    def __init__(self, inspection: InspectionCalls, clock: Clock) -> None:
        self._inspection = inspection
        self._clock = clock
        self._accounts: dict[str, _Account] = {}

    async def wait_seconds(self, *, writes: bool) -> float:
        actor = acting_for.get()
        if actor is None:
            return 0.0
        account = self._account(actor.user)
        if account.known_until <= self._clock.monotonic():
            await self._ask(actor.user, account)
        return max(0.0, (account.write_time if writes else account.read_time) - self._clock.monotonic())

    def charge(self, *, received: int, sent: int) -> None:
        actor = acting_for.get()
        if actor is not None:
            usage = self._account(actor.user).usage
            usage.received += received
            usage.sent += sent

    def charge_time(self, seconds: float) -> None:
        actor = acting_for.get()
        if actor is not None:
            self._account(actor.user).usage.seconds += seconds

    def _account(self, user: str) -> _Account:
        account = self._accounts.get(user)
        if account is None:
            if len(self._accounts) >= MAX_USERS:
                self._accounts.clear()
            account = self._accounts[user] = _Account()
        return account

    async def _ask(self, user: str, account: _Account) -> None:
        usage, account.usage = account.usage, _Usage()
        account.known_until = self._clock.monotonic() + KEPT_SECONDS
        try:
            waits = await self._inspection.charge_user(user, usage.received, usage.sent, usage.seconds)
        except BrokerError:
            return  # a broker of an earlier version, which has no quotas of HTTP users
        now = self._clock.monotonic()
        account.write_time, account.read_time = (now + wait for wait in waits)
