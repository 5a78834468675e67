"""Client side of BrokerHandshake: two brokers prove to each other that they know the cluster secret."""

from __future__ import annotations

from random import Random  # noqa: TID251 - the type; the numbers come from the environment

from penstock.errors import BrokerError, ErrorCode
from penstock.model import BrokerId
from penstock.net.broker_connection import BrokerConnection
from penstock.wire.broker_handshake import (
    NONCE_BYTES,
    Challenge,
    HandshakeRequest,
    HandshakeResponse,
    decode_handshake_response,
    encode_handshake_request,
    same_proof,
)


async def prove(
    client: BrokerConnection, secret: str | None, me: BrokerId, other: BrokerId, random: Random
) -> None:
    """Authenticate both ends of a connection; BrokerError if the secrets differ or the peer is not broker `other`."""
    if secret is None:
        raise BrokerError(ErrorCode.cluster_authorization_failed, "cluster.secret is not set")
    nonce = random.randbytes(NONCE_BYTES)
    answer = await _ask(client, HandshakeRequest(me, other, nonce))
    challenge = Challenge(me, other, nonce, answer.nonce, client.binding)
    if not same_proof(challenge.answering_proof(secret), answer.proof):
        raise BrokerError(
            ErrorCode.cluster_authorization_failed, f"broker {other} has a different cluster.secret"
        )
    await _ask(client, HandshakeRequest(me, other, nonce, challenge.asking_proof(secret)))


async def _ask(client: BrokerConnection, request: HandshakeRequest) -> HandshakeResponse:
    correlation_id = client.next_correlation_id()
    frame = encode_handshake_request(correlation_id, client.own_client_id, request)
    response = decode_handshake_response(await client.exchange(correlation_id, frame))
    if response.error_code:
        raise BrokerError(
            ErrorCode(response.error_code),
            f"broker {request.answering} refused the authentication of this broker",
        )
    return response
