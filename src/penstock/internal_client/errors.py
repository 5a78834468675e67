"""The failure of a change whose response was lost."""

from __future__ import annotations

from penstock.errors import PenstockError


class OutcomeUnknown(PenstockError):
    """A change was sent and its response was lost: the change may or may not have been made."""
