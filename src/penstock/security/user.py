"""User of the cluster as the coordination store has it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from penstock.security.access_token import TokenRecord
from penstock.security.scram import ScramMechanism, ScramRecord


@dataclass(frozen=True, slots=True)
class User:
    name: str
    scram: Mapping[ScramMechanism, ScramRecord] = field(default_factory=dict)
    credential: str = ""
    """Random id that changes when the password or `is_disabled` changes. Connections and sessions that began
    with another id end.
    """
    is_disabled: bool = False
    tokens: Mapping[str, TokenRecord] = field(default_factory=dict)
    """Access tokens by id."""
    ended_sessions: Mapping[str, int] = field(default_factory=dict)
    """Browser sessions that have ended before they expired, by id, with the time at which each would have expired."""
    sessions_ended_until_ms: int = 0
    """Sessions that would have expired by this time count as ended. Milliseconds since the epoch."""
    version: int = -1
    """Version of the user's node; -1 if it does not exist."""

    def has_ended(self, session_id: str, expires_ms: int) -> bool:
        """True if a browser session was ended before its expiry."""
        return session_id in self.ended_sessions or expires_ms <= self.sessions_ended_until_ms
