"""Quotas of HTTP users: a request of a user over a quota gets 429, and bytes are charged after each request."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Protocol

from penstock.gateway.http.problems import Problem

if TYPE_CHECKING:
    from starlette.responses import Response

MAX_RETRY_SECONDS = 3_600


class UserQuota(Protocol):
    """Quotas of the user of the request that is served now."""

    def wait_seconds(self, *, writes: bool) -> float:
        """Time until the user is within its quota for requests that write, or that read."""
        ...

    def charge(self, *, received: int, sent: int) -> None:
        """Charge the bytes of a request body and of a response."""
        ...


def check_quota(quota: UserQuota | None, body_bytes: int) -> None:
    """Raise a Problem while the user is over a quota."""
    wait = 0.0 if quota is None else quota.wait_seconds(writes=body_bytes > 0)
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
