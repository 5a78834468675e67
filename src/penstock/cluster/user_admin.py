"""Changes of users beside their SCRAM credentials: disabling them, their access tokens, the ends of their sessions."""

from __future__ import annotations

from random import Random  # noqa: TID251 - the type; the numbers come from the caller

from penstock.cluster.change_maker import ChangeMaker
from penstock.cluster.users import add_token, end_session, remove_token, set_disabled
from penstock.security.access_token import TokenRecord


class UserAdministration:
    """Every method raises BrokerError, RESOURCE_NOT_FOUND if the user does not exist.

    A change that looks made already is not written, so each method learns first what other brokers have acknowledged.
    """

    def __init__(self, changes: ChangeMaker, random: Random) -> None:
        self._changes = changes
        self._random = random

    async def set_disabled(self, user: str, is_disabled: bool) -> None:
        """Disable a user, or enable it again; a user that is so already keeps its sessions."""
        credential = f"{self._random.getrandbits(64):016x}"
        await self._changes.confirm()
        await self._changes.make(lambda image: set_disabled(image, user, is_disabled, credential))

    async def add_token(self, user: str, token_id: str, record: TokenRecord) -> None:
        await self._changes.confirm()
        await self._changes.make(lambda image: add_token(image, user, token_id, record))

    async def remove_token(self, user: str, token_id: str) -> None:
        await self._changes.confirm()
        await self._changes.make(lambda image: remove_token(image, user, token_id))

    async def end_session(self, user: str, session_id: str, expires_ms: int) -> None:
        """End a session of a browser, at all gateways."""
        await self._changes.confirm()
        await self._changes.make(lambda image: end_session(image, user, session_id, expires_ms))
