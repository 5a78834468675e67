"""Planted bugs in changes of users."""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any
from unittest.mock import patch

from planting import planted_in_cluster

from penstock.cluster import users
from penstock.cluster.coordination import Delete, Set
from penstock.cluster.metadata_change import NO_SCOPE
from penstock.security.user import User


@planted_in_cluster("user", needs={"user credentials"})
def changes_of_users_are_not_announced() -> AbstractContextManager[Any]:
    """Other brokers do not hear of a changed user."""
    return patch.object(users, "Scope", lambda **_: NO_SCOPE)


@planted_in_cluster("user", needs={"user credentials"})
def users_are_written_without_their_version() -> AbstractContextManager[Any]:
    """A change that was decided from an old image replaces a newer one, and a deleted user comes back."""
    write = users.write_user

    def write_always(before: User, after: User) -> Any:
        operation = write(before, after)
        return replace(operation, version=-1) if isinstance(operation, Set | Delete) else operation

    return patch.object(users, "write_user", write_always)
