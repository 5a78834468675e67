"""Power losses that a search found to be handled wrongly once."""

from __future__ import annotations

from test_log_model import LogMachine


def test_an_empty_segment_that_recovery_removes_does_not_come_back() -> None:
    """Its removal was not made durable: a later power loss brought the file back into a log that stopped cleanly."""
    machine = LogMachine()
    machine.start(seed=2)
    machine.append(count=1, size=73, shift=0, producer=0)
    machine.stop_cleanly()
    machine.append(count=3, size=75, shift=0, producer=0)
    machine.append(count=4, size=31, shift=0, producer=0)
    machine.lose_power(seed=4_294_967_296)
    machine.stop_cleanly()
    machine.reads_are_what_was_appended()
    assert machine.manager.reports == []
