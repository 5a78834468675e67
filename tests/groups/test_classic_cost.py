"""Cost of requests to a large classic group: independent of its size, unless all members get a response."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from classic_driver import DELAY_MS, Driver

from penstock.errors import ErrorCode
from penstock.groups.classic.members import ClassicGroupMember, ClassicMembers
from penstock.groups.group import GroupState

MEMBERS = 300


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Counts iterations over all members."""
    walks: list[int] = []
    walk = ClassicMembers.__iter__

    def counted(members: ClassicMembers) -> Iterator[ClassicGroupMember]:
        walks.append(len(members))
        return walk(members)

    monkeypatch.setattr(ClassicMembers, "__iter__", counted)
    return walks


def test_join_of_a_new_member_does_not_iterate_over_members(looks: list[int]) -> None:
    group = Driver()
    group.ask_join()
    looks.clear()
    for _ in range(MEMBERS):
        pending = group.join(two_step=True).member_id
        group.ask_join(pending)
    assert looks == []


def test_rejoin_does_not_iterate_over_members_until_the_last(looks: list[int]) -> None:
    group = Driver()
    members = group.stable(MEMBERS)
    group.ask_join(members[0])
    looks.clear()
    for member in members[1:-1]:
        group.ask_join(member)
    assert looks == []
    group.ask_join(members[-1])
    assert 0 < len(looks) < 10


def test_heartbeat_commit_and_sync_do_not_iterate_over_members(looks: list[int]) -> None:
    group = Driver()
    members = group.stable(MEMBERS)
    looks.clear()
    for member in members:
        assert group.heartbeat(member, 1) is ErrorCode.none
        assert group.commit(member, 1) is ErrorCode.none
        assert group.sync(member, 1).error is ErrorCode.none
        if member != members[0]:
            assert group.join(member).generation == 1
    assert looks == []


def test_removal_of_many_members_iterates_over_members_once_per_phase(looks: list[int]) -> None:
    group = Driver()
    members = group.stable(MEMBERS)
    looks.clear()
    for member in members[:-1]:
        group.leave((member, None))
    assert len(looks) < 10
    group = Driver()
    group.stable(MEMBERS)
    looks.clear()
    group.advance(DELAY_MS * 100)
    assert group.state is GroupState.EMPTY
    assert len(looks) < 10
