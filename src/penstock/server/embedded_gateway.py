"""Gateway inside a broker: a client of the cluster like any other, with this broker as its bootstrap server."""

from __future__ import annotations

from penstock.clock import Clock
from penstock.config import BrokerConfig
from penstock.gateway.context import CLIENT_ID, ClusterAddress, GatewayContext
from penstock.gateway.http.remote_accounts import RemoteAccounts
from penstock.gateway.http.users import HttpUsers
from penstock.internal_client.inspection import InspectionCalls
from penstock.net.acting import acting_for
from penstock.observability.logs import Logger
from penstock.security.http_session import HttpLogin
from penstock.security.quota import QuotaKey
from penstock.server.context import BrokerContext
from penstock.server.environment import Environment
from penstock.server.http_accounts import HttpAccounts
from penstock.server.security import ANONYMOUS, Operation, Principal, ResourceType


class EmbeddedAccounts(RemoteAccounts):
    """Accounts of HTTP clients, checked by this broker. A ticket is redeemed at the broker that issued it."""

    def __init__(self, accounts: HttpAccounts, questions: InspectionCalls, clock: Clock) -> None:
        super().__init__(accounts.check_password, questions, clock)
        self._accounts = accounts

    async def check_token(self, token: str) -> HttpLogin | None:
        return await self._accounts.check_token(token)

    async def open_session(self, login: HttpLogin) -> str:
        return self._accounts.open_session(login.user)

    async def check_session(self, cookie: str) -> HttpLogin | None:
        return self._accounts.check_session(cookie)

    async def end_session(self, login: HttpLogin) -> None:
        await self._accounts.end_session(login)

    async def issue_ticket(self, login: HttpLogin) -> str:
        return self._accounts.issue_ticket(login)

    async def is_current(self, login: HttpLogin) -> bool:
        return self._accounts.is_current(login)


class BrokerUserQuota:
    """Quotas of the user whose HTTP request is being served. The user's Kafka connections to this broker count towards
    the same quotas.
    """

    def __init__(self, broker: BrokerContext) -> None:
        self._broker = broker

    async def wait_seconds(self, *, writes: bool) -> float:
        quotas = self._broker.quotas
        return 0.0 if quotas is None else quotas.wait_of_user(_principal().name, CLIENT_ID, writes=writes)

    def charge(self, *, received: int, sent: int) -> None:
        quotas = self._broker.quotas
        if quotas is not None:
            user = _principal().name
            quotas.charge(QuotaKey.PRODUCER_BYTE_RATE, user, CLIENT_ID, received)
            quotas.charge(QuotaKey.CONSUMER_BYTE_RATE, user, CLIENT_ID, sent)

    def charge_time(self, seconds: float) -> None:
        if self._broker.quotas is not None:
            self._broker.quotas.on_gateway_request(_principal().name, CLIENT_ID, seconds)


def gateway_context(
    broker: BrokerContext,
    config: BrokerConfig,
    own: ClusterAddress,
    environment: Environment,
    logger: Logger,
    users: HttpUsers | None,
) -> GatewayContext:
    """Return the context of the gateway. `own` is the address at which the broker reaches itself."""

    def authorize(host: str, operation: str, kind: str, name: str) -> bool:
        decide = broker.authorizer.authorize
        return decide(_principal(), host, Operation[operation], ResourceType[kind], name)

    def shows(host: str, operation: str, kind: str, name: str) -> bool:
        return broker.authorizer.shows(_principal(), host, Operation[operation], ResourceType[kind], name)

    return GatewayContext(
        own,
        config,
        environment.clock,
        environment.threads,
        logger,
        broker.metrics,
        broker.alarms,
        f"{broker.node_id}-{environment.random.getrandbits(32):08x}",
        authorize,
        shows=shows,
        users=users,
        quota=None if users is None else BrokerUserQuota(broker),
    )


def _principal() -> Principal:
    """Principal of the HTTP request that is being served."""
    actor = acting_for.get()
    return ANONYMOUS if actor is None else Principal("User", actor.user)
