"""Quotas of HTTP users: a request of a user over a quota gets 429; bytes and time are charged after each request."""

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
    """Quotas of the user of the request that is served now."""

    async def wait_seconds(self, *, writes: bool) -> float:
        """Time until the user is within its quota for requests that write, or that read."""
        ...

    def charge(self, *, received: int, sent: int) -> None:
        """Charge the bytes of a request body and of a response."""
        ...

    def charge_time(self, seconds: float) -> None:
        """Charge the time that a request took on the event loop of the gateway."""
        ...


async def check_quota(quota: UserQuota | None, body_bytes: int) -> None:
    """Raise a Problem while the user is over a quota."""
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
    """Charge a request and its response, and return it; the bytes of a stream are those of its Fetch requests."""
    if quota is not None:
        quota.charge(received=body_bytes, sent=len(getattr(response, "body", b"")))
    return response


async def timed(quota: UserQuota | None, work: Coroutine[Any, Any, None], now: Callable[[], float]) -> None:
    """Do the work of a request, and charge its time on the event loop."""
    if quota is None:
        await work
        return
    timer = StepTimer(work, now)
    try:
        await timer
    finally:
        quota.charge_time(timer.seconds)
