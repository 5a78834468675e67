"""SCRAM-SHA-256 and SCRAM-SHA-512 (RFC 5802, RFC 7677): records, and both sides of the exchange, without IO.

A record contains no password: it can be used to check a password or a login, but not to log in. Names and
passwords are UTF-8 without SASLprep, as in Kafka.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

MIN_ITERATIONS, MAX_ITERATIONS = 4_096, 16_384
"""Minimum and maximum number of iterations of a record, as in Kafka."""
SALT_BYTES = 20
NONCE_BYTES = 24
MAX_NAME_CHARACTERS = 255


class ScramMechanism(StrEnum):
    SHA_256 = "SCRAM-SHA-256"
    SHA_512 = "SCRAM-SHA-512"

    @property
    def hash_name(self) -> str:
        return "sha256" if self is ScramMechanism.SHA_256 else "sha512"

    @property
    def code(self) -> int:
        """Code of the mechanism in Kafka's user credential APIs."""
        return 1 if self is ScramMechanism.SHA_256 else 2

    @classmethod
    def of_code(cls, code: int) -> ScramMechanism | None:
        return {1: cls.SHA_256, 2: cls.SHA_512}.get(code)


class ScramError(Exception):
    """Invalid message in the exchange, or a failed proof. The text is for logs, not for the peer."""


@dataclass(frozen=True, slots=True)
class ScramRecord:
    salt: bytes
    iterations: int
    stored_key: bytes
    server_key: bytes

    def __repr__(self) -> str:
        return f"ScramRecord(iterations={self.iterations})"


def salted_password(mechanism: ScramMechanism, password: str, salt: bytes, iterations: int) -> bytes:
    """Derive the salted password. Takes milliseconds, so a server does it in a thread pool."""
    return hashlib.pbkdf2_hmac(mechanism.hash_name, password.encode(), salt, iterations)


def record_of(mechanism: ScramMechanism, salted: bytes, salt: bytes, iterations: int) -> ScramRecord:
    client_key = _hmac(mechanism, salted, b"Client Key")
    stored_key = hashlib.new(mechanism.hash_name, client_key).digest()
    return ScramRecord(salt, iterations, stored_key, _hmac(mechanism, salted, b"Server Key"))


def has_password(mechanism: ScramMechanism, record: ScramRecord, password: str) -> bool:
    """Check a password against a record. Takes milliseconds."""
    salted = salted_password(mechanism, password, record.salt, record.iterations)
    return hmac.compare_digest(
        record_of(mechanism, salted, record.salt, record.iterations).stored_key, record.stored_key
    )


def decoy(mechanism: ScramMechanism, user: str, secret: str) -> ScramRecord:
    """Record for a user that does not exist. It is the same at each login with this name, and cannot be
    guessed. A login with it fails like one with a wrong password: in the same way, at the same step and after
    the same time.
    """
    seed = _hmac(mechanism, secret.encode(), b"decoy " + user.encode())
    salt = _hmac(mechanism, seed, b"salt")[:SALT_BYTES]
    key = _hmac(mechanism, seed, b"stored key")
    return ScramRecord(salt, MIN_ITERATIONS, key, _hmac(mechanism, seed, b"server key"))


class ScramServer:
    """Server's side of one login. `find` returns the record of a user, or a decoy if the user does not exist."""

    def __init__(
        self, mechanism: ScramMechanism, find: Callable[[str], ScramRecord], server_nonce: str
    ) -> None:
        self.user = ""
        self._mechanism = mechanism
        self._find = find
        self._server_nonce = server_nonce
        self._record: ScramRecord | None = None
        self._header = ""
        self._first = ""
        self._nonce = ""

    def first(self, message: bytes) -> bytes:
        """Return the response to the client's first message. Raises ScramError."""
        binding, authorization, bare = _split_header(_text(message))
        attributes = _attributes(bare)
        if len(attributes) < 2 or attributes[0][0] != "n" or attributes[1][0] != "r":
            raise ScramError("the first message has no name and nonce")
        if any(key == "tokenauth" for key, _ in attributes[2:]):
            raise ScramError("delegation tokens are not supported")
        self.user = _unescape(attributes[0][1])
        if not 0 < len(self.user) <= MAX_NAME_CHARACTERS:
            raise ScramError("the name is empty or too long")
        if authorization and _unescape(authorization) != self.user:
            raise ScramError("the authorization id is another user")
        client_nonce = attributes[1][1]
        if not client_nonce or not client_nonce.isascii() or not client_nonce.isprintable():
            raise ScramError("the nonce is not printable")
        self._record = self._find(self.user)
        self._header = f"{binding},{authorization and f'a={authorization}'},"
        self._nonce = client_nonce + self._server_nonce
        salt = base64.b64encode(self._record.salt).decode()
        answer = f"r={self._nonce},s={salt},i={self._record.iterations}"
        self._first = f"{bare},{answer}"
        return answer.encode()

    def final(self, message: bytes) -> bytes:
        """Return the response to the client's last message. Raises ScramError unless the message proves the
        password.
        """
        record = self._record
        if record is None:
            raise ScramError("the final message came before the first message")
        without_proof, separator, encoded = _text(message).rpartition(",p=")
        attributes = _attributes(without_proof)
        if not separator or [key for key, _ in attributes[:2]] != ["c", "r"]:
            raise ScramError("the last message has no channel binding, nonce and proof")
        if _decode(attributes[0][1]) != self._header.encode():
            raise ScramError("the channel binding differs from the first message")
        if not self._is_nonce(attributes[1][1]):
            raise ScramError("the nonce differs from the first message")
        content = f"{self._first},{without_proof}".encode()
        signature = _hmac(self._mechanism, record.stored_key, content)
        proof = _decode(encoded)
        if len(proof) != len(signature):
            raise ScramError("the proof has the wrong length")
        client_key = bytes(one ^ other for one, other in zip(proof, signature, strict=True))
        stored_key = hashlib.new(self._mechanism.hash_name, client_key).digest()
        if not hmac.compare_digest(stored_key, record.stored_key):
            raise ScramError("the proof is wrong")
        return b"v=" + base64.b64encode(_hmac(self._mechanism, record.server_key, content))

    def _is_nonce(self, given: str) -> bool:
        """True if the nonce in the last message is the one that the server has sent.

        librdkafka 2.0 repeats its own nonce before it. The proof covers the nonce as it was sent.
        """
        repeated = self._nonce[: len(self._nonce) - len(self._server_nonce)] + self._nonce
        return any(hmac.compare_digest(given.encode(), each.encode()) for each in (self._nonce, repeated))


