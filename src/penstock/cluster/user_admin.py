"""Changes of users other than SCRAM credentials: enabled or disabled, access tokens, ended browser sessions."""

from __future__ import annotations

from random import Random  # noqa: TID251 - the type; the numbers come from the caller

from penstock.cluster.change_maker import ChangeMaker
from penstock.cluster.users import add_token, end_session, remove_token, set_disabled
from penstock.security.access_token import TokenRecord


class UserAdministration:
    """Administration of users. Every method raises BrokerError; RESOURCE_NOT_FOUND if the user does not
    exist.

    A change that the image already shows is not written. Each method therefore waits first until the image
    has every acknowledged change.
    """

    def __init__(self, changes: ChangeMaker, random: Random) -> None:
        self._changes = changes
        self._random = random

    async def set_disabled(self, user: str, is_disabled: bool) -> None:
        """Disable or enable a user. If the user is in that state already, nothing changes and its sessions stay."""
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
        """End a browser session at all gateways."""
        await self._changes.confirm()
        await self._changes.make(lambda image: end_session(image, user, session_id, expires_ms))
