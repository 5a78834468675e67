"""Accounts: the users of the cluster image, for logins.

Logins read only the cluster image, so they work while the coordination store cannot be reached. A login as a user that
does not exist runs against a decoy record, with the same work as for a wrong password, so that it does not reveal which
users exist.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from penstock.cluster.image import ClusterImage
from penstock.security.passwords import PasswordChecks, TooManyLogins
from penstock.security.scram import ScramMechanism, ScramRecord, decoy


@dataclass(frozen=True, slots=True)
class Account:
    """User and credential as they were at the start of a login."""

    user: str
    credential: str


class Accounts:
    def __init__(self, image: Callable[[], ClusterImage], checks: PasswordChecks) -> None:
        self._image = image
        self._checks = checks

    def scram(self, user: str, mechanism: ScramMechanism) -> tuple[Account | None, ScramRecord]:
        """Account and SCRAM record of a user. Returns None and a decoy record if the user cannot log in with the
        mechanism.
        """
        image = self._image()
        found = image.users.get(user)
        record = None if found is None or found.is_disabled else found.scram.get(mechanism)
        if found is None or record is None:
            return None, decoy(mechanism, user, image.secret)
        return Account(user, found.credential), record

    async def check_password(self, host: str, user: str, password: str) -> Account | None:
        """Account of the user if the password is right, otherwise None."""
        mechanism = self._mechanism_of(user)
        account, record = self.scram(user, mechanism)
        credential = "" if account is None else account.credential
        try:
            is_right = await self._checks.is_right(host, credential, mechanism, record, password)
        except TooManyLogins:
            return None
        if not is_right or account is None or not self.is_current(account):
            return None
        return account

    def is_current(self, account: Account) -> bool:
        """True if the user has not changed since the account was read."""
        found = self._image().users.get(account.user)
        return found is not None and not found.is_disabled and found.credential == account.credential

    def _mechanism_of(self, user: str) -> ScramMechanism:
        found = self._image().users.get(user)
        known = (ScramMechanism.SHA_256,) if found is None else tuple(found.scram)
        return ScramMechanism.SHA_256 if ScramMechanism.SHA_256 in known or not known else known[0]
