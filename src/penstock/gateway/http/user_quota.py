"""Quotas of HTTP users: bytes and time are charged after each request, and a user over its quota gets 429."""

from __future__ import annotations

import math
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, Protocol

from penstock.gateway.http.problems import Problem
from penstock.gateway.http.step_timer import StepTimer

if TYPE_CHECKING:
    from starlette.responses import Response

MAX_RETRY_SECONDS = 3_600


class UserQuota(Protocol):
    """Quotas of the user whose request the running task serves."""

    async def wait_seconds(self, *, writes: bool) -> float:
        """Return the time in seconds until the user is within its quota; `writes` selects the quota for writes."""
        ...

    def charge(self, *, received: int, sent: int) -> None:
        """Charge the bytes of a request body and of a response."""
        ...

    def charge_time(self, seconds: float) -> None:
        """Charge the time that a request took on the event loop of the gateway."""
        ...


async def check_quota(quota: UserQuota | None, body_bytes: int) -> None:
    """Raise Problem (429) if the user is over a quota. A request with a body counts as a write."""
    wait = 0.0 if quota is None else await quota.wait_seconds(writes=body_bytes > 0)
    if wait > 0:
        seconds = math.ceil(min(wait, MAX_RETRY_SECONDS))
        raise Problem(
            429,
            f"the quota of this user is exceeded; try again in {seconds} s",
            error="THROTTLING_QUOTA_EXCEEDED",
            retriable=True,
            headers={"retry-after": str(seconds)},
        )


def charged(quota: UserQuota | None, body_bytes: int, response: Response) -> Response:
    """Charge a request and its response to the user, and return the response.

    The bytes of a stream are not charged here: brokers charge its Fetch requests.
    """
    if quota is not None:
        quota.charge(received=body_bytes, sent=len(getattr(response, "body", b"")))
    return response


async def timed(quota: UserQuota | None, work: Coroutine[Any, Any, None], now: Callable[[], float]) -> None:
    """Run the coroutine that serves a request, and charge its time on the event loop to the user."""
    if quota is None:
        await work
        return
    timer = StepTimer(work, now)
    try:
        await timer
    finally:
        quota.charge_time(timer.seconds)
