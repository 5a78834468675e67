"""One listener of the broker with its settings, its TLS certificate, its SASL mechanisms and its connection count."""

from __future__ import annotations

from penstock.config import (
    CONNECTION_MAX_IN_FLIGHT_BYTES,
    CONNECTION_MAX_IN_FLIGHT_REQUESTS,
    GATEWAY_USERS,
    SOCKET_REQUEST_MAX_BYTES,
    SSL_HANDSHAKE_TIMEOUT_MS,
    SSL_PRINCIPAL_MAPPING_RULES,
    Listener,
)
from penstock.config.settings import ListenerConfig
from penstock.net.connection import ConnectionLimits
from penstock.net.handshake_turns import HandshakeTurns
from penstock.net.network import Socket
from penstock.net.tls_socket import TlsSocket
from penstock.observability.logs import Logger
from penstock.security.subject import format_subject
from penstock.security.tls_reload import ReloadingTls
from penstock.server.context import BrokerContext
from penstock.server.dispatch import Session
from penstock.server.sasl.service import SaslService
from penstock.server.security import Principal


class Door:
    def __init__(
        self,
        listener: Listener,
        context: BrokerContext,
        logger: Logger,
        turns: HandshakeTurns,
        tls: ReloadingTls | None = None,
        sasl: SaslService | None = None,
    ) -> None:
        """`tls` has the certificate of a listener with TLS, and `sasl` the mechanisms of a listener with SASL. `turns`
        is shared by all listeners.
        """
        self.listener = listener
        self.tls = tls
        self.sasl = sasl
        self.connections = 0
        self._context = context
        self._logger = logger
        self._turns = turns
        config = self.config
        self.limits = ConnectionLimits(
            max_frame_bytes=config[SOCKET_REQUEST_MAX_BYTES],
            max_in_flight_requests=config[CONNECTION_MAX_IN_FLIGHT_REQUESTS],
            max_unsent_bytes=config[CONNECTION_MAX_IN_FLIGHT_BYTES],
        )

    @property
    def config(self) -> ListenerConfig:
        return self._context.config.for_listener(self.listener.name)

    @property
    def login_seconds(self) -> float:
        """Time in seconds within which a client must have logged in, including the TLS handshake."""
        steps = 2 if self.tls is not None else 1
        return steps * self.config[SSL_HANDSHAKE_TIMEOUT_MS] / 1000

    def wrap(self, socket: Socket, session: Session) -> Socket:
        """Return the socket of a new connection, wrapped in TLS if the listener has TLS."""
        if self.tls is None:
            return socket
        loaded = self.tls.current
        session.binding = loaded.fingerprint

        def on_end(tls_socket: TlsSocket, reason: str | None) -> None:
            if reason is None:
                reason = self._identify(tls_socket, session)
            if reason is not None:
                self._context.metrics.refused("TLS handshake")
                self._logger.warning_rarely(
                    "TLS handshake failed", peer=session.peer, listener=self.listener.name, reason=reason
                )

        return TlsSocket(
            socket,
            lambda incoming, outgoing: loaded.context.wrap_bio(incoming, outgoing, server_side=True),
            self._turns,
            self.config[SSL_HANDSHAKE_TIMEOUT_MS] / 1000,
            on_end,
        )

    def _identify(self, socket: TlsSocket, session: Session) -> str | None:
        """Set the principal from the client's certificate, if the client sent one. Returns the reason to refuse the
        client, or None.
        """
        assert socket.tls is not None
        certificate = socket.tls.getpeercert(binary_form=True)
        if certificate is None or self.listener.protocol.has_sasl:
            return None
        subject = format_subject(certificate)
        user = self.config[SSL_PRINCIPAL_MAPPING_RULES].user_of(subject)
        if not user:
            socket.refuse("no rule of ssl.principal.mapping.rules matches the subject of the certificate")
            return f"no rule of ssl.principal.mapping.rules matches the subject {subject[:200]!r}"
        session.principal = Principal("User", user)
        session.is_gateway = user in self._context.config[GATEWAY_USERS]
        return None
