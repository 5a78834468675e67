"""JoinGroup of classic groups: who is let in, when a join is answered, and with what."""

from __future__ import annotations

from classic_driver import DELAY_MS, Driver

from penstock.errors import ErrorCode
from penstock.groups.group import GroupState


def test_the_first_member_waits_for_the_initial_delay_and_leads() -> None:
    group = Driver()
    ticket = group.ask_join()
    group.advance(DELAY_MS - 1)
    assert group.waits(ticket)
    assert group.state is GroupState.PREPARING_REBALANCE
    group.advance(1)
    result = group.joined(ticket)
    assert (result.error, result.generation, result.leader) == (ErrorCode.none, 1, result.member_id)
    assert result.members == ((result.member_id, None, b"meta"),)
    assert (result.protocol_type, result.protocol_name) == ("consumer", "range")
    assert group.state is GroupState.COMPLETING_REBALANCE
