"""Users and their SCRAM credentials: describe, set a password, delete."""

from __future__ import annotations

import ssl
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from penstock.internal_client.api import ClientApi, check_error
from penstock.internal_client.routes import Routes
from penstock.security.scram import MIN_ITERATIONS, SALT_BYTES, ScramMechanism, salted_password

_DESCRIBE_USER_SCRAM_CREDENTIALS = ClientApi(50, 0)
_ALTER_USER_SCRAM_CREDENTIALS = ClientApi(51, 0)


@dataclass(frozen=True, slots=True)
class UserDescription:
    name: str
    mechanisms: dict[str, int]
    """Iterations by mechanism."""


class UserCalls:
    def __init__(self, routes: Routes) -> None:
        self._routes = routes

    async def describe(self, names: Sequence[str] = ()) -> list[UserDescription]:
        """Return these users, or all. BrokerError RESOURCE_NOT_FOUND if a user does not exist."""
        fields = {"users": [{"name": name} for name in names] or None}
        response = await self._routes.at_any(lambda each: _DESCRIBE_USER_SCRAM_CREDENTIALS.call(each, fields))
        check_error(response.error_code, response.error_message)
        for result in response.results:
            check_error(result.error_code, result.error_message)
        return [_description(result) for result in response.results]

    async def set_password(self, name: str, password: str) -> None:
        """Create a user or change its password, for all mechanisms. The password stays in this process."""
        upsertions = []
        for mechanism in ScramMechanism:
            salt = ssl.RAND_bytes(SALT_BYTES)
            upsertions.append(
                {
                    "name": name,
                    "mechanism": mechanism.code,
                    "iterations": MIN_ITERATIONS,
                    "salt": salt,
                    "salted_password": salted_password(mechanism, password, salt, MIN_ITERATIONS),
                }
            )
        await self._alter({"deletions": (), "upsertions": upsertions})

    async def delete(self, user: UserDescription) -> None:
        codes = {str(mechanism): mechanism.code for mechanism in ScramMechanism}
        deletions = [{"name": user.name, "mechanism": codes[each]} for each in user.mechanisms]
        await self._alter({"deletions": deletions, "upsertions": ()})

    async def _alter(self, fields: dict[str, Any]) -> None:
        response = await self._routes.at_any(lambda each: _ALTER_USER_SCRAM_CREDENTIALS.call(each, fields))
        for result in response.results:
            check_error(result.error_code, result.error_message)


def _description(result: Any) -> UserDescription:
    mechanisms = {
        str(ScramMechanism.of_code(info.mechanism) or info.mechanism): info.iterations
        for info in result.credential_infos
    }
    return UserDescription(result.user, mechanisms)
