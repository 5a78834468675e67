"""Power losses that were once handled wrongly."""

from __future__ import annotations

import random

import pytest
from log_helpers import append, checkpoint, flush, open_manager, read_all, the_log
from test_log_model import LogMachine

from simulation.machine.disk import SimulatedDisk
from simulation.machine.trace import Trace


def test_removed_empty_segment_does_not_come_back() -> None:
    """Its removal was not durable: a later power loss brought the file back into a log that had stopped cleanly."""
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


def test_files_removed_below_the_log_start_do_not_come_back() -> None:
    machine = LogMachine()
    machine.start(seed=0)
    machine.append(count=1, size=0, shift=0, producer=0)
    machine.crash()
    machine.delete_records(part=1.0)
    machine.begin_delete()
    machine.crash()
    machine.stop_cleanly()
    machine.reads_are_what_was_appended()


@pytest.mark.parametrize("seed", range(8))
def test_name_of_an_empty_segment_after_a_crash_becomes_durable(seed: int) -> None:
    """Later appends go there and are flushed; without a durable name they would all be lost."""
    disk = SimulatedDisk(random.Random(1), Trace(lambda: 0.0))
    manager = open_manager(disk)
    log = the_log(manager)
    append(log, b"first")
    checkpoint(log)
    manager.write_checkpoints()
    disk.open(f"{log.directory}/{1:020d}.log", create=True)  # a roll, during which the process dies
    disk = disk.process_crash()
    log = the_log(open_manager(disk))
    append(log, b"second")
    flush(log)
    disk = disk.power_loss(random.Random(seed))
    assert read_all(the_log(open_manager(disk))) == [(0, b"first"), (1, b"second")]
