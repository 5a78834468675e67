"""Security of a stand-alone gateway: its TLS certificate, and authentication of HTTP users by the brokers.

The gateway checks a password by logging in to a broker with it, in a thread pool, because this takes milliseconds of
processor time. A correct password is cached for a few seconds only, so that the gateway soon notices a changed or
deleted user.
"""

from __future__ import annotations

import asyncio
import hmac
import secrets
import ssl
from collections.abc import Callable, Sequence

from penstock.clock import Clock
from penstock.config import (
    CONNECTION_FAILED_AUTHENTICATION_DELAY_MS,
    HTTP_AUTHENTICATION_ENABLE,
    HTTP_SSL_ENABLE,
    SSL_RELOAD_INTERVAL_MS,
    Address,
    BrokerConfig,
)
from penstock.config.settings import HTTP_LISTENER
from penstock.gateway.context import ClusterAddress
from penstock.gateway.http.remote_accounts import RemoteAccounts, find_account
from penstock.gateway.http.users import HttpUsers, user_of_certificate
from penstock.internal_client.client_security import ClientSecurity
from penstock.internal_client.inspection import InspectionCalls
from penstock.net.network import TcpNetwork
from penstock.observability.logs import Logger
from penstock.security.http_session import HttpLogin
from penstock.security.tls_context import TlsSettings, load_server
from penstock.security.tls_reload import CertificateReloads, ReloadingTls
from penstock.threads import Threads
from penstock.unreachable import LoginRefused, Unreachable

REMEMBERED_SECONDS = 5.0
MAX_REMEMBERED = 1_000
LOGIN_SECONDS = 10.0


class GatewaySecurity:
    def __init__(self, config: BrokerConfig, threads: Threads, clock: Clock, log: Logger) -> None:
        self.reloads = CertificateReloads(threads, clock, log)
        self._config = config
        self._certificate: ReloadingTls | None = None
        if config[HTTP_SSL_ENABLE]:
            settings = TlsSettings.of(config.for_listener(HTTP_LISTENER))
            self._certificate = ReloadingTls("HTTP", lambda: settings, load_server)

    async def start(self) -> Callable[[], ssl.SSLContext] | None:
        """Read the certificate and return a function that returns the current TLS context; None without TLS. Raises
        ConfigError.
        """
        certificate = self._certificate
        if certificate is None:
            return None
        await self.reloads.start([certificate], lambda: self._config[SSL_RELOAD_INTERVAL_MS] / 1000)
        return lambda: certificate.current.context

    async def stop(self) -> None:
        await self.reloads.stop()


class BrokerLogins:
    """Check of passwords by a login at a broker."""

    def __init__(
        self,
        bootstrap: Sequence[Address],
        own: ClientSecurity,
        questions: InspectionCalls,
        threads: Threads,
        clock: Clock,
    ) -> None:
        self._bootstrap = bootstrap
        self._ca = own.ca
        self._questions = questions
        self._threads = threads
        self._clock = clock
        self._key = secrets.token_bytes(32)
        self._right: dict[bytes, tuple[HttpLogin, float]] = {}

    async def check(self, host: str, user: str, password: str) -> HttpLogin | None:
        """Return the login of a user if the password is correct. Raises Unreachable if no broker responds."""
        digest = hmac.digest(self._key, f"{user}\0{password}".encode(), "sha256")
        now = self._clock.monotonic()
        known = self._right.get(digest)
        if known is not None and known[1] > now:
            return known[0]
        # The account is read before the password is checked. If the user changes in between, the login is already
        # invalid.
        account = await find_account(self._questions, user)
        security = ClientSecurity(self._ca, None, user, password)
        if not await self._threads.run("passwords", lambda: asyncio.run(self._log_in(security))):
            return None
        if account is not None:
            if len(self._right) >= MAX_REMEMBERED:
                self._right.clear()
            self._right[digest] = account, now + REMEMBERED_SECONDS
        return account

    async def _log_in(self, security: ClientSecurity) -> bool:
        problems: dict[Address, OSError] = {}
        network = security.network(TcpNetwork())
        for address in self._bootstrap:
            try:
                async with asyncio.timeout(LOGIN_SECONDS):
                    socket = await network.connect(address.host, address.port)
            except LoginRefused:
                return False
            except OSError as error:
                problems[address] = error
            else:
                socket.close()
                return True
        raise Unreachable(problems)


def gateway_users(
    config: BrokerConfig, cluster: ClusterAddress, own: ClientSecurity, threads: Threads, clock: Clock
) -> tuple[HttpUsers, InspectionCalls] | None:
    """Return the users of a stand-alone gateway, and the connection for its questions to brokers; None if HTTP
    authentication is disabled.
    """
    if not config[HTTP_AUTHENTICATION_ENABLE]:
        return None
    questions = InspectionCalls(cluster.routes())
    logins = BrokerLogins(cluster.bootstrap, own, questions, threads, clock)
    accounts = RemoteAccounts(logins.check, questions, clock)
    delay_seconds = config[CONNECTION_FAILED_AUTHENTICATION_DELAY_MS] / 1000
    return HttpUsers(accounts, delay_seconds, user_of_certificate(config)), questions
