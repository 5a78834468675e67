"""A process kill at every single disk operation: within one boot it leaves neither damage nor a lost partition."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
from compaction_helpers import compact, compacting, put, roll
from log_helpers import EPOCH, NOW_MS, append, checkpoint, flush, make_batch, open_manager, the_log

from penstock.model import BrokerEpoch, LeaderEpoch, Offset
from penstock.records.batch import assign
from penstock.storage.log import Log
from penstock.storage.log_config import LogConfig
from penstock.storage.log_manager import LogManager
from simulation.machine.disk import SimulatedDisk
from simulation.machine.process import SimulatedCrash
from simulation.machine.trace import Trace

CONFIG = LogConfig(segment_bytes=300, index_interval_bytes=100)
BOOT = "boot"


def fetch(log: Log, *offsets: int) -> None:
    """Append batches of one record as a follower, with the offsets that the leader gave them."""
    content = bytearray()
    for offset in offsets:
        batch = make_batch([b"%d" % offset])
        assign(batch, Offset(offset), EPOCH)
        content += batch
    log.append_as_follower(memoryview(content), LeaderEpoch(EPOCH + 1), NOW_MS)


def keep(manager: LogManager, log: Log) -> None:
    flush(log)
    checkpoint(log)
    manager.write_checkpoints()


def delete(manager: LogManager, log: Log, offset: int) -> None:
    log.advance_log_start(Offset(offset))
    manager.write_checkpoints(both=True)
    job = log.jobs.begin_delete()
    assert job is not None
    job.work()
    log.jobs.finish_delete(job)


def truncate_closed_segments(manager: LogManager) -> None:
    log = the_log(manager, CONFIG)
    fetch(log, *range(20))
    keep(manager, log)
    fetch(log, *range(20, 30))
    manager.truncate(log, Offset(6), NOW_MS)
    fetch(log, *range(6, 12))
    keep(manager, log)


def truncate_below_the_first_segment(manager: LogManager) -> None:
    log = the_log(manager, CONFIG)
    manager.restart(log, Offset(50), NOW_MS)
    fetch(log, *range(100, 120))
    keep(manager, log)
    manager.truncate(log, Offset(50), NOW_MS)
    fetch(log, *range(50, 60))


def restart_above_the_end(manager: LogManager) -> None:
    log = the_log(manager, CONFIG)
    fetch(log, *range(20))
    keep(manager, log)
    manager.restart(log, Offset(1000), NOW_MS)
    fetch(log, *range(1000, 1010))
    keep(manager, log)


def delete_old_segments(manager: LogManager) -> None:
    log = the_log(manager, CONFIG)
    for number in range(20):
        append(log, b"%d" % number)
    keep(manager, log)
    delete(manager, log, 9)
    for number in range(20, 30):
        append(log, b"%d" % number)
    delete(manager, log, 30)
    append(log, b"30")


def compact_segments(manager: LogManager) -> None:
    log = the_log(manager, compacting())
    for number in range(20):
        put(log, (b"key %d" % (number % 3), b"%d" % number))
    roll(log)
    manager.write_checkpoints()
    assert compact(log, manager.context.files)
    manager.write_checkpoints()
    put(log, (b"key 1", b"new"))
    roll(log)
    assert compact(log, manager.context.files)


def follow_with_gaps(manager: LogManager) -> None:
    log = the_log(manager, CONFIG)
    fetch(log, 700, 705, 706, 900, 901, 2000, 2001, 2002)
    keep(manager, log)
    fetch(log, 2003, 2009, 3000, 3001, 3002, 3003)


LIVES = [
    truncate_closed_segments,
    truncate_below_the_first_segment,
    restart_above_the_end,
    delete_old_segments,
    compact_segments,
    follow_with_gaps,
]


def run(life: Callable[[LogManager], None], disk: SimulatedDisk) -> None:
    manager = open_manager(disk, BOOT)
    manager.record_use(BrokerEpoch(1))
    life(manager)
    manager.close(BrokerEpoch(1))


@pytest.mark.slow
@pytest.mark.parametrize("life", LIVES, ids=lambda life: life.__name__)
def test_process_kill_at_any_operation_is_neither_damage_nor_loss(life: Callable[[LogManager], None]) -> None:
    trace = Trace(lambda: 0.0)
    run(life, SimulatedDisk(random.Random(0), trace))
    failures = []
    for place in range(1, trace.events):
        disk = SimulatedDisk(random.Random(place), Trace(lambda: 0.0))
        disk.faults.crash_after(place)
        with pytest.raises(SimulatedCrash):
            run(life, disk)
        disk.faults.heal()
        for _ in range(2):
            disk = disk.process_crash()
            manager = open_manager(disk, BOOT)
            if manager.lost_partitions or any(log.damage for log in manager):
                failures.append((place, manager.reports))
                break
            manager.record_use(BrokerEpoch(2))
    assert failures == []
