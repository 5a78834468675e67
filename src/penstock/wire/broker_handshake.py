"""BrokerHandshake: one broker proves to another that it knows the cluster secret, without sending the secret.

    request   broker id 4 | id of the intended broker 4 | nonce 16 | proof 32, zeros the first time
    response  error code 2 | nonce 16 | proof 32

The first exchange has the nonces of both sides and the proof of the responding side, the second the proof of
the requesting side. A proof is an HMAC-SHA256 over the direction, both broker ids and both nonces, so it
cannot be replayed, used at another broker, or reflected. With TLS it also covers the fingerprint of the
server's certificate, so that a peer with another certificate cannot relay it. A connection that only has to
authenticate, such as the gateway's, may leave the intended broker open (-1).
"""

from __future__ import annotations

import hmac
from dataclasses import dataclass
from struct import Struct

from penstock.errors import ProtocolError
from penstock.model import BrokerId
from penstock.wire import primitives
from penstock.wire.apis import BROKER_HANDSHAKE
from penstock.wire.headers import (
    RequestHeader,
    decode_response_header,
    encode_request_header,
    encode_response_header,
)

NONCE_BYTES = 16
PROOF_BYTES = 32
NO_PROOF = bytes(PROOF_BYTES)
ANY_BROKER = BrokerId(-1)
"""Id of the intended broker on a connection that only has to authenticate."""

_REQUEST = Struct(f">ii{NONCE_BYTES}s{PROOF_BYTES}s")
_RESPONSE = Struct(f">h{NONCE_BYTES}s{PROOF_BYTES}s")
_IDS = Struct(">ii")


@dataclass(frozen=True, slots=True)
class Challenge:
    """Ids of the requesting and the responding broker, and both nonces."""

    asking: BrokerId
    answering: BrokerId
    asking_nonce: bytes
    answering_nonce: bytes
    binding: bytes = b""
    """Fingerprint of the server's certificate; empty without TLS."""

    def answering_proof(self, secret: str) -> bytes:
        return self._proof(secret, b"penstock answers")

    def asking_proof(self, secret: str) -> bytes:
        return self._proof(secret, b"penstock asks")

    def _proof(self, secret: str, role: bytes) -> bytes:
        said = role + _IDS.pack(self.asking, self.answering) + self.asking_nonce + self.answering_nonce
        return hmac.digest(secret.encode(), said + self.binding, "sha256")


def same_proof(one: bytes, other: bytes) -> bool:
    """Compare proofs in constant time."""
    return hmac.compare_digest(one, other)


@dataclass(frozen=True, slots=True)
class HandshakeRequest:
    asking: BrokerId
    answering: BrokerId
    nonce: bytes
    proof: bytes = NO_PROOF


@dataclass(frozen=True, slots=True)
class HandshakeResponse:
    error_code: int
    nonce: bytes = bytes(NONCE_BYTES)
    proof: bytes = NO_PROOF


def encode_handshake_request(correlation_id: int, client_id: str, request: HandshakeRequest) -> bytes:
    header = encode_request_header(RequestHeader(BROKER_HANDSHAKE, 0, correlation_id, client_id))
    body = _REQUEST.pack(request.asking, request.answering, request.nonce, request.proof)
    return primitives.frame(header, body)


def decode_handshake_request(frame: memoryview, position: int) -> HandshakeRequest:
    if len(frame) - position != _REQUEST.size:
        raise ProtocolError("malformed BrokerHandshake request")
    asking, answering, nonce, proof = _REQUEST.unpack_from(frame, position)
    return HandshakeRequest(BrokerId(asking), BrokerId(answering), nonce, proof)


def encode_handshake_response(correlation_id: int, response: HandshakeResponse) -> bytes:
    header = encode_response_header(BROKER_HANDSHAKE, 0, correlation_id)
    return primitives.frame(header, _RESPONSE.pack(response.error_code, response.nonce, response.proof))


def decode_handshake_response(frame: memoryview) -> HandshakeResponse:
    _, position = decode_response_header(BROKER_HANDSHAKE, 0, frame)
    if len(frame) - position != _RESPONSE.size:
        raise ProtocolError("malformed BrokerHandshake response")
    return HandshakeResponse(*_RESPONSE.unpack_from(frame, position))
