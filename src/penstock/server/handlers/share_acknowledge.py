"""ShareAcknowledge: a member of a share group accepts, releases, rejects or renews records (KIP-932)."""

from __future__ import annotations

from penstock.errors import BrokerError, ErrorCode
from penstock.net.response import Answer, PendingResponse
from penstock.server.dispatch import Api, Request
from penstock.server.share_acknowledging import (
    Acknowledging,
    ShareTargets,
    check_names,
    end_session,
    key_of,
    lock_ms_of,
    open_session,
)
from penstock.server.share_sessions import INITIAL_EPOCH, ShareSession
from penstock.wire.share_fetch import (
    ShareRequest,
    ShareResult,
    decode_share_acknowledge,
    encode_share_acknowledge,
)


def handle(request: Request, frame: memoryview, position: int) -> Answer:
    asked = decode_share_acknowledge(frame, position, request.version)
    try:
        if asked.epoch == INITIAL_EPOCH:
            check_names(request, asked)
            raise BrokerError(
                ErrorCode.invalid_share_session_epoch,
                "a session is opened by ShareFetch, not by ShareAcknowledge",
            )
        session = open_session(request, asked)
        keys = (key_of(session, topic_id, index) for topic_id, index, _ in asked.partitions)
        request.context.share.sessions.add(session, keys)
    except BrokerError as error:
        header = request.header
        return [
            encode_share_acknowledge(
                header.correlation_id,
                header.api_version,
                (),
                error_code=error.code,
                error_message=str(error),
            )
        ]
    return _acknowledge(request, asked, session)


API = Api(79, 1, 2, handle_raw=handle)


def _acknowledge(request: Request, asked: ShareRequest, session: ShareSession) -> Answer:
    targets = ShareTargets(request, session)
    acknowledging = Acknowledging(request, asked, session, targets)
    acknowledging.run()
    named = dict.fromkeys(key_of(session, topic_id, index) for topic_id, index, _ in asked.partitions)
    lock_ms = lock_ms_of(request, session)
    end_session(request, asked, session)

    def encode() -> bytes:
        results = []
        for key in named:
            found = acknowledging.results.get(key)
            result = ShareResult(key.topic_id, key.partition)
            if found is not None:
                result.error_code = found.acknowledge_error_code
                result.error_message = found.acknowledge_error_message
                result.leader_id, result.leader_epoch = found.leader_id, found.leader_epoch
            results.append(result)
        header = request.header
        return encode_share_acknowledge(
            header.correlation_id, header.api_version, results, lock_ms, targets.endpoints
        )

    if not acknowledging.is_pending:
        return [encode()]
    later = PendingResponse()
    acknowledging.when_done(lambda: later.resolve([encode()]))
    return later
