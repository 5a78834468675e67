"""Problem documents (RFC 9457): this module turns every failure of a request into one.

`retriable` is true if the same request may succeed later; `outcome` is `unknown` if a write may or may not
have happened. An unexpected error shows only the request id, which is also in the log.
"""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

from penstock.errors import BrokerError, DiskFull, ErrorCode, PenstockError, ProtocolError
from penstock.internal_client.errors import OutcomeUnknown
from penstock.internal_client.retries import RETRIABLE
from penstock.unreachable import Unreachable

CONTENT_TYPE = "application/problem+json"

_E = ErrorCode
_STATUSES: Mapping[ErrorCode, int] = {
    _E.unknown_topic_or_partition: 404,
    _E.unknown_topic_id: 404,
    _E.group_id_not_found: 404,
    _E.transactional_id_not_found: 404,
    _E.unknown_member_id: 404,
    _E.resource_not_found: 404,
    _E.broker_id_not_registered: 404,
    _E.topic_already_exists: 409,
    _E.duplicate_resource: 409,
    _E.invalid_record_state: 409,
    _E.non_empty_group: 409,
    _E.group_subscribed_to_topic: 409,
    _E.concurrent_transactions: 409,
    _E.producer_fenced: 409,
    _E.fenced_member_epoch: 409,
    _E.rebalance_in_progress: 409,
    _E.reassignment_in_progress: 409,
    _E.offset_out_of_range: 416,
    _E.message_too_large: 413,
    _E.record_list_too_large: 413,
    _E.topic_authorization_failed: 403,
    _E.group_authorization_failed: 403,
    _E.cluster_authorization_failed: 403,
    _E.transactional_id_authorization_failed: 403,
    _E.throttling_quota_exceeded: 429,
    _E.group_max_size_reached: 429,
    _E.corrupt_message: 500,
    _E.invalid_record: 422,
    _E.request_timed_out: 504,
    _E.unknown_server_error: 500,
    _E.broker_not_available: 503,
    _E.kafka_storage_error: 503,
    _E.not_enough_replicas: 503,
    _E.not_enough_replicas_after_append: 503,
}


class Problem(PenstockError):
    """The failure of a request, which becomes a problem document."""

    def __init__(
        self,
        status: int,
        detail: str,
        *,
        error: str = "",
        retriable: bool = False,
        headers: Mapping[str, str] | None = None,
        **extra: Any,
    ) -> None:
        super().__init__(detail)
        self.status = status
        self.detail = detail
        self.error = error
        self.retriable = retriable
        self.headers = dict(headers or {})
        self.extra = extra

    def document(self, request_id: str) -> dict[str, Any]:
        title = HTTPStatus(self.status).phrase
        body: dict[str, Any] = {
            "type": "about:blank",
            "title": title,
            "status": self.status,
            "detail": self.detail,
            "retriable": self.retriable,
            "request_id": request_id,
        }
        if self.error:
            body["error"] = self.error
        return body | self.extra


def problem_of(error: Exception) -> Problem | None:
    """Return the problem document's content for a failure; None for an unexpected error, a bug of the gateway."""
    if isinstance(error, Problem):
        return error
    if isinstance(error, OutcomeUnknown):
        return Problem(
            504,
            f"the outcome is unknown: {error}. Look at the present state, or try again; a message "
            "with the same Idempotency-Key is stored once",
            error="REQUEST_TIMED_OUT",
            retriable=True,
            outcome="unknown",
        )
    if isinstance(error, DiskFull):
        return Problem(
            507,
            f"nothing was stored: {error}. Make space on the broker's disk, then send again",
            error=error.code.name.upper(),
            retriable=True,
            headers={"retry-after": "5"},
        )
    if isinstance(error, BrokerError):
        return _of_broker(error)
    if isinstance(error, TimeoutError) or (isinstance(error, Unreachable) and error.timed_out):
        return Problem(504, "the cluster did not respond in time", error="REQUEST_TIMED_OUT", retriable=True)
    if isinstance(error, OSError | ProtocolError):
        return Problem(
            503,
            "no broker of the cluster can be reached at present",
            error="BROKER_NOT_AVAILABLE",
            retriable=True,
            headers={"retry-after": "1"},
        )
    return None


def _of_broker(error: BrokerError) -> Problem:
    code = error.code
    retriable = code in RETRIABLE or code is _E.throttling_quota_exceeded
    status = _STATUSES.get(code) or (503 if retriable else 400)
    headers = {"retry-after": "1"} if status in (429, 503) else {}
    text = str(error)
    detail = code.name.replace("_", " ") if text == code.name else text
    return Problem(status, detail, error=code.name.upper(), retriable=retriable, headers=headers)
