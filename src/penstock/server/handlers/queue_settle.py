"""QueueSettle: settles messages from QueueReceive. A private API, which ApiVersions does not list."""

from __future__ import annotations

from functools import partial
from typing import Final

from penstock.clock import monotonic_ms
from penstock.config.retry_backoff import MAX_DELAY_MS
from penstock.errors import BrokerError, ErrorCode
from penstock.model import ShareKey, TopicId
from penstock.net.response import Answer, PendingResponse
from penstock.queues.states import (
    MAX_REASON_CHARACTERS,
    Acknowledgement,
    AcknowledgeType,
    DeadReason,
    Reason,
)
from penstock.server.dispatch import Api, Request
from penstock.server.queue_receiving import check_lock_ms, member_of
from penstock.server.security import Operation, ResourceType
from penstock.server.share_acknowledging import ShareTargets
from penstock.wire.apis import QUEUE_SETTLE
from penstock.wire.queue_settle import (
    EXPIRE,
    GROUP_DELAY,
    QueueSettlement,
    QueueSettleRequest,
    QueueSettleResponse,
    SettleResult,
    decode_queue_settle_request,
    encode_queue_settle_response,
)

MAX_SETTLEMENTS: Final = 10_000


def handle(request: Request, frame: memoryview, position: int) -> Answer:
    asked = decode_queue_settle_request(frame, position)
    try:
        request.require(Operation.READ, ResourceType.GROUP, asked.group_id)
        if len(asked.settlements) > MAX_SETTLEMENTS:
            raise BrokerError(
                ErrorCode.invalid_request,
                f"the request has {len(asked.settlements)} settlements; at most {MAX_SETTLEMENTS} are allowed",
            )
    except BrokerError as error:
        response = QueueSettleResponse(error.code, str(error)[:500])
        return [encode_queue_settle_response(request.header.correlation_id, response)]
    return QueueSettling(request, asked).start()


API = Api(QUEUE_SETTLE, 0, 0, handle_raw=handle)


class QueueSettling:
    """The settlements of one request; each succeeds or fails independently of the others."""

    def __init__(self, request: Request, asked: QueueSettleRequest) -> None:
        self._request = request
        self._asked = asked
        self._targets = ShareTargets(request)
        self._results: list[SettleResult] = [SettleResult()] * len(asked.settlements)
        self._pending = 0
        self._later: PendingResponse | None = None

    def start(self) -> Answer:
        for place, settlement in enumerate(self._asked.settlements):
            self._pending += 1
            try:
                self._settle(place, settlement)
            except BrokerError as error:
                self._on_stored(place, error)
        if not self._pending:
            return [self._response()]
        self._later = PendingResponse()
        return self._later

    def _settle(self, place: int, asked: QueueSettlement) -> None:
        _check(asked)
        key = ShareKey(self._asked.group_id, TopicId(asked.topic_id), asked.partition)
        self._targets.leader(key).acknowledge(
            member_of(asked.token),
            [Acknowledgement(asked.first_offset, asked.last_offset, bytes([asked.action]))],
            monotonic_ms(self._request.context.clock),
            AcknowledgeType.RETURN,
            partial(self._on_stored, place),
            None if asked.delay_ms == GROUP_DELAY else asked.delay_ms,
            is_strict=True,
            reason=_reason(asked),
        )

    def _on_stored(self, place: int, error: BrokerError | None) -> None:
        if error is not None:
            self._results[place] = SettleResult(error.code, str(error)[:500])
        self._pending -= 1
        if self._pending == 0 and self._later is not None:
            self._later.resolve([self._response()])

    def _response(self) -> bytes:
        response = QueueSettleResponse(results=self._results)
        return encode_queue_settle_response(self._request.header.correlation_id, response)


def _reason(asked: QueueSettlement) -> Reason:
    code = DeadReason.EXPIRED if asked.action == EXPIRE else DeadReason.REJECTED
    return Reason(code, asked.reason)


def _check(asked: QueueSettlement) -> None:
    if asked.action not in set(AcknowledgeType):
        raise BrokerError(ErrorCode.invalid_request, f"unknown action {asked.action}")
    if asked.action == AcknowledgeType.RENEW:
        check_lock_ms(asked.delay_ms)
    elif not GROUP_DELAY <= asked.delay_ms <= MAX_DELAY_MS:
        raise BrokerError(
            ErrorCode.invalid_request,
            f"a delay of {asked.delay_ms} ms is not between 0 and {MAX_DELAY_MS} ms",
        )
    if len(asked.reason) > MAX_REASON_CHARACTERS:
        raise BrokerError(
            ErrorCode.invalid_request, f"a reason has at most {MAX_REASON_CHARACTERS} characters"
        )
