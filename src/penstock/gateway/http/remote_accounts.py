"""Accounts of HTTP clients, which brokers keep: tokens, sessions and tickets.

`RemoteAccounts` asks a broker by requests. A gateway inside a broker uses a subclass that asks its own broker directly
if possible (`server/embedded_gateway.py`).
Every method raises Unreachable if no broker responds. Loop thread only.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import asdict
from typing import Any

from penstock.clock import Clock
from penstock.errors import BrokerError, ErrorCode
from penstock.gateway.http.problems import Problem
from penstock.internal_client.inspection import InspectionCalls
from penstock.model import BrokerId
from penstock.security.http_session import HttpLogin

CheckPassword = Callable[[str, str, str], Awaitable[HttpLogin | None]]
"""Function that returns the login for a client's address, a user and a password; None if they are wrong."""
KEPT_SECONDS = 2.0
MAX_KEPT = 10_000


class RemoteAccounts:
    def __init__(self, check_password: CheckPassword, questions: InspectionCalls, clock: Clock) -> None:
        self.check_password = check_password
        self._questions = questions
        self._clock = clock
        self._kept: dict[tuple[str, str], tuple[HttpLogin, float]] = {}
        """Logins by question and credentials, each with the monotonic time in seconds at which it expires."""

    def close(self) -> None:
        self._questions.close()

    async def check_token(self, token: str) -> HttpLogin | None:
        """Return the login of an access token, or of a token of the configured issuer; None if it is not valid."""
        return await self._find("check_token", token)

    async def open_session(self, login: HttpLogin) -> str:
        """Open a session, and return its cookie."""
        return str((await self._questions.ask_any("open_session", {"user": login.user}))["cookie"])

    async def check_session(self, cookie: str) -> HttpLogin | None:
        return await self._find("check_session", cookie)

    async def end_session(self, login: HttpLogin) -> None:
        """End the session of a browser. All gateways refuse it within seconds. Other logins stay unchanged."""
        await self._questions.ask_any("end_session", dict(asdict(login)))
        self._kept.clear()

    async def issue_ticket(self, login: HttpLogin) -> str:
        """Return a one-time ticket for this login, which expires after some seconds."""
        arguments: dict[str, int | str | list[str]] = dict(asdict(login))
        return str((await self._questions.ask_any("issue_ticket", arguments))["ticket"])

    async def redeem_ticket(self, ticket: str) -> HttpLogin | None:
        """Ask the broker that issued a ticket for its login; None if the ticket was used, has expired or is invalid."""
        node_id, _, _ = ticket.partition(".")
        if not node_id.isdecimal() or len(node_id) > 9:
            return None
        try:
            answer = await self._questions.ask(BrokerId(int(node_id)), "redeem_ticket", {"ticket": ticket})
        except BrokerError as error:
            if error.code is ErrorCode.broker_not_available:
                return None
            raise
        return _login(answer)

    async def is_current(self, login: HttpLogin) -> bool:
        """True if a login, used for a long poll or stream, is still valid."""
        return bool((await self._questions.ask_any("is_current", dict(asdict(login))))["is_current"])

    async def _find(self, question: str, credentials: str) -> HttpLogin | None:
        now = self._clock.monotonic()
        kept = self._kept.get((question, credentials))
        if kept is not None and kept[1] > now:
            return kept[0]
        login = _login(await self._questions.ask_any(question, {"credentials": credentials}))
        if login is not None:
            if len(self._kept) >= MAX_KEPT:
                self._kept.clear()
            self._kept[question, credentials] = login, now + KEPT_SECONDS
        return login


async def find_account(questions: InspectionCalls, user: str) -> HttpLogin | None:
    """Return the login for the current credentials of a user; None if there is no such user."""
    try:
        return _login(await questions.ask_any("find_account", {"user": user}))
    except BrokerError as error:
        if error.code is ErrorCode.cluster_authorization_failed:
            raise Problem(503, f"the gateway may not act for its users: {error}") from error
        raise


def _login(answer: Mapping[str, Any]) -> HttpLogin | None:
    return HttpLogin(**answer["login"]) if answer["login"] is not None else None
