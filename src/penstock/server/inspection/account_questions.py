"""Questions of gateways about the logins of their clients: accounts, tokens, browser sessions and one-time tickets."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from penstock.errors import BrokerError, ErrorCode
from penstock.security.http_session import HttpLogin
from penstock.server.context import BrokerContext
from penstock.server.http_accounts import HttpAccounts
from penstock.server.inspection.question import Answer, Arguments, Question, integer, text
from penstock.server.security import Operation


def _accounts(context: BrokerContext) -> HttpAccounts:
    assert context.http_accounts is not None, "the broker has not started"
    return context.http_accounts


async def _check_token(context: BrokerContext, arguments: Arguments) -> dict[str, Any]:
    return _shown(await _accounts(context).check_token(text(arguments, "credentials")))


async def _check_session(context: BrokerContext, arguments: Arguments) -> dict[str, Any]:
    return _shown(_accounts(context).check_session(text(arguments, "credentials")))


async def _open_session(context: BrokerContext, arguments: Arguments) -> dict[str, Any]:
    return {"cookie": _accounts(context).open_session(text(arguments, "user"))}


async def _end_session(context: BrokerContext, arguments: Arguments) -> dict[str, Any]:
    await _accounts(context).end_session(_login(arguments))
    return {}


async def _find_account(context: BrokerContext, arguments: Arguments) -> dict[str, Any]:
    user = context.image.users.get(text(arguments, "user"))
    return _shown(None if user is None or user.is_disabled else HttpLogin(user.name, user.credential))


async def _issue_ticket(context: BrokerContext, arguments: Arguments) -> dict[str, Any]:
    return {"ticket": _accounts(context).issue_ticket(_login(arguments))}


async def _redeem_ticket(context: BrokerContext, arguments: Arguments) -> dict[str, Any]:
    return _shown(_accounts(context).redeem_ticket(text(arguments, "ticket")))


async def _is_current(context: BrokerContext, arguments: Arguments) -> dict[str, Any]:
    return {"is_current": _accounts(context).is_current(_login(arguments))}


def _shown(login: HttpLogin | None) -> dict[str, Any]:
    return {"login": None if login is None else asdict(login)}


def _login(arguments: Arguments) -> HttpLogin:
    user = text(arguments, "user")
    if not user:
        raise BrokerError(ErrorCode.invalid_request, "the login has no user")
    credential, token_id = text(arguments, "credential"), text(arguments, "token_id")
    expires_ms, csrf = integer(arguments, "expires_ms"), text(arguments, "csrf")
    return HttpLogin(user, credential, token_id, expires_ms, csrf, text(arguments, "session_id"))


def _question(name: str, answer: Answer) -> Question:
    return Question(name, Operation.CLUSTER_ACTION, answer, is_for_gateways=True)


ACCOUNT_QUESTIONS = (
    _question("find_account", _find_account),
    _question("check_token", _check_token),
    _question("check_session", _check_session),
    _question("open_session", _open_session),
    _question("end_session", _end_session),
    _question("issue_ticket", _issue_ticket),
    _question("redeem_ticket", _redeem_ticket),
    _question("is_current", _is_current),
)
