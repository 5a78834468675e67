"""Gate of a connection at a listener with SASL: it passes requests to dispatch only after the client has logged in.

Before the login, only ApiVersions (once), SaslHandshake, SaslAuthenticate and the handshake between brokers are served,
with a lower limit on the request size. After the login, requests go to dispatch until the login expires; a client may
log in again on the same connection as the same user (KIP-368). Responses are the same as Kafka 4.3's. The response to a
failed login is delayed.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from datetime import timedelta
from enum import Enum, auto
from functools import partial
from typing import Any

from penstock.config import SaslMechanism
from penstock.errors import ErrorCode, ProtocolError
from penstock.net.connection import Connection
from penstock.net.response import Answer, Parts, PendingResponse
from penstock.server.dispatch import Dispatcher, Session
from penstock.server.handlers.api_versions import MAX_VERSION as API_VERSIONS_MAX
from penstock.server.sasl.exchanges import LoginFailed, SaslExchange, SaslStep
from penstock.server.sasl.service import SaslService
from penstock.server.security import BROKER, Login, Principal
from penstock.wire.apis import API_VERSIONS, BROKER_HANDSHAKE, METADATA, SASL_AUTHENTICATE, SASL_HANDSHAKE
from penstock.wire.framing import SIZE_PREFIX
from penstock.wire.headers import RequestHeader, read_request_header
from penstock.wire.messages import decode_request, encode_response_frame

CLOSE_SECONDS = 0.3
"""Time in seconds between the response to a failed login and the end of the connection, so that the client can read the
response.
"""
_NO_METADATA = {
    "brokers": (),
    "topics": (),
    "cluster_id": None,
    "controller_id": -1,
    "throttle_time": timedelta(0),
}
_MAX_VERSIONS = {SASL_HANDSHAKE: 1, SASL_AUTHENTICATE: 2}


class _State(Enum):
    INITIAL = auto()
    VERSIONS_SENT = auto()
    HANDSHAKEN = auto()
    RAW_TOKENS = auto()
    """After SaslHandshake version 0: SASL tokens follow without request headers."""
    AUTHENTICATED = auto()
    FAILED = auto()


class Gate:
    def __init__(self, session: Session, dispatcher: Dispatcher, service: SaslService) -> None:
        self._session = session
        self._dispatch = partial(dispatcher.dispatch, session)
        self._service = service
        self._state = _State.INITIAL
        self._mechanism: SaslMechanism | None = None
        self._exchange: SaslExchange | None = None
        self._expires: float | None = None
        """Monotonic time at which the login expires."""
        self._connection: Connection | None = None
        self._timer: asyncio.TimerHandle | None = None

    def attach(self, connection: Connection, timeout_seconds: float) -> None:
        """Serve a connection, and close it if its client has not logged in within the timeout."""
        self._connection = connection
        connection.serve_with(self.handle, self._service.max_receive_bytes)
        self._timer = asyncio.get_running_loop().call_later(timeout_seconds, self._on_timeout)

    @property
    def has_expired(self) -> bool:
        return self._expires is not None and self._service.monotonic() >= self._expires

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._connection = None

    def handle(self, frame: memoryview) -> Answer:
        """Serve one frame. Raises ProtocolError to close the connection."""
        if self._state is _State.AUTHENTICATED and not self._is_login(frame):
            if self.has_expired:
                raise ProtocolError("the login has expired")
            return self._dispatch(frame)
        if self._state is _State.RAW_TOKENS:
            return self._evaluate(bytes(frame), _raw_answer, lambda _: None)
        return self._handle_login(frame)

    @staticmethod
    def _is_login(frame: memoryview) -> bool:
        return int.from_bytes(frame[:2], "big") in (SASL_HANDSHAKE, SASL_AUTHENTICATE)

    def _handle_login(self, frame: memoryview) -> Answer:
        api_key, version, correlation_id, client_id, position = read_request_header(frame)
        header = RequestHeader(api_key, version, correlation_id, client_id)
        if self._state is _State.FAILED:
            raise ProtocolError("the client sent a request after a failed login")
        if api_key == API_VERSIONS and self._state is _State.INITIAL:
            if version <= API_VERSIONS_MAX:
                self._state = (
                    _State.VERSIONS_SENT
                )  # a client asks again after an unsupported version (KIP-511)
            return self._dispatch(frame)
        if api_key == BROKER_HANDSHAKE and self._state in (_State.INITIAL, _State.VERSIONS_SENT):
            return self._handshake_of_broker(frame)
        if api_key in _MAX_VERSIONS and not 0 <= version <= _MAX_VERSIONS[api_key]:
            raise ProtocolError(f"unsupported version {version} of api key {api_key}")
        if api_key == SASL_HANDSHAKE:
            return self._on_handshake(header, decode_request(api_key, version, frame, position))
        if self._state is not _State.HANDSHAKEN:
            raise ProtocolError(f"the client sent api key {api_key} before the login")
        if api_key != SASL_AUTHENTICATE:
            return self._refuse_other(header)
        message = decode_request(api_key, version, frame, position)
        return self._evaluate(
            bytes(message.auth_bytes), partial(self._answer, header), partial(_refusal, header)
        )

    def _on_handshake(self, header: RequestHeader, message: Any) -> Answer:
        mechanisms = self._service.mechanisms
        if self._state is _State.HANDSHAKEN:
            fields = {"error_code": ErrorCode.illegal_sasl_state, "mechanisms": ()}
            return self._fail(encode_response_frame(header, fields))
        if message.mechanism not in mechanisms:
            self._service.refused("unsupported mechanism")
            fields = {"error_code": ErrorCode.unsupported_sasl_mechanism, "mechanisms": list(mechanisms)}
            return self._fail(encode_response_frame(header, fields), delayed=False)
        self._mechanism = SaslMechanism(message.mechanism)
        self._exchange = self._service.exchange(self._mechanism, self._session.host)
        is_raw = header.api_version == 0 and self._state is not _State.AUTHENTICATED
        self._state = _State.RAW_TOKENS if is_raw else _State.HANDSHAKEN
        fields = {"error_code": ErrorCode.none, "mechanisms": list(mechanisms)}
        return [encode_response_frame(header, fields)]

    def _handshake_of_broker(self, frame: memoryview) -> Answer:
        answer = self._dispatch(frame)
        if self._session.broker_id is not None or self._session.principal == BROKER:
            self._session.principal = BROKER
            self._pass(None)
        return answer

    def _refuse_other(self, header: RequestHeader) -> Answer:
        """Refuse another request between handshake and login. Metadata gets an empty response, as from Kafka."""
        if header.api_key != METADATA:
            raise ProtocolError(f"the client sent api key {header.api_key} during the login")
        fields = {**_NO_METADATA, "error_code": ErrorCode.none, "cluster_authorized_operations": -(2**31)}
        return self._fail(encode_response_frame(header, fields))

    def _evaluate(
        self,
        token: bytes,
        answer: Callable[[SaslStep], bytes],
        refusal: Callable[[str], bytes | None],
    ) -> Answer:
        assert self._exchange is not None
        try:
            step = self._exchange.step(token)
        except LoginFailed as failure:
            return self._on_failure(failure, refusal)
        if isinstance(step, SaslStep):
            return self._on_step(step, answer, refusal)
        assert inspect.isawaitable(step)
        later = PendingResponse(barrier=True)
        self._service.run(self._finish(step, answer, refusal, later))
        return later

    async def _finish(
        self,
        step: Awaitable[SaslStep],
        answer: Callable[[SaslStep], bytes],
        refusal: Callable[[str], bytes | None],
        later: PendingResponse,
    ) -> None:
        started = self._service.monotonic()
        try:
            done = self._on_step(await step, answer, refusal, started)
        except LoginFailed as failure:
            done = self._on_failure(failure, refusal, started)
        except Exception as error:  # noqa: BLE001 - it must not leave the connection waiting for ever
            later.fail(error)
            return
        if isinstance(done, PendingResponse):
            done.when_done(partial(_copy, done, later))
        else:
            later.resolve(done)

    def _on_step(
        self,
        step: SaslStep,
        answer: Callable[[SaslStep], bytes],
        refusal: Callable[[str], bytes | None],
        started: float | None = None,
    ) -> Answer:
        if step.login is None:
            return [answer(step)]
        user = Principal("User", step.login.user)
        if self._session.login is not None and user != self._session.principal:
            text = (
                f"Cannot change principals during re-authentication from User.{self._session.principal.name}: "
                f"User.{user.name}"
            )
            return self._on_failure(LoginFailed(text, "", user.name), refusal, started)
        self._session.principal = user
        self._session.login = step.login
        self._session.is_gateway = self._service.is_gateway(user.name)
        self._pass(step.login)
        return [answer(step)]

    def _pass(self, login: Login | None) -> None:
        """Pass all requests to dispatch from now on."""
        self._state = _State.AUTHENTICATED
        self._exchange = None
        self._expires = self._service.expiry(login)
        self._service.accepted(self._mechanism)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._connection is not None:
            self._connection.serve_with(self.handle, self._service.max_frame_bytes)

    def _answer(self, header: RequestHeader, step: SaslStep) -> bytes:
        lifetime = timedelta(0)
        if step.login is not None and self._expires is not None:
            lifetime = timedelta(milliseconds=int((self._expires - self._service.monotonic()) * 1000))
        fields = {
            "error_code": ErrorCode.none,
            "error_message": None,
            "auth_bytes": step.answer,
            "session_lifetime": lifetime,
        }
        return encode_response_frame(header, fields)

    def _on_failure(
        self, failure: LoginFailed, refusal: Callable[[str], bytes | None], started: float | None = None
    ) -> Answer:
        self._service.failed(self._session, self._mechanism, failure)
        return self._fail(refusal(str(failure)), started=started)

    def _fail(self, answer: bytes | None, *, delayed: bool = True, started: float | None = None) -> Answer:
        """Respond after the delay for failed logins, counted from `started`, and close the connection `CLOSE_SECONDS`
        later.
        """
        self._state = _State.FAILED
        passed = 0.0 if started is None else self._service.monotonic() - started
        delay = max(0.0, self._service.failure_delay_seconds - passed) if delayed else 0.0
        later = PendingResponse(barrier=True)
        loop = asyncio.get_running_loop()
        if answer is None:
            loop.call_later(delay, later.fail, ProtocolError("the login has failed"))
        else:
            parts: Parts = [answer]
            loop.call_later(delay, later.resolve, parts)
            loop.call_later(delay + CLOSE_SECONDS, self._close)
        return later

    def _on_timeout(self) -> None:
        self._timer = None
        self._service.refused("login timeout")
        self._close()

    def _close(self) -> None:
        if self._connection is not None:
            self._connection.close()


def _raw_answer(step: SaslStep) -> bytes:
    return len(step.answer).to_bytes(SIZE_PREFIX, "big") + step.answer


def _refusal(header: RequestHeader, text: str) -> bytes:
    fields = {
        "error_code": ErrorCode.sasl_authentication_failed,
        "error_message": text,
        "auth_bytes": b"",
        "session_lifetime": timedelta(0),
    }
    return encode_response_frame(header, fields)


def _copy(done: PendingResponse, later: PendingResponse) -> None:
    if done.error is not None:
        later.fail(done.error)
    else:
        later.resolve(done.parts)