class ScramClient:
    """Client's side of one login."""

    def __init__(self, mechanism: ScramMechanism, user: str, password: str, nonce: str) -> None:
        self._mechanism = mechanism
        self._password = password
        self._nonce = nonce
        self._bare = f"n={user.replace('=', '=3D').replace(',', '=2C')},r={nonce}"
        self._expected = b""

    def first(self) -> bytes:
        return f"n,,{self._bare}".encode()

    def final(self, answer: bytes) -> bytes:
        """Return the last message. Raises ScramError if the answer is invalid."""
        fields = dict(_attributes(_text(answer)))
        nonce, salt, iterations = fields.get("r", ""), _decode(fields.get("s", "")), fields.get("i", "")
        if not nonce.startswith(self._nonce) or nonce == self._nonce or not iterations.isdecimal():
            raise ScramError("the broker's first answer does not continue the login")
        if not 1 <= int(iterations) <= 1_000_000:
            raise ScramError(f"the broker asks for {iterations} iterations")
        salted = salted_password(self._mechanism, self._password, salt, int(iterations))
        without_proof = f"c=biws,r={nonce}"
        content = f"{self._bare},{_text(answer)},{without_proof}".encode()
        record = record_of(self._mechanism, salted, salt, int(iterations))
        signature = _hmac(self._mechanism, record.stored_key, content)
        client_key = _hmac(self._mechanism, salted, b"Client Key")
        proof = bytes(one ^ other for one, other in zip(client_key, signature, strict=True))
        self._expected = b"v=" + base64.b64encode(_hmac(self._mechanism, record.server_key, content))
        return f"{without_proof},p={base64.b64encode(proof).decode()}".encode()

    def check(self, answer: bytes) -> None:
        """Raise ScramError unless the answer proves that the broker has the record of the user."""
        if not hmac.compare_digest(answer, self._expected):
            raise ScramError("the broker does not know the password of the user")


def _hmac(mechanism: ScramMechanism, key: bytes, content: bytes) -> bytes:
    return hmac.digest(key, content, mechanism.hash_name)


def _text(message: bytes) -> str:
    try:
        return message.decode()
    except UnicodeDecodeError:
        raise ScramError("the message is not UTF-8") from None


def _split_header(message: str) -> tuple[str, str, str]:
    """Split a first message into channel binding flag, authorization id and rest."""
    parts = message.split(",", 2)
    if len(parts) < 3 or parts[0] not in ("n", "y"):
        raise ScramError("the first message has no header, or asks for channel binding")
    if parts[1] and not parts[1].startswith("a="):
        raise ScramError("the authorization id is malformed")
    return parts[0], parts[1][2:], parts[2]


def _attributes(message: str) -> list[tuple[str, str]]:
    attributes = []
    for part in message.split(","):
        key, separator, value = part.partition("=")
        if not separator or not key.isalpha():
            raise ScramError("an attribute is malformed")
        attributes.append((key, value))
    return attributes


def _unescape(name: str) -> str:
    rest = name.replace("=2C", "").replace("=3D", "")
    if "=" in rest:
        raise ScramError("the name has an invalid escape")
    return name.replace("=2C", ",").replace("=3D", "=")


def _decode(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise ScramError("a value is not base64") from None
