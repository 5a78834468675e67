"""Authentication of HTTP clients at a broker: passwords, access tokens, sessions of browsers, and one-time tickets.

All of these except tickets are checked against the cluster image. A ticket exists only in the memory of the broker that
issued it, until it is used, so it cannot be accepted twice. Loop thread only.
"""

from __future__ import annotations

from penstock.config import HTTP_SESSION_LIFETIME_MS
from penstock.errors import BrokerError, ErrorCode
from penstock.observability.logs import Logger
from penstock.security.access_token import PREFIX, AccessToken, parse_token
from penstock.security.http_session import HttpLogin, read_session, session_key, sign_session
from penstock.security.oauth import TokenRefused, TokenValidator
from penstock.server.context import BrokerContext
from penstock.server.sasl.accounts import Accounts

TICKET_SECONDS = 30.0
MAX_TICKETS = 10_000
_RANDOM_BYTES = 16


class HttpAccounts:
    def __init__(
        self, context: BrokerContext, accounts: Accounts, tokens: TokenValidator | None, logger: Logger
    ) -> None:
        self._context = context
        self._accounts = accounts
        self._tokens = tokens
        self._logger = logger
        self._tickets: dict[str, tuple[HttpLogin, float]] = {}
        """Login of each ticket, and the monotonic time in seconds at which the ticket expires; oldest first."""

    async def check_password(self, host: str, user: str, password: str) -> HttpLogin | None:
        account = await self._accounts.check_password(host, user, password)
        return None if account is None else HttpLogin(account.user, account.credential)

    async def check_token(self, text: str) -> HttpLogin | None:
        if text.startswith(PREFIX):
            token = parse_token(text)
            return None if token is None else self._check_own(token)
        if self._tokens is None:
            return None
        try:
            found = await self._tokens.validate(text)
        except TokenRefused as refusal:
            self._logger.warning_rarely("HTTP token refused", reason=str(refusal))
            return None
        return HttpLogin(found.user, expires_ms=found.expires_ms or 0)

    def _check_own(self, token: AccessToken) -> HttpLogin | None:
        user = self._context.image.users.get(token.user)
        record = None if user is None else user.tokens.get(token.id)
        if user is None or record is None or not token.matches(record):
            return None
        login = HttpLogin(user.name, user.credential, token.id, record.expires_ms)
        return login if self.is_current(login) else None

    def open_session(self, user: str) -> str:
        """Open a session and return its cookie. Raises BrokerError RESOURCE_NOT_FOUND if the user does not exist or is
        disabled.
        """
        found = self._context.image.users.get(user)
        if found is None or found.is_disabled:
            raise BrokerError(ErrorCode.resource_not_found, "the user does not exist or is disabled")
        expires_ms = self._context.clock.now_ms() + self._context.config[HTTP_SESSION_LIFETIME_MS]
        nonce = self._context.random.randbytes(_RANDOM_BYTES)
        return sign_session(self._key, user, found.credential, expires_ms, nonce)

    def check_session(self, cookie: str) -> HttpLogin | None:
        login = read_session(self._key, cookie)
        return login if login is not None and self.is_current(login) else None

    async def end_session(self, login: HttpLogin) -> None:
        """End the session of a browser at all gateways. Does nothing for a login without a session."""
        if login.session_id:
            users = self._context.administration.users
            await users.end_session(login.user, login.session_id, login.expires_ms)

    def issue_ticket(self, login: HttpLogin) -> str:
        now = self._context.clock.monotonic()
        for ticket, (_, expires) in tuple(self._tickets.items()):
            if expires > now:
                break
            del self._tickets[ticket]
        if len(self._tickets) >= MAX_TICKETS:
            raise BrokerError(ErrorCode.throttling_quota_exceeded, "too many tickets were issued; try again")
        ticket = f"{self._context.node_id}.{self._context.random.randbytes(_RANDOM_BYTES).hex()}"
        self._tickets[ticket] = login, now + TICKET_SECONDS
        return ticket

    def redeem_ticket(self, ticket: str) -> HttpLogin | None:
        login, expires = self._tickets.pop(ticket, (None, 0.0))
        if login is None or expires <= self._context.clock.monotonic():
            return None
        return login if self.is_current(login) else None

    def is_current(self, login: HttpLogin) -> bool:
        """True if the login is still valid: it has not expired, and its user and its token exist unchanged."""
        now_ms = self._context.clock.now_ms()
        if login.expires_ms and login.expires_ms <= now_ms:
            return False
        if not login.credential:
            return True  # a token of an issuer
        user = self._context.image.users.get(login.user)
        if user is None or user.is_disabled:
            return False
        if login.token_id:
            return login.token_id in user.tokens
        if login.session_id and user.has_ended(login.session_id, login.expires_ms):
            return False
        return user.credential == login.credential

    @property
    def _key(self) -> bytes:
        return session_key(self._context.replicas.secret or "")
