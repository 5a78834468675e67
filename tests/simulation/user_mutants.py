"""Planted bugs in changes of users and their rights."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any
from unittest.mock import patch

from planting import planted_in_cluster

from penstock.cluster import acls, users
from penstock.cluster.coordination import Set
from penstock.cluster.metadata_change import NO_SCOPE


@planted_in_cluster("user", needs={"user credentials"})
def changes_of_users_are_not_announced() -> AbstractContextManager[Any]:
    """Other brokers do not hear of a changed user."""
    return patch.object(users, "Scope", lambda **_: NO_SCOPE)


@planted_in_cluster("user", needs={"user credentials"})
def users_are_written_without_their_version() -> AbstractContextManager[Any]:
    """A change overwrites one that another broker made in between."""
    return patch.object(users, "Set", lambda path, data, _: Set(path, data))


@planted_in_cluster("rule", needs={"access rules"})
def changes_of_rules_are_not_announced() -> AbstractContextManager[Any]:
    """Other brokers do not hear of a changed rule."""
    return patch.object(acls, "Scope", lambda **_: NO_SCOPE)
