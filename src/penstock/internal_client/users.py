"""Users of a cluster: describe, set a password, disable, delete, and their access tokens."""

from __future__ import annotations

import ssl
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from penstock.errors import BrokerError, ErrorCode
from penstock.internal_client.api import ClientApi, check_error
from penstock.internal_client.inspection import InspectionCalls
from penstock.internal_client.routes import Routes
from penstock.security.access_token import ID_BYTES, SECRET_BYTES, AccessToken
from penstock.security.scram import MIN_ITERATIONS, SALT_BYTES, ScramMechanism, salted_password

_DESCRIBE_USER_SCRAM_CREDENTIALS = ClientApi(50, 0)
_ALTER_USER_SCRAM_CREDENTIALS = ClientApi(51, 0)
Credential = Mapping[str, str | int | bytes]
"""Element of `upsertions` in AlterUserScramCredentials."""


@dataclass(frozen=True, slots=True)
class TokenDescription:
    id: str
    label: str
    created_ms: int
    expires_ms: int
    """Time at which the token expires, in milliseconds since the epoch; 0 if it does not expire."""


@dataclass(frozen=True, slots=True)
class UserDescription:
    name: str
    mechanisms: dict[str, int]
    """Number of iterations by SCRAM mechanism."""
    is_disabled: bool = False
    tokens: tuple[TokenDescription, ...] = ()


def new_credentials(name: str, password: str) -> list[Credential]:
    """Credentials of a user for all mechanisms, with new salts. Takes some 20 ms, so do not call it on an
    event loop.
    """
    credentials: list[Credential] = []
    for mechanism in ScramMechanism:
        salt = ssl.RAND_bytes(SALT_BYTES)
        salted = salted_password(mechanism, password, salt, MIN_ITERATIONS)
        described: Credential = {"name": name, "mechanism": mechanism.code, "iterations": MIN_ITERATIONS}
        credentials.append({**described, "salt": salt, "salted_password": salted})
    return credentials


class UserCalls:
    def __init__(self, routes: Routes) -> None:
        self._routes = routes
        self._questions = InspectionCalls(routes)

    async def describe(self, names: Sequence[str] = ()) -> list[UserDescription]:
        """Describe these users, or all. Raises BrokerError RESOURCE_NOT_FOUND if a user does not exist."""
        fields = {"users": [{"name": name} for name in names] or None}
        response = await self._routes.at_any(lambda each: _DESCRIBE_USER_SCRAM_CREDENTIALS.call(each, fields))
        check_error(response.error_code, response.error_message)
        for result in response.results:
            if result.error_code == ErrorCode.resource_not_found:
                raise BrokerError(ErrorCode.resource_not_found, f"there is no user {result.user!r}")
            check_error(result.error_code, result.error_message)
        more = {each["name"]: each for each in await self._more(names)}
        return [_description(result, more.get(result.user, {})) for result in response.results]

    async def _more(self, names: Sequence[str]) -> list[Any]:
        wanted = [{"user": name} for name in names] or [{}]
        answers = [await self._questions.ask_any("users", each) for each in wanted]
        return [user for answer in answers for user in answer["users"]]

    async def set_disabled(self, name: str, is_disabled: bool) -> None:
        """Disable a user, which ends its connections, or enable it."""
        await self._questions.ask_any("disable_user", {"user": name, "disabled": int(is_disabled)})

    async def create_token(self, name: str, label: str, lifetime_ms: int) -> AccessToken:
        """Create an access token. The secret is not sent to the cluster. A lifetime of 0 means that it never
        expires.
        """
        token = AccessToken(name, ssl.RAND_bytes(ID_BYTES).hex(), ssl.RAND_bytes(SECRET_BYTES))
        fields: dict[str, int | str | list[str]] = {"user": name, "id": token.id, "label": label}
        fields |= {"digest": token.digest.hex(), "lifetime_ms": lifetime_ms}
        await self._questions.ask_any("add_token", fields)
        return token

    async def revoke_token(self, name: str, token_id: str) -> None:
        await self._questions.ask_any("revoke_token", {"user": name, "id": token_id})

    async def set_password(self, name: str, password: str) -> None:
        """Create a user or change its password, for all mechanisms. The password is not sent to the cluster."""
        await self.put_credentials(new_credentials(name, password))

    async def put_credentials(self, credentials: Sequence[Credential]) -> None:
        """Create a user or replace its credentials. `credentials` are from `new_credentials`."""
        await self._alter({"deletions": (), "upsertions": credentials})

    async def delete(self, user: UserDescription) -> None:
        codes = {str(mechanism): mechanism.code for mechanism in ScramMechanism}
        deletions = [{"name": user.name, "mechanism": codes[each]} for each in user.mechanisms]
        await self._alter({"deletions": deletions, "upsertions": ()})

    async def _alter(self, fields: dict[str, Any]) -> None:
        response = await self._routes.at_any(lambda each: _ALTER_USER_SCRAM_CREDENTIALS.call(each, fields))
        for result in response.results:
            check_error(result.error_code, result.error_message)


def _description(result: Any, more: Mapping[str, Any]) -> UserDescription:
    mechanisms = {
        str(ScramMechanism.of_code(info.mechanism) or info.mechanism): info.iterations
        for info in result.credential_infos
    }
    tokens = tuple(TokenDescription(**token) for token in more.get("tokens", ()))
    return UserDescription(result.user, mechanisms, more.get("disabled", False), tokens)
