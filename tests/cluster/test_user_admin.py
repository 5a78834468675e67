"""Changes of users at a broker whose image is old: they are decided from what other brokers have acknowledged."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import Any, cast

import pytest

from penstock.cluster.change_maker import ChangeMaker
from penstock.cluster.coordination import Set
from penstock.cluster.image import ClusterImage
from penstock.cluster.metadata_change import MetadataChange
from penstock.cluster.user_admin import UserAdministration
from penstock.cluster.user_nodes import decode_user, encode_user
from penstock.cluster.users import MAX_ENDED_SESSIONS, end_session
from penstock.security.access_token import TokenRecord
from penstock.security.scram import ScramMechanism, ScramRecord
from penstock.security.user import User

RECORD = ScramRecord(b"salt", 4_096, b"stored", b"server")
TOKEN = TokenRecord(b"d" * 32, 1, 0, "")
ALICE = User("alice", {ScramMechanism.SHA_256: RECORD}, "1", version=0)
IMAGE = ClusterImage("cluster")


class OldImage:
    """A broker that hears of a changed user when it asks the store."""

    def __init__(self, before: User, after: User) -> None:
        self._image = replace(IMAGE, users={before.name: before})
        self._after = replace(IMAGE, users={after.name: after})
        self.writes = 0

    async def confirm(self) -> None:
        self._image = self._after

    async def make(self, decide: Callable[[ClusterImage], MetadataChange[Any]]) -> None:
        self.writes += len(decide(self._image).writes.visible)


def writes(before: User, after: User, change: Callable[[UserAdministration], Any]) -> int:
    broker = OldImage(before, after)
    asyncio.run(change(UserAdministration(cast(ChangeMaker, broker), Random(1))))
    return broker.writes


def test_token_of_another_broker_is_revoked() -> None:
    after = replace(ALICE, tokens={"11": TOKEN}, version=1)
    assert writes(ALICE, after, lambda users: users.remove_token("alice", "11")) == 1


def test_revoked_token_is_added_again() -> None:
    before = replace(ALICE, tokens={"11": TOKEN})
    assert writes(before, replace(ALICE, version=1), lambda users: users.add_token("alice", "11", TOKEN)) == 1


def test_user_that_another_broker_enabled_is_disabled() -> None:
    before = replace(ALICE, is_disabled=True)
    assert writes(before, replace(ALICE, version=1), lambda users: users.set_disabled("alice", True)) == 1


def test_ended_sessions_survive_the_node() -> None:
    user = ended(ended(ALICE, "s1", 50), "s2", 70)
    assert user.has_ended("s1", 50)
    assert not user.has_ended("s3", 50)
    assert decode_user("alice", encode_user(user), user.version) == user


def test_ended_sessions_stay_ended_when_there_are_many() -> None:
    user = ALICE
    for number in range(5 * MAX_ENDED_SESSIONS):
        user = ended(user, f"s{number}", 1_000 + number)
        assert len(user.ended_sessions) <= MAX_ENDED_SESSIONS
    assert all(user.has_ended(f"s{number}", 1_000 + number) for number in range(5 * MAX_ENDED_SESSIONS))
    assert not user.has_ended("new", 1_000 + 5 * MAX_ENDED_SESSIONS)


def ended(user: User, session_id: str, expires_ms: int) -> User:
    change = end_session(replace(IMAGE, users={"alice": user}), "alice", session_id, expires_ms)
    (write,) = change.writes.visible
    assert isinstance(write, Set)
    return decode_user("alice", write.data, user.version)


def test_repeated_change_writes_nothing() -> None:
    disabled = replace(ALICE, is_disabled=True)
    assert writes(disabled, disabled, lambda users: users.set_disabled("alice", True)) == 0
    assert writes(ALICE, ALICE, lambda users: users.remove_token("alice", "11")) == 0


@pytest.mark.parametrize(
    "check",
    [
        test_token_of_another_broker_is_revoked,
        test_revoked_token_is_added_again,
        test_user_that_another_broker_enabled_is_disabled,
    ],
)
def test_change_of_a_user_that_is_decided_from_an_old_image_is_noticed(
    monkeypatch: pytest.MonkeyPatch, check: Callable[[], None]
) -> None:
    check()

    async def confirm(self: OldImage) -> None:
        pass

    monkeypatch.setattr(OldImage, "confirm", confirm)
    with pytest.raises(AssertionError):
        check()
