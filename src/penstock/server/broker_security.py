"""TLS of a broker: the certificates of its listeners, and the network for connections to other brokers."""

from __future__ import annotations

import ssl
from collections.abc import Callable
from functools import partial

from penstock.config import (
    CONNECTION_FAILED_AUTHENTICATION_DELAY_MS,
    HTTP_AUTHENTICATION_ENABLE,
    HTTP_PORT,
    HTTP_SSL_ENABLE,
    NODE_ID,
    SASL_ENABLED_MECHANISMS,
    SASL_OAUTHBEARER_JWKS_ENDPOINT_URL,
    SSL_RELOAD_INTERVAL_MS,
    Address,
    BrokerConfig,
    Listener,
    SaslMechanism,
)
from penstock.config.settings import HTTP_LISTENER
from penstock.errors import BrokerError
from penstock.gateway.context import ClusterAddress
from penstock.gateway.http.users import HttpUsers, user_of_certificate
from penstock.internal_client.inspection import InspectionCalls
from penstock.model import BrokerId
from penstock.net.broker_connection import BrokerConnection
from penstock.net.handshake_turns import HandshakeTurns
from penstock.net.login_network import LoginNetwork
from penstock.net.network import Network
from penstock.net.tls_network import TlsNetwork
from penstock.observability.logs import Logger
from penstock.observability.metrics import BrokerMetrics
from penstock.replication.authentication import prove
from penstock.security.oauth import TokenValidator
from penstock.security.passwords import PasswordChecks
from penstock.security.tls_context import TlsSettings, load_client, load_server
from penstock.security.tls_reload import CertificateReloads, ReloadingTls
from penstock.server.context import BrokerContext
from penstock.server.door import Door
from penstock.server.embedded_gateway import EmbeddedAccounts
from penstock.server.environment import Environment
from penstock.server.free_memory import return_free_memory
from penstock.server.http_accounts import HttpAccounts
from penstock.server.sasl.accounts import Accounts
from penstock.server.sasl.service import LoginCounts, SaslService
from penstock.server.security import AllowAll, Authorizer
from penstock.wire.broker_handshake import ANY_BROKER


