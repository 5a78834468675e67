"""A crash or power loss at every single disk operation of a log, and of the recovery after it."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
from log_helpers import NOW_MS, append, checkpoint, flush, open_manager, read_all, the_log

from penstock.model import BrokerEpoch, LeaderEpoch, Offset
from penstock.storage.log import Log
from penstock.storage.log_config import LogConfig
from simulation.machine.disk import SimulatedDisk
from simulation.machine.process import SimulatedCrash
from simulation.machine.trace import Trace

CONFIG = LogConfig(segment_bytes=500, index_interval_bytes=120)


class Life:
    """The operations on a log, with the records that must survive and those that may."""

    def __init__(self) -> None:
        self.values: list[bytes] = []
        """Appended values, and the one that is being appended."""
        self.safe = 0
        """Number of acknowledged values."""
        self.start_kept = 0
        self.start_wanted = 0

    def run(self, disk: SimulatedDisk) -> None:
        manager = open_manager(disk)
        log = the_log(manager, CONFIG)
        self.fill(log, 10)
        flush(log)
        self.safe = log.flushed_offset
        checkpoint(log)
        self.safe = log.flushed_offset
        manager.write_checkpoints()
        self.fill(log, 6)
        flush(log)
        self.safe = log.flushed_offset
        self.delete_records(log, 7, lambda: manager.write_checkpoints(both=True))
        self.fill(log, 3)
        self.truncate(log, 14, lambda: manager.truncate(log, Offset(14), NOW_MS))
        self.fill(log, 8)
        checkpoint(log)
        self.safe = log.flushed_offset
        self.fill(log, 2)
        manager.close(BrokerEpoch(2))

    def fill(self, log: Log, count: int) -> None:
        for _ in range(count):
            epoch = LeaderEpoch(1 if log.leader_epochs.latest < 1 else log.leader_epochs.latest)
            self.values.append(b"value %d/%d" % (len(self.values), epoch))
            append(log, self.values[-1], epoch=epoch, timestamp=NOW_MS + len(self.values))

    def delete_records(self, log: Log, offset: int, keep: Callable[[], None]) -> None:
        self.start_wanted = offset
        log.advance_log_start(Offset(offset))
        keep()
        self.start_kept = offset
        job = log.jobs.begin_delete()
        assert job is not None
        job.work()
        log.jobs.finish_delete(job)

    def truncate(self, log: Log, offset: int, cut: Callable[[], None]) -> None:
        self.safe = min(self.safe, offset)
        cut()
        del self.values[offset:]
        log.assign_epoch(LeaderEpoch(log.leader_epochs.latest + 1))

    def check(self, log: Log) -> None:
        assert self.safe <= log.log_end_offset <= len(self.values)
        assert self.start_kept <= log.log_start_offset <= self.start_wanted
        expected = list(enumerate(self.values))[log.log_start_offset : log.log_end_offset]
        assert read_all(log) == expected
        for offset, _ in expected[::4]:
            found = log.find_timestamp(NOW_MS + offset + 1, log.log_end_offset)
            assert found is not None
            assert found.offset == offset


def new_disk(seed: int) -> SimulatedDisk:
    return SimulatedDisk(random.Random(seed), Trace(lambda: 0.0))


def operations() -> int:
    """The number of disk operations in the whole sequence."""
    trace = Trace(lambda: 0.0)
    Life().run(SimulatedDisk(random.Random(0), trace))
    return trace.events


def live_until(place: int, seed: int) -> tuple[Life, SimulatedDisk]:
    disk, life = new_disk(seed), Life()
    disk.faults.crash_after(place)
    with pytest.raises(SimulatedCrash):
        life.run(disk)
    disk.faults.heal()
    return life, disk


def die(disk: SimulatedDisk, power: bool, seed: int) -> SimulatedDisk:
    return disk.power_loss(random.Random(seed)) if power else disk.process_crash()


@pytest.mark.slow
@pytest.mark.parametrize("power", [False, True], ids=["crash", "power loss"])
@pytest.mark.parametrize("seed", range(3))
def test_crash_at_any_operation_keeps_acknowledged_records(power: bool, seed: int) -> None:
    for place in range(1, operations()):
        life, disk = live_until(place, seed)
        for turn in range(3):
            disk = die(disk, power, seed * 1000 + place + turn)
            log = the_log(open_manager(disk), CONFIG)
            life.check(log)
            life.safe = log.log_end_offset
            life.start_kept = log.log_start_offset
            del life.values[log.log_end_offset :]
        life.fill(log, 4)
        life.check(log)


@pytest.mark.slow
@pytest.mark.parametrize("power", [False, True], ids=["crash", "power loss"])
def test_crash_at_any_operation_of_recovery_keeps_acknowledged_records(power: bool) -> None:
    for place in range(3, operations(), 11):
        step = 1
        while True:
            life, disk = live_until(place, seed=place)
            disk = die(disk, power, place)
            disk.faults.crash_after(step)
            try:
                open_manager(disk)
                finished = True
            except SimulatedCrash:
                finished = False
            disk.faults.heal()
            disk = die(disk, power, place + step)
            life.check(the_log(open_manager(disk), CONFIG))
            if finished:
                break
            step += 3
