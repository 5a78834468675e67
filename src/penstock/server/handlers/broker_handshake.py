"""BrokerHandshake: authentication of a broker of this cluster, which may then fetch as a replica."""

from __future__ import annotations

from penstock.errors import ErrorCode
from penstock.model import BrokerId
from penstock.net.response import Answer
from penstock.server.dispatch import Api, Request
from penstock.server.security import BROKER
from penstock.wire.apis import BROKER_HANDSHAKE
from penstock.wire.broker_handshake import (
    ANY_BROKER,
    NO_PROOF,
    NONCE_BYTES,
    Challenge,
    HandshakeRequest,
    HandshakeResponse,
    decode_handshake_request,
    encode_handshake_response,
    same_proof,
)

_REFUSED = HandshakeResponse(ErrorCode.cluster_authorization_failed)


def handle(request: Request, frame: memoryview, position: int) -> Answer:
    response = _answer(request, decode_handshake_request(frame, position))
    return [encode_handshake_response(request.header.correlation_id, response)]


API = Api(BROKER_HANDSHAKE, 0, 0, handle_raw=handle)


def _answer(request: Request, asked: HandshakeRequest) -> HandshakeResponse:
    session, context = request.session, request.context
    secret = context.replicas.secret
    session.broker_id = None
    session.is_gateway = False
    is_open = asked.answering == ANY_BROKER
    if secret is None or not (is_open or _is_between_brokers(asked, context.node_id)):
        return _REFUSED
    if asked.proof == NO_PROOF:
        nonce = context.random.randbytes(NONCE_BYTES)
        session.challenge = Challenge(asked.asking, asked.answering, asked.nonce, nonce, session.binding)
        return HandshakeResponse(ErrorCode.none, nonce, session.challenge.answering_proof(secret))
    challenge, session.challenge = session.challenge, None
    if (
        challenge is None
        or (challenge.asking, challenge.asking_nonce) != (asked.asking, asked.nonce)
        or not same_proof(challenge.asking_proof(secret), asked.proof)
    ):
        return _REFUSED
    if is_open:
        session.principal = BROKER
        session.is_gateway = True
    else:
        session.principal = BROKER
        session.broker_id = asked.asking
    return HandshakeResponse(ErrorCode.none)


def _is_between_brokers(asked: HandshakeRequest, node_id: BrokerId) -> bool:
    return asked.answering == node_id != asked.asking
