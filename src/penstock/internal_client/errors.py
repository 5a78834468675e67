"""Error for a change whose response was lost."""

from __future__ import annotations

from penstock.errors import PenstockError


class OutcomeUnknown(PenstockError):
    """A change was sent but its response was lost, so the change may or may not have been made."""
