"""SASL of one listener: its mechanisms, limits and counters."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Coroutine
from typing import Any

from penstock.config import (
    CONNECTION_FAILED_AUTHENTICATION_DELAY_MS,
    CONNECTIONS_MAX_REAUTH_MS,
    GATEWAY_USERS,
    SASL_ENABLED_MECHANISMS,
    SASL_PLAIN_WITHOUT_TLS,
    SASL_SERVER_MAX_RECEIVE_SIZE,
    SOCKET_REQUEST_MAX_BYTES,
    Listener,
    SaslMechanism,
)
from penstock.observability.logs import Logger
from penstock.security.oauth import TokenValidator
from penstock.security.scram import MAX_NAME_CHARACTERS, NONCE_BYTES, ScramMechanism
from penstock.server.context import BrokerContext
from penstock.server.dispatch import Session
from penstock.server.sasl.accounts import Accounts
from penstock.server.sasl.exchanges import (
    LoginFailed,
    OauthExchange,
    PlainExchange,
    SaslExchange,
    ScramExchange,
)
from penstock.server.security import Login


class LoginCounts:
    """Numbers of accepted and failed logins at all listeners, for the metrics."""

    def __init__(self) -> None:
        self.accepted = 0
        self.failed = 0


class SaslService:
    def __init__(
        self,
        listener: Listener,
        context: BrokerContext,
        logger: Logger,
        accounts: Accounts,
        tokens: TokenValidator | None,
        counts: LoginCounts,
    ) -> None:
        config = context.config.for_listener(listener.name)
        self.mechanisms = [
            str(mechanism)
            for mechanism in config[SASL_ENABLED_MECHANISMS]
            if mechanism is not SaslMechanism.PLAIN
            or listener.protocol.has_tls
            or config[SASL_PLAIN_WITHOUT_TLS]
        ]
        self.max_receive_bytes = config[SASL_SERVER_MAX_RECEIVE_SIZE]
        self.max_frame_bytes = config[SOCKET_REQUEST_MAX_BYTES]
        self.failure_delay_seconds = config[CONNECTION_FAILED_AUTHENTICATION_DELAY_MS] / 1000
        self.monotonic = context.clock.monotonic
        self._lifetime_ms = config[CONNECTIONS_MAX_REAUTH_MS]
        self._context = context
        self._logger = logger
        self._accounts = accounts
        self._tokens = tokens
        self._counts = counts
        self._tasks: set[asyncio.Task[None]] = set()

    def exchange(self, mechanism: SaslMechanism, host: str) -> SaslExchange:
        if mechanism is SaslMechanism.PLAIN:
            return PlainExchange(self._accounts, host)
        if mechanism is SaslMechanism.OAUTHBEARER:
            assert self._tokens is not None
            return OauthExchange(self._tokens.validate)
        nonce = base64.b64encode(self._context.random.randbytes(NONCE_BYTES)).decode()
        return ScramExchange(ScramMechanism(mechanism), self._accounts, nonce)

    def is_gateway(self, user: str) -> bool:
        """True if a user may send requests on behalf of other users."""
        return user in self._context.config[GATEWAY_USERS]

    def expiry(self, login: Login | None) -> float | None:
        """Monotonic time in seconds at which a login expires; None if it does not expire, such as the login of a
        broker.
        """
        if login is None:
            return None
        limits = [self._lifetime_ms] if self._lifetime_ms else []
        if login.expires_ms is not None:
            limits.append(max(0, login.expires_ms - self._context.clock.now_ms()))
        return self.monotonic() + min(limits) / 1000 if limits else None

    def run(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def accepted(self, mechanism: SaslMechanism | None) -> None:
        self._counts.accepted += 1

    def failed(self, session: Session, mechanism: SaslMechanism | None, failure: LoginFailed) -> None:
        self._counts.failed += 1
        self._context.metrics.refused("failed login")
        self._logger.warning_rarely(
            "login failed",
            peer=session.peer,
            listener=session.listener,
            mechanism=str(mechanism),
            user=failure.user[:MAX_NAME_CHARACTERS],
            reason=failure.detail or str(failure),
        )
        if (audit := self._context.authorization.audit) is not None:
            audit.client_event(
                "login failed", principal=f"User:{failure.user}", host=session.host, mechanism=str(mechanism)
            )

    def refused(self, reason: str) -> None:
        self._context.metrics.refused(reason)
