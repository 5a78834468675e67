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
    """Random id that changes with the password and with `is_disabled`: connections and sessions that began with
    another one have ended.
    """
    is_disabled: bool = False
    tokens: Mapping[str, TokenRecord] = field(default_factory=dict)
    """Access tokens by id."""
    ended_sessions: Mapping[str, int] = field(default_factory=dict)
    """Sessions of browsers that have logged out, by id, with the time at which each would have expired."""
    sessions_ended_until_ms: int = 0
    """All sessions that would have expired by this time have ended."""
    version: int = -1
    """Version of the user's node; -1 if it does not exist."""

    def has_ended(self, session_id: str, expires_ms: int) -> bool:
        """Whether a session of a browser was ended before its time."""
        return session_id in self.ended_sessions or expires_ms <= self.sessions_ended_until_ms