class BrokerSecurity:
    def __init__(
        self,
        environment: Environment,
        logger: Logger,
        config: BrokerConfig,
        in_force: Callable[[], BrokerConfig],
        secret: Callable[[], str | None],
    ) -> None:
        """`config` is the configuration at the start, `in_force` returns the configuration with dynamic changes, and
        `secret` returns the cluster secret.
        """
        self.reloads = CertificateReloads(environment.threads, environment.clock, logger)
        self.network: Network = environment.network
        """Network for connections to other brokers."""
        self.logins = LoginCounts()
        self._environment = environment
        self._logger = logger
        self._in_force = in_force
        self._turns = HandshakeTurns(self._after_many_handshakes)
        self._is_stopped = False
        self._passwords = PasswordChecks(environment.threads, environment.random)
        self._tokens: TokenValidator | None = None
        self._listeners = config.listeners.listeners
        encrypted = [listener.name for listener in self._listeners if listener.protocol.has_tls]
        if config[HTTP_SSL_ENABLE] and config[HTTP_PORT] >= 0:
            encrypted.append(HTTP_LISTENER)
        self._certificates = {
            name: ReloadingTls(f"listener {name}", partial(self._settings, name), load_server)
            for name in encrypted
        }
        self._peers: ReloadingTls | None = None
        self._connect_to_brokers(config.listeners.inter_broker)
        self._node_id = BrokerId(config[NODE_ID])
        self._secret = secret

    def _connect_to_brokers(self, listener: Listener) -> None:
        """Create the network for connections to other brokers, which go to this listener."""
        if listener.protocol.has_tls:
            peers = self._peers = ReloadingTls(
                "connections to brokers", partial(self._settings, listener.name), load_client
            )
            self.network = TlsNetwork(self.network, lambda: peers.current.context)
        if listener.protocol.has_sasl:
            self.network = LoginNetwork(self.network, self._log_in)

    async def start(self, context: BrokerContext) -> None:
        """Apply the access control lists and quotas, load all certificates, and start to load the keys that verify
        OAuth tokens. Raises ConfigError if a certificate cannot be used.
        """
        context.apply_policy()
        contexts = [*self._certificates.values(), *([self._peers] if self._peers is not None else [])]
        await self.reloads.start(contexts, lambda: self._in_force()[SSL_RELOAD_INTERVAL_MS] / 1000)

        config = self._in_force()
        takes_tokens = any(_takes_tokens(config, listener) for listener in self._listeners)
        if takes_tokens or (
            config[HTTP_AUTHENTICATION_ENABLE] and config[SASL_OAUTHBEARER_JWKS_ENDPOINT_URL] is not None
        ):
            environment = self._environment
            self._tokens = TokenValidator(config, environment.threads, environment.clock, self._logger)
            self._tokens.start()
        context.http_accounts = HttpAccounts(context, self.accounts(context), self._tokens, self._logger)

    async def stop(self) -> None:
        self._is_stopped = True
        await self.reloads.stop()
        if self._tokens is not None:
            await self._tokens.stop()

    def door(self, listener: Listener, context: BrokerContext) -> Door:
        tls = self._certificates.get(listener.name)
        sasl = None
        if listener.protocol.has_sasl:
            accounts = self.accounts(context)
            sasl = SaslService(listener, context, self._logger, accounts, self._tokens, self.logins)
        return Door(listener, context, self._logger, self._turns, tls, sasl)

    def accounts(self, context: BrokerContext) -> Accounts:
        """User accounts of the cluster. All listeners share one cache of password checks."""
        return Accounts(lambda: context.image, self._passwords)

    def gateway_network(self, config: BrokerConfig, authorizer: Authorizer) -> Network:
        """Network of the gateway in this broker. If authorization or HTTP authentication is on, its connections prove
        the cluster secret: the gateway may then name the client on whose behalf it sends each request.
        """
        is_open = isinstance(authorizer, AllowAll) and not config[HTTP_AUTHENTICATION_ENABLE]
        if is_open or isinstance(self.network, LoginNetwork):
            return self.network
        return LoginNetwork(self.network, self._log_in)

    def own_cluster(self, config: BrokerConfig, authorizer: Authorizer, address: Address) -> ClusterAddress:
        """Cluster address for clients inside this broker. They connect to this broker at `address`, whatever address it
        advertises.
        """
        return ClusterAddress(self.gateway_network(config, authorizer), [address], {self._node_id: address})

    def http_tls(self) -> Callable[[], ssl.SSLContext] | None:
        """Return a function that gives the TLS context for HTTP connections; None without TLS."""
        loaded = self._certificates.get(HTTP_LISTENER)
        return None if loaded is None else lambda: loaded.current.context

    def http_users(self, context: BrokerContext, own: ClusterAddress) -> HttpUsers | None:
        """Return the object that authenticates HTTP requests; None if `http.authentication.enable` is off."""
        config = context.config
        if not config[HTTP_AUTHENTICATION_ENABLE]:
            return None
        assert context.http_accounts is not None
        questions = InspectionCalls(own.routes())
        accounts = EmbeddedAccounts(context.http_accounts, questions, context.clock)
        delay_seconds = config[CONNECTION_FAILED_AUTHENTICATION_DELAY_MS] / 1000

        def record(host: str, user: str, scheme: str) -> None:
            context.metrics.refused("failed login")
            if (audit := context.authorization.audit) is not None:
                audit.client_event(
                    "login failed", principal=f"User:{user}", host=host, mechanism=f"HTTP {scheme[:20]}"
                )

        return HttpUsers(accounts, delay_seconds, user_of_certificate(config), record)

    def show(self, metrics: BrokerMetrics) -> None:
        self.reloads.show(metrics)
        metrics.add_counter(
            "penstock_logins", "Logins by SASL, of clients and brokers.", lambda: self.logins.accepted
        )
        metrics.add_counter("penstock_logins_failed", "Failed logins by SASL.", lambda: self.logins.failed)

    async def _log_in(self, connection: BrokerConnection) -> None:
        """Authenticate a connection to another broker, or to this one, with the cluster secret."""
        try:
            random = self._environment.random
            await prove(connection, self._secret(), self._node_id, ANY_BROKER, random)
        except BrokerError as error:
            raise ConnectionError(str(error)) from error

    def _after_many_handshakes(self) -> None:
        if not self._is_stopped:
            self._environment.threads.run("background", return_free_memory)

    def _settings(self, listener: str) -> TlsSettings:
        return TlsSettings.of(self._in_force().for_listener(listener))


def _takes_tokens(config: BrokerConfig, listener: Listener) -> bool:
    mechanisms = config.for_listener(listener.name)[SASL_ENABLED_MECHANISMS]
    return listener.protocol.has_sasl and SaslMechanism.OAUTHBEARER in mechanisms
